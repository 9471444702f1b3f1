"""Invariants 10 to 16: what no replica of the simulated cluster may lose, and nobody read.

The checker sees every log from outside, running or not, and keeps for each partition what was ever
acknowledged to a producer that asked for all replicas, or shown to a consumer: the true records;
and the highest offset that any leader ever called committed: the true high watermark.

- 10, 16: every running member of ISR and ELR has everything below the true high watermark, and in
  flush mode on its disk. A process counts as a member once it is registered: until then it is its
  predecessor that is meant.
- 11: a leader that may commit waits for everybody whom the controller might elect.
- 12, 13: who begins to lead has all true records, as they were; nobody is shown others.
- 14: log start <= last stable offset <= high watermark <= log end, and offsets without a gap. What
  a leader calls committed it goes on to call so.
- 17, 18: see cluster_producer_rules.py; and an idempotent producer is told where its records are.
- 15: at an answer to acks=all, min ISR replicas have the records; flushed, in flush mode.

And nobody is served who means another leader epoch: its log may be of another past.

What may be lost all the same. A leader from outside of ISR and ELR is allowed to have lost
anything: from then on the partition is not judged. What was on machines that failed with the end
of a log unflushed may be lost too: with as many of them as min ISR, or with one, where there is no
ELR and the last member of an ISR stays in it whatever befalls it. In flush mode nobody counts on
what isn't flushed, and nothing is allowed to be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from kraftpy.broker.partition import Partition
from kraftpy.log.offsets import UNKNOWN, Isolation
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import NO_LEADER, RECOVERED, PartitionRecord
from kraftpy.protocol.ids import Uuid
from kraftpy.records.batch import RecordBatch
from kraftpy.records.reader import read_records
from kraftpy.records.walker import walk_batches
from kraftpy.sim.cluster_producer_rules import CheckedLog, ProducerFold
from kraftpy.sim.cluster_rules import min_isr
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.world.invariants import InternalInvariant

__all__ = ["DataRules", "PartitionKey", "ReplicaHost", "TrueRecord", "records_from", "records_in"]

PartitionKey: TypeAlias = tuple[Uuid, int]
# The leader epoch in which it was appended, and its value.
TrueRecord: TypeAlias = tuple[int, bytes]

_ALL_BYTES = 1 << 30
_READ_BYTES = 1 << 20
_BATCH_MAX_BYTES = 1 << 26
_BATCHES_KEPT = 256
# Of the moves of high watermarks, with which the producers of a log are looked at.
_FOLD_EVERY = 5


class ReplicaHost(Protocol):
    """A broker as the checker sees it. Its logs are there when it isn't."""

    @property
    def logs(self) -> Mapping[PartitionKey, CheckedLog]: ...

    @property
    def hosted(self) -> Mapping[PartitionKey, Partition]:
        """What the process has made of its logs."""
        ...

    @property
    def is_running(self) -> bool: ...

    @property
    def broker_epoch(self) -> int:
        """As which it is registered; -1 before."""
        ...


def records_from(
    log: CheckedLog,
    offset: int,
    isolation: Isolation = Isolation.LOG_END,
    max_bytes: int = _READ_BYTES,
) -> Iterator[tuple[int, TrueRecord]]:
    """What one read at `offset` gives."""
    records = log.read(offset, max_bytes, isolation).records
    if records is None:
        return
    for batch in walk_batches(records.file.pread(records.length, records.position)):
        if isinstance(batch, RecordBatch):
            for each in records_in(bytes(batch.data)):
                if each[0] >= offset:
                    yield each


@lru_cache(maxsize=_BATCHES_KEPT)
def records_in(data: bytes) -> tuple[tuple[int, TrueRecord], ...]:
    """Of a batch, which is looked at in several logs, and by several consumers."""
    batch = RecordBatch(data)
    return tuple(
        (record.offset, (batch.leader_epoch, record.value or b""))
        for record in read_records(batch, max_bytes=_BATCH_MAX_BYTES)
    )


class _HeldPart(NamedTuple):
    log_start_offset: int
    end_offset: int
    records: dict[int, TrueRecord]

    def has(self, offset: int, record: TrueRecord) -> bool:
        """Or had it, and has deleted it rightly."""
        if offset >= self.end_offset:
            return False
        return offset < self.log_start_offset or self.records.get(offset) == record


class _TruePartition:
    __slots__ = (
        "high_watermark",
        "is_free",
        "log_start_offset",
        "losses",
        "lowest_min_isr",
        "records",
        "told",
    )

    def __init__(self) -> None:
        self.high_watermark = 0
        # Below, records were deleted.
        self.log_start_offset = 0
        # The last one of each leader in each leader epoch.
        self.told: dict[tuple[int, int], int] = {}
        self.records: dict[int, TrueRecord] = {}
        # Machines that failed with the end of this partition's log.
        self.losses = 0
        self.lowest_min_isr = 1 << 30
        # An unclean election has set it free from its past.
        self.is_free = False


class DataRules:
    __slots__ = (
        "_due",
        "_flushes",
        "_folds",
        "_has_elr",
        "_moves",
        "_partitions",
        "acknowledged",
        "delivered",
        "hosts",
    )

    def __init__(self, *, flushes: bool, has_elr: bool) -> None:
        self._flushes = flushes
        self._has_elr = has_elr
        self._partitions: dict[PartitionKey, _TruePartition] = {}
        # Those whose metadata has changed since they were checked.
        self._due: dict[PartitionKey, None] = {}
        # Of each partition, what the log that was looked at last says of producers.
        self._folds: dict[PartitionKey, ProducerFold] = {}
        self.hosts: dict[int, ReplicaHost] = {}
        # How many records producers and consumers have seen.
        self.acknowledged = 0
        self.delivered = 0
        self._moves = 0

    def _true(self, key: PartitionKey) -> _TruePartition:
        true = self._partitions.get(key)
        if true is None:
            true = self._partitions[key] = _TruePartition()
        return true

    def _is_judged(self, true: _TruePartition) -> bool:
        if true.is_free:
            return False
        return true.losses < (true.lowest_min_isr if self._has_elr else 1)

    def is_judged(self, key: PartitionKey) -> bool:
        """Whether nothing that was committed may have been lost."""
        return self._is_judged(self._true(key))

    def _fail(self, code: str, key: PartitionKey, details: str) -> None:
        raise InvariantViolated(code, f"{key[0].hex()}-{key[1]}: {details}")

    # The metadata.

    def committed(self, changes: ImageChanges) -> None:
        """One committed batch; `check_due` follows when there are no more."""
        for change in changes.partitions():
            after = change.after
            if after is None:
                continue
            key = (after.topic_id, after.partition_id)
            self._due[key] = None
            if after.leader_recovery_state != RECOVERED:
                self._true(key).is_free = True

    def check_due(self, image: MetadataImage) -> None:
        due, self._due = self._due, {}
        for key in due:
            self._check_candidates(key, image)

    def _check_candidates(self, key: PartitionKey, image: MetadataImage) -> None:
        """Invariants 10 and 16."""
        true = self._true(key)
        topic = image.topic_by_id(key[0])
        record = image.partition(*key)
        if topic is None or record is None:
            return
        true.lowest_min_isr = min(true.lowest_min_isr, min_isr(image, topic.name))
        self._check_quorum(key, record)
        if not self._is_judged(true):
            return
        for broker_id in record.isr + record.eligible_leader_replicas:
            host, registered = self.hosts[broker_id], image.brokers.get(broker_id)
            if registered is None or not host.is_running:
                continue
            if host.broker_epoch != registered.broker_epoch:
                continue
            end = self._safe_end(broker_id, key)
            if end < true.high_watermark:
                self._fail(
                    "candidate-behind",
                    key,
                    f"broker {broker_id} ends at {end}, {true.high_watermark} was committed:"
                    f" {record}",
                )

    def _safe_end(self, broker_id: int, key: PartitionKey) -> int:
        """How far others may count on a log."""
        log = self.hosts[broker_id].logs.get(key)
        if log is None:
            return 0
        return self._durable_end(broker_id, key, log) if self._flushes else log.log_end_offset

    def _durable_end(self, broker_id: int, key: PartitionKey, log: CheckedLog) -> int:
        """What no loss of power can take."""
        return log.recovery_point

    def _check_quorum(self, key: PartitionKey, record: PartitionRecord) -> None:
        """Invariant 11."""
        if record.leader == NO_LEADER:
            return
        partition = self.hosts[record.leader].hosted.get(key)
        if partition is None or partition.leader_epoch != record.leader_epoch:
            return
        electable = record.isr + record.eligible_leader_replicas
        if partition.may_commit and any(each not in partition.maximal_isr for each in electable):
            self._fail("quorum-too-small", key, f"{partition.maximal_isr} for {record}")

    # What replicas do.

    def lost(self, key: PartitionKey) -> None:
        """A machine has failed, and with it the unflushed end of a log that others count on."""
        if not self._flushes:
            self._true(key).losses += 1

    def cut(self, key: PartitionKey, image: MetadataImage) -> None:
        """A log was truncated, or has been recovered."""
        self._check_candidates(key, image)

    def high_watermark_moved(self, partition: Partition, image: MetadataImage) -> None:
        """A leader says that more is committed than before."""
        key = (partition.topic_id, partition.topic_partition[1])
        true = self._true(key)
        true.lowest_min_isr = min(true.lowest_min_isr, partition.min_insync_replicas)
        high_watermark = partition.log.high_watermark
        true.high_watermark = max(true.high_watermark, high_watermark)
        leadership = (partition.broker_id, partition.leader_epoch)
        if high_watermark < true.told.get(leadership, 0):
            self._fail("high-watermark-falls", key, f"to {high_watermark}: {partition}")
        true.told[leadership] = high_watermark
        self._moves += 1
        if self._moves % _FOLD_EVERY == 0:
            self._check_producers(key, self.hosts[partition.broker_id].logs[key])
        self._check_candidates(key, image)

    def served(self, partition: Partition, leader_epoch: int) -> None:
        """A fetch was answered: whoever asked, and the leader, mean the same leadership."""
        if leader_epoch not in (UNKNOWN, partition.leader_epoch):
            key = (partition.topic_id, partition.topic_partition[1])
            self._fail("epochs-mixed", key, f"a fetch of epoch {leader_epoch} by {partition}")

    def check_order(self, key: PartitionKey, log: CheckedLog) -> None:
        """Invariant 14."""
        try:
            log.check()
        except InternalInvariant as error:
            self._fail("offsets-disordered", key, str(error))

    def _check_producers(self, key: PartitionKey, log: CheckedLog) -> None:
        """Invariants 17 and 18, of a leader's log, and what is stable of it."""
        fold = self._folds.get(key)
        if fold is None or fold.log is not log:
            fold = self._folds[key] = ProducerFold(log)
        wrong = fold.wrong_sequence()
        if wrong is not None:
            self._fail("sequence-broken", key, wrong)
        wrong = fold.wrong_last_stable(self._true(key).high_watermark)
        if wrong is not None:
            self._fail("unstable-shown", key, wrong)

    def leads(self, broker_id: int, partition: Partition, image: MetadataImage) -> None:
        """Invariants 12 and 13, where somebody begins to lead and is not deposed yet."""
        key = (partition.topic_id, partition.topic_partition[1])
        record = image.partition(*key)
        if record is not None and record.leader_epoch == partition.leader_epoch:
            self._check_records(broker_id, key)
            self._check_producers(key, self.hosts[broker_id].logs[key])

    def deleted(self, key: PartitionKey, log_start_offset: int) -> None:
        """What lies below need not be there any more."""
        true = self._true(key)
        true.log_start_offset = max(true.log_start_offset, log_start_offset)

    def _check_records(self, broker_id: int, key: PartitionKey) -> None:
        true = self._true(key)
        if not self._is_judged(true) or not true.records:
            return
        log = self.hosts[broker_id].logs[key]
        has = dict(_all_records(log))
        for offset, record in true.records.items():
            if has.get(offset) != record and offset >= true.log_start_offset:
                self._fail(
                    "record-lost",
                    key,
                    f"leader {broker_id} has {has.get(offset)} at {offset}, where {record} was",
                )

    # What clients see.

    def acked(
        self, partition: Partition, first_offset: int, end_offset: int, image: MetadataImage
    ) -> None:
        """Invariant 15: records are acknowledged to a producer that asked for all replicas.

        By a leader that may not know yet that some replicas, or all of them, were deleted.
        """
        key = (partition.topic_id, partition.topic_partition[1])
        true = self._true(key)
        metadata = image.partition(*key)
        if metadata is None or not self._is_judged(true):
            return
        replica_count = min(len(partition.replicas), len(metadata.replicas))
        needed = min(partition.min_insync_replicas, replica_count) - true.losses
        log = self.hosts[partition.broker_id].logs[key]
        held = {
            broker_id: self._held(broker_id, key, first_offset, end_offset)
            for broker_id in self.hosts
        }
        for offset, record in _records_between(log, first_offset, end_offset):
            self.acknowledged += 1
            self._remember(key, true, offset, record)
            holders = [
                broker_id
                for broker_id, part in held.items()
                if part is not None and part.has(offset, record)
            ]
            if len(holders) < needed:
                self._fail(
                    "acknowledged-too-early",
                    key,
                    f"{record} at {offset} is on {holders}, not on {needed}: {partition}",
                )

    def _held(
        self, broker_id: int, key: PartitionKey, first_offset: int, end_offset: int
    ) -> _HeldPart | None:
        """What a replica has of a part of the log, as far as it counts."""
        log = self.hosts[broker_id].logs.get(key)
        if log is None:
            return None
        end = log.log_end_offset
        if self._flushes:
            end = min(end, self._durable_end(broker_id, key, log))
        records = dict(_records_between(log, first_offset, min(end, end_offset)))
        return _HeldPart(log.log_start_offset, end, records)

    def shown(self, key: PartitionKey, offset: int, record: TrueRecord) -> None:
        """Invariant 13: a consumer gets a record."""
        self.delivered += 1
        true = self._true(key)
        if self._is_judged(true):
            self._remember(key, true, offset, record)

    def _remember(
        self, key: PartitionKey, true: _TruePartition, offset: int, record: TrueRecord
    ) -> None:
        before = true.records.setdefault(offset, record)
        if before != record:
            self._fail("record-changed", key, f"{record} at {offset}, where {before} was")

    def is_judged_leader(self, partition: Partition, image: MetadataImage) -> bool:
        """Whether it leads indeed, and must know everything that was acknowledged."""
        key = (partition.topic_id, partition.topic_partition[1])
        record = image.partition(*key)
        return (
            record is not None
            and (record.leader, record.leader_epoch)
            == (partition.broker_id, partition.leader_epoch)
            and self._is_judged(self._true(key))
        )

    def placed(self, key: PartitionKey, sent: bytes, found: bytes) -> None:
        """An idempotent producer was told where its records are."""
        if sent != found:
            self._fail("answered-elsewhere", key, f"{found!r} is where {sent!r} should be")

    def refused(self, key: PartitionKey, details: str) -> None:
        """An idempotent producer is told that it has left something out, or is fenced."""
        self._fail("sequence-refused", key, details)

    def gap_taken(self, key: PartitionKey, details: str) -> None:
        """A producer has left something out, and was told that all is well."""
        self._fail("sequence-gap", key, details)

    # The end.

    def disorder(self, key: PartitionKey, record: PartitionRecord) -> str | None:
        """What keeps the replicas of a partition that is led from being alike."""
        if record.leader == NO_LEADER:
            return None
        logs = [self.hosts[each].logs.get(key) for each in record.replicas]
        ends = [-1 if log is None else log.log_end_offset for log in logs]
        if min(ends) != max(ends) or -1 in ends:
            return f"replicas end at {ends}: {record}"
        if sorted(record.isr) == sorted(record.replicas):
            marks = [-1 if log is None else log.high_watermark for log in logs]
            if min(marks) != ends[0]:
                return f"{ends[0]} is not committed on all: {marks}, {record}"
            return None
        # Who is not in sync may end where the leader does by chance, with records of an earlier
        # leader that it will truncate at its next fetch. Its last epoch tells.
        epochs = [None if log is None else _last_epoch(log) for log in logs]
        if len({each for each in epochs if each is not None}) > 1:
            return f"replicas end in epochs {epochs}: {record}"
        return None

    def check_end(self, image: MetadataImage, unjudged: Collection[str] = ()) -> None:
        """Invariant 12, and that replicas are alike, but for topics `unjudged`.

        Where there is no disorder: who ends at the same offset in the same epoch has the same log.
        """
        for topic in image.topics.values():
            if topic.name in unjudged:
                continue
            for record in topic.partitions:
                key = (record.topic_id, record.partition_id)
                if record.leader == NO_LEADER:
                    continue
                self._check_records(record.leader, key)
                logs = [self.hosts[each].logs[key] for each in record.replicas]
                self._check_producers(key, self.hosts[record.leader].logs[key])
                # Each may have deleted what it was told to when it led.
                start = max(log.log_start_offset for log in logs)
                if not _are_alike(logs, start):
                    self._fail("replicas-differ", key, f"{record}")


def _records_between(
    log: CheckedLog, start_offset: int, end_offset: int
) -> Iterator[tuple[int, TrueRecord]]:
    """A batch at a time: there are few."""
    offset = max(log.log_start_offset, start_offset)
    while offset < end_offset:
        start = offset
        for found in records_from(log, start, max_bytes=1):
            if found[0] >= end_offset:
                return
            yield found
            offset = found[0] + 1
        if offset == start:
            return


def _last_epoch(log: CheckedLog) -> int | None:
    """The leader epoch of the last record; None if all are deleted."""
    if log.log_start_offset == log.log_end_offset:
        return None
    found = next(records_from(log, log.log_end_offset - 1, max_bytes=1), None)
    return None if found is None else found[1][0]


def _are_alike(logs: Collection[CheckedLog], start_offset: int) -> bool:
    """Byte for byte, as a rule; or at least record by record."""
    contents = [_all_bytes(log, start_offset) for log in logs]
    if all(content == contents[0] for content in contents):
        return True
    records = [list(_all_records(log, start_offset)) for log in logs]
    return all(each == records[0] for each in records)


def _all_bytes(log: CheckedLog, start_offset: int) -> bytes:
    parts: list[bytes] = []
    offset = max(log.log_start_offset, start_offset)
    while (records := log.read(offset, _ALL_BYTES, Isolation.LOG_END).records) is not None:
        parts.append(records.file.pread(records.length, records.position))
        start = offset
        for batch in walk_batches(parts[-1]):
            offset = batch.next_offset
        if offset == start:
            break
    return b"".join(parts)


def _all_records(log: CheckedLog, start_offset: int = 0) -> Iterator[tuple[int, TrueRecord]]:
    offset = max(log.log_start_offset, start_offset)
    while True:
        found = list(records_from(log, offset))
        if not found:
            return
        yield from found
        offset = found[-1][0] + 1
