"""kafka-python behind the port of workloads.

Several of its calls wait without a limit (commit_transaction, say); here they get one, and what was
not answered by then is unknown. It speaks the classic group protocol only.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeVar

import kafka
import trio
from kafka import errors
from kafka.structs import OffsetAndMetadata

from jepsen_tests.clients.thread import CallThread
from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import error_code
from kraftpy.verify.workloads.outcomes import (
    UNKNOWN,
    AfterCommit,
    ClientError,
    Effect,
    Meaning,
    meaning_of,
)
from kraftpy.verify.workloads.payload import OutgoingRecord
from kraftpy.verify.workloads.port import (
    Ack,
    ClientSpec,
    CommittedOffset,
    PolledRecord,
    ProducerName,
    RebalanceNote,
)

__all__ = ["LOCAL_ERRORS", "KafkaPythonClient", "client_error", "open_kafka_python_client"]

T = TypeVar("T")

_CLOSE_SECONDS = 10.0
_REFUSED: Final = Meaning(Effect.FAIL, AfterCommit.ABORT)
_OVER: Final = Meaning(Effect.FAIL_AND_END, AfterCommit.NO_ABORT)
LOCAL_ERRORS: Final[Mapping[str, Meaning]] = {
    "KafkaConfigurationError": _REFUSED,
    "IllegalArgumentError": _REFUSED,
    "UnsupportedCodecError": _REFUSED,
    "TypeError": _REFUSED,
    "ValueError": _REFUSED,
    "AssertionError": _REFUSED,
    "IllegalStateError": _OVER,
    "KafkaTimeoutError": UNKNOWN,
    "KafkaConnectionError": UNKNOWN,
    "NodeNotReadyError": UNKNOWN,
    "Cancelled": UNKNOWN,
    "TransactionAbortedError": UNKNOWN,
    "CommitFailedError": _REFUSED,
}
_FAILURES = (errors.KafkaError, TypeError, ValueError, AssertionError)


def client_error(failure: Exception) -> ClientError:
    """What an exception of kafka-python says about a write, or a commit."""
    number = getattr(failure, "errno", None)
    if isinstance(failure, errors.KafkaError) and isinstance(number, int):
        code = error_code(number)
        return ClientError(code.name, meaning_of(code, may_be_repeated=True), str(failure))
    name = type(failure).__name__
    return ClientError(name, LOCAL_ERRORS.get(name, UNKNOWN), str(failure))


@asynccontextmanager
async def open_kafka_python_client(
    bootstrap: str, spec: ClientSpec
) -> AsyncIterator[KafkaPythonClient]:
    if spec.group_protocol != "classic" and spec.group_id is not None:
        raise ValueError("kafka-python has no consumer group protocol")
    thread = CallThread(f"kafka-python-{spec.client_id}")
    client = KafkaPythonClient(bootstrap, spec, thread)
    try:
        yield client
    except BaseException:
        thread.finish(client.destroy)
        raise
    with trio.CancelScope() as scope:
        await thread.finish_and_wait(client.destroy, _CLOSE_SECONDS)
    if scope.cancelled_caught:
        thread.finish(client.destroy)


class KafkaPythonClient:
    """A WorkloadClient. Made by `open_kafka_python_client`."""

    library = "kafka-python"

    def __init__(self, bootstrap: str, spec: ClientSpec, thread: CallThread) -> None:
        # It tells of every lost connection, which here is no news.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._bootstrap = bootstrap
        self._spec = spec
        self._thread = thread
        self._seconds = spec.delivery_timeout_ms / 1000
        self._lazy_producer: Any = None
        self._lazy_consumer: Any = None
        self._rebalances: list[RebalanceNote] = []
        self._is_subscribed = False

    # Sending.

    async def send(
        self, records: Sequence[tuple[TopicPartition, OutgoingRecord]]
    ) -> list[Ack | ClientError]:
        return await self._ask(lambda: self._send(records))

    def _send(
        self, records: Sequence[tuple[TopicPartition, OutgoingRecord]]
    ) -> list[Ack | ClientError]:
        futures: list[Any] = []
        for where, record in records:
            try:
                future = self._producer.send(
                    where.topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=where.partition,
                    timestamp_ms=record.timestamp_ms,
                )
            except _FAILURES as failure:
                future = client_error(failure)
            futures.append(future)
        return [each if isinstance(each, ClientError) else self._ack(each) for each in futures]

    def _ack(self, future: Any) -> Ack | ClientError:
        try:
            metadata = future.get(timeout=self._seconds)
        except _FAILURES as failure:
            return client_error(failure)
        return Ack(metadata.partition, None if metadata.offset < 0 else metadata.offset)

    async def init_transactions(self) -> ProducerName:
        await self._tell("init_transactions")
        return self.producer_name()

    def producer_name(self) -> ProducerName:
        """The library keeps it to itself."""
        return ProducerName()

    async def begin(self) -> None:
        await self._tell("begin_transaction")

    async def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        def send() -> None:
            group = self._consumer.group_metadata()
            self._producer.send_offsets_to_transaction(_theirs(offsets), group)

        await self._ask(send)

    async def commit_transaction(self) -> None:
        await self._tell("commit_transaction")

    async def abort_transaction(self) -> None:
        await self._tell("abort_transaction")

    # Reading.

    async def assign(self, wheres: Iterable[TopicPartition], *, from_beginning: bool) -> None:
        chosen = [kafka.TopicPartition(*where) for where in wheres]

        def assign() -> None:
            if self._is_subscribed:
                self._consumer.unsubscribe()
                self._is_subscribed = False
            self._consumer.assign(chosen)
            if from_beginning:
                self._consumer.seek_to_beginning(*chosen)

        await self._ask(assign)

    async def subscribe(self, topics: Iterable[str]) -> None:
        chosen = list(topics)

        def subscribe() -> None:
            if not self._is_subscribed:
                self._consumer.unsubscribe()
                self._is_subscribed = True
            self._consumer.subscribe(topics=chosen, listener=_Listener(self._note))

        await self._ask(subscribe)

    async def poll(self, timeout_ms: int) -> list[PolledRecord]:
        found = await self._ask(lambda: self._consumer.poll(timeout_ms=timeout_ms))
        return [
            PolledRecord(
                where.topic,
                where.partition,
                record.offset,
                record.key,
                record.value,
                record.timestamp,
                tuple((name, value) for name, value in record.headers),
                record.leader_epoch,
            )
            for where, records in found.items()
            for record in records
        ]

    async def seek(self, where: TopicPartition, offset: int) -> None:
        def seek() -> None:
            theirs = kafka.TopicPartition(*where)
            if theirs in self._consumer.assignment():
                self._consumer.seek(theirs, offset)

        await self._ask(seek)

    def take_rebalances(self) -> list[RebalanceNote]:
        notes, self._rebalances = self._rebalances, []
        return notes

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        timeout_ms = self._spec.delivery_timeout_ms
        await self._ask(lambda: self._consumer.commit(_theirs(offsets), timeout_ms=timeout_ms))

    async def committed(
        self, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        def ask() -> dict[TopicPartition, CommittedOffset | None]:
            answer: dict[TopicPartition, CommittedOffset | None] = {}
            for where in wheres:
                found = self._consumer.committed(
                    kafka.TopicPartition(*where),
                    metadata=True,
                    timeout_ms=self._spec.delivery_timeout_ms,
                )
                is_there = found is not None and found.offset >= 0
                answer[where] = CommittedOffset(found.offset, found.metadata) if is_there else None
            return answer

        return await self._ask(ask)

    # The library's objects.

    def destroy(self) -> None:
        """In the client's own thread; a process that is over leaves nothing open."""
        consumer, self._lazy_consumer = self._lazy_consumer, None
        producer, self._lazy_producer = self._lazy_producer, None
        try:
            if consumer is not None:
                consumer.close(autocommit=False, timeout_ms=self._spec.request_timeout_ms)
            if producer is not None:
                producer.close(timeout=0)
        except _FAILURES:
            # It was on its way out.
            return

    async def _tell(self, method: str) -> None:
        """Call a method of the producer, which is made in the thread too."""

        def call() -> None:
            getattr(self._producer, method)()

        await self._ask(call)

    async def _ask(self, question: Callable[[], T]) -> T:
        with trio.move_on_after(2 * self._seconds):
            try:
                return await self._thread.call(question)
            except (*_FAILURES, RuntimeError, OSError, KeyError, AttributeError) as failure:
                raise client_error(failure) from failure
        raise ClientError("TIMED_OUT_HERE", UNKNOWN, f"no answer in {2 * self._seconds:g} s")

    def _note(self, kind: Literal["assigned", "revoked", "lost"], parts: Iterable[Any]) -> None:
        wheres = tuple(sorted(TopicPartition(each.topic, each.partition) for each in parts))
        self._rebalances.append(RebalanceNote(kind, wheres))

    @property
    def _producer(self) -> Any:
        if self._lazy_producer is None:
            spec = self._spec
            self._lazy_producer = kafka.KafkaProducer(
                bootstrap_servers=self._bootstrap.split(","),
                client_id=spec.client_id,
                acks="all" if spec.acks == -1 else spec.acks,
                enable_idempotence=spec.is_idempotent,
                transactional_id=spec.transactional_id,
                transaction_timeout_ms=spec.transaction_timeout_ms,
                compression_type=None if spec.compression == "none" else spec.compression,
                linger_ms=1,
                delivery_timeout_ms=spec.delivery_timeout_ms,
                request_timeout_ms=spec.request_timeout_ms,
                max_block_ms=spec.delivery_timeout_ms,
                bootstrap_timeout_ms=spec.delivery_timeout_ms,
            )
        return self._lazy_producer

    @property
    def _consumer(self) -> Any:
        if self._lazy_consumer is None:
            spec = self._spec
            level = "read_committed" if spec.is_read_committed else "read_uncommitted"
            self._lazy_consumer = kafka.KafkaConsumer(
                bootstrap_servers=self._bootstrap.split(","),
                client_id=spec.client_id,
                group_id=spec.group_id,
                group_instance_id=spec.group_instance_id,
                enable_auto_commit=spec.commits_by_itself,
                auto_commit_interval_ms=spec.auto_commit_interval_ms,
                max_poll_records=spec.max_poll_records,
                auto_offset_reset="earliest",
                isolation_level=level,
                fetch_max_wait_ms=100,
                session_timeout_ms=spec.session_timeout_ms,
                heartbeat_interval_ms=spec.session_timeout_ms // 6,
                request_timeout_ms=max(spec.delivery_timeout_ms, spec.session_timeout_ms + 1_000),
                bootstrap_timeout_ms=spec.delivery_timeout_ms,
            )
        return self._lazy_consumer


class _Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, note: Callable[[Any, Iterable[Any]], None]) -> None:
        self._note = note

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._note("assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._note("revoked", revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._note("lost", lost)


def _theirs(offsets: Mapping[TopicPartition, CommittedOffset]) -> dict[Any, Any]:
    return {
        kafka.TopicPartition(*where): OffsetAndMetadata(each.offset, each.metadata, -1)
        for where, each in offsets.items()
    }
