"""The metadata log: replay, snapshots, small changes of a large image, and its memory.

Replay is measured from batches as they stand in the log: reading, decoding, replaying, applying.
METADATA_RECORDS and METADATA_PARTITIONS in the environment change the sizes; the figures for each
record or partition hardly depend on them.
"""

from __future__ import annotations

import gc
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator

from kraftpy.metadata.batches import build_batch
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.publisher import LoaderFault, MetadataLoader
from kraftpy.metadata.records import (
    METADATA_VERSION,
    Endpoint,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftpy.metadata.snapshot import load_snapshot, snapshot_batches
from kraftpy.protocol.ids import Uuid
from kraftpy.records.batch import RecordBatch

RECORD_COUNT = int(os.environ.get("METADATA_RECORDS", "1000000"))
PARTITION_COUNT = int(os.environ.get("METADATA_PARTITIONS", "100000"))
PARTITIONS_OF_A_TOPIC = 10
BROKER_COUNT = 6
BATCH_RECORDS = 100
NOW_MS = 1_700_000_000_000
AT = Provenance(0, 1, NOW_MS)
DIRECTORIES = tuple(Uuid(f"directory-{number:06}".encode()) for number in range(BROKER_COUNT))


def main() -> None:
    measure_replay()
    image = measure_snapshot()
    measure_small_changes(image)


def cluster() -> Iterator[MetadataRecord]:
    yield FeatureLevelRecord(METADATA_VERSION, 30)
    for broker_id in range(BROKER_COUNT):
        endpoint = Endpoint("PLAINTEXT", f"host-{broker_id}", 9092, 0)
        yield RegisterBrokerRecord(broker_id, DIRECTORIES[broker_id], broker_id, (endpoint,))


def topic_id_of(number: int) -> Uuid:
    return Uuid(number.to_bytes(8, "little") + b"-" * 8)


def topic(number: int) -> Iterator[MetadataRecord]:
    topic_id = topic_id_of(number)
    yield TopicRecord(f"topic-{number:06}", topic_id)
    for partition_id in range(PARTITIONS_OF_A_TOPIC):
        replicas = tuple([(number + partition_id + place) % BROKER_COUNT for place in range(3)])
        yield PartitionRecord(
            partition_id,
            topic_id,
            replicas,
            replicas,
            leader=replicas[0],
            directories=tuple([DIRECTORIES[broker_id] for broker_id in replicas]),
        )


def history(count: int) -> Iterator[MetadataRecord]:
    """As a log may look: topics come, most changes are of leaders and ISRs, some topics go."""
    yield from cluster()
    written = BROKER_COUNT + 1
    number = 0
    while written < count:
        yield from topic(number)
        for turn in range(PARTITIONS_OF_A_TOPIC * 4):
            leader = (number + turn) % BROKER_COUNT
            partition_id = turn % PARTITIONS_OF_A_TOPIC
            yield PartitionChangeRecord(
                partition_id, topic_id_of(number), isr=(leader,), leader=leader
            )
        if number % 4 == 0:
            yield RemoveTopicRecord(topic_id_of(number))
        written += 1 + PARTITIONS_OF_A_TOPIC * 5 + (number % 4 == 0)
        number += 1


def batches(records: Iterator[MetadataRecord]) -> list[RecordBatch]:
    found: list[RecordBatch] = []
    pending: list[MetadataRecord] = []
    offset = 0
    for record in records:
        pending.append(record)
        if len(pending) == BATCH_RECORDS:
            found.append(batch_of(pending, offset))
            offset += len(pending)
            pending = []
    return [*found, batch_of(pending, offset)] if pending else found


def batch_of(records: list[MetadataRecord], offset: int) -> RecordBatch:
    return RecordBatch(build_batch(records, base_offset=offset, epoch=1, timestamp_ms=NOW_MS))


def measure_replay() -> None:
    started = time.perf_counter()
    log = batches(history(RECORD_COUNT))
    written = time.perf_counter() - started
    count = sum(batch.records_count for batch in log)
    loader = MetadataLoader(raise_fault, is_strict=True)
    loader.note_high_watermark(count)
    longest = 0.0
    started = time.perf_counter()
    for batch in log:
        began = time.perf_counter()
        loader.replay(batch)
        longest = max(longest, time.perf_counter() - began)
    loader.publish()
    took = time.perf_counter() - started
    size = sum(batch.size for batch in log)
    print(
        f"   replay {count:,} records ({size / count:.0f} bytes each): {took:.2f} s,"
        f" {took / count * 1e6:.1f} us a record; longest batch of {BATCH_RECORDS}"
        f" {longest * 1e3:.1f} ms; encoding {written / count * 1e6:.1f} us a record"
    )


def raise_fault(fault: LoaderFault) -> None:
    raise fault.error


def measure_snapshot() -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in cluster():
        delta.replay(record)
    for number in range(PARTITION_COUNT // PARTITIONS_OF_A_TOPIC):
        for record in topic(number):
            delta.replay(record)
    image = delta.apply(AT)
    started = time.perf_counter()
    written = [RecordBatch(data) for data in snapshot_batches(image)]
    write_seconds = time.perf_counter() - started
    started = time.perf_counter()
    loaded = load_snapshot(written, AT)
    load_seconds = time.perf_counter() - started
    assert loaded == image
    size = sum(batch.size for batch in written)
    print(
        f"   snapshot of {PARTITION_COUNT:,} partitions: {size / 1e6:.1f} MB in {len(written):,}"
        f" batches, written in {write_seconds:.2f} s, loaded in {load_seconds:.2f} s"
    )
    del delta, image, loaded
    gc.collect()
    tracemalloc.start()
    loaded = load_snapshot(written, AT)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"   memory: {held / PARTITION_COUNT:.0f} bytes a partition, {held / 1e6:.0f} MB")
    return loaded


def measure_small_changes(image: MetadataImage) -> None:
    middle = topic_id_of(PARTITION_COUNT // PARTITIONS_OF_A_TOPIC // 2)
    change = PartitionChangeRecord(3, middle, leader=2)
    changed = apply([change], image)
    made = list(topic(PARTITION_COUNT))
    print(
        f"   in an image of {PARTITION_COUNT:,} partitions: one changed in"
        f" {best(lambda: apply([change], image)):.0f} us, its changes enumerated in"
        f" {best(lambda: list(ImageChanges(image, changed).partitions())):.0f} us, a topic of"
        f" {PARTITIONS_OF_A_TOPIC} made in {best(lambda: apply(made, image)):.0f} us, a partition"
        f" looked up in {best(lambda: image.partition(middle, 3)):.2f} us"
    )


def apply(records: list[MetadataRecord], image: MetadataImage) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(AT)


def best(action: Callable[[], object]) -> float:
    """Microseconds a call, in the best of some rounds."""
    rounds = []
    for _ in range(10):
        started = time.perf_counter()
        for _ in range(200):
            action()
        rounds.append((time.perf_counter() - started) / 200)
    return min(rounds) * 1e6
