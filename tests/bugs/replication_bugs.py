"""Seeded bugs of replication, each one replacing one method of the product (testing.md 10.5).

The cluster simulation must find every one of them, in its seeds with data; see seeded_bugs.py for
how.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from seeded_bugs import Suite, named

from kraftpy.broker.delayed_produce import PendingAppend
from kraftpy.broker.fetcher_core import FetcherCore
from kraftpy.broker.fetcher_steps import Flush, Truncate
from kraftpy.broker.follower_progress import FollowerProgress
from kraftpy.broker.isr import IsrProposal, IsrState, Verdict
from kraftpy.broker.partition import Partition
from kraftpy.log.offsets import UNKNOWN
from kraftpy.log.producers import ProducerState, ProducerUpdate
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.validation import AppendOrigin
from kraftpy.sim.cluster_data_run import data_simulation

EVENTS = 6_000


# The high watermark.


def leader_alone_commits(self: Partition, now_ms: int) -> bool:
    end = self.log.log_end
    return self.is_leader and self.log.increment_high_watermark(end) is not None


def expansion_commits_without_the_new_member(
    self: IsrState, isr: tuple[int, ...], broker_epochs: tuple[int, ...]
) -> None:
    self.pending = IsrProposal(self.committed, isr, broker_epochs)
    self.maximal = self.committed.isr


def shrink_commits_before_it_is_decided(
    self: IsrState, isr: tuple[int, ...], broker_epochs: tuple[int, ...]
) -> None:
    self.pending = IsrProposal(self.committed, isr, broker_epochs)
    self.maximal = isr


def high_watermark_falls(self: Partition, now_ms: int) -> bool:
    if not self.may_commit:
        return False
    log_end = self.log.log_end
    ends = [self._flush.bound or log_end]
    ends += [
        each.end
        for each in self._followers.values()
        if each.broker_id in self.maximal_isr
        or (
            each.is_caught_up(log_end.offset, now_ms, self.lag_time_max_ms) and self._may_join(each)
        )
    ]
    lowest = min(each.offset for each in ends)
    before = self.log.high_watermark
    return lowest >= 0 and self.log.update_high_watermark(lowest) != before


def acknowledged_below_min_isr(self: Partition) -> int:
    return 1


def acknowledged_when_the_leader_has_it(self: PendingAppend, leader: Partition) -> ErrorCode:
    return ErrorCode.NONE


_answered = IsrState.answered


def answer_counts_as_metadata(self: IsrState, proposal: Any, answer: Any) -> Any:
    meaning = _answered(self, proposal, answer)
    if meaning is Verdict.COMMITTED:
        self._told = self.committed
        self._told_since = self.maximal = self.committed.isr
    return meaning


_begin_epoch = Partition._begin_epoch


def new_leader_counts_what_is_not_flushed(
    self: Partition, record: Any, now_ms: int, *, is_new_leader: bool
) -> None:
    _begin_epoch(self, record, now_ms, is_new_leader=is_new_leader)
    self._flush.lift()


# In-sync replicas.


def joins_with_any_fetch(self: Partition, follower: FollowerProgress) -> bool:
    if not self._may_join(follower):
        return False
    self._propose((*self.isr, follower.broker_id))
    return True


def joins_below_the_start_of_the_epoch(self: Partition, follower: FollowerProgress) -> bool:
    if follower.end.offset < self.log.high_watermark or not self._may_join(follower):
        return False
    self._propose((*self.isr, follower.broker_id))
    return True


_adopt = IsrState.adopt


def metadata_drops_any_proposal(self: IsrState, metadata: Any, replicas: Any) -> None:
    _adopt(self, metadata, replicas)
    self._decide()


def doubt_taken_for_refusal(self: IsrState, proposal: Any, answer: Any) -> Any:
    meaning = _answered(self, proposal, answer)
    if meaning is Verdict.IN_DOUBT:
        self._decide()
        return Verdict.NOT_DONE
    return meaning


def no_incarnation_in_proposals(self: Partition, broker_id: int) -> int:
    return UNKNOWN


# Fetching.


def any_leader_epoch_served(self: Partition, leader_epoch: int) -> ErrorCode:
    return ErrorCode.NONE


def deposed_leader_serves(self: Partition) -> None:
    return None


def divergence_not_told(self: Partition, epoch: int, offset: int) -> None:
    return None


_begin = FetcherCore._begin


def follower_truncates_to_its_high_watermark(self: FetcherCore, state: Any) -> None:
    log = state.partition.log
    if log.log_end_offset > log.high_watermark:
        self._want(state, Truncate(state.partition, log.high_watermark))
    else:
        _begin(self, state)


_want = FetcherCore._want


def follower_claims_what_is_not_flushed(self: FetcherCore, state: Any, change: Any) -> None:
    if isinstance(change, Flush):
        self._fetch_on(state)
    else:
        _want(self, state, change)


# Producers.


def sequence_unchecked(self: ProducerUpdate, old: Any, epoch: int, sequence: int) -> None:
    return None


_add_batch = ProducerUpdate.add_batch


def followers_know_no_producers(self: ProducerUpdate, *args: Any, **fields: Any) -> None:
    if self._origin is not AppendOrigin.REPLICATION:
        _add_batch(self, *args, **fields)


_find_duplicate = ProducerState.find_duplicate


def repetition_not_recognized(self: ProducerState, *args: Any, **fields: Any) -> None:
    return None


def repetition_answered_with_offset_0(self: ProducerState, *args: Any, **fields: Any) -> Any:
    found = _find_duplicate(self, *args, **fields)
    return None if found is None else found._replace(last_offset=found.offset_delta)


_first_unstable = ProducerState.first_unstable.fget  # type: ignore[attr-defined]


def one_unstable_record_is_shown(self: ProducerState) -> Any:
    found = _first_unstable(self)
    return None if found is None else replace(found, first_offset=found.first_offset + 1)


def stable_before_the_end_is_replicated(self: ProducerState) -> Any:
    return next(iter(self._open.values()), None)


BUGS = [
    named(Partition, "_advance_high_watermark", leader_alone_commits),
    named(IsrState, "propose", expansion_commits_without_the_new_member),
    named(IsrState, "propose", shrink_commits_before_it_is_decided),
    named(Partition, "_advance_high_watermark", high_watermark_falls),
    named(Partition, "_needed_size", property(acknowledged_below_min_isr)),
    named(PendingAppend, "verdict_of", acknowledged_when_the_leader_has_it),
    named(IsrState, "answered", answer_counts_as_metadata),
    named(Partition, "_begin_epoch", new_leader_counts_what_is_not_flushed),
    named(Partition, "_propose_joining", joins_with_any_fetch),
    named(Partition, "_propose_joining", joins_below_the_start_of_the_epoch),
    named(Partition, "_epoch_of", no_incarnation_in_proposals),
    named(IsrState, "adopt", metadata_drops_any_proposal),
    named(IsrState, "answered", doubt_taken_for_refusal),
    named(Partition, "check_epoch", any_leader_epoch_served),
    named(Partition, "check_leader", deposed_leader_serves),
    named(Partition, "divergence", divergence_not_told),
    named(FetcherCore, "_begin", follower_truncates_to_its_high_watermark),
    named(FetcherCore, "_want", follower_claims_what_is_not_flushed),
    named(ProducerUpdate, "_check_sequence", sequence_unchecked),
    named(ProducerUpdate, "add_batch", followers_know_no_producers),
    named(ProducerState, "find_duplicate", repetition_not_recognized),
    named(ProducerState, "find_duplicate", repetition_answered_with_offset_0),
    named(ProducerState, "first_unstable", property(one_unstable_record_is_shown)),
    named(ProducerState, "first_unstable", property(stable_before_the_end_is_replicated)),
]


def run(seed: int) -> None:
    data_simulation(seed).run(EVENTS)


SUITE = Suite("replication", "L2, cluster with data", BUGS, run)
