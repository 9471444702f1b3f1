"""OffsetCommit, OffsetFetch and OffsetDelete as clients of every version see them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from api.group_rig import GroupRig
from api.image_cluster import topic_id
from api.test_group_members import stable, versions

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftpy.protocol.schema.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kraftpy.protocol.schema.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

UNKNOWN_ID = Uuid(b"no such topic id")


def commit_request(
    version: int, group_id: str, *partitions: tuple[str, int, int], **fields: Any
) -> OffsetCommitRequest:
    """Partitions by topic, number and offset."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for name, index, offset in partitions:
        by_id = version >= 10
        topic = topics.setdefault(
            name,
            OffsetCommitRequestTopic(
                name="" if by_id else name, topic_id=_id(name) if by_id else ZERO_UUID
            ),
        )
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=f"at {offset}"
            )
        )
    return OffsetCommitRequest(group_id=group_id, topics=list(topics.values()), **fields)


def _id(name: str) -> Uuid:
    return topic_id(name) if name in ("t", "u") else UNKNOWN_ID


def committed(rig: GroupRig, version: int, *args: Any, **fields: Any) -> list[tuple[int, int]]:
    answer = rig.ask(commit_request(version, *args, **fields), version)
    return [
        (each.partition_index, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ]


def fetched(
    rig: GroupRig,
    version: int,
    group_id: str,
    *partitions: tuple[str, int],
    is_everything: bool = False,
    **fields: Any,
) -> Any:
    """The answer of a single group, in the shape of version 8."""
    if version < 8:
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=[index])
            for name, index in partitions
        ]
        request = OffsetFetchRequest(
            group_id=group_id, topics=None if is_everything else topics, **fields
        )
        return rig.ask(request, version)
    named = [
        OffsetFetchRequestTopics(
            name="" if version >= 10 else name,
            topic_id=_id(name) if version >= 10 else ZERO_UUID,
            partition_indexes=[index],
        )
        for name, index in partitions
    ]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None if is_everything else named)
    (answer,) = rig.ask(OffsetFetchRequest(groups=[group], **fields), version).groups
    return answer


def rows(answer: Any) -> list[tuple[int, int, str | None, int]]:
    return [
        (each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", versions(8))
def test_commit(version: int) -> None:
    """GRP-53: what does not exist fails for itself."""
    rig = GroupRig()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    no_topic = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else unknown
    assert committed(
        rig, version, "g", ("t", 1, 10), ("t", 3, 11), ("t", -1, 12), ("none", 0, 13), ("u", 0, 14)
    ) == [(1, 0), (3, unknown), (-1, unknown), (0, no_topic), (0, 0)]
    answer = fetched(rig, 9, "g", ("t", 1), ("u", 0), ("t", 0))
    assert rows(answer) == [(1, 10, "at 10", 0), (0, 14, "at 14", 0), (0, -1, "", 0)]


@pytest.mark.parametrize("version", versions(8))
def test_the_topics_of_an_answer(version: int) -> None:
    rig = GroupRig()
    answer = rig.ask(commit_request(version, "g", ("t", 0, 1)), version)
    (topic,) = answer.topics
    assert (topic.name, topic.topic_id) == (
        ("", topic_id("t")) if version >= 10 else ("t", ZERO_UUID)
    )


def test_nothing_that_exists() -> None:
    """No coordinator is asked."""
    rig = GroupRig()
    rig.runtime.resigned(rig.partition_of("g"), 1)
    assert committed(rig, 9, "g", ("none", 0, 1)) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("version", versions(8))
def test_a_commit_that_is_refused(version: int) -> None:
    """GRP-54: every partition that exists gets the error."""
    rig = GroupRig()
    stable(rig)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(rig, version, "g", ("t", 0, 1), ("t", 7, 1), ("u", 0, 1)) == [
        (0, unknown),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, unknown),
    ]


@pytest.mark.parametrize(
    ("version", "is_stable"),
    [
        *((version, False) for version in versions(9)),
        *((version, True) for version in versions(9) if version >= 7),
    ],
)
def test_fetch(version: int, is_stable: bool) -> None:
    """GRP-58"""
    rig = GroupRig()
    committed(rig, 9, "g", ("t", 1, 10), ("u", 0, 11))
    fields = {"require_stable": True} if is_stable else {}
    answer = fetched(rig, version, "g", ("u", 0), ("t", 1), ("t", 2), **fields)
    assert rows(answer) == [(0, 11, "at 11", 0), (1, 10, "at 10", 0), (2, -1, "", 0)]
    if version >= 10:
        assert [topic.topic_id for topic in answer.topics] == [_id("u"), _id("t"), _id("t")]
    nobody = fetched(rig, version, "none", ("t", 1), **fields)
    assert rows(nobody) == [(1, -1, "", 0)]


@pytest.mark.parametrize("version", [version for version in versions(9) if version >= 2])
def test_fetch_of_everything(version: int) -> None:
    """GRP-58"""
    rig = GroupRig()
    committed(rig, 9, "g", ("t", 1, 10), ("u", 0, 11))
    answer = fetched(rig, version, "g", is_everything=True)
    assert rows(answer) == [(1, 10, "at 10", 0), (0, 11, "at 11", 0)]
    if version >= 10:
        assert [topic.topic_id for topic in answer.topics] == [_id("t"), _id("u")]
    assert rows(fetched(rig, version, "none", is_everything=True)) == []


def test_a_topic_that_is_gone() -> None:
    """Who asks by id is told so; of everything, it is left out."""
    rig = GroupRig()
    committed(rig, 9, "g", ("t", 1, 10), ("u", 0, 11))
    image = rig.cluster.image
    rig.cluster.image = replace(
        image,
        topics=image.topics.updated({"u": None}),
        topic_names=image.topic_names.updated({_id("u"): None}),
    )
    answer = fetched(rig, 10, "g", ("t", 1), ("u", 0))
    assert rows(answer) == [(1, 10, "at 10", 0), (0, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)]
    assert rows(fetched(rig, 10, "g", is_everything=True)) == [(1, 10, "at 10", 0)]
    # By name it is still there.
    assert rows(fetched(rig, 9, "g", ("u", 0))) == [(0, 11, "at 11", 0)]


def test_several_groups() -> None:
    """GRP-58: in one request, of several shards."""
    rig = GroupRig()
    names = [f"g{number}" for number in range(8)]
    assert len({rig.partition_of(name) for name in names}) > 1
    for number, name in enumerate(names):
        committed(rig, 9, name, ("t", 0, number))
    moved = rig.partition_of("g0")
    rig.runtime.resigned(moved, 1)
    for is_stable in (False, True):
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names],
            require_stable=is_stable,
        )
        answer = rig.ask(request, 8)
        assert [group.group_id for group in answer.groups] == names
        for number, group in enumerate(answer.groups):
            if rig.partition_of(group.group_id) == moved:
                assert (group.error_code, rows(group)) == (ErrorCode.NOT_COORDINATOR, [])
            else:
                assert rows(group) == [(0, number, f"at {number}", 0)]
    assert rig.ask(OffsetFetchRequest(groups=[]), 8).groups == []


@pytest.mark.parametrize("version", versions(9))
def test_a_fetch_that_fails(version: int) -> None:
    """GRP-6: said for the group where that can be said, and for each partition."""
    rig = GroupRig(is_loaded=False)
    answer = fetched(rig, version, "g", ("t", 1))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert answer.error_code == (loading if version >= 2 else 0)
    assert rows(answer) == [(1, -1, "", loading)]


def test_a_stable_fetch_that_takes_too_long() -> None:
    """Consumers know an error that makes them look for the coordinator, and not the other one."""
    rig = GroupRig()
    rig.send(commit_request(9, "g", ("t", 0, 1)), 9)
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    pending = rig.send(OffsetFetchRequest(groups=[group], require_stable=True), 8)
    while rig.timer.advance():
        pass
    assert not pending.is_answered
    rig.clock.now_ms += 6000
    while rig.timer.advance():
        pass
    assert pending.response.groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_the_empty_name() -> None:
    """GRP-4: older tools use it for offsets."""
    rig = GroupRig()
    assert committed(rig, 9, "", ("t", 0, 5)) == [(0, 0)]
    assert rows(fetched(rig, 8, "", ("t", 0))) == [(0, 5, "at 5", 0)]


class TestDelete:
    def request(self, group_id: str, *partitions: tuple[str, int]) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
                )
                for name, index in partitions
            ],
        )

    def test_some(self) -> None:
        rig = GroupRig()
        committed(rig, 9, "g", ("t", 0, 1), ("t", 1, 2))
        answer = rig.ask(self.request("g", ("t", 9), ("t", 0), ("t", 2), ("none", 0)), 0)
        found = {
            (topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found == {("t", 0): 0, ("t", 2): 0, ("t", 9): unknown, ("none", 0): unknown}
        assert rows(fetched(rig, 8, "g", is_everything=True)) == [(1, 2, "at 2", 0)]

    @pytest.mark.parametrize(
        ("group_id", "code"),
        [("", ErrorCode.INVALID_GROUP_ID), ("none", ErrorCode.GROUP_ID_NOT_FOUND)],
    )
    def test_of_no_group(self, group_id: str, code: ErrorCode) -> None:
        answer = GroupRig().ask(self.request(group_id, ("t", 0)), 0)
        assert (answer.error_code, answer.topics) == (code, [])
