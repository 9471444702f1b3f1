"""A small cluster in memory, for faults that a real one shows only by luck.

It keeps logs of real batches, checks producers' sequences as Kafka does (five batches remembered,
any number taken from an unknown producer), has leaders that move, fetch sessions, and logs that can
be cut. `handle` is synchronous; sim_shell.py and fake_nodes.py put a transport around it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kraftpy.client.calls import TopicPartition
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k00_produce as k00
from kraftpy.protocol.schema import k01_fetch as k01
from kraftpy.protocol.schema import k02_list_offsets as k02
from kraftpy.protocol.schema import k03_metadata as k03
from kraftpy.protocol.schema import k22_init_producer_id as k22
from kraftpy.protocol.schema import k23_offset_for_leader_epoch as k23
from kraftpy.protocol.tables import Request, Response
from kraftpy.records.batch import RecordBatch
from kraftpy.records.reader import Record, read_records
from kraftpy.world import Address

REMEMBERED_BATCHES = 5


@dataclass
class ProducerState:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES)
    )


@dataclass
class FakePartition:
    leader: int
    epoch: int = 0
    start: int = 0
    batches: list[RecordBatch] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    aborted: list[k01.AbortedTransaction] = field(default_factory=list)
    # Answers a repetition with an error, as older brokers do.
    forgets_offsets: bool = False

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start

    def records(self) -> Iterator[Record]:
        for batch in self.batches:
            if not batch.is_control:
                yield from read_records(batch, max_bytes=1 << 30)

    def append(self, data: bytes | bytearray | memoryview) -> tuple[ErrorCode, int]:
        batch = RecordBatch(bytearray(data))
        assert batch.is_valid
        if batch.producer_id >= 0:
            code, offset = self._check(batch)
            if code != ErrorCode.NONE or offset >= 0:
                return code, offset
        batch.stamp(self.end, self.epoch)
        self.batches.append(batch)
        if batch.producer_id >= 0:
            state = self.producers[batch.producer_id]
            state.batches.append((batch.base_sequence, batch.last_sequence, batch.base_offset))
        return ErrorCode.NONE, batch.base_offset

    def _check(self, batch: RecordBatch) -> tuple[ErrorCode, int]:
        """An offset that is not -1 is a repetition's."""
        state = self.producers.get(batch.producer_id)
        if state is None:
            self.producers[batch.producer_id] = ProducerState(batch.producer_epoch)
            return ErrorCode.NONE, -1
        if batch.producer_epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > state.epoch:
            if batch.base_sequence != 0:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            self.producers[batch.producer_id] = ProducerState(batch.producer_epoch)
            return ErrorCode.NONE, -1
        for first, last, offset in state.batches:
            if (first, last) == (batch.base_sequence, batch.last_sequence):
                if self.forgets_offsets:
                    return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1
                return ErrorCode.NONE, offset
        last = state.batches[-1][1] if state.batches else -1
        if batch.base_sequence != (last + 1) & (2**31 - 1):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, -1

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The last epoch up to this one, and where it ends; (-1, -1) if there is none."""
        found = [batch.leader_epoch for batch in self.batches if batch.leader_epoch <= epoch]
        if epoch == self.epoch:
            return epoch, self.end
        if not found:
            return -1, -1
        last = max(found)
        later = [each.base_offset for each in self.batches if each.leader_epoch > last]
        return last, min(later, default=self.end)

    def cut(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]


class FakeCluster:
    def __init__(self, *, nodes: int = 2, topics: dict[str, int] | None = None) -> None:
        self.addresses: dict[int, Address] = {
            node_id: (f"node{node_id}", 9092) for node_id in range(1, nodes + 1)
        }
        self.partitions: dict[TopicPartition, FakePartition] = {}
        self.topic_ids: dict[str, Uuid] = {}
        for name, count in (topics or {"t": 2}).items():
            self.create(name, count)
        self.producer_ids = 0
        self.sessions: dict[int, tuple[int, dict[tuple[Uuid, int], k01.FetchPartition]]] = {}
        self.session_count = 0
        self.seen: list[tuple[int, Request]] = []
        self.max_message_bytes = 1 << 20
        # Before version 12 the answer to a Fetch doesn't tell of it.
        self.tells_divergence = True

    def create(self, name: str, count: int) -> None:
        self.topic_ids[name] = Uuid((len(self.topic_ids) + 1).to_bytes(16, "big"))
        for index in range(count):
            leader = index % len(self.addresses) + 1
            self.partitions[TopicPartition(name, index)] = FakePartition(leader)

    def move(self, where: TopicPartition) -> None:
        """Another node leads, in a new epoch."""
        partition = self.partitions[where]
        partition.leader = partition.leader % len(self.addresses) + 1
        partition.epoch += 1

    def values(self, where: TopicPartition) -> list[bytes | None]:
        return [record.value for record in self.partitions[where].records()]

    def handle(self, node_id: int, request: Request, error: ErrorCode | None = None) -> Response:
        """Carry a request out. With `error`, produced batches are refused with it."""
        self.seen.append((node_id, request))
        match request:
            case k03.MetadataRequest():
                return self._metadata(request)
            case k22.InitProducerIdRequest():
                self.producer_ids += 1
                return k22.InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)
            case k00.ProduceRequest():
                return self._produce(node_id, request, error)
            case k01.FetchRequest():
                return self._fetch(node_id, request)
            case k02.ListOffsetsRequest():
                return self._list_offsets(node_id, request)
            case k23.OffsetForLeaderEpochRequest():
                return self._epoch_ends(node_id, request)
        raise AssertionError(request)

    def _metadata(self, request: k03.MetadataRequest) -> Response:
        names = [each.name or "" for each in request.topics or ()]
        if request.topics is None:
            names = list(self.topic_ids)
        topics = []
        for name in names:
            if name not in self.topic_ids:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                topics.append(k03.MetadataResponseTopic(name=name, error_code=code))
                continue
            partitions = [
                k03.MetadataResponsePartition(
                    partition_index=where.partition,
                    leader_id=each.leader,
                    leader_epoch=each.epoch,
                    replica_nodes=list(self.addresses),
                    isr_nodes=list(self.addresses),
                )
                for where, each in self.partitions.items()
                if where.topic == name
            ]
            topics.append(
                k03.MetadataResponseTopic(
                    name=name, topic_id=self.topic_ids[name], partitions=partitions
                )
            )
        brokers = [
            k03.MetadataResponseBroker(node_id=node_id, host=host, port=port)
            for node_id, (host, port) in self.addresses.items()
        ]
        return k03.MetadataResponse(brokers=brokers, topics=topics, cluster_id="fake")

    def _name(self, topic_id: Uuid) -> str:
        return next(name for name, each in self.topic_ids.items() if each == topic_id)

    def _led(self, node_id: int, where: TopicPartition) -> FakePartition | None:
        partition = self.partitions.get(where)
        return None if partition is None or partition.leader != node_id else partition

    def _produce(
        self, node_id: int, request: k00.ProduceRequest, error: ErrorCode | None
    ) -> Response:
        responses = []
        for topic in request.topic_data:
            results = []
            for data in topic.partition_data:
                where = TopicPartition(self._name(topic.topic_id), data.index)
                code, offset = self._produce_one(node_id, where, data.records, error)
                results.append(
                    k00.PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=offset
                    )
                )
            responses.append(
                k00.TopicProduceResponse(topic_id=topic.topic_id, partition_responses=results)
            )
        return k00.ProduceResponse(responses=responses)

    def _produce_one(
        self, node_id: int, where: TopicPartition, records: Any, error: ErrorCode | None
    ) -> tuple[ErrorCode, int]:
        partition = self._led(node_id, where)
        if partition is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if len(records) > self.max_message_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        is_after_append = error in (
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.REQUEST_TIMED_OUT,
        )
        if error is not None and not is_after_append:
            return error, -1
        code, offset = partition.append(records)
        if error is not None and code == ErrorCode.NONE:
            return error, -1
        return code, offset

    def _fetch(self, node_id: int, request: k01.FetchRequest) -> Response:
        wanted: dict[tuple[Uuid, int], k01.FetchPartition] = {}
        session_id = 0
        if request.session_epoch > 0:
            known = self.sessions.get(request.session_id)
            if known is None:
                return k01.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            epoch, wanted = known
            if request.session_epoch != epoch:
                return k01.FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session_id = request.session_id
            for topic in request.forgotten_topics_data:
                for partition in topic.partitions:
                    wanted.pop((topic.topic_id, partition), None)
        else:
            self.sessions.pop(request.session_id, None)
            self.session_count += 1
            session_id = self.session_count
        for topic in request.topics:
            for each in topic.partitions:
                wanted[topic.topic_id, each.partition] = each
        self.sessions[session_id] = (request.session_epoch + 1, wanted)
        topics = []
        for (topic_id, index), each in wanted.items():
            data = self._fetch_one(node_id, TopicPartition(self._name(topic_id), index), each)
            if (
                request.session_epoch == 0
                or data.records
                or data.error_code != 0
                or (data.diverging_epoch.epoch >= 0)
            ):
                topics.append(k01.FetchableTopicResponse(topic_id=topic_id, partitions=[data]))
        return k01.FetchResponse(session_id=session_id, responses=topics)

    def _fetch_one(
        self, node_id: int, where: TopicPartition, wish: k01.FetchPartition
    ) -> k01.PartitionData:
        data = k01.PartitionData(partition_index=where.partition, aborted_transactions=[])
        partition = self._led(node_id, where)
        if partition is None:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return data
        if wish.current_leader_epoch < partition.epoch:
            data.error_code = ErrorCode.FENCED_LEADER_EPOCH
            return data
        data.high_watermark = data.last_stable_offset = partition.end
        if wish.last_fetched_epoch >= 0 and self.tells_divergence:
            epoch, end = partition.end_of_epoch(wish.last_fetched_epoch)
            if epoch < wish.last_fetched_epoch or end < wish.fetch_offset:
                data.diverging_epoch = k01.EpochEndOffset(epoch=epoch, end_offset=end)
                return data
        if not partition.start <= wish.fetch_offset <= partition.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return data
        records = bytearray()
        for batch in partition.batches:
            if batch.next_offset > wish.fetch_offset:
                if records and len(records) + batch.size > wish.partition_max_bytes:
                    break
                records += batch.data
        data.records = bytes(records)
        data.aborted_transactions = partition.aborted
        return data

    def _list_offsets(self, node_id: int, request: k02.ListOffsetsRequest) -> Response:
        topics = []
        for topic in request.topics:
            results = []
            for each in topic.partitions:
                result = k02.ListOffsetsPartitionResponse(partition_index=each.partition_index)
                partition = self._led(node_id, TopicPartition(topic.name, each.partition_index))
                if partition is None:
                    result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif each.timestamp == -2:
                    result.offset = partition.start
                elif each.timestamp == -1:
                    result.offset = partition.end
                else:
                    for record in partition.records():
                        if record.timestamp_ms >= each.timestamp:
                            result.offset, result.timestamp = record.offset, record.timestamp_ms
                            break
                results.append(result)
            topics.append(k02.ListOffsetsTopicResponse(name=topic.name, partitions=results))
        return k02.ListOffsetsResponse(topics=topics)

    def _epoch_ends(self, node_id: int, request: k23.OffsetForLeaderEpochRequest) -> Response:
        topics = []
        for topic in request.topics:
            results = []
            for each in topic.partitions:
                result = k23.EpochEndOffset(partition=each.partition)
                partition = self._led(node_id, TopicPartition(topic.topic, each.partition))
                if partition is None:
                    result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    result.leader_epoch, result.end_offset = partition.end_of_epoch(
                        each.leader_epoch
                    )
                results.append(result)
            topics.append(k23.OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
        return k23.OffsetForLeaderEpochResponse(topics=topics)
