"""Seeded bugs of replication, each one replacing one method of the product (testing.md 10.5).

The cluster simulation must find every one of them, in its seeds with data; see seeded_bugs.py for
how.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from seeded_bugs import Bug, examine

from kraftpy.broker.fetcher_core import FetcherCore
from kraftpy.broker.fetcher_steps import Flush, Truncate
from kraftpy.broker.follower_progress import FollowerProgress
from kraftpy.broker.isr import IsrProposal, IsrState
from kraftpy.broker.partition import Partition
from kraftpy.log.offsets import UNKNOWN
from kraftpy.sim.cluster_simulation import ClusterSimulation

EVENTS = 6_000
SEEDS = Path(__file__).with_name("replication_seeds.json")


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


_begin_epoch = Partition._begin_epoch


def new_leader_counts_what_is_not_flushed(
    self: Partition, record: Any, now_ms: int, *, is_new_leader: bool
) -> None:
    _begin_epoch(self, record, now_ms, is_new_leader=is_new_leader)
    self._flushed_end = None


# In-sync replicas.


def joins_with_any_fetch(self: Partition, follower: FollowerProgress) -> bool:
    if not self._may_join(follower):
        return False
    self._propose((*self.isr, follower.broker_id))
    return True


def no_incarnation_in_proposals(self: Partition, broker_id: int) -> int:
    return UNKNOWN


# Fetching.


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


def _bug(owner: type, method: str, broken: Any) -> Bug:
    name = broken.fget.__name__ if isinstance(broken, property) else broken.__name__
    return Bug(name.replace("_", " "), owner, method, broken)


def acknowledged_below_min_isr(self: Partition) -> bool:
    return False


BUGS = [
    _bug(Partition, "_advance_high_watermark", leader_alone_commits),
    _bug(IsrState, "propose", expansion_commits_without_the_new_member),
    _bug(IsrState, "propose", shrink_commits_before_it_is_decided),
    _bug(Partition, "_begin_epoch", new_leader_counts_what_is_not_flushed),
    _bug(Partition, "_propose_joining", joins_with_any_fetch),
    _bug(Partition, "_epoch_of", no_incarnation_in_proposals),
    _bug(Partition, "is_under_min_isr", property(acknowledged_below_min_isr)),
    _bug(Partition, "divergence", divergence_not_told),
    _bug(FetcherCore, "_begin", follower_truncates_to_its_high_watermark),
    _bug(FetcherCore, "_want", follower_claims_what_is_not_flushed),
]


def run(seed: int) -> None:
    """Only seeds with data can show anything here."""
    simulation = ClusterSimulation(seed)
    if simulation.swarm.data:
        simulation.run(EVENTS)


if __name__ == "__main__":
    sys.exit(examine(BUGS, run, SEEDS))
