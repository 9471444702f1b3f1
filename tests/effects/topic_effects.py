"""For each key of a topic: how to see, from outside, that it is another one.

An observation looks at a topic of a running node by requests, or at the files that the node has
written, and says what it sees. Under the key's default it sees something else than under `value`,
whether that is set for the topic, as the default of all brokers, or in the node's file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import trio
from support.simulated_nodes import SimulatedNodes

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.reader import read_records
from kraftpy.records.walker import walk_batches
from kraftpy.world.memory_disk_effects import Effect, Sync

__all__ = [
    "TOPIC_EFFECTS",
    "TopicEffect",
    "compacts",
    "earliest_offset",
    "flushes",
    "produced",
    "rolls_after",
]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
EARLIEST = -2
# Data that compresses differently at different levels.
TEXT = b"".join(b"%d " % (number * number % 9973) for number in range(12_000))


@dataclass(frozen=True)
class TopicEffect:
    value: str
    observe: Callable[[SimulatedNodes, str], Awaitable[object]]
    # What is seen with `value`; None where it only has to be something else than before.
    expected: object = True
    # Static settings of the node, and other settings of the topic, with which it is observed.
    node: Mapping[str, str] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)
    # The brokers' keys behind it, with the value that means the same; dynamic ones, and others.
    dynamic: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)


# Appends.


async def refuses_a_record_without_key(rig: SimulatedNodes, topic: str) -> bool:
    builder = BatchBuilder()
    builder.append(None, b"v", timestamp_ms=0)
    answer = await rig.produce(topic, bytes(builder.build()))
    return answer.error_code == ErrorCode.INVALID_RECORD


async def refuses_a_large_batch(rig: SimulatedNodes, topic: str) -> bool:
    answer = await rig.produce(topic, rig.batch(bytes(2_000)))
    return answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def stamps_records(rig: SimulatedNodes, topic: str) -> bool:
    answer = await rig.produce(topic, rig.batch(b"v", age_ms=1000))
    return answer.log_append_time_ms > 0


async def refuses_old_records(rig: SimulatedNodes, topic: str) -> bool:
    answer = await rig.produce(topic, rig.batch(b"v", age_ms=2 * HOUR_MS))
    return answer.error_code == ErrorCode.INVALID_TIMESTAMP


async def refuses_records_from_the_future(rig: SimulatedNodes, topic: str) -> bool:
    answer = await rig.produce(topic, rig.batch(b"v", age_ms=-60_000))
    return answer.error_code == ErrorCode.INVALID_TIMESTAMP


async def stored_codec(rig: SimulatedNodes, topic: str) -> str:
    await produced(rig, topic, rig.batch(b"v"))
    fetched = await rig.fetch(topic)
    return RecordBatch(bytearray(fetched.records)).codec.name


async def stored_size(rig: SimulatedNodes, topic: str) -> int:
    await produced(rig, topic, rig.batch(TEXT))
    return len((await rig.fetch(topic)).records)


async def flushes(rig: SimulatedNodes, topic: str) -> bool:
    """Whether a record is on the medium some seconds after it was produced."""
    synced: list[str] = []

    def note(effect: Effect) -> None:
        if isinstance(effect, Sync) and f"/{topic}-0/" in effect.path:
            synced.append(effect.path)

    rig.simulation.machine("n1").disk.observe(note)
    await produced(rig, topic, rig.batch(b"v"))
    await trio.sleep(5)
    return any(path.endswith(".log") for path in synced)


# Segments.


async def segment_count(rig: SimulatedNodes, topic: str) -> int:
    names = await rig.files(f"/data/{topic}-0")
    return sum(name.endswith(".log") for name in names)


async def last_segment_bytes(rig: SimulatedNodes, topic: str, suffix: str) -> int:
    names = [name for name in await rig.files(f"/data/{topic}-0") if name.endswith(suffix)]
    return (await rig.simulation.machine("n1").disk.stat(f"/data/{topic}-0/{names[-1]}")).size


async def fills_a_segment_with_two_batches(rig: SimulatedNodes, topic: str) -> bool:
    for _ in range(3):
        await produced(rig, topic, rig.batch(bytes(600_000)))
    return await segment_count(rig, topic) > 1


async def fills_a_segment_with_small_batches(rig: SimulatedNodes, topic: str) -> bool:
    for _ in range(3):
        await produced(rig, topic, rig.batch(bytes(1_000)))
    return await segment_count(rig, topic) > 1


async def rolls_after(rig: SimulatedNodes, topic: str, seconds: float) -> bool:
    await produced(rig, topic, rig.batch(b"v"))
    await trio.sleep(seconds)
    await produced(rig, topic, rig.batch(b"v"))
    return await segment_count(rig, topic) > 1


async def rolls_after_ten_minutes(rig: SimulatedNodes, topic: str) -> bool:
    return await rolls_after(rig, topic, 610)


async def rolls_early(rig: SimulatedNodes, topic: str) -> bool:
    """Half a minute before its time; a segment's jitter is drawn when it begins."""
    for _ in range(3):
        await produced(rig, topic, rig.batch(bytes(2_000)))
    count = await segment_count(rig, topic)
    await trio.sleep(570)
    await produced(rig, topic, rig.batch(b"v"))
    return await segment_count(rig, topic) > count


async def new_segment_has_its_full_size(rig: SimulatedNodes, topic: str) -> bool:
    for _ in range(3):
        await produced(rig, topic, rig.batch(bytes(2_000)))
    return await last_segment_bytes(rig, topic, ".log") == 4_000


async def new_index_bytes(rig: SimulatedNodes, topic: str) -> int:
    for _ in range(3):
        await produced(rig, topic, rig.batch(bytes(2_000)))
    return await last_segment_bytes(rig, topic, ".index")


async def indexes_small_batches(rig: SimulatedNodes, topic: str) -> bool:
    """In a segment that was begun with the setting. A closed index is as long as its entries."""
    for _ in range(2):
        await produced(rig, topic, rig.batch(bytes(3_900)))
        for _ in range(5):
            await produced(rig, topic, rig.batch(b"v"))
    await produced(rig, topic, rig.batch(bytes(3_900)))
    path = f"/data/{topic}-0/{6:020d}.index"
    return (await rig.simulation.machine("n1").disk.stat(path)).size > 8


# Retention and deletion.


async def earliest_offset(rig: SimulatedNodes, topic: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
    )
    offset: int = (await rig.ask(request)).topics[0].partitions[0].offset
    return offset


async def forgets_old_records(rig: SimulatedNodes, topic: str) -> bool:
    await produced(rig, topic, rig.batch(b"v", age_ms=2 * HOUR_MS))
    await trio.sleep(30)
    return await earliest_offset(rig, topic) > 0


async def forgets_what_is_too_much(rig: SimulatedNodes, topic: str) -> bool:
    for _ in range(5):
        await produced(rig, topic, rig.batch(bytes(2_000)))
    await trio.sleep(30)
    return await earliest_offset(rig, topic) > 0


async def unlinks_within_seconds(rig: SimulatedNodes, topic: str) -> bool:
    assert await forgets_what_is_too_much(rig, topic)
    names = await rig.files(f"/data/{topic}-0")
    return not any(name.endswith(".deleted") for name in names)


# Compaction.


async def values_of(rig: SimulatedNodes, topic: str) -> list[bytes | None]:
    """All that can be read, from the beginning."""
    values: list[bytes | None] = []
    offset = 0
    while data := (await rig.fetch(topic, offset=offset)).records:
        for batch in walk_batches(bytes(data)):
            assert isinstance(batch, RecordBatch)
            values += [record.value for record in read_records(batch, max_bytes=2**20)]
            offset = batch.last_offset + 1
    return values


async def compacts(rig: SimulatedNodes, topic: str) -> bool:
    """Whether old values of a key are gone after a minute."""
    for number in range(20):
        await produced(rig, topic, rig.batch(b"%d" % number + bytes(300)))
    await trio.sleep(60)
    return len(await values_of(rig, topic)) < 20


async def forgets_tombstones(rig: SimulatedNodes, topic: str) -> bool:
    await produced(rig, topic, rig.batch(b"deleted later", None))
    for _ in range(2):
        for number in range(8):
            await produced(rig, topic, rig.batch(b"%d" % number + bytes(300)))
        await trio.sleep(60)
    return None not in await values_of(rig, topic)


async def produced(rig: SimulatedNodes, topic: str, records: bytes, *, of: str = "n1") -> None:
    answer = await rig.produce(topic, records, acks=1, of=of)
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name


SMALL_SEGMENTS = {"internal.segment.bytes": "4000"}
COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "1000"}
QUICK_CLEANER = {"log.cleaner.backoff.ms": "1000"}
QUICK_RETENTION = {"log.retention.check.interval.ms": "5000", "log.initial.task.delay.ms": "1000"}


def recompressed(codec: str, level: str) -> TopicEffect:
    key = f"compression.{codec}.level"
    topic = {"compression.type": codec}
    return TopicEffect(level, stored_size, None, topic=topic, dynamic={key: level})


TOPIC_EFFECTS = {
    "cleanup.policy": TopicEffect(
        "compact", refuses_a_record_without_key, dynamic={"log.cleanup.policy": "compact"}
    ),
    "compression.type": TopicEffect(
        "gzip", stored_codec, "GZIP", dynamic={"compression.type": "gzip"}
    ),
    "compression.gzip.level": recompressed("gzip", "1"),
    "compression.lz4.level": recompressed("lz4", "1"),
    "compression.zstd.level": recompressed("zstd", "19"),
    "delete.retention.ms": TopicEffect(
        "0",
        forgets_tombstones,
        node=QUICK_CLEANER,
        topic={**COMPACTED, "min.cleanable.dirty.ratio": "0.01"},
        dynamic={"log.cleaner.delete.retention.ms": "0"},
    ),
    "file.delete.delay.ms": TopicEffect(
        "1000",
        unlinks_within_seconds,
        node=QUICK_RETENTION,
        topic={**SMALL_SEGMENTS, "retention.bytes": "5000"},
        dynamic={"log.segment.delete.delay.ms": "1000"},
    ),
    "flush.messages": TopicEffect("1", flushes, dynamic={"log.flush.interval.messages": "1"}),
    "flush.ms": TopicEffect(
        str(DAY_MS),
        flushes,
        expected=False,
        # Which is the default of flush.ms, too.
        node={"log.flush.scheduler.interval.ms": "1000", "log.initial.task.delay.ms": "0"},
        dynamic={"log.flush.interval.ms": str(DAY_MS)},
    ),
    "index.interval.bytes": TopicEffect(
        "0",
        indexes_small_batches,
        topic={"internal.segment.bytes": "4500"},
        dynamic={"log.index.interval.bytes": "0"},
    ),
    "max.compaction.lag.ms": TopicEffect(
        "600000",
        rolls_after_ten_minutes,
        topic={"cleanup.policy": "compact"},
        dynamic={"log.cleaner.max.compaction.lag.ms": "600000"},
    ),
    "max.message.bytes": TopicEffect(
        "1000", refuses_a_large_batch, dynamic={"message.max.bytes": "1000"}
    ),
    "message.timestamp.type": TopicEffect(
        "LogAppendTime", stamps_records, dynamic={"log.message.timestamp.type": "LogAppendTime"}
    ),
    "message.timestamp.before.max.ms": TopicEffect(
        str(HOUR_MS),
        refuses_old_records,
        dynamic={"log.message.timestamp.before.max.ms": str(HOUR_MS)},
    ),
    "message.timestamp.after.max.ms": TopicEffect(
        "1000",
        refuses_records_from_the_future,
        dynamic={"log.message.timestamp.after.max.ms": "1000"},
    ),
    "min.cleanable.dirty.ratio": TopicEffect(
        "1",
        compacts,
        expected=False,
        node=QUICK_CLEANER,
        topic=COMPACTED,
        dynamic={"log.cleaner.min.cleanable.ratio": "1"},
    ),
    "min.compaction.lag.ms": TopicEffect(
        str(DAY_MS),
        compacts,
        expected=False,
        node=QUICK_CLEANER,
        topic=COMPACTED,
        dynamic={"log.cleaner.min.compaction.lag.ms": str(DAY_MS)},
    ),
    "preallocate": TopicEffect(
        "true",
        new_segment_has_its_full_size,
        topic=SMALL_SEGMENTS,
        dynamic={"log.preallocate": "true"},
    ),
    "retention.bytes": TopicEffect(
        "5000",
        forgets_what_is_too_much,
        node=QUICK_RETENTION,
        topic=SMALL_SEGMENTS,
        dynamic={"log.retention.bytes": "5000"},
    ),
    "retention.ms": TopicEffect(
        str(HOUR_MS),
        forgets_old_records,
        node=QUICK_RETENTION,
        dynamic={"log.retention.ms": str(HOUR_MS)},
        static={"log.retention.minutes": "60", "log.retention.hours": "1"},
    ),
    "segment.bytes": TopicEffect(
        "1048576", fills_a_segment_with_two_batches, dynamic={"log.segment.bytes": "1048576"}
    ),
    "internal.segment.bytes": TopicEffect("2000", fills_a_segment_with_small_batches),
    "segment.index.bytes": TopicEffect(
        "800",
        new_index_bytes,
        expected=800,
        topic=SMALL_SEGMENTS,
        dynamic={"log.index.size.max.bytes": "800"},
    ),
    "segment.jitter.ms": TopicEffect(
        str(HOUR_MS),
        rolls_early,
        topic={**SMALL_SEGMENTS, "segment.ms": "600000"},
        dynamic={"log.roll.jitter.ms": str(HOUR_MS)},
        static={"log.roll.jitter.hours": "1"},
    ),
    "segment.ms": TopicEffect("600000", rolls_after_ten_minutes, dynamic={"log.roll.ms": "600000"}),
}
