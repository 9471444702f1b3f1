"""A broker with real replicas on a disk in memory, asked by frames and answered by bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
from api.recording import RecordingAnswer, RecordingChannel, lone_node, payload
from broker.replica_rig import Rig

from kraftpy.api.data_handlers import DataSettings, data_handlers
from kraftpy.api.dispatch import Dispatcher
from kraftpy.api.handler import Handler
from kraftpy.api.request_quotas import RequestQuotas
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.net.service import Part
from kraftpy.observe.metrics import Meter, MetricName
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.observe.topic_metrics import metric_name
from kraftpy.protocol.frames import decode_response
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kraftpy.protocol.schema.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from kraftpy.protocol.tables import Request
from kraftpy.records.reader import read_records
from kraftpy.records.walker import walk_batches
from kraftpy.security.replication_quota import ReplicationQuota
from kraftpy.world import FileSlice, Random

PRODUCE_VERSION = 12
FETCH_VERSION = 12
EPOCH = 0


class SlicedAnswer(RecordingAnswer):
    """Also takes slices of files, and counts them."""

    slice_count = 0

    def send(self, parts: Sequence[Part], on_sent: Callable[[], None] | None = None) -> None:
        self.slice_count = sum(isinstance(part, FileSlice) for part in parts)
        read = [
            part.file.pread(part.length, part.position) if isinstance(part, FileSlice) else part
            for part in parts
        ]
        super().send(read, on_sent)


@dataclass
class Asked:
    """A request under way."""

    request: Request
    version: int
    answer: SlicedAnswer
    # Answers by correlation id, for the channel's order does not matter here.
    correlation_id: int = 5

    @property
    def is_answered(self) -> bool:
        return self.answer.outcome == "sent"

    @property
    def response(self) -> Any:
        assert self.answer.outcome == "sent", self.answer.outcome or "not answered"
        response_class = API[self.request.KEY].response_class
        _, response = decode_response(response_class, self.version, self.answer.sent[4:])
        return response


@dataclass
class Broker:
    rig: Rig
    handlers: Sequence[Handler]
    channel: RecordingChannel = field(default_factory=RecordingChannel)
    moves: list[tuple[Uuid, int, Uuid]] = field(default_factory=list)
    quotas: RequestQuotas | None = None

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(
            self.handlers,
            features=lone_node(),
            metrics=RequestMetrics(self.rig.registry),
            clock=self.rig.world.clock,
            quotas=self.quotas,
        )

    def handler(self, api_key: int) -> Any:
        return next(each for each in self.handlers if each.api_key == api_key)

    @property
    def sessions(self) -> Any:
        return self.handler(1)._sessions

    def begin(self, request: Request, version: int, client_id: str = "test") -> Asked:
        answer = SlicedAnswer()
        # A frame belongs to the network, which uses its memory again at once.
        frame = bytearray(payload(request, version, client_id=client_id))
        self.dispatcher.serve(self.channel, memoryview(frame), answer)
        frame[:] = b"\xee" * len(frame)
        return Asked(request, version, answer)

    def ask(self, request: Request, version: int, client_id: str = "test") -> Any:
        return self.begin(request, version, client_id).response

    # Produce.

    def begin_produce(
        self,
        parts: dict[tuple[str, int], bytes | None],
        *,
        acks: int = 1,
        version: int = PRODUCE_VERSION,
        timeout_ms: int = 1_000,
        transactional_id: str | None = None,
        client_id: str = "test",
        ids: dict[str, Uuid] | None = None,
    ) -> Asked:
        topics: dict[str, TopicProduceData] = {}
        for (name, index), records in parts.items():
            topic_id = ZERO_UUID if version < 13 else (ids or self.ids())[name]
            data = topics.setdefault(name, TopicProduceData(name=name, topic_id=topic_id))
            data.partition_data.append(PartitionProduceData(index=index, records=records))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=list(topics.values()),
            transactional_id=transactional_id,
        )
        return self.begin(request, version, client_id)

    def produce(
        self, name: str, records: bytes | None, index: int = 0, **terms: Any
    ) -> PartitionProduceResponse:
        """The one partition of the answer, which is there at once."""
        asked = self.begin_produce({(name, index): records}, **terms)
        return only_result(asked)

    def ids(self) -> dict[str, Uuid]:
        return {topic.name: topic.topic_id for topic in self.rig.metadata.image.topics.values()}

    # Fetch.

    def fetch_request(
        self,
        parts: dict[tuple[str, int], int | FetchPartition],
        *,
        version: int = FETCH_VERSION,
        replica_id: int = -1,
        replica_epoch: int = -1,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        session_id: int = 0,
        session_epoch: int = -1,
        forgotten: Sequence[tuple[str, int]] = (),
        isolation_level: int = 0,
        rack_id: str = "",
    ) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for (name, index), wanted in parts.items():
            topic_id = self.ids().get(name, UNKNOWN_ID) if version >= 13 else ZERO_UUID
            topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=topic_id))
            if isinstance(wanted, int):
                log_start = 0 if replica_id >= 0 else -1
                wanted = FetchPartition(
                    fetch_offset=wanted, partition_max_bytes=1 << 20, log_start_offset=log_start
                )
            wanted.partition = index
            topic.partitions.append(wanted)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=list(topics.values()),
            isolation_level=isolation_level,
            rack_id=rack_id,
            forgotten_topics_data=[
                ForgottenTopic(
                    topic=name,
                    topic_id=self.ids().get(name, UNKNOWN_ID) if version >= 13 else ZERO_UUID,
                    partitions=[index],
                )
                for name, index in forgotten
            ],
        )
        if version >= 15:
            request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch)
        else:
            request.replica_id = replica_id
        return request

    def begin_fetch(
        self, parts: dict[tuple[str, int], int | FetchPartition], **terms: Any
    ) -> Asked:
        version = terms.get("version", FETCH_VERSION)
        return self.begin(self.fetch_request(parts, **terms), version)

    def fetch(
        self, name: str, wanted: int | FetchPartition, index: int = 0, **terms: Any
    ) -> PartitionData:
        """The one partition of the answer, which is there at once."""
        terms = {"max_wait_ms": 0, **terms}
        return only_data(self.begin_fetch({(name, index): wanted}, **terms))

    # What it counts.

    def count(self, name: str, topic: str | None = None) -> float:
        tags = () if topic is None else (("topic", topic),)
        return self.meter(metric_name(name, tags))

    def meter(self, name: MetricName) -> float:
        found = self.rig.registry.get(name)
        return found.count if isinstance(found, Meter) else 0


UNKNOWN_ID = Uuid(b"\x77" * 16)


def only_result(asked: Asked) -> PartitionProduceResponse:
    [topic] = asked.response.responses
    [result] = topic.partition_responses
    assert isinstance(result, PartitionProduceResponse)
    return result


def only_data(asked: Asked) -> PartitionData:
    [topic] = asked.response.responses
    [data] = topic.partitions
    assert isinstance(data, PartitionData)
    return data


def told(response: FetchResponse) -> dict[tuple[str, int], PartitionData]:
    return {
        (topic.topic, data.partition_index): data
        for topic in response.responses
        for data in topic.partitions
    }


def values(data: PartitionData) -> list[bytes | None]:
    """Of the records in an answer."""
    assert isinstance(data.records, bytes | memoryview)
    return [
        record.value
        for batch in walk_batches(bytes(data.records))
        for record in read_records(batch, max_bytes=1 << 20)  # type: ignore[arg-type]
    ]


@asynccontextmanager
async def broker_on(
    rig: Rig,
    *,
    settings: DataSettings | None = None,
    quota: ReplicationQuota | None = None,
    quotas: RequestQuotas | None = None,
) -> AsyncIterator[Broker]:
    """Broker 1 of three, with the handlers of the data path."""
    async with rig.running() as replicas, trio.open_nursery() as nursery:
        cluster = BrokerMetadata(cluster_id="c", random=Random(0))
        rig.metadata.publishers.append(cluster)
        if not rig.metadata.image.brokers:
            rig.metadata.begin(1, 2, 3)
        moves: list[tuple[Uuid, int, Uuid]] = []
        handlers = data_handlers(
            settings or DataSettings(),
            rig.world,
            replicas=replicas,
            logs=rig.logs,
            cluster=cluster,
            spawn=nursery.start_soon,
            metrics=rig.topic_metrics,
            registry=rig.registry,
            moved=lambda *where: moves.append(where),
            quota=quota,
        )
        yield Broker(rig, handlers, moves=moves, quotas=quotas)
        nursery.cancel_scope.cancel()


def followed(offset: int, epoch: int = -1, **changes: Any) -> FetchPartition:
    """A partition as a follower fetches it."""
    fields = {
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "log_start_offset": 0,
        "current_leader_epoch": epoch,
        **changes,
    }
    return FetchPartition(**fields)


def wanted(offset: int, **changes: Any) -> FetchPartition:
    """A partition as a consumer fetches it."""
    return FetchPartition(**{"fetch_offset": offset, "partition_max_bytes": 1 << 20, **changes})
