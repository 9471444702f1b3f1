"""A producer without I/O: records in, Produce calls out, and a result for every record.

A record finds its partition when its topic is known; until then it waits in the topic's room, in
order, for `max_block_ms`. Batches are sent when they are full, when `linger_ms` have passed or when
somebody flushes. Each Produce call carries at most one batch of a partition, and a node has at most
`max_in_flight_requests_per_connection` of them at a time. What a refused or lost batch means for
those behind it is told in producer_partition.py.

Nothing is dropped silently: a batch ends with the broker's answer, with a refusal that repeating
would not change, with `delivery_timeout_ms`, or with ClientClosed. After a time-out the batch may
have been written all the same, as with every Kafka client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kraftpy.client.backoff import Backoff
from kraftpy.client.calls import Call, TopicPartition, earliest
from kraftpy.client.cluster import Broker, Cluster, TopicInfo
from kraftpy.client.errors import ClientClosed, ConnectionLost, KafkaError, error_code
from kraftpy.client.partitioner import StickyChoice, partition_of_key
from kraftpy.client.producer_batch import NO_OFFSET, Batch, Delivery, Identity
from kraftpy.client.producer_identity import IdentityKeeper
from kraftpy.client.producer_partition import PartitionQueue
from kraftpy.client.producer_record import Outgoing, detail_of, most_bytes, why_homeless
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kraftpy.records.reader import Header

if TYPE_CHECKING:
    from kraftpy.client.settings import ProducerSettings
    from kraftpy.client.transaction_manager import TransactionManager
    from kraftpy.world import Address, Random

__all__ = ["ProducerCore"]

_OUT_OF_ORDER = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


class ProducerCore:
    __slots__ = (
        "_backoffs",
        "_identity",
        "_in_flight",
        "_is_closed",
        "_queues",
        "_random",
        "_rooms",
        "_settings",
        "_settled_updates",
        "_sticky",
        "buffered_bytes",
        "cluster",
        "needs_turn",
        "transaction",
    )

    def __init__(
        self, bootstrap: Sequence[Address], settings: ProducerSettings, random: Random
    ) -> None:
        self._settings = settings
        self._random = random
        self.cluster = Cluster(bootstrap, settings.client, random, allow_auto_create=True)
        self.transaction: TransactionManager | None = None
        self._identity: IdentityKeeper | None = None
        if settings.transactional_id is not None:
            # Commands without transactions start sooner without this.
            from kraftpy.client.transaction_manager import TransactionManager

            self.transaction = TransactionManager(self.cluster, settings, random)
        elif settings.is_idempotent:
            self._identity = IdentityKeeper(settings, random)
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._rooms: dict[str, list[Outgoing]] = {}
        self._sticky: dict[str, StickyChoice] = {}
        self._backoffs: dict[TopicPartition, Backoff] = {}
        self._in_flight: dict[int, int] = {}
        self._is_closed = False
        # The state of the cluster that the rooms were looked through with.
        self._settled_updates = 0
        self.buffered_bytes = 0
        # Is there something new that `calls` should look at?
        self.needs_turn = False

    def has_room(self, size: int) -> bool:
        """May a record of this size be appended? An empty buffer takes one of any size."""
        return not self.buffered_bytes or self.buffered_bytes + size <= self._settings.buffer_memory

    def size_of(
        self, key: bytes | None, value: bytes | None, headers: Sequence[Header] = ()
    ) -> int:
        """The most that a record can take. Raises KafkaError if no request can carry that."""
        size = most_bytes(key, value, headers)
        if size > self._settings.max_request_size:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of {size} bytes is more than max_request_size,"
                f" {self._settings.max_request_size}",
            )
        return size

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int,
        headers: Sequence[Header] = (),
        now_ms: int,
    ) -> Delivery:
        """Take a record; what is promised for it. The caller has asked `has_room`."""
        if self._is_closed:
            raise ClientClosed("the producer is closed")
        if partition is not None and partition < 0:
            raise ValueError(f"partition {partition}")
        if self.transaction is not None:
            self.transaction.check_open()
        size = self.size_of(key, value, headers)
        if self._rooms and self.cluster.updates != self._settled_updates:
            # Those who came before and have a home by now go first.
            self._settle_rooms(now_ms)
        delivery = Delivery(topic, timestamp_ms)
        record = Outgoing(delivery, key, value, headers, partition, size, now_ms)
        where = self._home(record)
        if where is None:
            self._rooms.setdefault(topic, []).append(record)
            self.buffered_bytes += size
            self.cluster.want(topic)
            self.needs_turn = True
        else:
            self._put(where, record, now_ms)
        return delivery

    def flush(self) -> Callable[[], bool]:
        """Send everything without lingering; tells from then on whether that is over."""
        pending: deque[Batch | Delivery] = deque()
        for queue in self._queues.values():
            queue.close_open()
            pending += queue.batches()
        for room in self._rooms.values():
            pending += [record.delivery for record in room]
        self.needs_turn = True

        def is_over() -> bool:
            while pending and pending[0].is_done:
                pending.popleft()
            return not pending

        return is_over

    def close(self) -> None:
        """Whatever is not settled now fails."""
        self._is_closed = True
        closed = ClientClosed("the producer was closed before the record was acknowledged")
        for queue in self._queues.values():
            for batch in list(queue.batches()):
                self._fail(queue, batch, closed)
        for room in self._rooms.values():
            for record in room:
                record.delivery.refuse(closed)
        self._rooms.clear()
        self.buffered_bytes = 0

    def calls(self, now_ms: int) -> list[Call]:
        self.needs_turn = False
        if self._is_closed:
            return []
        self._settle_rooms(now_ms)
        self._expire(now_ms)
        calls = self.cluster.calls(now_ms)
        if self._identity is not None and self._queues:
            failure = self._identity.take_failure()
            if failure is not None:
                self._fail_all(failure)
            if any(self._identity.must_rise_for(queue) for queue in self._queues.values()):
                self._identity.rise()
            calls += self._identity.calls(now_ms, self.cluster)
        if self.transaction is not None and self.transaction.is_aborting:
            self._drop(self.transaction.failure)
        if self._can_send:
            calls += self._produce_calls(now_ms)
        if self.transaction is not None:
            calls += self.transaction.calls(now_ms, is_settled=self._is_settled)
        return calls

    def wake_at_ms(self) -> int | None:
        moments = [self.cluster.wake_at_ms()]
        if self.transaction is not None:
            moments.append(self.transaction.wake_at_ms())
        identity = self._present_identity
        if self._identity is not None and self._queues:
            moments.append(self._identity.wake_at_ms())
        for queue in self._queues.values():
            for batch in queue.batches():
                moments.append(batch.created_ms + self._settings.delivery_timeout_ms)
                break
            leader = self.cluster.leader(queue.where)
            if self._can_send and leader is not None and self._has_slot(leader.broker.node_id):
                moments.append(queue.due_ms(identity))
        max_block_ms = self._settings.max_block_ms
        moments += [room[0].came_ms + max_block_ms for room in self._rooms.values()]
        return earliest(*moments)

    @property
    def _present_identity(self) -> Identity | None:
        if self.transaction is not None:
            return self.transaction.identity
        return None if self._identity is None else self._identity.current

    @property
    def _can_send(self) -> bool:
        if self.transaction is not None:
            return self.transaction.can_send
        return self._identity is None or self._identity.current is not None

    def _home(self, record: Outgoing) -> TopicPartition | None:
        """Where a record belongs; None while that isn't known."""
        topic, partition = record.delivery.topic, record.partition
        info = self.cluster.topic(topic)
        if info is None or not info.partitions:
            return None
        if partition is None:
            if record.key is not None:
                partition = partition_of_key(record.key, len(info.partitions))
            else:
                partition = self._stick(topic, info, record.size)
        return TopicPartition(topic, partition) if partition in info.partitions else None

    def _stick(self, topic: str, info: TopicInfo, size: int) -> int:
        choice = self._sticky.get(topic)
        if choice is None:
            choice = self._sticky[topic] = StickyChoice(self._random)
        led = [each.partition for each in info.partitions.values() if each.leader_id >= 0]
        return choice.choose(led or list(info.partitions), size, self._settings.batch_size)

    def _put(self, where: TopicPartition, record: Outgoing, now_ms: int) -> None:
        queue = self._queues.get(where)
        if queue is None:
            queue = self._queues[where] = PartitionQueue(where, self._settings)
        batch = queue.room_for(record.size, now_ms)
        before = batch.size
        delivery, key, value, headers, *_ = record
        delivery.place(batch, batch.append(key, value, delivery.timestamp_ms, headers))
        self.buffered_bytes += batch.size - before
        if batch.size >= self._settings.batch_size:
            queue.close_open()
        self.needs_turn = self.needs_turn or batch.count == 1 or queue.open is not batch

    def _settle_rooms(self, now_ms: int) -> None:
        """Records whose topic is known by now find their batches; others fail, or go on waiting."""
        self._settled_updates = self.cluster.updates
        limit_ms = now_ms - self._settings.max_block_ms
        for topic in list(self._rooms):
            room = self._rooms.pop(topic)
            info = self.cluster.topic(topic)
            error = ErrorCode.NONE if info is None else info.error
            left = []
            for record in room:
                where = self._home(record)
                if where is not None:
                    self.buffered_bytes -= record.size
                    self._put(where, record, now_ms)
                elif record.came_ms <= limit_ms or not (error.retriable or error == 0):
                    self.buffered_bytes -= record.size
                    record.delivery.refuse(why_homeless(record, error, self.cluster))
                else:
                    left.append(record)
            if left:
                self._rooms[topic] = left
                self.cluster.refresh()

    def _expire(self, now_ms: int) -> None:
        limit_ms = now_ms - self._settings.delivery_timeout_ms
        for queue in list(self._queues.values()):
            for batch in list(queue.batches()):
                if batch.created_ms > limit_ms:
                    break
                timeout_ms = self._settings.delivery_timeout_ms
                why = f"{batch.count} records of {batch.where} not acknowledged in {timeout_ms} ms"
                self._fail(queue, batch, KafkaError(ErrorCode.REQUEST_TIMED_OUT, why))

    def _has_slot(self, node_id: int) -> bool:
        in_flight = self._in_flight.get(node_id, 0)
        return in_flight < self._settings.max_in_flight_requests_per_connection

    def _produce_calls(self, now_ms: int) -> list[Call]:
        """One call for each node with something to send and a free slot."""
        loads: dict[int, list[Batch]] = {}
        sizes: dict[int, int] = {}
        brokers: dict[int, Broker] = {}
        identity = self._present_identity
        for where in list(self._queues):
            queue = self._queues[where]
            due_ms = queue.due_ms(identity)
            if due_ms is None:
                continue
            leader = self.cluster.leader(where)
            if leader is None:
                # Before it is due as well: nothing else would make us look again.
                self.cluster.refresh()
                continue
            if due_ms > now_ms:
                continue
            node_id = leader.broker.node_id
            if not self._has_slot(node_id):
                continue
            if self.transaction is not None and not self.transaction.admits(where):
                continue
            if sizes.get(node_id, 0) >= self._settings.max_request_size:
                continue
            batch = queue.take(now_ms, identity)
            if batch is None or batch.data is None:
                continue
            brokers[node_id] = leader.broker
            loads.setdefault(node_id, []).append(batch)
            sizes[node_id] = sizes.get(node_id, 0) + len(batch.data)
            # Whoever was served goes to the end of the line.
            self._queues[where] = self._queues.pop(where)
        return [self._call(brokers[node_id], load) for node_id, load in loads.items()]

    def _call(self, broker: Broker, load: list[Batch]) -> Call:
        node_id = broker.node_id
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        topics: dict[str, TopicProduceData] = {}
        for batch in load:
            name = batch.where.topic
            if name not in topics:
                info = self.cluster.topic(name)
                topic_id = ZERO_UUID if info is None else info.topic_id
                topics[name] = TopicProduceData(name=name, topic_id=topic_id)
            data = PartitionProduceData(index=batch.where.partition, records=batch.data)
            topics[name].partition_data.append(data)
        names = {topic.topic_id: name for name, topic in topics.items()}
        batches = {batch.where: batch for batch in load}
        request = ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._settings.client.request_timeout_ms,
            topic_data=list(topics.values()),
        )

        def answered(answer: ProduceResponse | None, now_ms: int) -> None:
            self._in_flight[node_id] -= 1
            if answer is not None:
                self._read_answer(answer, batches, names, now_ms)
            # Without acks there is nothing to know; an answer that leaves a batch out is wrong.
            for batch in batches.values():
                if self._settings.acks == 0:
                    self._finish(batch, NO_OFFSET, -1)
                else:
                    self._again(batch, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR), now_ms)

        def failed(failure: Exception, now_ms: int) -> None:
            self._in_flight[node_id] -= 1
            self.cluster.disappoint(broker.address, now_ms)
            for batch in batches.values():
                if isinstance(failure, ConnectionLost):
                    self._again(
                        batch, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(failure)), now_ms
                    )
                else:
                    self._give_up(batch, KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(failure)))

        return Call(
            broker.address,
            request,
            answered=answered,
            failed=failed,
            expects_answer=self._settings.acks != 0,
            max_version=self.transaction.max_produce_version if self.transaction else None,
        )

    def _read_answer(
        self,
        answer: ProduceResponse,
        batches: dict[TopicPartition, Batch],
        names: dict[Uuid, str],
        now_ms: int,
    ) -> None:
        """Settle the batches that the answer speaks of, and take them out of `batches`."""
        endpoints = {
            each.node_id: Broker(each.node_id, each.host, each.port, each.rack)
            for each in answer.node_endpoints
        }
        for topic in answer.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for each in topic.partition_responses:
                where = TopicPartition(name, each.index)
                batch = batches.pop(where, None)
                if batch is None or batch.is_done:
                    continue
                leader_id = each.current_leader.leader_id
                leader_is_new = self.cluster.learn_leader(
                    where, leader_id, each.current_leader.leader_epoch, endpoints.get(leader_id)
                )
                self._settle(batch, each, now_ms, leader_is_new=leader_is_new)

    def _settle(
        self, batch: Batch, answer: PartitionProduceResponse, now_ms: int, *, leader_is_new: bool
    ) -> None:
        code = error_code(answer.error_code)
        queue = self._queues[batch.where]
        if code == ErrorCode.NONE:
            self._finish(batch, answer.base_offset, answer.log_append_time_ms)
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # It was written by an earlier attempt, too long ago for the broker to know where.
            self._finish(batch, NO_OFFSET, -1)
        elif code in _OUT_OF_ORDER and self._may_wait(queue, batch):
            batch.is_in_flight = False
            if queue.is_head(batch):
                queue.must_renumber = True
        elif code in _TOO_LARGE and batch.count > 1 and self.transaction is None:
            parts = batch.split(self._settings)
            queue.replace(batch, parts)
            self.buffered_bytes += parts[0].size + parts[1].size - batch.size
        else:
            failure = KafkaError(code, detail_of(answer))
            if code.retriable and leader_is_new:
                batch.is_in_flight = False
            elif code.retriable:
                if code.refreshes_metadata:
                    self.cluster.refresh()
                self._again(batch, failure, now_ms)
            else:
                if code in _FENCED and self._identity is not None:
                    self._identity.forget()
                self._give_up(batch, failure)

    def _may_wait(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Out of order because one before it is missing: it may come, or numbers may change.

        In a transaction they may not; there the whole transaction has failed.
        """
        if self.transaction is not None:
            return not queue.is_head(batch)
        return self._identity is not None

    def _again(self, batch: Batch, failure: KafkaError, now_ms: int) -> None:
        """The batch may succeed later, unless it has had its attempts."""
        if batch.is_done:
            return
        if batch.attempts > self._settings.retries:
            self._give_up(batch, failure)
            return
        batch.is_in_flight = False
        batch.not_before_ms = now_ms + self._backoff(batch.where).failed()

    def _finish(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        if batch.is_done:
            return
        self._backoff(batch.where).succeeded()
        batch.finish(base_offset, log_append_time_ms)
        self._remove(self._queues[batch.where], batch)

    def _give_up(self, batch: Batch, failure: Exception) -> None:
        if not batch.is_done:
            self._fail(self._queues[batch.where], batch, failure)

    def _fail(self, queue: PartitionQueue, batch: Batch, failure: Exception) -> None:
        batch.fail(failure)
        self._remove(queue, batch)
        if self.transaction is not None:
            self.transaction.batch_failed(failure)

    @property
    def _is_settled(self) -> bool:
        return not self._rooms and all(queue.is_empty for queue in self._queues.values())

    def _drop(self, failure: Exception) -> None:
        """Give up what waits; what is in flight may be written, and is waited for."""
        for queue in self._queues.values():
            for batch in list(queue.batches()):
                if not batch.is_in_flight:
                    self._fail(queue, batch, failure)
        for room in self._rooms.values():
            for record in room:
                self.buffered_bytes -= record.size
                record.delivery.refuse(failure)
        self._rooms.clear()

    def _fail_all(self, failure: Exception) -> None:
        for queue in self._queues.values():
            for batch in list(queue.batches()):
                self._fail(queue, batch, failure)

    def _remove(self, queue: PartitionQueue, batch: Batch) -> None:
        queue.settle(batch)
        self.buffered_bytes -= batch.size
        self.needs_turn = True

    def _backoff(self, where: TopicPartition) -> Backoff:
        backoff = self._backoffs.get(where)
        if backoff is None:
            client = self._settings.client
            backoff = self._backoffs[where] = Backoff(
                initial_ms=client.retry_backoff_ms,
                max_ms=client.retry_backoff_max_ms,
                random=self._random,
            )
        return backoff
