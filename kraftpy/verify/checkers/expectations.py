"""What a run promised, which decides what counts against it: its configuration and its audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kraftpy.verify.checkers.audit import Audit

__all__ = ["Expectations", "Isolation", "Vacuity"]

Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True)
class Vacuity:
    """The least that a run must have done to say anything.

    Each nemesis in `nemeses` fires at least twice, and at least one of its ends names an effect
    that was observed.
    """

    min_acked_values: int = 1_000
    min_ok_fraction: float = 0.3
    required_kinds: tuple[str, ...] = ()
    """Kinds of operations with at least one ok; whatever else was tried needs one too."""
    nemeses: tuple[str, ...] = ()
    min_fires: int = 2
    needs_final_read: bool = True
    needs_audit: bool = False


@dataclass(frozen=True, slots=True)
class Expectations:
    """The defaults are the safe configuration: everything that Kafka promises is held against it.

    Times of liveness rules are None where the run does not judge them.
    """

    workload: str = ""
    isolation: Isolation = "read_committed"
    acks: Literal["all", "1", "0"] = "all"
    is_idempotent: bool = True
    unclean_elections_enabled: bool = False
    lost_unsynced_data: bool = False
    """Min ISR or more replicas of a key lost power, with flush-before-ack off."""
    recreated_keys: frozenset[int] = frozenset()
    """Of topics that were deleted and made again: they began anew, with other values and epochs."""
    leaders_changed: bool = False
    log_append_time: bool = False
    """Timestamps are the broker's, so they may not decrease along offsets."""
    retention: bool = False
    """Retention or compaction was on: log starts may rise by themselves, offsets may vanish."""
    auto_commit: bool = False
    epoch_per_transaction: bool = False
    """Every transaction has a producer epoch of its own, so an epoch has one outcome."""
    copy_inputs: tuple[int, ...] = ()
    """Keys of which every value must be copied exactly once, in order (W5)."""
    is_drained: bool = True
    """The copying came to its end when all was well again."""
    bank_total: int | None = None
    """The sum of all accounts (W6)."""
    compacted: bool = False
    """Records have record keys, of which the newest value must survive (W14)."""
    lag_limit_ns: int | None = None
    """How old the newest unread value may be once the cluster is healed."""
    rebalance_limit_ns: int | None = None
    """Within which a group must be stable after its last membership event."""
    hanging_limit_ns: int | None = None
    """For how long the last stable offset may stay behind without an open transaction."""
    search_limit_ns: int = 300 * 10**9
    """For the search of a linearization, by the clock that `check` is given; beyond it, or beyond
    as many steps, that part is inconclusive."""
    search_limit_steps: int = 20_000_000
    vacuity: Vacuity | None = Vacuity()
    """None: the history is not asked whether it did enough."""
    audit: Audit | None = None
