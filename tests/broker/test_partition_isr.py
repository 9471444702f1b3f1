"""Who is in sync: leaving, joining, and what the controller answers."""

from __future__ import annotations

import pytest
from core_rig import LAG_MS, Hosted, record

from kraftpy.broker.isr import IsrAnswer
from kraftpy.protocol.errors import ErrorCode

IN_DOUBT = [
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NEW_LEADER_ELECTED,
]
NOT_DONE = [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED]
TRANSIENT = [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER]


def shrunk(hosted: Hosted) -> tuple[int, ...] | None:
    """The ISR that the leader asks for at this moment."""
    hosted.partition.shrink_isr(hosted.now_ms)
    proposal = hosted.partition.proposal
    return None if proposal is None else proposal.isr


def test_caught_up_is_who_has_what_the_leader_had() -> None:
    """REP-109: now, or at the previous fetch; and the time never goes back."""
    hosted = Hosted()
    hosted.lead(isr=(1,))
    hosted.append(10)
    hosted.lead(isr=(1,), epoch=6, partition_epoch=11)
    follower = hosted.partition.follower(2)
    assert follower is not None
    hosted.now_ms = 100
    hosted.fetch(2, 5)
    assert follower.last_caught_up_ms < 0
    hosted.append(10)
    hosted.now_ms = 200
    hosted.fetch(2, 10)
    assert follower.last_caught_up_ms == 100
    hosted.now_ms = 300
    hosted.fetch(2, 19)
    assert follower.last_caught_up_ms == 100
    hosted.now_ms = 400
    hosted.fetch(2, 20)
    assert follower.last_caught_up_ms == 400
    hosted.fetch(2, 2)
    assert follower.last_caught_up_ms == 400


def test_who_fetches_but_stays_behind_leaves() -> None:
    """REP-110."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    for second in range(1, LAG_MS // 1000 + 2):
        hosted.now_ms = second * 1000
        hosted.append(10)
        hosted.fetch(2, second)
        assert shrunk(hosted) == (None if hosted.now_ms <= LAG_MS else (1,))


def test_who_is_silent_leaves_after_the_lag_time() -> None:
    """REP-111: not at it, but beyond."""
    hosted = Hosted()
    hosted.lead()
    hosted.append()
    hosted.fetch(2, 1)
    hosted.fetch(3, 1)
    hosted.append()
    hosted.now_ms = LAG_MS
    hosted.fetch(2, 2)
    assert shrunk(hosted) is None
    hosted.now_ms = LAG_MS + 1
    hosted.events.take()
    assert shrunk(hosted) == (1, 2)
    assert hosted.events.take() == ["isr"]


def test_followers_of_an_idle_partition_stay() -> None:
    """REP-112."""
    hosted = Hosted()
    hosted.lead()
    hosted.append()
    hosted.fetch(2, 1)
    hosted.fetch(3, 1)
    hosted.now_ms = 100 * LAG_MS
    assert shrunk(hosted) is None


def test_a_leader_stays_in_its_isr() -> None:
    """REP-113."""
    hosted = Hosted()
    hosted.lead()
    hosted.append()
    hosted.now_ms = 2 * LAG_MS
    assert shrunk(hosted) == (1,)
    hosted.answer(isr=(1,))
    hosted.lead(isr=(1,), partition_epoch=11)
    assert hosted.high_watermark == 1
    hosted.now_ms = 9 * LAG_MS
    assert shrunk(hosted) is None


def test_a_replica_joins_when_it_has_everything_committed() -> None:
    """REP-115, REP-116: with epochs of broker, leader and partition; and once only."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.append(4)
    hosted.fetch(2, 3)
    hosted.events.take()
    hosted.fetch(3, 2)
    assert hosted.partition.proposal is None
    hosted.fetch(3, 3)
    proposal = hosted.partition.proposal
    assert proposal is not None
    assert proposal.isr == (1, 2, 3)
    assert proposal.broker_epochs == (101, 102, 103)
    assert (proposal.base.leader_epoch, proposal.base.partition_epoch) == (5, 10)
    assert hosted.events.take() == ["log start", "isr"]
    hosted.fetch(3, 4)
    assert hosted.partition.proposal is proposal
    assert hosted.events.take() == []


def test_a_replica_joins_when_it_has_reached_the_epoch() -> None:
    """REP-115: a new leader's high watermark may be old, and everything below is no proof."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.append(4)
    hosted.lead(isr=(1, 2), epoch=6, partition_epoch=11)
    assert hosted.high_watermark == 0
    hosted.fetch(3, 3)
    assert hosted.partition.proposal is None
    hosted.fetch(3, 4)
    assert hosted.partition.proposal is not None


@pytest.mark.parametrize("reason", ["dead", "leaving", "older metadata", "no replica"])
def test_who_may_not_join(reason: str) -> None:
    """REP-118: fenced, shutting down, or a process that the metadata does not know yet."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    epoch = 103
    if reason == "dead":
        hosted.brokers.dead.append(3)
    elif reason == "leaving":
        hosted.brokers.leaving.append(3)
    elif reason == "older metadata":
        epoch = 203
    hosted.fetch(9 if reason == "no replica" else 3, 0, epoch=epoch)
    assert hosted.partition.proposal is None
    if reason in ("dead", "leaving"):
        hosted.brokers.dead.clear()
        hosted.brokers.leaving.clear()
        hosted.fetch(3, 0)
        assert hosted.partition.proposal is not None


def test_one_proposal_at_a_time() -> None:
    """REP-116: neither another who joins nor one who leaves."""
    hosted = Hosted()
    hosted.lead(isr=(1,))
    hosted.fetch(2, 0)
    first = hosted.partition.proposal
    hosted.fetch(3, 0)
    assert hosted.partition.proposal is first
    hosted.answer(isr=(1, 2))
    assert hosted.partition.proposal is None
    hosted.fetch(3, 0)
    second = hosted.partition.proposal
    assert second is not None
    assert second.isr == (1, 2, 3)
    assert second.base.partition_epoch == 11
    hosted.append()
    hosted.now_ms = 9 * LAG_MS
    hosted.partition.shrink_isr(hosted.now_ms)
    assert hosted.partition.proposal is second


@pytest.mark.parametrize("error", NOT_DONE)
def test_a_refusal_that_proves_that_nothing_happened(error: ErrorCode) -> None:
    """REP-117: back to what is committed, and tried again when there is reason to."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.fetch(3, 0)
    hosted.answer(error)
    assert hosted.partition.proposal is None
    assert hosted.partition.maximal_isr == (1, 2)
    hosted.fetch(3, 0)
    assert hosted.partition.proposal is not None


@pytest.mark.parametrize("error", IN_DOUBT)
def test_a_refusal_that_proves_nothing(error: ErrorCode) -> None:
    """REP-117: an earlier attempt may have been carried out, so that metadata is waited for."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.fetch(3, 0)
    hosted.answer(error)
    assert hosted.partition.proposal is None
    assert hosted.partition.maximal_isr == (1, 2, 3)
    hosted.fetch(3, 0)
    hosted.now_ms = 9 * LAG_MS
    hosted.append()
    hosted.partition.shrink_isr(hosted.now_ms)
    assert hosted.partition.proposal is None
    hosted.lead(isr=(1, 2), partition_epoch=11)
    assert hosted.partition.maximal_isr == (1, 2)


@pytest.mark.parametrize("error", TRANSIENT)
def test_a_failure_is_tried_again(error: ErrorCode) -> None:
    """REP-117: the same proposal."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.fetch(3, 0)
    proposal = hosted.partition.proposal
    hosted.events.take()
    hosted.answer(error)
    assert hosted.partition.proposal is proposal
    assert hosted.events.take() == ["isr"]


@pytest.mark.parametrize(("epoch", "partition_epoch"), [(6, 12), (5, 9)])
def test_an_answer_of_another_time_waits_for_metadata(epoch: int, partition_epoch: int) -> None:
    """REP-117: of another leader epoch, or an older partition epoch."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.fetch(3, 0)
    hosted.answer(isr=(1, 2, 3), epoch=epoch, partition_epoch=partition_epoch)
    assert hosted.partition.isr == (1, 2)
    assert hosted.partition.maximal_isr == (1, 2, 3)
    assert hosted.partition.proposal is None


def test_an_answer_that_metadata_has_overtaken_is_ignored() -> None:
    """REP-117."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.fetch(3, 0)
    proposal = hosted.partition.proposal
    assert proposal is not None
    hosted.lead(isr=(1,), partition_epoch=12)
    late = IsrAnswer(ErrorCode.NONE, 1, (1, 2, 3), 5, 13)
    hosted.partition.proposal_answered(proposal, late, 0)
    assert (hosted.partition.isr, hosted.partition.partition_epoch) == ((1,), 12)


def test_metadata_behind_the_answer_keeps_what_was_proposed_since() -> None:
    """REP-47: the controller may have committed the second proposal when the first one's record
    comes, and elect the newcomer.
    """
    hosted = Hosted()
    hosted.lead(isr=(1,))
    hosted.fetch(2, 0)
    hosted.answer(isr=(1, 2))
    hosted.fetch(3, 0)
    proposal = hosted.partition.proposal
    assert proposal is not None
    hosted.lead(isr=(1, 2), partition_epoch=11)
    assert hosted.partition.proposal is proposal
    assert hosted.partition.maximal_isr == (1, 2, 3)
    hosted.append()
    hosted.now_ms = 9 * LAG_MS
    hosted.fetch(2, 1)
    assert hosted.high_watermark == 0


@pytest.mark.parametrize("answer", [None, ErrorCode.INVALID_REQUEST])
def test_a_proposal_with_somebody_who_is_no_replica_any_more_is_dropped(
    answer: ErrorCode | None,
) -> None:
    """REP-117: the answer that ended a reassignment came before its record."""
    hosted = Hosted()
    hosted.lead(isr=(1, 3))
    hosted.fetch(2, 0)
    hosted.answer(isr=(1, 2))
    hosted.fetch(3, 0)
    if answer is not None:
        hosted.answer(answer)
    assert sorted(hosted.partition.maximal_isr) == [1, 2, 3]
    assert not hosted.partition.lead(
        record(1, isr=(1, 2), replicas=(1, 2), partition_epoch=11), hosted.now_ms
    )
    assert hosted.partition.maximal_isr == (1, 2)
    assert hosted.partition.proposal is None
    assert hosted.partition.follower(3) is None


def test_a_restarted_replica_is_behind_until_it_has_caught_up() -> None:
    """REP-120, REP-119: and the partition under-replicated."""
    hosted = Hosted()
    hosted.lead(isr=(1, 2))
    hosted.append(4)
    hosted.fetch(2, 4)
    assert hosted.partition.is_under_replicated
    hosted.brokers.epochs[3] = 200
    hosted.fetch(3, 1, epoch=200)
    assert hosted.partition.proposal is None
    hosted.fetch(3, 4, epoch=200)
    proposal = hosted.partition.proposal
    assert proposal is not None
    assert proposal.broker_epochs == (101, 102, 200)
    hosted.answer(isr=(1, 2, 3))
    assert not hosted.partition.is_under_replicated
