"""Replicas for tests: batches, logs in memory, brokers' states, and what partitions tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftpy.broker.isr import IsrAnswer
from kraftpy.broker.memory_replica_log import MemoryReplicaLog
from kraftpy.broker.partition import Partition
from kraftpy.broker.replica_log import ReplicaLog
from kraftpy.log.log_config import LogConfig
from kraftpy.log.offsets import AppendInfo, Isolation, OffsetMetadata, ReadInfo
from kraftpy.metadata.records import PartitionRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.reader import read_records
from kraftpy.records.walker import walk_batches
from kraftpy.world.memory_clock import MemoryClock

NOW_MS = 1_700_000_000_000
TOPIC_ID = Uuid(b"0123456789abcdef")
LAG_MS = 30_000


class StillClock(MemoryClock):
    """A wall clock that does not move."""

    def wall_ms(self) -> int:
        return NOW_MS


def batch(
    *values: bytes,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    for value in values:
        builder.append(None, value, timestamp_ms=NOW_MS)
    return builder.build()


def memory_log(*, flush_messages: int = 1 << 62) -> MemoryReplicaLog:
    return MemoryReplicaLog(StillClock(), LogConfig(flush_messages=flush_messages))


def data_of(read: ReadInfo) -> bytes:
    if read.records is None:
        return b""
    return read.records.file.pread(read.records.length, read.records.position)


def batches_in(
    log: ReplicaLog, isolation: Isolation = Isolation.LOG_END, *, max_bytes: int = 1 << 20
) -> list[RecordBatch]:
    offset = log.log_start_offset
    found: list[RecordBatch] = []
    while True:
        read = list(walk_batches(data_of(log.read(offset, max_bytes, isolation))))
        if not read:
            return found
        assert all(isinstance(each, RecordBatch) and each.is_valid for each in read)
        found += [each for each in read if isinstance(each, RecordBatch)]
        offset = read[-1].last_offset + 1


def values_in(
    log: ReplicaLog, isolation: Isolation = Isolation.LOG_END
) -> dict[int, tuple[int, bytes]]:
    """Offset to epoch and value."""
    return {
        record.offset: (each.leader_epoch, record.value or b"")
        for each in batches_in(log, isolation)
        if not each.is_control
        for record in read_records(each, max_bytes=1 << 20)
        if record.offset >= log.log_start_offset
    }


@dataclass
class Brokers:
    """All alive with epoch 100 + id, but those named here."""

    dead: list[int] = field(default_factory=list)
    leaving: list[int] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id not in self.dead

    def eligible_epoch(self, broker_id: int) -> int | None:
        if broker_id in self.dead or broker_id in self.leaving:
            return None
        return self.epochs.get(broker_id, 100 + broker_id)


@dataclass
class Events:
    """Notes what it is told, with the high watermark at that moment."""

    told: list[tuple[str, int]] = field(default_factory=list)

    def _note(self, what: str, partition: Partition) -> None:
        self.told.append((what, partition.log.high_watermark))

    def appended(self, partition: Partition) -> None:
        self._note("appended", partition)

    def high_watermark_moved(self, partition: Partition) -> None:
        self._note("high watermark", partition)

    def log_start_moved(self, partition: Partition) -> None:
        self._note("log start", partition)

    def isr_wanted(self, partition: Partition) -> None:
        self._note("isr", partition)

    def role_changed(self, partition: Partition) -> None:
        self._note("role", partition)

    def take(self) -> list[str]:
        names = [name for name, _ in self.told]
        self.told.clear()
        return names


def record(
    leader: int,
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    leader_epoch: int = 5,
    partition_epoch: int = 10,
) -> PartitionRecord:
    return PartitionRecord(
        0,
        TOPIC_ID,
        replicas,
        isr,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
    )


class Hosted:
    """Broker 1's replica of a partition, with what is around it. Time is told, in ms."""

    def __init__(self, *, min_isr: int = 1, flush_messages: int = 1 << 62) -> None:
        self.brokers = Brokers()
        self.events = Events()
        self.log = memory_log(flush_messages=flush_messages)
        self.partition = Partition(
            ("t", 0),
            TOPIC_ID,
            1,
            self.log,
            brokers=self.brokers,
            events=self.events,
            lag_time_max_ms=LAG_MS,
            min_insync_replicas=min_isr,
        )
        self.now_ms = 0

    def lead(
        self, *, isr: tuple[int, ...] = (1, 2, 3), epoch: int = 5, partition_epoch: int = 10
    ) -> bool:
        given = record(1, isr=isr, leader_epoch=epoch, partition_epoch=partition_epoch)
        return self.partition.lead(given, self.now_ms)

    def append(self, count: int = 1, *, acks: int = 1) -> AppendInfo:
        return self.partition.append(batch(*[b"v"] * count), required_acks=acks, now_ms=self.now_ms)

    def fetch(
        self,
        broker_id: int,
        offset: int,
        *,
        log_start: int = 0,
        epoch: int | None = None,
        leader_end: int | None = None,
    ) -> bool:
        """A follower asks for `offset`."""
        return self.partition.follower_fetched(
            broker_id,
            OffsetMetadata(offset),
            log_start_offset=log_start,
            leader_end_offset=self.log.log_end_offset if leader_end is None else leader_end,
            broker_epoch=100 + broker_id if epoch is None else epoch,
            now_ms=self.now_ms,
        )

    def answer(
        self,
        error: ErrorCode = ErrorCode.NONE,
        *,
        isr: tuple[int, ...] = (),
        epoch: int = 5,
        partition_epoch: int = 11,
    ) -> None:
        """The controller's answer to what is proposed."""
        proposal = self.partition.proposal
        assert proposal is not None
        answer = IsrAnswer(error, 1, isr, epoch, partition_epoch)
        self.partition.proposal_answered(proposal, answer, self.now_ms)

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark
