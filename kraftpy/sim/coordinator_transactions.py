"""The rules of transactions, 17 to 21, over what is committed in the logs that they touch.

- Along a log a producer's epoch never goes back, and its sequences have no gaps.
- Every decision that is carried out was committed before, and no other follows it.
- An older producer's batch is never appended after its successor was told its epoch.
- At the end every transaction is whole or not there: each input has exactly one output.
"""

from __future__ import annotations

from typing import Final

from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.coordinator.transactions.ports import MarkerJob
from kraftpy.coordinator.transactions.state import TransactionState
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.protocol.coordinator_records import TRANSACTION_RECORDS
from kraftpy.protocol.schema.transaction_records import TransactionLogKey, TransactionLogValue
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.walker import records_of, walk_batches
from kraftpy.sim.coordinator_rules import claim

__all__ = ["OUTPUTS", "TransactionRules"]

OUTPUTS: Final[tuple[TopicPartition, ...]] = (("out", 0), ("out", 1))
_MAX_BYTES: Final = 1 << 24
_COMPLETIONS: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class _Output:
    """What is committed in one log of outputs."""

    def __init__(self) -> None:
        # Offsets and values, in the order of the markers; and by producer, of open transactions.
        self.visible: list[tuple[int, str]] = []
        self.open: dict[int, list[tuple[int, str]]] = {}
        self.epochs: dict[int, int] = {}
        # By producer id, of its records: their epoch, and the sequence that is next in it.
        self.sequences: dict[int, tuple[int, int]] = {}


class TransactionRules:
    def __init__(self) -> None:
        self._states: dict[str, TransactionState] = {}
        self._decisions: dict[tuple[str, int, int, bool], None] = {}
        # By producer id and epoch, of transactions of version 2.
        self._carried_out: dict[tuple[int, int], bool] = {}
        self._outputs = {name: _Output() for name in OUTPUTS}
        # By producer id: from which epoch on, and where in each log that began to hold.
        self._fences: dict[int, tuple[int, dict[TopicPartition, int]]] = {}
        self.committed_count = 0

    # What coordinators do.

    def state_committed(self, data: bytes) -> None:
        """Invariant 19, of `__transaction_state`."""
        for batch in walk_batches(data):
            for record in records_of(batch, max_bytes=_MAX_BYTES):
                key = TRANSACTION_RECORDS.decode_key(record.key or b"")
                if not isinstance(key, TransactionLogKey) or record.value is None:
                    continue
                value, _ = TRANSACTION_RECORDS.decode_value(key, record.value)
                if isinstance(value, TransactionLogValue):
                    self._take_state(key.transactional_id, value)

    def _take_state(self, name: str, value: TransactionLogValue) -> None:
        old = self._states.get(name, TransactionState.EMPTY)
        new = self._states[name] = TransactionState(value.transaction_status)
        if old in _COMPLETIONS:
            is_own = new is old or new is _COMPLETIONS[old]
            claim(is_own, "decided-otherwise", f"{name}: {old.name}, then {new.name}")
        if new in _COMPLETIONS:
            is_commit = new is TransactionState.PREPARE_COMMIT
            decision = (name, value.producer_id, value.producer_epoch, is_commit)
            self._decisions[decision] = None

    def decided(self, job: MarkerJob) -> None:
        """Markers are about to be sent."""
        decision = (job.transactional_id, job.producer_id, job.producer_epoch, job.is_commit)
        claim(decision in self._decisions, "marker-before-decision", decision)
        if job.transaction_version >= 2:
            identity = (job.producer_id, job.producer_epoch)
            known = self._carried_out.setdefault(identity, job.is_commit)
            claim(known == job.is_commit, "decided-twice", decision)

    def ended(self, name: str, identity: Identity, *, is_commit: bool) -> None:
        """A producer is told that its transaction has ended as it wished."""
        pid, epoch = identity.producer_id, identity.epoch
        is_known = any(
            (name, pid, each, is_commit) in self._decisions for each in (epoch, epoch + 1)
        )
        claim(is_known, "ended-not-committed", f"{name} {identity}")
        self.committed_count += is_commit

    def begun(self, identity: Identity, ends: dict[TopicPartition, int]) -> None:
        """A producer is told its epoch; whoever has an older one writes nothing from here on."""
        self._fences[identity.producer_id] = (identity.epoch, ends)

    # What is written.

    def output_committed(self, name: TopicPartition, data: bytes) -> None:
        output = self._outputs[name]
        for batch in walk_batches(data):
            if not isinstance(batch, RecordBatch):
                continue
            producer_id, epoch = batch.producer_id, batch.producer_epoch
            known = output.epochs.get(producer_id, -1)
            claim(epoch >= known, "epoch-of-the-past", f"{name} {producer_id}: {epoch}, {known}")
            output.epochs[producer_id] = epoch
            if batch.is_control:
                [record] = records_of(batch, max_bytes=_MAX_BYTES)
                marker = read_control_record(record)
                values = output.open.pop(producer_id, [])
                if isinstance(marker, EndTransactionMarker) and marker.is_commit:
                    output.visible += values
                continue
            fence, ends = self._fences.get(producer_id, (-1, {}))
            is_allowed = epoch >= fence or batch.base_offset < ends[name]
            claim(is_allowed, "fenced-and-written", f"{name} {producer_id}: {epoch} < {fence}")
            self._check_sequence(output, batch)
            output.open.setdefault(producer_id, []).extend(
                (record.offset, (record.value or b"").decode())
                for record in records_of(batch, max_bytes=_MAX_BYTES)
            )

    def _check_sequence(self, output: _Output, batch: RecordBatch) -> None:
        epoch, expected = output.sequences.get(batch.producer_id, (-1, 0))
        if batch.producer_epoch != epoch:
            expected = 0
        first = batch.base_sequence
        claim(first == expected, "sequence-gap", f"{first}, {expected}")
        count = batch.last_offset - batch.base_offset + 1
        output.sequences[batch.producer_id] = (batch.producer_epoch, first + count)

    # The end.

    def disorder(self, *, has_pending: bool) -> str | None:
        for name, state in self._states.items():
            if not state.is_idle:
                return f"transaction of {name} is {state.name}"
        for place, output in self._outputs.items():
            if output.open:
                return f"{place} has open transactions of {list(output.open)}"
        return "offsets of a transaction are pending" if has_pending else None

    def check_end(self, inputs: dict[int, int]) -> None:
        """`inputs`: how far each partition of the input was processed, by its committed offset."""
        counts: dict[str, int] = {}
        for name, output in self._outputs.items():
            last: dict[str, int] = {}
            for _, value in sorted(output.visible):
                counts[value] = counts.get(value, 0) + 1
                index, _, number = value.partition(":")
                claim(int(number) > last.get(index, -1), "output-out-of-order", f"{name}: {value}")
                last[index] = int(number)
        for value, count in counts.items():
            claim(count == 1, "output-twice", value)
        for partition, end in inputs.items():
            for value in (f"{partition}:{each}" for each in range(end)):
                claim(counts.pop(value, 0) == 1, "output-lost", value)
        claim(not counts, "output-without-offset", counts)
