"""The data path's handlers without a network: microseconds of a request, frame to answer.

Everything but the sockets is real: dispatcher, codec, partition, log on a real disk. The answers
are thrown away. The budget for all of a request's Python is 100 us (spec, baselines); what the
network adds is measured by `network`.

- Produce of one batch of 16 KiB, acks=1 and acks=all, one replica
- Fetch of 16 KiB by a consumer without a session, and in a session
- an incremental Fetch of a follower with 3,000 partitions, of which one has news
- a consumer at the end of a log: a Fetch that waits, and is woken by a Produce
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import trio

from kraftpy.api.data_handlers import DataSettings, data_handlers
from kraftpy.api.dispatch import Dispatcher
from kraftpy.broker.hosted import HostedPartitions
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.partition import Partition
from kraftpy.broker.purgatories import PurgatorySettings, ReplicaPurgatories
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.log_config import LogConfig
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.metadata.records import PartitionRecord
from kraftpy.net.service import Part
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import encode_request
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftpy.protocol.schema.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from kraftpy.protocol.tables import Request
from kraftpy.records.builder import BatchBuilder
from kraftpy.world import World
from kraftpy.world.real import real_world

COUNT = 5_000
ROUNDS = 3
BATCH_BYTES = 16 * 1024
# Of 1,000 bytes each, and the headers.
BATCH_RECORDS = 16
TOPIC_ID = Uuid(b"benchmark-topic!")
PARTITIONS = 3_000
PRODUCE_VERSION, FETCH_VERSION = 13, 17


class Replicas(HostedReplicas):
    """Partitions that broker 1 leads, and nobody else who has a say."""

    def __init__(self, world: World, registry: MetricRegistry) -> None:
        self.hosted = HostedPartitions()
        self._waits = ReplicaPurgatories(1, PurgatorySettings(), world.clock, registry)
        self.produce_purgatory = self._waits.produce
        self.fetch_purgatory = self._waits.fetch
        self.delete_records_purgatory = self._waits.delete_records

    def lookup(self, topic_partition: TopicPartition) -> Partition | ErrorCode:
        return self.hosted.lookup(topic_partition)

    def lookup_by_id(self, topic_id: Uuid, partition_id: int) -> Partition | ErrorCode:
        return self.hosted.lookup_by_id(topic_id, partition_id)

    def is_alive(self, broker_id: int) -> bool:
        return True

    def eligible_epoch(self, broker_id: int) -> int | None:
        return broker_id

    def appended(self, partition: Partition) -> None:
        self._waits.appended(partition.topic_partition)

    def high_watermark_moved(self, partition: Partition) -> None:
        self._waits.high_watermark_moved(partition.topic_partition)

    def log_start_moved(self, partition: Partition) -> None:
        self._waits.log_start_moved(partition.topic_partition)

    def isr_wanted(self, partition: Partition) -> None:
        pass

    def role_changed(self, partition: Partition) -> None:
        self._waits.role_changed(partition.topic_partition)

    async def add(self, logs: LogManager, index: int, replicas: tuple[int, ...]) -> None:
        name = ("bench", index)
        log = await logs.get_or_create(name, topic_id=TOPIC_ID, is_new=True)
        partition = Partition(
            name, TOPIC_ID, 1, log, brokers=self, events=self, lag_time_max_ms=30_000
        )
        partition.lead(PartitionRecord(index, TOPIC_ID, replicas, replicas, leader=1), 0)
        self.hosted.host(partition)


class Answer:
    """Takes an answer, and forgets it."""

    parts: Sequence[Part] | None = None

    def measure(self, recorder: object) -> None:
        pass

    def send(self, parts: Sequence[Part], on_sent: object = None) -> None:
        self.parts = parts


class Channel:
    connection_id = "bench"
    listener_name = "PLAINTEXT"
    security_protocol = "PLAINTEXT"
    client_host = "127.0.0.1"
    principal = "User:ANONYMOUS"
    client_software_name = client_software_version = "bench"


class Bench:
    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._channel: Any = Channel()

    def serve(self, frame: bytearray) -> Answer:
        answer: Any = Answer()
        self._dispatcher.serve(self._channel, memoryview(frame), answer)
        return answer  # type: ignore[no-any-return]


def main() -> None:
    trio.run(run)


async def run() -> None:
    registry = MetricRegistry()
    world = real_world()
    with tempfile.TemporaryDirectory() as directory:
        settings = LogManagerSettings(directories=(directory,), cluster_id="c", node_id=1)
        config = LogConfig(segment_bytes=1 << 30)
        logs = LogManager(world, settings, config_of=lambda _: config)
        async with logs.running(), trio.open_nursery() as nursery:
            replicas = Replicas(world, registry)
            await replicas.add(logs, 0, (1,))
            for index in range(1, PARTITIONS + 1):
                await replicas.add(logs, index, (1, 2))
            cluster = BrokerMetadata(cluster_id="c", random=world.rng.stream("bench"))
            handlers = data_handlers(
                DataSettings(),
                world,
                replicas=replicas,
                logs=logs,
                cluster=cluster,
                spawn=nursery.start_soon,
                metrics=TopicMetrics(registry),
                registry=registry,
                moved=lambda *_: None,
            )
            dispatcher = Dispatcher(
                handlers, features=cluster, metrics=RequestMetrics(registry), clock=world.clock
            )
            measure(Bench(dispatcher))
            nursery.cancel_scope.cancel()


def measure(bench: Bench) -> None:
    for acks in (1, -1):
        microseconds = best(produce(bench, 0, acks))
        print(f"   Produce of 16 KiB, acks={acks}: {microseconds:.1f} us")
    print(f"   Fetch of 16 KiB: {best(fetch(bench)):.1f} us")
    print(f"   Fetch of 16 KiB in a session: {best(fetch_in_session(bench)):.1f} us")
    microseconds = best(follow(bench)) - best(produce(bench, 1, 1))
    print(
        f"   Fetch of a follower of {PARTITIONS} partitions, one with news: {microseconds:.1f} us"
    )
    microseconds = best(wake(bench)) - best(produce(bench, 0, 1))
    print(f"   Fetch that waits and is woken: {microseconds:.1f} us")


def best(call: Callable[[], object]) -> float:
    """Microseconds of the processor for one call, in the best of some rounds."""
    fastest = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time()
        for _ in range(COUNT):
            call()
        fastest = min(fastest, time.process_time() - begin)
    return fastest / COUNT * 1e6


def frame_of(request: Request, version: int) -> bytearray:
    parts = encode_request(request, version, 1, "bench")
    return bytearray(b"".join(bytes(part) for part in parts)[4:])  # type: ignore[arg-type]


def batch() -> bytes:
    builder = BatchBuilder()
    for _ in range(BATCH_RECORDS):
        builder.append(None, b"x" * 1000, timestamp_ms=int(time.time() * 1000))
    return bytes(builder.build())


def produce(bench: Bench, index: int, acks: int) -> Callable[[], object]:
    data = PartitionProduceData(index=index, records=batch())
    topic = TopicProduceData(topic_id=TOPIC_ID, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])
    frame = frame_of(request, PRODUCE_VERSION)
    # What the append stamps on the batch: the offset, and behind length and epoch nothing.
    head = bytes(frame[:200])

    def call() -> None:
        frame[:200] = head
        if bench.serve(frame).parts is None:
            raise AssertionError("a Produce was not answered")

    return call


def fetch_request(index: int, offset: int, **fields: Any) -> FetchRequest:
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=BATCH_BYTES)
    topic = FetchTopic(topic_id=TOPIC_ID, partitions=[wanted])
    return FetchRequest(min_bytes=1, max_wait_ms=500, topics=[topic], **fields)


def fetch(bench: Bench) -> Callable[[], object]:
    frame = frame_of(fetch_request(0, BATCH_RECORDS * 1000), FETCH_VERSION)
    return lambda: bench.serve(frame)


def fetch_in_session(bench: Bench) -> Callable[[], object]:
    session_id = open_session(bench, fetch_request(0, 0, session_epoch=0))
    epoch = 0

    def call() -> None:
        nonlocal epoch
        epoch += 1
        request = fetch_request(
            0, BATCH_RECORDS * (epoch % 1000), session_id=session_id, session_epoch=epoch
        )
        bench.serve(frame_of(request, FETCH_VERSION))

    encoding = best(lambda: frame_of(fetch_request(0, 5), FETCH_VERSION))
    print(f"   (of the next line, {encoding:.1f} us are for making the request)")
    return call


def open_session(bench: Bench, request: FetchRequest) -> int:
    parts = bench.serve(frame_of(request, FETCH_VERSION)).parts
    if parts is None:
        raise AssertionError("a session was not opened")
    # Behind size, correlation id, tags, throttle time and error code.
    return int.from_bytes(bytes(parts[0])[15:19])  # type: ignore[arg-type]


def follow(bench: Bench) -> Callable[[], object]:
    """A Produce, and the incremental Fetch that brings it to a follower."""
    state = ReplicaState(replica_id=2, replica_epoch=2)
    wanted = [
        FetchPartition(partition=index, partition_max_bytes=BATCH_BYTES, log_start_offset=0)
        for index in range(1, PARTITIONS + 1)
    ]
    topic = FetchTopic(topic_id=TOPIC_ID, partitions=wanted)
    full = FetchRequest(topics=[topic], session_epoch=0, replica_state=state)
    session_id = open_session(bench, full)
    append = produce(bench, 1, 1)
    epoch, offset = 0, 0

    def call() -> None:
        nonlocal epoch, offset
        append()
        epoch += 1
        request = fetch_request(
            1, offset, session_id=session_id, session_epoch=epoch, replica_state=state
        )
        if bench.serve(frame_of(request, FETCH_VERSION)).parts is None:
            raise AssertionError("a follower was not answered")
        offset += BATCH_RECORDS

    return call


def wake(bench: Bench) -> Callable[[], object]:
    """A Fetch at the end of the log, and the Produce that wakes it."""
    append = produce(bench, 0, 1)
    parts = bench.serve(frame_of(fetch_request(0, 0, rack_id=""), FETCH_VERSION)).parts
    if parts is None:
        raise AssertionError("nothing was read")
    # The high watermark stands behind topic id, partition and error code.
    position = bytes(parts[0]).index(TOPIC_ID) + 16 + 1 + 6  # type: ignore[arg-type]
    end = int.from_bytes(bytes(parts[0])[position : position + 8])  # type: ignore[arg-type]

    def call() -> None:
        nonlocal end
        answer = bench.serve(frame_of(fetch_request(0, end), FETCH_VERSION))
        append()
        if answer.parts is None:
            raise AssertionError("a Fetch was not woken")
        end += BATCH_RECORDS

    return call


if __name__ == "__main__":
    main()
