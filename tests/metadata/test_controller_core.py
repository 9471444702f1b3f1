"""The controller's leadership and the way of a write, against a log of one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from controller_core_rig import (
    BOOTSTRAP,
    Create,
    CreateForUser,
    Fail,
    Look,
    LookAtCommitted,
    Rig,
    Write,
    topic,
)

from kraftpy.metadata import records as r
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.controller.effects import (
    Answer,
    AppendRecords,
    Refuse,
    ResignLeadership,
)
from kraftpy.metadata.controller.event_queue import ControllerState
from kraftpy.metadata.controller.operations import Turn
from kraftpy.metadata.controller.result import Caller, ControllerError, ControllerResult, Part
from kraftpy.metadata.controller.transitions import ReplicaState
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import InternalInvariant


def active(rig: Rig | None = None, epoch: int = 1) -> Rig:
    """An active controller with nothing left to do."""
    rig = rig or Rig()
    rig.lead(epoch)
    rig.run()
    rig.commit()
    rig.run()
    rig.effects.clear()
    return rig


# A write, and what its answer waits for.


def test_no_answer_before_the_last_record_is_committed() -> None:
    """KRF-98, CTL-18: the records happen at once, the answer leaves when they are committed."""
    rig = active()
    rig.submit(7, Create(("a", "b")))
    (effect,) = rig.run()
    assert isinstance(effect, AppendRecords)
    assert effect.records == (topic("a"), topic("b"))
    assert (effect.epoch, effect.last_offset) == (1, rig.end_offset - 1)
    assert rig.names == ["a", "b"]
    assert rig.controller.describe().parked_count == 1
    rig.commit()
    assert rig.run() == [Answer(7, ("a", "b"))]
    assert rig.controller.describe().parked_count == 0


def test_an_answer_without_records_waits_for_what_it_may_have_read() -> None:
    """KRF-99, and with nothing pending it leaves at once."""
    rig = active()
    rig.submit(1, Look())
    assert rig.run() == [Answer(1, ())]
    rig.submit(2, Create(("a",)))
    rig.submit(3, Look())
    rig.submit(4, Create(("b",)))
    rig.run()
    assert rig.answers == [(1, ())]
    rig.commit(1)
    assert rig.run() == [Answer(2, ("a",)), Answer(3, ("a",))]
    rig.commit()
    assert rig.run() == [Answer(4, ("b",))]


def test_a_read_is_served_from_what_is_committed() -> None:
    rig = active()
    rig.submit(1, Create(("a",)))
    rig.submit(2, LookAtCommitted())
    rig.run()
    assert rig.answers == [(2, ())]
    rig.commit()
    rig.submit(3, LookAtCommitted())
    rig.run()
    assert rig.answers == [(2, ()), (1, ("a",)), (3, ("a",))]


def test_an_operation_knows_the_offset_of_its_first_record() -> None:
    """Broker epochs are made of it."""
    rig = active()
    rig.submit(1, Write((topic("a"), topic("b"))))
    expected = rig.end_offset
    rig.run()
    rig.commit()
    rig.run()
    assert rig.answers == [(1, Turn(rig.now_ms, expected))]


def test_an_error_of_the_operation_reaches_the_caller_and_nothing_else() -> None:
    """CTL-23: the next event runs."""
    rig = active()
    rig.submit(1, Create(("a",)))
    rig.submit(2, Create(("a",)))
    rig.submit(3, Create(("b",)))
    rig.run()
    assert rig.refusals == [(2, ErrorCode.TOPIC_ALREADY_EXISTS)]
    assert rig.names == ["a", "b"]
    assert rig.controller.is_active


def test_a_request_that_nobody_knows_is_refused() -> None:
    rig = active()
    rig.submit(1, object())
    rig.run()
    assert rig.refusals == [(1, ErrorCode.UNSUPPORTED_VERSION)]


# Limits.


def test_an_atomic_result_is_one_batch() -> None:
    """KRF-103, CTL-41: 10,000 records fit."""
    rig = active()
    rig.submit(1, CreateForUser(tuple(map(str, range(10_000)))))
    (effect,) = rig.run()
    assert isinstance(effect, AppendRecords)
    assert len(effect.values) == 10_000


@pytest.mark.parametrize("is_atomic", [True, False])
def test_a_user_may_not_ask_for_more_than_a_batch(is_atomic: bool) -> None:
    """KRF-103: one more than that is refused, and nothing has happened."""
    rig = active()
    rig.submit(1, CreateForUser(tuple(map(str, range(10_001))), is_atomic))
    rig.run()
    assert rig.refusals == [(1, ErrorCode.POLICY_VIOLATION)]
    assert (rig.appended, rig.names) == ([], [])
    assert rig.controller.is_active


def test_what_the_cluster_needs_is_cut_into_batches() -> None:
    rig = active()
    rig.submit(1, Create(tuple(map(str, range(20_001))), is_atomic=False))
    rig.run()
    assert [len(each.values) for each in rig.appended] == [10_000, 10_000, 1]
    assert [each.base_offset for each in rig.appended][1:] == [
        each.last_offset + 1 for each in rig.appended[:2]
    ]
    rig.commit(2)
    rig.run()
    assert rig.answers == []
    rig.commit(1)
    rig.run()
    assert [request_id for request_id, _ in rig.answers] == [1]


def test_bytes_count_too() -> None:
    """A batch has 8 MiB at most: ten values of 900 KiB don't fit one, nine do."""
    rig = active()
    large = tuple(
        r.ConfigRecord(r.ConfigResourceType.TOPIC, str(n), "x", "v" * (900 << 10))
        for n in range(10)
    )
    rig.submit(1, Write(large))
    rig.run()
    assert rig.refusals == [(1, ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert not rig.controller.is_active
    active(rig, epoch=2)
    rig.submit(2, Write(large[:9]))
    rig.run()
    assert [len(each.values) for each in rig.appended] == [9]


def test_a_user_may_not_ask_for_too_many_bytes() -> None:
    """KRF-103: the limit of a batch is not the user's to know, so it is no error of ours."""
    rig = active()
    names = tuple(f"{number}" + "n" * (900 << 10) + f"{number}" for number in range(10))
    rig.submit(1, CreateForUser(names))
    rig.run()
    assert rig.refusals == [(1, ErrorCode.POLICY_VIOLATION)]
    assert rig.controller.is_active


def test_an_atomic_result_that_is_too_large_is_an_error_of_ours() -> None:
    rig = active()
    rig.submit(1, Create(tuple(map(str, range(10_001)))))
    rig.run()
    assert rig.refusals == [(1, ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert rig.names == []
    assert not rig.controller.is_active


# Becoming active.


def test_requests_on_a_standby_are_refused_with_the_leader_known() -> None:
    """CTL-30: nothing runs."""
    rig = Rig()
    rig.submit(1, Create(("a",)))
    rig.controller.leader_changed(3, 2, rig.now_ms)
    rig.submit(2, LookAtCommitted())
    first, second = rig.run()
    assert isinstance(first, Refuse)
    assert (first.code, first.request_id) == (ErrorCode.NOT_CONTROLLER, 1)
    assert isinstance(second, Refuse)
    assert second == Refuse(2, ErrorCode.NOT_CONTROLLER, "The active controller is node 2.")
    assert rig.ran == []


def test_an_empty_log_gets_the_bootstrap_records_once() -> None:
    """KRF-102, CTL-3: in one batch, as a transaction, before those who wait."""
    rig = Rig()
    rig.submit(1, Create(("a",)))
    rig.lead(1)
    rig.run()
    first, second = rig.appended
    assert first.records == (
        r.BeginTransactionRecord("Bootstrap records"),
        *BOOTSTRAP,
        r.EndTransactionRecord(),
    )
    assert second.records == (topic("a"),)
    rig.commit()
    assert rig.context.stable == rig.fold()
    assert rig.context.stable.metadata_version == 25
    rig.controller.leadership_lost(1, rig.now_ms)
    rig.lead(2)
    rig.run()
    assert len(rig.appended) == 2


def test_bootstrap_with_eligible_leader_replicas_fixes_the_minimum() -> None:
    elr = r.FeatureLevelRecord("eligible.leader.replicas.version", 1)
    rig = active(Rig(bootstrap=(*BOOTSTRAP, elr)))
    assert rig.context.image.config(r.ConfigResourceType.BROKER, "") == {"min.insync.replicas": "1"}


def test_bootstrap_without_transactions_is_a_plain_batch() -> None:
    rig = Rig(bootstrap=(r.FeatureLevelRecord(r.METADATA_VERSION, 7),))
    rig.lead(1)
    rig.run()
    assert rig.appended[0].records == (r.FeatureLevelRecord(r.METADATA_VERSION, 7),)


def test_a_transaction_left_open_on_an_empty_log_is_aborted_and_done_again() -> None:
    """KRF-102."""
    rig = Rig()
    rig.append(1, r.BeginTransactionRecord(), r.FeatureLevelRecord(r.METADATA_VERSION, 9))
    rig.lead(2)
    rig.run()
    (appended,) = rig.appended
    abort, begin, *rest = appended.records
    assert isinstance(abort, r.AbortTransactionRecord)
    assert isinstance(begin, r.BeginTransactionRecord)
    assert tuple(rest) == (*BOOTSTRAP, r.EndTransactionRecord())
    rig.commit()
    assert rig.context.image == rig.context.stable == rig.fold()
    assert rig.context.image.metadata_version == 25


def test_a_transaction_left_open_on_a_used_log_is_only_aborted() -> None:
    """KRF-102: what came before it is known, though it was never published."""
    rig = Rig()
    rig.append(1, *BOOTSTRAP, topic("kept"))
    rig.append(1, r.BeginTransactionRecord(), topic("lost"))
    rig.lead(2)
    assert rig.names == ["kept"]
    rig.run()
    assert [type(each) for (each,) in [rig.appended[0].records]] == [r.AbortTransactionRecord]
    assert len(rig.appended) == 1
    rig.submit(1, Create(("new",)))
    rig.run()
    rig.commit()
    rig.run()
    assert rig.answers == [(1, ("new",))]
    assert rig.names == ["kept", "new"]
    assert rig.context.image == rig.fold()


def test_activation_puts_right_what_it_finds_part_by_part() -> None:
    """CTL-13: before anybody is served, each part when the one before has happened."""
    seen: list[list[str]] = []

    def bring_online(topic_name: str | None) -> ControllerResult[bool]:
        seen.append(rig.names)
        return ControllerResult((topic("z"),), False)

    def proceed(next_offset: int) -> ControllerResult[None]:
        seen.append(rig.names)
        assert next_offset == rig.appended[-1].base_offset + 1
        return ControllerResult((topic("y"),), None)

    order = ["x", "y", "z", "user"]
    rig = Rig(reevaluate=lambda: Part((topic("x"),), proceed), bring_online=bring_online)
    rig.submit(1, Create(("user",)))
    rig.lead(1)
    rig.run()
    assert seen == [["x"], ["x", "y"]]
    assert [each.records for each in rig.appended][-4:] == [(topic(name),) for name in order]


def test_partitions_are_brought_online_in_pieces() -> None:
    """CTL-13: with those who wait served between two pieces."""
    pieces = ["1", "2", "3"]

    def bring_online(topic_name: str | None) -> ControllerResult[bool]:
        assert topic_name is None
        return ControllerResult((topic(pieces.pop(0)),), bool(pieces))

    rig = Rig(bring_online=bring_online)
    rig.submit(1, Create(("user",)))
    rig.lead(1)
    rig.run()
    assert rig.names == ["1", "user"]
    rig.run_until(rig.now_ms + 10)
    assert rig.names == ["1", "2", "user"]
    rig.run_until(rig.now_ms + 10)
    assert rig.names == ["1", "2", "3", "user"]


@pytest.mark.parametrize(
    ("record", "asked"),
    [
        (r.ConfigRecord(2, "a", "unclean.leader.election.enable", "true"), ["a"]),
        (r.ConfigRecord(4, "", "unclean.leader.election.enable", "true"), [None]),
        (r.ConfigRecord(2, "a", "unclean.leader.election.enable", "false"), []),
        (r.ConfigRecord(2, "a", "retention.ms", "1"), []),
    ],
)
def test_allowing_unclean_elections_brings_partitions_online(
    record: r.ConfigRecord, asked: list[str | None]
) -> None:
    """CTL-128: at once, not when the timer comes."""
    calls: list[str | None] = []

    def bring_online(topic_name: str | None) -> ControllerResult[bool]:
        calls.append(topic_name)
        return ControllerResult((), False)

    rig = active(Rig(bring_online=bring_online))
    assert calls == [None]
    rig.submit(1, Write((topic("a"), record)))
    rig.run()
    assert calls[1:] == asked


def _first_part(fail: Callable[..., Any]) -> Rig:
    return Rig(bring_online=fail)


def _later_part(fail: Callable[..., Any]) -> Rig:
    return Rig(reevaluate=lambda: Part((topic("x"),), fail))


@pytest.mark.parametrize("failing_in", [_first_part, _later_part])
@pytest.mark.parametrize("error", [ControllerError(ErrorCode.INVALID_REQUEST), ValueError("x")])
def test_a_failing_activation_gives_the_role_up(
    error: Exception, failing_in: Callable[[Callable[..., Any]], Rig]
) -> None:
    """CTL-7: and those who wait are told."""

    def fail(_: object) -> Any:
        raise error

    rig = failing_in(fail)
    rig.submit(1, Create(("a",)))
    rig.lead(4)
    rig.run()
    assert ResignLeadership(4) in rig.effects
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER)]
    assert not rig.controller.is_active
    assert rig.controller.describe().timers == ()


def test_a_leadership_is_claimed_once_in_its_epoch() -> None:
    """CTL-5, CTL-6: neither again after giving up, nor for an older epoch."""
    rig = active(epoch=3)
    rig.controller.resign(rig.now_ms)
    rig.controller.leader_changed(3, 1, rig.now_ms)
    assert not rig.controller.is_active
    rig.controller.leader_changed(2, 1, rig.now_ms)
    assert not rig.controller.is_active
    rig.controller.leader_changed(4, 1, rig.now_ms)
    assert rig.controller.is_active


def test_standbys_follow_committed_records_and_take_over_without_reading() -> None:
    """CTL-2, CTL-11: the state is there when the leadership comes; no timer before it."""
    rig = Rig()
    rig.append(1, *BOOTSTRAP, topic("a"))
    rig.commit()
    assert rig.names == ["a"]
    assert rig.context.heartbeats is None
    assert rig.controller.next_deadline_ms() is None
    rig.lead(2)
    rig.submit(1, Look())
    rig.run()
    assert rig.answers == [(1, ("a",))]
    assert rig.appended == []
    assert rig.context.heartbeats is not None


def test_what_is_derived_later_begins_with_everything_there_is() -> None:
    """CTL-2."""
    rig = active()
    rig.submit(1, Create(("a",)))
    rig.run()
    follower = TopicFollower()
    rig.context.follow(follower)
    rig.submit(2, Create(("b",)))
    rig.run()
    assert follower.names == ["a", "b"]
    rig.controller.leadership_lost(1, rig.now_ms)
    assert follower.names == []


class Broken:
    def update(self, changes: ImageChanges) -> None:
        if changes.after.topics:
            raise KeyError("lost count")


@pytest.mark.parametrize("is_active", [True, False])
def test_derived_state_that_fails_stops_the_node(is_active: bool) -> None:
    """KRF-104: on a standby too, although the loader forgives its publishers much."""
    rig = active()
    rig.context.follow(Broken())
    if is_active:
        rig.submit(1, Create(("a",)))
        with pytest.raises(InternalInvariant, match="lost count"):
            rig.run()
    else:
        rig.controller.leadership_lost(1, rig.now_ms)
        rig.append(2, topic("a"))
        with pytest.raises(InternalInvariant, match="lost count"):
            rig.commit()


class TopicFollower:
    """Knows the topics from changes alone."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def update(self, changes: ImageChanges) -> None:
        for change in changes.topics:
            if change.after is not None:
                self.names.append(change.after.name)
            elif change.before is not None:
                self.names.remove(change.before.name)


def test_new_replicas_are_those_of_this_leadership_that_nobody_has_acknowledged() -> None:
    """CTL-36: acknowledgements begin and end with a leadership."""
    rig = active()
    broker = r.RegisterBrokerRecord(1, topic("b").topic_id, 7, (), fenced=False)
    partition = r.PartitionRecord(0, topic("a").topic_id, (1,), (1,), leader=1)
    rig.submit(1, Write((broker, topic("a"), partition)))
    rig.run()
    rig.commit()
    state = rig.context.replica_states.state
    assert state(topic("a").topic_id, 0, 1) is ReplicaState.NEW
    rig.controller.leadership_lost(1, rig.now_ms)
    assert state(topic("a").topic_id, 0, 1) is ReplicaState.ONLINE
    active(rig, epoch=2)
    assert state(topic("a").topic_id, 0, 1) is ReplicaState.ONLINE


# Giving up.


def test_losing_the_leadership_refuses_all_and_forgets_what_is_not_committed() -> None:
    """CTL-10, CTL-36, KRF-100, CTL-21: parked and queued ones hear NOT_CONTROLLER, in order."""
    rig = active()
    rig.submit(1, Create(("kept",)))
    rig.run()
    rig.commit()
    rig.submit(2, Create(("lost",)))
    rig.submit(3, Look())
    rig.run()
    rig.submit(4, Create(("never",)))
    rig.controller.leadership_lost(1, rig.now_ms)
    rig.run()
    assert rig.refusals == [(number, ErrorCode.NOT_CONTROLLER) for number in (2, 3, 4)]
    assert rig.answers == [(1, ("kept",))]
    assert rig.names == ["kept"]
    assert rig.context.image == rig.fold()
    assert rig.context.heartbeats is None
    assert rig.controller.describe().timers == ()
    assert rig.controller.next_deadline_ms() is None
    assert ResignLeadership(1) not in rig.effects
    rig.truncate()
    active(rig, epoch=2)
    assert rig.names == ["kept"]


def test_giving_up_twice_or_on_a_standby_is_harmless() -> None:
    """CTL-8."""
    rig = Rig()
    rig.controller.leadership_lost(1, rig.now_ms)
    rig.controller.append_refused(1, rig.now_ms)
    rig.controller.resign(rig.now_ms)
    assert rig.run() == []
    active(rig, epoch=2)
    rig.submit(1, Create(("a",)))
    rig.run()
    rig.controller.leadership_lost(1, rig.now_ms)  # An old one's.
    assert rig.controller.is_active
    rig.controller.leadership_lost(2, rig.now_ms)
    rig.controller.leadership_lost(2, rig.now_ms)
    rig.controller.leader_changed(3, 5, rig.now_ms)
    rig.run()
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER)]


def test_another_leader_ends_the_leadership() -> None:
    """CTL-4, CTL-16."""
    rig = active()
    rig.submit(1, Create(("a",)))
    rig.run()
    rig.controller.leader_changed(2, 3, rig.now_ms)
    assert not rig.controller.is_active
    assert rig.run() == [Refuse(1, ErrorCode.NOT_CONTROLLER, "The active controller is node 3.")]


def test_being_elected_again_in_a_newer_epoch_begins_anew() -> None:
    rig = active()
    rig.submit(1, Create(("a",)))
    rig.run()
    rig.truncate()
    rig.lead(2)
    rig.run()
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER)]
    assert rig.controller.is_active
    assert rig.names == []


def test_a_newer_epoch_of_our_own_begins_anew_before_anything_of_it_is_seen() -> None:
    rig = active()
    rig.submit(1, Create(("a",)))
    rig.run()
    rig.controller.leader_changed(2, 1, rig.now_ms)
    assert rig.context.epoch == 2
    assert rig.names == []
    rig.run()
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER)]


def test_old_news_of_a_leader_change_nothing() -> None:
    """CTL-5: epochs only grow."""
    rig = active(epoch=5)
    rig.controller.leader_changed(4, 2, rig.now_ms)
    assert rig.controller.is_active
    assert rig.controller.describe().leader_id == 1


def test_a_refused_append_ends_the_leadership() -> None:
    """CTL-15, CTL-24: nothing of it is seen, and Raft is asked to let go."""
    rig = active()
    rig.refuses_appends = True
    rig.submit(1, Create(("a",)))
    rig.submit(2, Create(("b",)))
    rig.run()
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER), (2, ErrorCode.NOT_CONTROLLER)]
    assert ResignLeadership(1) in rig.effects
    assert rig.names == []
    assert not rig.controller.is_active


def test_a_log_that_was_cut_ends_the_leadership_before_anything_is_appended() -> None:
    """Another leader's log can be here before the word that there is another leader."""
    rig = active()
    rig.submit(7, Create(("a", "b")))
    rig.run()
    rig.truncate()
    rig.submit(8, Create(("c",)))
    assert ResignLeadership(1) in rig.run()
    assert rig.refusals == [(7, ErrorCode.NOT_CONTROLLER), (8, ErrorCode.NOT_CONTROLLER)]
    assert (rig.controller.is_active, rig.names) == (False, [])
    rig.append_control(2)
    rig.commit()
    rig.controller.leader_changed(2, 2, rig.now_ms)
    assert rig.run() == []


def test_an_unforeseen_error_gives_the_role_up() -> None:
    """KRF-104: the asker hears UNKNOWN_SERVER_ERROR, everybody else NOT_CONTROLLER."""
    rig = active()
    rig.submit(1, Create(("a",)))
    rig.submit(2, Fail())
    rig.submit(3, Look())
    rig.run()
    assert rig.refusals == [
        (2, ErrorCode.UNKNOWN_SERVER_ERROR),
        (1, ErrorCode.NOT_CONTROLLER),
        (3, ErrorCode.NOT_CONTROLLER),
    ]
    assert ResignLeadership(1) in rig.effects
    assert rig.names == []
    assert rig.controller.state is ControllerState.IDLE


def test_an_unforeseen_error_on_a_standby_has_no_role_to_give_up() -> None:
    rig = Rig()
    rig.submit(1, Fail())
    rig.run()
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER)]


def test_a_record_that_can_not_be_replayed_stops_the_node() -> None:
    """KRF-104: the operation read the same image, so this is a bug that nobody may build on."""
    rig = active()
    rig.submit(1, Write((r.RemoveTopicRecord(topic("unknown").topic_id),)))
    with pytest.raises(InternalInvariant, match=r"controller\.replay"):
        rig.run()


def test_an_image_of_a_newer_controller_is_never_taken_for_our_commit() -> None:
    """CTL-16: our answer must not leave because somebody else's record has its offset."""
    rig = active()
    rig.submit(1, Create(("ours",)))
    rig.run()
    rig.truncate()
    rig.append(2, topic("theirs"))
    rig.commit()
    rig.run()
    assert rig.answers == []
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER)]
    assert rig.names == ["theirs"]
    assert not rig.controller.is_active


def test_an_operator_may_ask_for_another_controller() -> None:
    """CTL-12."""
    rig = active()
    rig.controller.resign(rig.now_ms)
    assert rig.run() == [ResignLeadership(1)]
    assert not rig.controller.is_active


def test_a_closed_controller_serves_nobody() -> None:
    rig = active()
    rig.submit(1, Create(("a",)))
    rig.run()
    rig.submit(2, Create(("b",)))
    rig.controller.close(rig.now_ms)
    rig.controller.close(rig.now_ms)
    rig.submit(3, Look())
    rig.run()
    assert rig.refusals == [
        (1, ErrorCode.NOT_CONTROLLER),
        (2, ErrorCode.NOT_CONTROLLER),
        (3, ErrorCode.REQUEST_TIMED_OUT),
    ]
    rig.lead(2)
    assert not rig.controller.is_active


# Deadlines.


def test_a_request_whose_time_is_over_does_not_run() -> None:
    """KRF-106."""
    rig = active()
    rig.submit(1, Create(("a",)), Caller(0, deadline_ms=rig.now_ms + 10))
    rig.submit(2, Create(("b",)), Caller(0, deadline_ms=rig.now_ms + 11))
    rig.now_ms += 10
    rig.run()
    assert rig.refusals == [(1, ErrorCode.REQUEST_TIMED_OUT)]
    assert rig.names == ["b"]
    assert rig.metric("EventQueueOperationsTimedOutCount") == 1


@pytest.mark.parametrize(("waited_ms", "is_late"), [(19, False), (20, True)])
def test_an_operation_may_limit_its_wait(waited_ms: int, is_late: bool) -> None:
    """KRF-106: as heartbeats do; a late one is noted all the same."""
    late: list[object] = []
    rig = active(Rig(max_queue_ms=20, heartbeat_late=lambda request, turn: late.append(request)))
    rig.submit(1, Create(("a",)))
    rig.now_ms += waited_ms
    rig.run()
    assert late == ([Create(("a",))] if is_late else [])
    assert rig.refusals == ([(1, ErrorCode.REQUEST_TIMED_OUT)] if is_late else [])
    assert rig.metric("TimedOutBrokerHeartbeatCount") == is_late


@pytest.mark.parametrize(("caller_ms", "limit_ms"), [(5, 20), (20, 5)])
def test_the_earlier_of_two_deadlines_counts(caller_ms: int, limit_ms: int) -> None:
    rig = active(Rig(max_queue_ms=limit_ms))
    rig.submit(1, Create(("a",)), Caller(0, deadline_ms=rig.now_ms + caller_ms))
    rig.now_ms += 5
    rig.run()
    assert rig.refusals == [(1, ErrorCode.REQUEST_TIMED_OUT)]


def test_a_preempted_request_is_not_late() -> None:
    late: list[object] = []
    rig = active(Rig(max_queue_ms=20, heartbeat_late=lambda request, turn: late.append(request)))
    rig.submit(1, Create(("a",)))
    rig.controller.leadership_lost(1, rig.now_ms)
    rig.run()
    assert late == []
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER)]
