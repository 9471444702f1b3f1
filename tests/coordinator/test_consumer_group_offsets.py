"""What others ask of consumer groups: offsets, descriptions, lists (CGP-46 to CGP-51, 57, 58)."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator.consumer_kit import INTERVAL_MS, Client, ConsumerRig, settle, topic_id

from kraftpy.coordinator.groups.group import GroupType
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

# Versions of OffsetCommit from which on it has member epochs, and topic ids.
EPOCHS = 9
IDS = 10


def commit(
    rig: ConsumerRig,
    member_id: str,
    epoch: int,
    *partitions: int,
    version: int = EPOCHS,
    topic: str = "t",
) -> list[ErrorCode]:
    """Commit an offset for each of the partitions; the errors, or the one of the request."""
    request = OffsetCommitRequest(
        group_id="g",
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id(topic) if version >= IDS else ZERO_UUID,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=each, committed_offset=7)
                    for each in partitions or (0,)
                ],
            )
        ],
    )
    waiting = rig.write(lambda machine: machine.offsets.commit(request, version))
    rig.commit()
    reply = waiting.replies[0]
    if isinstance(reply, CoordinatorError):
        return [reply.code]
    return [ErrorCode(each.error_code) for each in reply.topics[0].partitions]


def one_of_two(rig: ConsumerRig) -> tuple[Client, Client]:
    """Two members; the first has had partitions 0 and 1 since epoch 1, and 3 had the second."""
    first, second = Client(rig, "a", ["t"]), Client(rig, "b", ["t"])
    first.join()
    rig.clock.now_ms += INTERVAL_MS
    second.join()
    settle([first, second], 4)
    assert (first.epoch, second.epoch) == (2, 2)
    return first, second


class TestCommits:
    def test_epochs(self) -> None:
        """CGP-46."""
        rig = ConsumerRig({"t": 4})
        first, _ = one_of_two(rig)
        (owned, *_) = sorted(first.owned["t"])
        assert commit(rig, "a", 2, owned) == [ErrorCode.NONE]
        assert commit(rig, "a", 3, owned) == [ErrorCode.STALE_MEMBER_EPOCH]
        assert commit(rig, "c", 2, owned) == [ErrorCode.UNKNOWN_MEMBER_ID]

    @pytest.mark.parametrize("version", [EPOCHS, IDS])
    def test_an_older_epoch(self, version: int) -> None:
        """CGP-47: only for partitions that the member has had since then."""
        rig = ConsumerRig({"t": 4})
        first, second = one_of_two(rig)
        kept, not_its_own = min(first.owned["t"]), min(second.owned["t"])
        assert commit(rig, "a", 1, kept, version=version) == [ErrorCode.NONE]
        stale = [ErrorCode.STALE_MEMBER_EPOCH]
        assert commit(rig, "a", 0, kept, version=version) == stale
        assert commit(rig, "a", 1, not_its_own, version=version) == stale
        assert commit(rig, "b", 1, not_its_own, version=version) == stale
        assert commit(rig, "b", 2, not_its_own, version=version) == [ErrorCode.NONE]

    def test_an_older_epoch_and_a_topic_that_is_gone(self) -> None:
        """CGP-47."""
        rig = ConsumerRig({"t": 4, "u": 1})
        client = Client(rig, "a", ["t", "u"])
        client.join()
        rig.clock.now_ms += INTERVAL_MS
        client.beat(subscribed_topic_names=["t"])
        rig.change_topics(u=0)
        settle([client], 2)
        assert client.epoch > 1
        assert commit(rig, "a", 1, topic="u") == [ErrorCode.STALE_MEMBER_EPOCH]

    def test_what_is_about_to_be_given_up(self) -> None:
        """CGP-47: it may be committed, to leave it in order."""
        rig = ConsumerRig({"t": 4})
        first = Client(rig, "a", ["t"])
        first.join()
        rig.clock.now_ms += INTERVAL_MS
        Client(rig, "b", ["t"]).join()
        first.beat()
        (pending,) = rig.member("a").current.pending_revocation.values()
        assert commit(rig, "a", 1, *sorted(pending)) == [ErrorCode.NONE] * 2

    def test_old_versions(self) -> None:
        """CGP-48."""
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        assert commit(rig, "a", 1, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
        assert commit(rig, "a", 1, version=9) == [ErrorCode.NONE]

    def test_without_being_a_member(self) -> None:
        """CGP-49."""
        rig = ConsumerRig({"t": 4})
        client = Client(rig, "a", ["t"])
        client.join()
        assert commit(rig, "", -1) == [ErrorCode.UNKNOWN_MEMBER_ID]
        client.leave()
        assert commit(rig, "", -1) == [ErrorCode.NONE]

    def test_commits_prolong_no_session(self) -> None:
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        for _ in range(10):
            commit(rig, "a", 1)
            rig.advance(5000)
        assert rig.group().is_empty


class TestTransactionalCommits:
    """CGP-50."""

    @staticmethod
    def validate(rig: ConsumerRig, member_id: str, epoch: int) -> Any:
        return rig.group().validate_offset_commit(
            member_id, None, epoch, is_transactional=True, api_version=0
        )

    def test_who_may(self) -> None:
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        assert self.validate(rig, "a", 1) is None
        assert self.validate(rig, "", -1) is None

    @pytest.mark.parametrize("epoch", [2, 0])
    def test_who_is_out_of_date(self, epoch: int) -> None:
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        with pytest.raises(CoordinatorError) as error:
            self.validate(rig, "a", epoch)("t", topic_id("t"), 0)
        assert error.value.code is ErrorCode.ILLEGAL_GENERATION

    def test_who_is_unknown(self) -> None:
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        with pytest.raises(CoordinatorError) as error:
            self.validate(rig, "b", 1)
        assert error.value.code is ErrorCode.UNKNOWN_MEMBER_ID


class TestFetches:
    """CGP-51."""

    def test_members_and_administrators(self) -> None:
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        rig.group().validate_committed_offset_fetch("a", 1)
        rig.group().validate_committed_offset_fetch(None, -1)

    @pytest.mark.parametrize(
        ("member_id", "epoch", "code"),
        [
            ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
            (None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
            ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ],
    )
    def test_others(self, member_id: str | None, epoch: int, code: ErrorCode) -> None:
        rig = ConsumerRig({"t": 4})
        Client(rig, "a", ["t"]).join()
        with pytest.raises(CoordinatorError) as error:
            rig.group().validate_committed_offset_fetch(member_id, epoch)
        assert error.value.code is code

    def test_only_what_is_committed_counts(self) -> None:
        rig = ConsumerRig({"t": 4}, commits_at_once=False)
        rig.heartbeat(**Client(rig, "a", ["t"]).full_request())
        with pytest.raises(CoordinatorError):
            rig.group().validate_committed_offset_fetch("a", 1)
        rig.commit()
        rig.group().validate_committed_offset_fetch("a", 1)


class TestDescribing:
    def test_fields(self) -> None:
        """CGP-57."""
        rig = ConsumerRig({"t": 2})
        clients = [
            Client(rig, "a", ["t"], instance="i", rack_id="r"),
            Client(rig, "b", regex="t", server_assignor="range"),
        ]
        for client in clients:
            client.join()
        settle(clients, 4)
        [group] = rig.consumers.describe(["g"])
        assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
        assert (group.group_epoch, group.assignment_epoch) == (2, 2)
        assert group.assignor_name == "range"
        first, second = sorted(group.members, key=lambda member: member.member_id)
        assert (first.member_id, first.instance_id, first.rack_id) == ("a", "i", "r")
        assert (first.member_epoch, first.client_id, first.client_host) == (2, "client", "/host")
        assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], None)
        assert (second.subscribed_topic_names, second.subscribed_topic_regex) == ([], "t")
        for member, partition in ((first, 0), (second, 1)):
            for assignment in (member.assignment, member.target_assignment):
                [topic] = assignment.topic_partitions
                assert (topic.topic_name, topic.topic_id) == ("t", topic_id("t"))
                assert topic.partitions == [partition]
            assert member.member_type == 1

    def test_topics_that_are_gone_are_left_out(self) -> None:
        """CGP-57."""
        rig = ConsumerRig({"t": 2, "u": 1})
        Client(rig, "a", ["t", "u"]).join()
        rig.change_topics(u=0)
        [group] = rig.consumers.describe(["g"])
        [member] = group.members
        assert [each.topic_name for each in member.assignment.topic_partitions] == ["t"]

    def test_only_what_is_committed(self) -> None:
        rig = ConsumerRig({"t": 2}, commits_at_once=False)
        rig.heartbeat(**Client(rig, "a", ["t"]).full_request())
        [group] = rig.consumers.describe(["g"])
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        rig.commit()
        rig.heartbeat(**Client(rig, "b", ["t"]).full_request())
        [group] = rig.consumers.describe(["g"])
        assert [member.member_id for member in group.members] == ["a"]
        assert (group.group_epoch, group.group_state) == (1, "Stable")

    def test_groups_that_are_not_there(self) -> None:
        rig = ConsumerRig({"t": 2})
        [group] = rig.consumers.describe(["nowhere"])
        assert (group.group_id, group.error_code) == ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND)
        assert group.error_message

    def test_a_protocol_that_is_not_offered(self) -> None:
        rig = ConsumerRig({"t": 2}, settings=GroupSettings(protocols=("classic",)))
        with pytest.raises(CoordinatorError) as error:
            rig.consumers.describe(["g"])
        assert error.value.code is ErrorCode.UNSUPPORTED_VERSION

    @pytest.mark.parametrize(
        ("version", "code", "state"),
        [(5, ErrorCode.NONE, "Dead"), (6, ErrorCode.GROUP_ID_NOT_FOUND, "Dead")],
    )
    def test_to_the_classic_api_it_is_not_there(
        self, version: int, code: ErrorCode, state: str
    ) -> None:
        rig = ConsumerRig({"t": 2})
        Client(rig, "a", ["t"]).join()
        [group] = rig.machine.listing.describe(["g"], version)
        assert (group.error_code, group.group_state) == (code, state)


class TestListing:
    @pytest.mark.parametrize(
        ("states", "kinds", "is_listed"),
        [
            ([], [], True),
            (["STABLE"], ["consumer"], True),
            (["stable", "empty"], ["CONSUMER", "classic"], True),
            (["Empty"], [], False),
            ([], ["Classic"], False),
        ],
    )
    def test_filters(self, states: list[str], kinds: list[str], is_listed: bool) -> None:
        """CGP-58."""
        rig = ConsumerRig({"t": 2})
        Client(rig, "a", ["t"]).join()
        listed = rig.machine.listing.listed(states, kinds)
        assert [each.group_id for each in listed] == (["g"] if is_listed else [])
        for each in listed:
            assert (each.group_state, each.group_type, each.protocol_type) == (
                "Stable",
                GroupType.CONSUMER,
                "consumer",
            )


class TestTopicsInUse:
    def test_names_and_patterns(self) -> None:
        rig = ConsumerRig({"t": 2, "u": 1})
        client = Client(rig, "a", ["t"], regex="u")
        client.join()
        group = rig.group()
        assert [group.is_subscribed_to(topic) for topic in "tuv"] == [True, True, False]
        client.leave()
        assert not group.is_subscribed_to("t")
        assert not group.is_subscribed_to("u")

    def test_offsets_age_from_their_commit(self) -> None:
        rig = ConsumerRig({"t": 2})
        Client(rig, "a", ["t"]).join()
        assert rig.group().offset_retention_base_ms(17) == 17
