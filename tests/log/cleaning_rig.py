"""Compacted logs for tests: filled with keys, cleaned, and read back as a consumer would."""

from __future__ import annotations

from dataclasses import replace

from log_rig import NOW_MS, TINY, Rig, batches_in, data_of

from kraftpy.log.cleaner import Cleaner
from kraftpy.log.cleaner_settings import CleanerSettings
from kraftpy.log.log_config import LogConfig
from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.reader import Record, read_records
from kraftpy.records.validation import AppendOrigin
from kraftpy.records.walker import records_of
from kraftpy.world import Disk

COMPACTED = replace(TINY, is_compacted=True, is_deleted=False, min_cleanable_dirty_ratio=0.0)
SETTINGS = CleanerSettings(map_bytes=100_000, buffer_bytes=300)


def keyed(
    *pairs: tuple[bytes | None, bytes | None],
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """A batch of these keys and values; a value of None is a tombstone."""
    builder = BatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
        codec=codec,
    )
    for key, value in pairs:
        builder.append(key, value, timestamp_ms=timestamp_ms)
    return builder.build()


class CompactedRig(Rig):
    """A partition directory of a compacted topic, and its cleaner."""

    def __init__(
        self,
        disk: Disk,
        root: str,
        config: LogConfig = COMPACTED,
        settings: CleanerSettings = SETTINGS,
    ) -> None:
        super().__init__(disk, root, config)
        self.root = root
        self.settings = settings
        self.log: PartitionLog
        self.cleaner: Cleaner

    async def start(self, *, is_clean: bool = False, recovery_point: int = 0) -> PartitionLog:
        """Load the log, take everything in it for replicated, and begin with its checkpoint."""
        self.log = await self.load(is_clean=is_clean, recovery_point=recovery_point)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.cleaner = Cleaner(self.disk, self.clock, self.settings, logs=lambda: [self.log])
        await self.cleaner.open_directory(self.root, [("t", 0)])
        return self.log

    def append(
        self, data: bytearray, *, origin: AppendOrigin = AppendOrigin.CLIENT, replicate: bool = True
    ) -> int:
        """The first offset."""
        info = self.log.append_as_leader(data, 0, origin=origin, transaction_version=1)
        if replicate:
            self.log.update_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def put(self, key: bytes, value: bytes | None, timestamp_ms: int = NOW_MS) -> int:
        return self.append(keyed((key, value), timestamp_ms=timestamp_ms))

    async def clean(self) -> bool:
        """Roll, so that everything may be cleaned, and clean once."""
        if self.log.active_segment.size_bytes:
            self.log.roll()
        return await self.cleaner.clean_dirtiest()


def records_in(log: PartitionLog) -> list[Record]:
    """All data records, aborted or not."""
    return [
        record
        for batch in batches_in(log)
        if not (isinstance(batch, RecordBatch) and batch.is_control)
        for record in records_of(batch, max_bytes=1 << 20)
        if record.offset >= log.log_start_offset
    ]


def committed(log: PartitionLog) -> list[Record]:
    """As a consumer with read_committed sees it, by the aborted transactions that it is given."""
    offset = log.log_start_offset
    found: list[Record] = []
    while True:
        read = log.read(offset, 1, Isolation.COMMITTED)
        if read.records is None:
            return found
        batch = RecordBatch(data_of(read))
        assert read.aborted_transactions is not None
        is_aborted = any(
            aborted.producer_id == batch.producer_id
            and aborted.first_offset <= batch.base_offset <= aborted.last_offset
            for aborted in read.aborted_transactions
        )
        if not batch.is_control and not (batch.is_transactional and is_aborted):
            found += read_records(batch, max_bytes=1 << 20)
        offset = batch.next_offset


def state_of(records: list[Record]) -> dict[bytes | None, bytes]:
    """What a reader from the start ends up with: key to last value, without deleted keys."""
    state: dict[bytes | None, bytes] = {}
    for record in records:
        state.pop(record.key, None)
        if record.value is not None:
            state[record.key] = record.value
    return dict(sorted(state.items(), key=lambda item: item[0] or b""))
