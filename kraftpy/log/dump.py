"""What is in the files of a log, for people: the engine of `kraftpy log dump`.

Knows every file in a data directory by its name. What it finds comes as entries of plain facts
under the names that Kafka's dump tool uses, in its order; how they are printed is the command's
business. Files are read as they are, never changed, and one after the other, so a segment of any
size takes the memory of its largest batch.

Nothing in a file is trusted. Whatever is wrong becomes an entry of the kind PROBLEM that says
where, and the dump goes on behind it as far as that makes sense: behind a batch with a wrong CRC,
but not behind one whose length can't be. Indexes are held against the log beside them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kraftpy.log.batch_headers import BatchHeader, header_at, walk_headers
from kraftpy.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
)
from kraftpy.log.dump_decoders import RecordDecoder, UndecodableError
from kraftpy.log.dump_records import batch_facts, record_facts
from kraftpy.log.dump_structs import Facts
from kraftpy.log.errors import CorruptIndexError, CorruptSnapshotError, MalformedFileError
from kraftpy.log.index import OffsetIndex, TimeIndex
from kraftpy.log.meta_properties import META_PROPERTIES, parse_meta_properties
from kraftpy.log.producer_entries import NO_OFFSET, decode_snapshot
from kraftpy.log.segment_files import FileKind, SegmentFile, file_name, parse_file_name
from kraftpy.log.transactions import ENTRY_BYTES, TransactionIndex
from kraftpy.protocol.ids import format_uuid
from kraftpy.records.batch import HEADER_SIZE
from kraftpy.records.errors import CorruptRecord, RecordDataError
from kraftpy.records.reader import Record
from kraftpy.records.walker import AnyBatch, batch_at, records_of
from kraftpy.world import Disk, File

__all__ = ["DumpOptions", "Entry", "EntryKind", "UnknownFileError", "dump_file"]

# More than any broker's limit for a batch; a bomb ends here.
_MAX_INFLATED_BYTES = 1024 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024


class UnknownFileError(Exception):
    """A name that says nothing about what is inside."""


class EntryKind(Enum):
    FILE = "file"
    """Comes first: what the file is."""
    BATCH = "batch"
    RECORD = "record"
    ENTRY = "entry"
    """One entry of an index, snapshot or checkpoint."""
    NOTE = "note"
    """Something to know that is no damage."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a file. Notes and problems have a `message`."""

    kind: EntryKind
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    shows_records: bool = False
    shown: RecordDecoder | None = None
    """What to show of their keys and values."""
    only_checks: bool = False
    """Of indexes: notes and problems alone."""
    max_bytes: int | None = None
    """How much of a log to read; a batch that begins before is read whole."""


_Dump: TypeAlias = Callable[[File, str], Iterator[Entry]]


def dump_file(disk: Disk, path: str, options: DumpOptions) -> Iterator[Entry]:
    """All that is in a file. Raises UnknownFileError at once, OSError also on the way."""
    name = path.rpartition("/")[2]
    segment_file = parse_file_name(name)
    if segment_file is not None:
        return _dump_segment_file(disk, path, segment_file, options)
    if name in _TEXT_FILES:
        return _dump_text(disk, path, _TEXT_FILES[name])
    if name.endswith((".log", ".checkpoint")):
        # Batches tell their offsets themselves, so a copy may have any name.
        return _with_file(disk, path, {}, lambda file, _: _dump_log(file, 0, options))
    raise UnknownFileError(_explain(name))


def _explain(name: str) -> str:
    for kind in FileKind:
        if name.endswith(kind.value):
            return (
                f"{name!r} has no base offset in its name; entries count from it, so the name has "
                f"to be like {file_name(0, kind)}"
            )
    known = ", ".join(kind.value for kind in FileKind)
    return f"{name!r} is no file of a log; known are {known}, {', '.join(_TEXT_FILES)}"


def _dump_segment_file(
    disk: Disk, path: str, name: SegmentFile, options: DumpOptions
) -> Iterator[Entry]:
    directory = path[: len(path) - len(name.name)]
    log_path = directory + file_name(name.base_offset, FileKind.LOG, name.suffix)
    dumps: dict[FileKind, _Dump] = {
        FileKind.LOG: lambda file, _: _dump_log(file, name.base_offset, options),
        FileKind.SNAPSHOT: _dump_snapshot,
        FileKind.OFFSET_INDEX: lambda file, _: _dump_beside_log(
            disk, log_path, lambda log: _dump_offset_index(file, log, name.base_offset, options)
        ),
        FileKind.TIME_INDEX: lambda file, _: _dump_beside_log(
            disk, log_path, lambda log: _dump_time_index(file, log, name.base_offset, options)
        ),
        FileKind.TRANSACTION_INDEX: lambda file, _: _dump_beside_log(
            disk, log_path, lambda log: _dump_transactions(file, log, name.base_offset, options)
        ),
    }
    return _with_file(disk, path, {"baseOffset": name.base_offset}, dumps[name.kind])


def _with_file(disk: Disk, path: str, facts: Facts, dump: _Dump) -> Iterator[Entry]:
    file = disk.open(path)
    try:
        yield Entry(EntryKind.FILE, {"path": path, "size": file.size(), **facts})
        yield from dump(file, path)
    finally:
        file.close()


def _problem(message: str, **facts: int | str) -> Entry:
    return Entry(EntryKind.PROBLEM, {"message": message, **facts})


def _note(message: str) -> Entry:
    return Entry(EntryKind.NOTE, {"message": message})


# Record data.


def _dump_log(file: File, base_offset: int, options: DumpOptions) -> Iterator[Entry]:
    size = file.size()
    end = size if options.max_bytes is None else min(size, options.max_bytes)
    position, expected_offset = 0, base_offset
    while position < end:
        head = file.pread(min(HEADER_SIZE, size - position), position)
        if not any(head) and _is_zero(file, position, size):
            yield _note(
                f"{size - position} zero bytes from position {position} to the end: room that was "
                "preallocated, or a write that was lost with the power"
            )
            return
        try:
            header = header_at(head, 0, position)
        except CorruptRecord as error:
            yield _unreadable(str(error), position, size)
            return
        if header.end_position > size:
            torn = f"the batch at position {position} claims {header.size} bytes"
            yield _unreadable(torn, position, size)
            return
        yield from _dump_batch(file.pread(header.size, position), position, options)
        if header.base_offset < expected_offset:
            yield _problem(
                f"the batch at position {position} begins at offset {header.base_offset}, where "
                f"{expected_offset} or more should follow",
                position=position,
            )
        expected_offset = header.last_offset + 1
        position = header.end_position
    if position < size:
        yield _note(f"{size - position} more bytes were not read")


def _unreadable(reason: str, position: int, size: int) -> Entry:
    return _problem(
        f"{reason}, and {size - position} bytes are left; a broker that starts with this file "
        f"cuts it off at {position}",
        position=position,
    )


def _is_zero(file: File, position: int, end: int) -> bool:
    for start in range(position, end, _CHUNK_BYTES):
        if any(file.pread(min(_CHUNK_BYTES, end - start), start)):
            return False
    return True


def _dump_batch(data: bytes, position: int, options: DumpOptions) -> Iterator[Entry]:
    try:
        batch = batch_at(data)
    except CorruptRecord as error:
        yield _problem(f"the batch at position {position}: {error}", position=position)
        return
    if batch is None:
        yield _problem(f"the file shrank while it was read at {position}", position=position)
        return
    yield Entry(EntryKind.BATCH, batch_facts(batch, position))
    if not batch.is_valid:
        yield _problem(
            f"the batch at position {position} has a wrong CRC; its records are not shown",
            position=position,
        )
        return
    if not options.shows_records:
        return
    try:
        for record in records_of(batch, max_bytes=_MAX_INFLATED_BYTES):
            yield from _dump_record(batch, record, options)
    except RecordDataError as error:
        yield _problem(f"in the batch at position {position}: {error}", position=position)


def _dump_record(batch: AnyBatch, record: Record, options: DumpOptions) -> Iterator[Entry]:
    try:
        yield Entry(EntryKind.RECORD, record_facts(batch, record, options.shown))
    except UndecodableError as error:
        yield Entry(EntryKind.RECORD, record_facts(batch, record))
        yield _problem(f"the record at offset {record.offset}: {error}", offset=record.offset)


# Indexes.


def _dump_beside_log(
    disk: Disk, log_path: str, dump: Callable[[File | None], Iterator[Entry]]
) -> Iterator[Entry]:
    try:
        log = disk.open(log_path)
    except FileNotFoundError:
        yield _note(f"{log_path} is not there to compare with")
        yield from dump(None)
        return
    try:
        yield from dump(log)
    finally:
        log.close()


def _dump_offset_index(
    file: File, log: File | None, base_offset: int, options: DumpOptions
) -> Iterator[Entry]:
    index = OffsetIndex(file, base_offset, 0)
    yield from _odd_length(file, 8)
    previous = base_offset - 1
    for slot in range(index.entry_count):
        entry = index.entry(slot)
        if entry == (base_offset, 0):
            # Nothing is ever indexed at a segment's begin.
            yield _note(f"room for {index.entry_count - slot} more entries")
            return
        if not options.only_checks:
            yield Entry(EntryKind.ENTRY, {"offset": entry.offset, "position": entry.position})
        if entry.offset <= previous:
            yield _problem(f"slot {slot}: offset {entry.offset} can't follow {previous}", slot=slot)
            continue
        previous = entry.offset
        wrong = None if log is None else _compare_position(log, entry.offset, entry.position)
        if wrong is not None:
            yield _problem(f"slot {slot}: {wrong}", slot=slot)


def _compare_position(log: File, offset: int, position: int) -> str | None:
    """What is wrong with an entry: the batch at `position` should end with `offset`."""
    if position < 0:
        return f"position {position}"
    try:
        header = next(walk_headers(log, position, log.size()), None)
    except CorruptRecord as error:
        return f"no batch begins at position {position}: {error}"
    if header is None:
        return f"the log has no batch at position {position}"
    if header.last_offset != offset:
        return f"the batch at position {position} ends with {header.last_offset}, not {offset}"
    return None


def _dump_time_index(
    file: File, log: File | None, base_offset: int, options: DumpOptions
) -> Iterator[Entry]:
    index = TimeIndex(file, base_offset, 0)
    yield from _odd_length(file, 12)
    batches = _Batches(log)
    previous_time, previous_offset = -1, base_offset
    for slot in range(index.entry_count):
        entry = index.entry(slot)
        if entry == (0, base_offset):
            yield _note(f"room for {index.entry_count - slot} more entries")
            return
        if not options.only_checks:
            yield Entry(EntryKind.ENTRY, {"timestamp": entry.timestamp_ms, "offset": entry.offset})
        if entry.timestamp_ms <= previous_time or entry.offset < previous_offset:
            yield _problem(
                f"slot {slot}: time {entry.timestamp_ms} at offset {entry.offset} can't follow "
                f"time {previous_time} at {previous_offset}",
                slot=slot,
            )
            continue
        previous_time, previous_offset = entry
        if log is None:
            continue
        header = batches.holding(entry.offset)
        if header is None:
            yield _problem(f"slot {slot}: the log has no offset {entry.offset}", slot=slot)
        elif header.max_timestamp_ms != entry.timestamp_ms:
            yield _problem(
                f"slot {slot}: the batch with offset {entry.offset} has time "
                f"{header.max_timestamp_ms}, not {entry.timestamp_ms}",
                slot=slot,
            )


def _dump_transactions(
    file: File, log: File | None, base_offset: int, options: DumpOptions
) -> Iterator[Entry]:
    yield from _odd_length(file, ENTRY_BYTES)
    batches = _Batches(log)
    previous_offset = base_offset - 1
    try:
        entries = TransactionIndex(file, base_offset, exists=True).entries()
        for slot, aborted in enumerate(entries):
            if not options.only_checks:
                yield Entry(
                    EntryKind.ENTRY,
                    {
                        "version": 0,
                        "producerId": aborted.producer_id,
                        "firstOffset": aborted.first_offset,
                        "lastOffset": aborted.last_offset,
                        "lastStableOffset": aborted.last_stable_offset,
                    },
                )
            if aborted.last_offset <= previous_offset:
                yield _problem(
                    f"slot {slot}: a marker at {aborted.last_offset} can't follow "
                    f"{previous_offset}",
                    slot=slot,
                )
                continue
            previous_offset = aborted.last_offset
            if log is None:
                continue
            header = batches.holding(aborted.last_offset)
            if header is None or not header.is_control:
                yield _problem(
                    f"slot {slot}: the log has no marker at offset {aborted.last_offset}", slot=slot
                )
    except CorruptIndexError as error:
        yield _problem(str(error))


class _Batches:
    """The headers of a log, asked for by growing offsets."""

    __slots__ = ("_current", "_headers")

    def __init__(self, log: File | None) -> None:
        headers = iter(()) if log is None else walk_headers(log, 0, log.size())
        self._headers: Iterator[BatchHeader] = headers
        self._current: BatchHeader | None = None

    def holding(self, offset: int) -> BatchHeader | None:
        """The batch that `offset` falls into; none behind damage in the log."""
        try:
            while self._current is None or self._current.last_offset < offset:
                self._current = next(self._headers)
        except (StopIteration, CorruptRecord):
            self._current = None
            self._headers = iter(())
            return None
        return self._current if self._current.base_offset <= offset else None


def _odd_length(file: File, entry_bytes: int) -> Iterator[Entry]:
    size = file.size()
    if size % entry_bytes:
        yield _problem(
            f"{size} bytes are no whole number of entries of {entry_bytes} bytes; a broker that "
            "starts with this file builds it anew"
        )


# Whole files.


def _dump_snapshot(file: File, path: str) -> Iterator[Entry]:
    try:
        producers = decode_snapshot(file.pread(file.size(), 0), path)
    except CorruptSnapshotError as error:
        yield _problem(f"{error}; a broker replaces it by an older one and the log")
        return
    for producer in producers:
        open_offset = producer.transaction_first_offset
        facts: Facts = {
            "producerId": producer.producer_id,
            "producerEpoch": producer.epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": None if open_offset == NO_OFFSET else open_offset,
            "lastTimestamp": producer.last_timestamp_ms,
        }
        for batch in producer.batches:
            facts |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp_ms,
            }
        yield Entry(EntryKind.ENTRY, facts)


def _dump_text(
    disk: Disk, path: str, parse: Callable[[str, str], Iterator[Facts]]
) -> Iterator[Entry]:
    def dump(file: File, path: str) -> Iterator[Entry]:
        data = file.pread(file.size(), 0)
        try:
            for facts in parse(data.decode(), path):
                yield Entry(EntryKind.ENTRY, facts)
        except UnicodeDecodeError as error:
            yield _problem(f"{path}: byte {error.start} is not UTF-8", position=error.start)
        except MalformedFileError as error:
            yield _problem(str(error), line=error.line)

    return _with_file(disk, path, {}, dump)


def _offsets_facts(text: str, path: str) -> Iterator[Facts]:
    for (topic, partition), offset in parse_offsets(text, path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _epochs_facts(text: str, path: str) -> Iterator[Facts]:
    for epoch, start_offset in parse_epochs(text, path):
        yield {"epoch": epoch, "startOffset": start_offset}


def _partition_facts(text: str, path: str) -> Iterator[Facts]:
    yield {"topic_id": format_uuid(parse_partition_metadata(text, path))}


def _meta_facts(text: str, path: str) -> Iterator[Facts]:
    meta = parse_meta_properties(text, path)
    directory_id = None if meta.directory_id is None else format_uuid(meta.directory_id)
    yield {
        "cluster.id": meta.cluster_id,
        "node.id": meta.node_id,
        "directory.id": directory_id,
    }


def _clean_shutdown_facts(text: str, path: str) -> Iterator[Facts]:
    """Kafka's later releases write who stopped; its presence is what counts."""
    if not text:
        return
    try:
        content = json.loads(text)
    except ValueError as error:
        raise MalformedFileError(path, 1, f"no JSON: {error}") from error
    yield {"content": content}


def _no_facts(_text: str, _path: str) -> Iterator[Facts]:
    return iter(())


_TEXT_FILES: dict[str, Callable[[str, str], Iterator[Facts]]] = {
    RECOVERY_POINT_CHECKPOINT: _offsets_facts,
    REPLICATION_OFFSET_CHECKPOINT: _offsets_facts,
    LOG_START_OFFSET_CHECKPOINT: _offsets_facts,
    CLEANER_OFFSET_CHECKPOINT: _offsets_facts,
    LEADER_EPOCH_CHECKPOINT: _epochs_facts,
    PARTITION_METADATA: _partition_facts,
    META_PROPERTIES: _meta_facts,
    ".kafka_cleanshutdown": _clean_shutdown_facts,
    ".lock": _no_facts,
}
