"""What is fuzzed, and what must hold of it (testing.md 8.2).

A target has samples that are right, and a check of one that need not be: it returns, or raises what
it found. Whatever is bad input has its declared errors, and those are no finding.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

from log_rig import NOW_MS, Rig, batch, batches_in, data_of, marker
from mutation import mutate
from protocol_cases import RECORD_MESSAGES, all_messages, sample_message, versions_of
from record_samples import CODECS, sample_batch
from storage_rig import DiskSubject, Freeze, Life, contents, open_at

from kraftpy.log.errors import LogError
from kraftpy.log.offsets import Isolation
from kraftpy.protocol.codec import DecodeError, decode, encode_bytes
from kraftpy.protocol.tables import Message
from kraftpy.raft.election_state import QuorumStateError
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import RecordDataError
from kraftpy.records.validation import AppendOrigin
from kraftpy.records.walker import records_of, walk_batches
from kraftpy.world.memory_disk import MemoryDisk

MAX_BYTES = 64 * 1024
# A batch's checksum covers what follows it; nothing covers what comes before but the length.
CRC_POSITION, COVERED_POSITION = 17, 21


class FoundError(Exception):
    """Something that must not be."""


@dataclass(frozen=True)
class Target:
    """`case` tries one: everything in it is drawn from the Random."""

    name: str
    about: str
    case: Callable[[Random], Awaitable[None]]


# Decoders (JEP-156).

CLASSES = [*all_messages(), *RECORD_MESSAGES]


async def _messages(random: Random) -> None:
    message_class = random.choice(CLASSES)
    version = random.choice(versions_of(message_class))
    whole = encode_bytes(sample_message(message_class, version), version)
    other_class = random.choice(CLASSES)
    other = encode_bytes(
        sample_message(other_class, versions_of(other_class)[-1]), versions_of(other_class)[-1]
    )
    _decode_again(message_class, version, mutate(random, whole, [other]))


def _decode_again(message_class: type[Message], version: int, data: bytes) -> None:
    """What can be read can be written, and is the same when it is read again."""
    try:
        found = decode(message_class, version, data)
    except DecodeError:
        return
    again = decode(message_class, version, encode_bytes(found, version))
    if again != found and "nan" not in repr(found):
        raise FoundError(f"{message_class.__name__} v{version}: {found} is written as {again}")


BATCHES = [bytes(sample_batch(codec).data) for codec in CODECS]


async def _batches(random: Random) -> None:
    original = random.choice(BATCHES)
    data = mutate(random, original, BATCHES)
    try:
        for found in walk_batches(data):
            is_ours = isinstance(found, RecordBatch) and found.is_valid
            covered = bytes(found.data)[COVERED_POSITION:] if is_ours else b""
            if is_ours and all(covered != each[COVERED_POSITION:] for each in BATCHES):
                raise FoundError(f"a damaged batch has the right checksum: {data.hex()}")
            for _ in records_of(found, max_bytes=MAX_BYTES):
                pass
    except RecordDataError:
        pass


# Files (JEP-157).


async def _log_sample(random: Random) -> tuple[MemoryDisk, set[bytes]]:
    """A log of some segments with producers and transactions, and what its batches are."""
    disk = MemoryDisk()
    await disk.make_directory("/data")
    rig = Rig(disk, "/data")
    log = await rig.load()
    for number in range(random.randint(3, 25)):
        size = random.choice((1, 40, 300))
        if random.random() < 0.3:
            producer = 7 + number
            log.append_as_leader(
                batch(
                    bytes([number]) * size,
                    producer_id=producer,
                    producer_epoch=0,
                    sequence=0,
                    is_transactional=True,
                ),
                number // 5,
            )
            if random.random() < 0.8:
                log.append_as_leader(
                    marker(producer, 0, is_commit=random.random() < 0.5),
                    number // 5,
                    origin=AppendOrigin.COORDINATOR,
                    transaction_version=1,
                )
        else:
            log.append_as_leader(batch(bytes([number]) * size), number // 5)
        log.update_high_watermark(log.log_end_offset)
    known = {bytes(each.data)[CRC_POSITION:] for each in batches_in(log)}
    if random.random() < 0.5:
        await log.flush()
    if random.random() < 0.5:
        await log.close()
    return disk, known


async def _segments(random: Random) -> None:
    """Loaded or refused; and no batch is given out that passes for one, and that nobody wrote."""
    disk, known = await _log_sample(random)
    damage(random, disk, "/data/t-0/")
    rig = Rig(disk.copy(), "/data")
    try:
        log = await rig.load(
            is_clean=random.random() < 0.5, recovery_point=random.choice((0, 0, 5, 10**6))
        )
        log.update_high_watermark(log.log_end_offset)
        offset = log.log_start_offset
        for _ in range(200):
            data = data_of(log.read(offset, random.choice((1, 1 << 20)), Isolation.LOG_END))
            found = list(walk_batches(data))
            if not found or found[-1].last_offset < offset:
                break
            for each in found:
                if each.is_valid and bytes(each.data)[CRC_POSITION:] not in known:
                    raise FoundError(f"offset {each.base_offset} has what nobody wrote")
            offset = found[-1].last_offset + 1
        log.append_as_leader(batch(b"after", timestamp_ms=NOW_MS), 9)
        await log.flush()
    except (LogError, RecordDataError):
        pass


async def _metadata(random: Random) -> None:
    """Quorum state, snapshots and the metadata log: opened as they were, or refused."""
    disk = MemoryDisk()
    await disk.make_directory("/meta")
    storage, _ = await open_at(disk, "/meta")
    subject = DiskSubject(disk, "/meta", storage)
    life = Life(random)
    for _ in range(random.randint(3, 25)):
        for effect in life.step():
            if isinstance(effect, Freeze):
                await subject.freeze(effect.snapshot_id, effect.data)
            else:
                subject.perform(effect)
    await subject.sync()
    known = {each.data[CRC_POSITION:] for each in life.image.batches}
    damage(random, disk, "/meta/")
    try:
        again, found = await open_at(disk.copy(), "/meta")
        for data in contents(again, found.start_offset, found.end_offset):
            if data[CRC_POSITION:] not in known:
                raise FoundError("the metadata log has what nobody wrote")
    except (LogError, RecordDataError, QuorumStateError):
        pass


def damage(random: Random, disk: MemoryDisk, prefix: str) -> None:
    """One or two files are not as they were, one may be missing."""
    names = [path for path, _ in disk.image.files() if path.startswith(prefix)]
    everything = [_bytes_of(disk, name) for name in names]
    for name in random.sample(names, min(len(names), random.randint(1, 2))):
        content = mutate(random, _bytes_of(disk, name), everything)
        file = disk.open(name, write=True)
        file.truncate(0)
        file.pwrite([content], 0)
        file.close()


def _bytes_of(disk: MemoryDisk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


TARGETS: Sequence[Target] = (
    Target("messages", "every message of the protocol, in every version", _messages),
    Target("batches", "record batches of every codec", _batches),
    Target("segments", "segments, indexes, snapshots of producers, checkpoints", _segments),
    Target("metadata", "the metadata log, its snapshots and the quorum's state", _metadata),
)
