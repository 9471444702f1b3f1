"""Invariants 19 to 21, by what is committed in the logs that transactions touch.

- 19: the states of a transactional id follow one another as they may. A marker stands in a log only
  if its decision was committed before; a producer whose epoch grows with each transaction has one
  decision for each epoch, so that all of its markers agree.
- 20: the aborted transactions that a log's index has are those that the log has, by its markers.
- 21: when a producer is told its epoch, nothing of an older one is written any more.

Judged is what can't have been lost. A gap in what was read (a compacted log) is a hole in what is
known: from then on nothing is said about ids and producers, of which a record may have been there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kraftpy.log.transactions import AbortedTransaction
from kraftpy.protocol.coordinator_records import TRANSACTION_RECORDS
from kraftpy.protocol.schema.transaction_records import TransactionLogKey, TransactionLogValue
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.walker import records_of
from kraftpy.sim.cluster_data_rules import PartitionKey
from kraftpy.sim.coordinator_rules import claim

__all__ = ["Marker", "WholeTransactionRules", "marker_of", "wrong_aborted_index"]

_MAX_BYTES: Final = 1 << 24
_FIRST_VERSION_WITH_EPOCH_BUMP: Final = 2
_EMPTY, _ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT = range(6)
_IDLE: Final = (_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT)
# What may come before each state; for a producer whose epoch grows, more may before an abort.
_BEFORE: Final[Mapping[int, tuple[int, ...]]] = {
    _EMPTY: _IDLE,
    _ONGOING: (*_IDLE, _ONGOING),
    _PREPARE_COMMIT: (_ONGOING,),
    _PREPARE_ABORT: (_ONGOING,),
    _COMPLETE_COMMIT: (_PREPARE_COMMIT,),
    _COMPLETE_ABORT: (_PREPARE_ABORT,),
}


class Marker(NamedTuple):
    producer_id: int
    epoch: int
    is_commit: bool


def marker_of(batch: RecordBatch) -> Marker | None:
    """The end of a transaction, if this is one."""
    if not batch.is_control:
        return None
    [record] = records_of(batch, max_bytes=_MAX_BYTES)
    found = read_control_record(record)
    if not isinstance(found, EndTransactionMarker):
        return None
    return Marker(batch.producer_id, batch.producer_epoch, found.is_commit)


class _Fence(NamedTuple):
    """From this epoch on, behind these ends of logs."""

    epoch: int
    ends: Mapping[PartitionKey, int]


class WholeTransactionRules:
    def __init__(self) -> None:
        self._states: dict[str, int] = {}
        # By producer id and epoch, what was decided, as Marker.is_commit.
        self._decisions: dict[tuple[int, int], dict[bool, None]] = {}
        self._fences: dict[int, list[_Fence]] = {}
        self._knows_all = True
        self.markers = self.states = 0

    def has_lost_records(self) -> None:
        """Records of `__transaction_state` were not seen, or may have been lost."""
        self._knows_all = False
        self._states.clear()

    def state_committed(self, batch: RecordBatch) -> None:
        """Invariant 19, of `__transaction_state`."""
        if batch.is_control:
            return
        for record in records_of(batch, max_bytes=_MAX_BYTES):
            key = TRANSACTION_RECORDS.decode_key(record.key or b"")
            if not isinstance(key, TransactionLogKey):
                continue
            if record.value is None:
                self._states.pop(key.transactional_id, None)
                continue
            value, _ = TRANSACTION_RECORDS.decode_value(key, record.value)
            if isinstance(value, TransactionLogValue):
                self._take_state(key.transactional_id, value)

    def _take_state(self, name: str, value: TransactionLogValue) -> None:
        new = value.transaction_status
        grows = value.client_transaction_version >= _FIRST_VERSION_WITH_EPOCH_BUMP
        old = self._states.get(name)
        self._states[name] = new
        self.states += 1
        if old is not None:
            allowed = _BEFORE[new]
            if new == _PREPARE_ABORT and grows:
                allowed = (*allowed, *_IDLE)
            claim(old in allowed, "illegal-transition", f"{name}: {old}, then {new}")
        if new in (_PREPARE_COMMIT, _PREPARE_ABORT):
            place = (value.producer_id, value.producer_epoch)
            decisions = self._decisions.setdefault(place, {})
            decisions[new == _PREPARE_COMMIT] = None
            claim(not grows or len(decisions) == 1, "decided-twice", f"{name}: {place}")

    def is_decided(self, marker: Marker) -> bool:
        """Whether a marker stands for a decision that is known to be committed."""
        decisions = self._decisions.get((marker.producer_id, marker.epoch), {})
        return not self._knows_all or marker.is_commit in decisions

    def marker_committed(self, key: PartitionKey, marker: Marker) -> None:
        """When everything is known that was committed before."""
        self.markers += 1
        claim(self.is_decided(marker), "marker-before-decision", f"{key}: {marker}")

    # Invariant 21.

    def begun(self, producer_id: int, epoch: int, ends: Mapping[PartitionKey, int]) -> None:
        """A producer is told its epoch; `ends` are the farthest ends of all replicas' logs."""
        self._fences.setdefault(producer_id, []).append(_Fence(epoch, ends))

    def data_committed(self, key: PartitionKey, batch: RecordBatch) -> None:
        for fence in self._fences.get(batch.producer_id, ()):
            is_allowed = batch.producer_epoch >= fence.epoch or batch.base_offset < fence.ends.get(
                key, 0
            )
            claim(
                is_allowed,
                "fenced-and-written",
                f"{key[0].hex()}-{key[1]} at {batch.base_offset}: producer {batch.producer_id},"
                f" epoch {batch.producer_epoch}, where {fence.epoch} was told",
            )


# Invariant 20.


def wrong_aborted_index(
    batches: Iterable[RecordBatch], index: Sequence[AbortedTransaction], log_start_offset: int
) -> str | None:
    """How the index of a whole log differs from what its markers say.

    Transactions that began before the log does have lost their beginning.
    """
    expected: dict[tuple[int, int], int | None] = {}
    opened: dict[int, int] = {}
    for batch in batches:
        if not batch.is_control:
            if batch.is_transactional:
                opened.setdefault(batch.producer_id, batch.base_offset)
            continue
        first = opened.pop(batch.producer_id, None)
        marker = marker_of(batch)
        if marker is not None and not marker.is_commit:
            expected[batch.producer_id, batch.base_offset] = first
    for each in index:
        if each.last_offset < log_start_offset:
            continue
        place = (each.producer_id, each.last_offset)
        if place not in expected:
            return f"{each} in the index, not in the log"
        first = expected.pop(place)
        if each.first_offset != first and each.first_offset >= log_start_offset:
            return f"{each} in the index, where the log has {first}"
    for (producer_id, last), first in expected.items():
        if first is not None:
            return f"producer {producer_id} from {first} to {last} in the log, not in the index"
    return None
