"""A log with an owner, a clock and a disk, for tests: loaded, restarted, crashed, read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from log_place import Place

from kraftpy.log.batch_set import BatchSet
from kraftpy.log.handles import HandlePool
from kraftpy.log.loading import load_log
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.log_reading import ReadableLog
from kraftpy.log.offsets import FoundOffset, Isolation, ReadInfo
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.time_search import TimeSearch
from kraftpy.observe.metrics import Meter, MetricRegistry
from kraftpy.observe.topic_metrics import TopicMetrics, metric_name
from kraftpy.records.batch import RecordBatch, TimestampType
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.control import EndTransactionMarker, build_end_transaction
from kraftpy.records.legacy import build_message_set
from kraftpy.records.reader import Record
from kraftpy.records.walker import AnyBatch, records_of, walk_batches
from kraftpy.world import Disk
from kraftpy.world.memory_clock import MemoryClock

NOW_MS = 1_700_000_000_000
# As small as it gets: a roll every few batches, an index entry for each.
TINY = LogConfig(segment_bytes=1024, index_interval_bytes=1, segment_index_bytes=1200)


@dataclass
class Owner:
    """Notes what the log asks for; a test does it when it wants."""

    pending: list[ReadableLog] = field(default_factory=list)
    unlinks: list[tuple[list[str], int]] = field(default_factory=list)
    failures: list[OSError] = field(default_factory=list)

    def work_pending(self, log: ReadableLog) -> None:
        self.pending.append(log)

    def unlink_later(self, paths: Sequence[str], delay_ms: int) -> None:
        self.unlinks.append((list(paths), delay_ms))

    def storage_failed(self, log: ReadableLog, error: OSError) -> None:
        self.failures.append(error)


class Clock(MemoryClock):
    """A wall clock that stands still until it is moved."""

    __slots__ = ("now_ms",)

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.now_ms


class Rig:
    """One partition directory on a disk, `t-0`."""

    def __init__(self, disk: Disk, root: str, config: LogConfig = TINY) -> None:
        self.disk = disk
        self.directory = f"{root}/t-0"
        self.config = config
        self.clock = Clock()
        self.owner = Owner()
        self.pool = HandlePool(disk, limit=100)
        self.metrics = MetricRegistry()
        self.environment = LogEnvironment(
            disk=disk,
            pool=self.pool,
            clock=self.clock,
            pace=Pace(self.clock),
            jitter=Random(4),
            owner=self.owner,
            verify_transactions=False,
            topic_metrics=TopicMetrics(self.metrics),
        )

    def metric_count(self, name: str, topic: str = "") -> float:
        """Of a BrokerTopicMetrics meter; 0 if it was never marked."""
        found = self.metrics.get(metric_name(name, (("topic", topic),) if topic else ()))
        return found.count if isinstance(found, Meter) else 0

    @classmethod
    def at(cls, place: Place, config: LogConfig = TINY) -> Rig:
        return cls(place.disk, place.directory, config)

    async def load(
        self, *, is_clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0
    ) -> PartitionLog:
        return await load_log(
            self.environment,
            self.directory,
            ("t", 0),
            self.config,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )

    async def reload(self, log: PartitionLog) -> PartitionLog:
        """A clean restart."""
        await log.close()
        return await self.load(
            is_clean=True,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
        )

    async def names(self, kind: str = "") -> list[str]:
        return [n for n in await self.disk.list_directory(self.directory) if kind in n]

    async def put(self, name: str, content: bytes) -> None:
        await self.disk.make_directory(self.directory)
        file = self.disk.open(f"{self.directory}/{name}", write=True, create=True)
        file.truncate(0)
        file.pwrite([content], 0)
        file.close()

    def get(self, name: str) -> bytes:
        file = self.disk.open(f"{self.directory}/{name}")
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()


def batch_set(*batches: bytes | bytearray) -> BatchSet:
    """What a log would append to a segment."""
    found = BatchSet()
    for data in batches:
        for each in walk_batches(data):
            found.add(each)
    return found


def batch(
    *values: bytes,
    timestamp_ms: int = NOW_MS,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
    codec: Codec = Codec.NONE,
) -> bytearray:
    """A batch as a producer sends it; each value has itself as key."""
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
        codec=codec,
    )
    for value in values:
        builder.append(value, value, timestamp_ms=timestamp_ms)
    return builder.build()


def marker(
    producer_id: int, producer_epoch: int, *, is_commit: bool, base_offset: int = 0
) -> bytearray:
    return build_end_transaction(
        EndTransactionMarker(is_commit=is_commit, coordinator_epoch=1),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp_ms=NOW_MS,
        base_offset=base_offset,
        leader_epoch=0,
    )


def legacy(*offsets: int, magic: int = 1) -> bytearray:
    return build_message_set(
        [Record(offset, NOW_MS + offset, b"k", b"v%d" % offset) for offset in offsets], magic=magic
    )


def data_of(read: ReadInfo) -> bytes:
    if read.records is None:
        return b""
    return read.records.file.pread(read.records.length, read.records.position)


def batches_in(
    log: ReadableLog, *, isolation: Isolation = Isolation.LOG_END, max_bytes: int = 1 << 20
) -> list[AnyBatch]:
    """All batches, read as a fetcher would."""
    offset = log.log_start_offset
    found: list[AnyBatch] = []
    while True:
        read = list(walk_batches(data_of(log.read(offset, max_bytes, isolation))))
        if not read:
            return found
        assert all(batch.is_valid for batch in read)
        assert read[0].last_offset >= offset, "a read begins with the batch that holds its offset"
        found += read
        offset = read[-1].last_offset + 1


def values_in(log: ReadableLog, *, isolation: Isolation = Isolation.LOG_END) -> dict[int, bytes]:
    """Offset to value of the data records."""
    return {
        record.offset: record.value or b""
        for found in batches_in(log, isolation=isolation)
        if not (isinstance(found, RecordBatch) and found.is_control)
        for record in records_of(found, max_bytes=1 << 20)
        if record.offset >= log.log_start_offset
    }


APPEND_TIME = TimestampType.LOG_APPEND_TIME


def by_time(log: ReadableLog, timestamp_ms: int | None) -> FoundOffset | None:
    """What a search for a time finds, all at once, in files that are warm."""
    assert isinstance(log, PartitionLog)
    search = TimeSearch(log, timestamp_ms)
    pace = Pace(MemoryClock())
    while not search.is_done:
        pace.begin()
        search.run_warm(pace)
        assert not search.is_cold
    return search.found
