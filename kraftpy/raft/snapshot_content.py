"""What stands in a snapshot around the records of the state machine.

First a control batch: the header with the time of the last record that is covered, and from
kraft.version 1 on the kraft.version and the voters as of the end. Then the state machine's batches.
Last a control batch with the footer. Offsets count from 0 within the snapshot; the epoch is that of
the snapshot. All times are the image's, never the clock's: the same state is the same bytes on
every node.

A reader insists on both ends, so that a snapshot which was cut off is never taken for a small one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraftpy.protocol.schema.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftpy.raft.log_state import MAX_BATCH_BYTES
from kraftpy.raft.voters import VoterSet
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import (
    ControlMessage,
    ControlType,
    build_control_batch,
    control_type,
    read_control_record,
)
from kraftpy.records.errors import InvalidRecord
from kraftpy.records.reader import read_records
from kraftpy.records.walker import AnyBatch, batch_at
from kraftpy.world import Buffer

__all__ = [
    "IncomingSnapshot",
    "SnapshotHead",
    "data_batches",
    "read_snapshot_head",
    "snapshot_foot",
    "snapshot_head",
]


def snapshot_head(
    *, epoch: int, timestamp_ms: int, voters: VoterSet, kraft_version: int
) -> tuple[bytearray, int]:
    """The first batch, and the offset of the one behind it."""
    messages: list[ControlMessage] = [
        SnapshotHeaderRecord(last_contained_log_timestamp=timestamp_ms)
    ]
    if kraft_version >= 1:
        messages += [KRaftVersionRecord(kraft_version=kraft_version), voters.to_record()]
    head = build_control_batch(
        messages, base_offset=0, leader_epoch=epoch, timestamp_ms=timestamp_ms
    )
    return head, len(messages)


def snapshot_foot(*, base_offset: int, epoch: int, timestamp_ms: int) -> bytearray:
    """The last batch."""
    return build_control_batch(
        [SnapshotFooterRecord()],
        base_offset=base_offset,
        leader_epoch=epoch,
        timestamp_ms=timestamp_ms,
    )


class SnapshotHead(NamedTuple):
    """What the first batch says. The voters may be missing, below kraft.version 1."""

    voters: VoterSet | None
    kraft_version: int
    last_contained_ms: int


def read_snapshot_head(data: Buffer) -> SnapshotHead:
    """Read the first batch of a snapshot; the bytes of more may follow."""
    batch = batch_at(data)
    if not isinstance(batch, RecordBatch) or not batch.is_valid or not batch.is_control:
        raise InvalidRecord("a snapshot does not begin with a control batch")
    messages = [
        read_control_record(record) for record in read_records(batch, max_bytes=MAX_BATCH_BYTES)
    ]
    if not messages or not isinstance(messages[0], SnapshotHeaderRecord):
        raise InvalidRecord("a snapshot does not begin with its header")
    voters: VoterSet | None = None
    kraft_version = 0
    for message in messages[1:]:
        if isinstance(message, VotersRecord):
            voters = VoterSet.from_record(message)
        elif isinstance(message, KRaftVersionRecord):
            kraft_version = message.kraft_version
    return SnapshotHead(voters, kraft_version, messages[0].last_contained_log_timestamp)


class _Order:
    """Looks at the batches of a snapshot, one after the other: are they sound, and in order?"""

    __slots__ = ("_is_closed", "_is_open")

    def __init__(self) -> None:
        self._is_open = False
        self._is_closed = False

    def admit(self, batch: AnyBatch) -> RecordBatch | None:
        """The batch, if it is the state machine's. InvalidRecord if it can't stand here."""
        if not isinstance(batch, RecordBatch) or not batch.is_valid:
            raise InvalidRecord("a snapshot is damaged: a batch is not what it was")
        if self._is_closed:
            raise InvalidRecord("a snapshot goes on behind its footer")
        if not self._is_open:
            if _first_type(batch) is not ControlType.SNAPSHOT_HEADER:
                raise InvalidRecord("a snapshot does not begin with its header")
            self._is_open = True
        elif batch.is_control:
            self._is_closed = _first_type(batch) is ControlType.SNAPSHOT_FOOTER
        else:
            return batch
        return None

    def finish(self) -> None:
        if not self._is_closed:
            raise InvalidRecord("a snapshot has no footer; it is cut off")


def data_batches(batches: Iterable[AnyBatch]) -> Iterator[RecordBatch]:
    """The state machine's batches of a snapshot, out of all its batches in order.

    Raises InvalidRecord, in the end at the latest, unless header and footer are where they belong
    and everything is sound; what was given before then must not be believed.
    """
    order = _Order()
    for batch in batches:
        data = order.admit(batch)
        if data is not None:
            yield data
    order.finish()


class IncomingSnapshot:
    """A snapshot that comes in pieces, which need not end where batches do.

    It is looked at before it takes the place of anything: the sender's disk may have lied to it.
    """

    __slots__ = ("_head", "_order", "_rest")

    def __init__(self) -> None:
        self._head: SnapshotHead | None = None
        self._order = _Order()
        # The beginning of a batch that is not complete yet.
        self._rest = bytearray()

    def take(self, data: Buffer) -> None:
        """Look at the next piece. Raises RecordDataError if this is no snapshot."""
        self._rest += data
        position = 0
        while (batch := batch_at(self._rest, position)) is not None:
            self._order.admit(batch)
            if self._head is None:
                self._head = read_snapshot_head(batch.data)
            position += batch.size
        del self._rest[:position]
        if len(self._rest) > MAX_BATCH_BYTES:
            raise InvalidRecord(f"a batch of a snapshot has more than {MAX_BATCH_BYTES} bytes")

    def finish(self) -> SnapshotHead:
        """There is no more to come. Raises RecordDataError unless it was all there."""
        self._order.finish()
        if self._rest or self._head is None:
            raise InvalidRecord("a snapshot goes on behind its footer")
        return self._head


def _first_type(batch: RecordBatch) -> ControlType | None:
    if not batch.is_control:
        return None
    record = next(read_records(batch, max_bytes=MAX_BATCH_BYTES), None)
    return None if record is None else control_type(record)
