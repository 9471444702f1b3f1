"""confluent-kafka, the Python face of librdkafka, behind the port of workloads.

The library sends a record again by itself, so a code that may pass (NOT_ENOUGH_REPLICAS, say)
speaks of the last attempt only. Its consumer can't vanish: destroying it leaves the group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, Protocol

import trio
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as TheirPartition

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

__all__ = ["LOCAL_ERRORS", "LibrdkafkaClient", "client_error", "open_librdkafka_client"]

_CLOSE_SECONDS = 10.0

_REFUSED: Final = Meaning(Effect.FAIL, AfterCommit.ABORT)
_OVER: Final = Meaning(Effect.FAIL_AND_END, AfterCommit.NO_ABORT)
LOCAL_ERRORS: Final[Mapping[str, Meaning]] = {
    # Never accepted by the library.
    "_QUEUE_FULL": _REFUSED,
    "_INVALID_ARG": _REFUSED,
    "_BAD_MSG": _REFUSED,
    "_KEY_SERIALIZATION": _REFUSED,
    "_VALUE_SERIALIZATION": _REFUSED,
    # The producer is in its error state and takes nothing any more.
    "_FENCED": _OVER,
    "_FATAL": _OVER,
    "_STATE": _OVER,
    # Sent, or perhaps sent, and not answered.
    "_MSG_TIMED_OUT": UNKNOWN,
    "_TIMED_OUT": UNKNOWN,
    "_TIMED_OUT_QUEUE": UNKNOWN,
    "_TRANSPORT": UNKNOWN,
    "_ALL_BROKERS_DOWN": UNKNOWN,
    "_PURGE_INFLIGHT": UNKNOWN,
    # What waits in the queue may wait there for its second attempt.
    "_PURGE_QUEUE": UNKNOWN,
    "_UNKNOWN_TOPIC": UNKNOWN,
    "_UNKNOWN_PARTITION": UNKNOWN,
    "_DESTROY": UNKNOWN,
    "_GAPLESS_GUARANTEE": UNKNOWN,
}


def client_error(error: KafkaError) -> ClientError:
    """What an error of librdkafka says about a write, or a commit."""
    name = error.name()
    if error.code() < 0 and name.startswith("_"):
        meaning = LOCAL_ERRORS.get(name, UNKNOWN)
    else:
        code = error_code(error.code())
        name = code.name
        meaning = meaning_of(code, may_be_repeated=True)
    if error.txn_requires_abort():
        meaning = Meaning(meaning.effect, AfterCommit.ABORT)
    elif error.fatal():
        meaning = Meaning(meaning.effect, AfterCommit.NO_ABORT)
    return ClientError(name, meaning, error.str())


@asynccontextmanager
async def open_librdkafka_client(
    bootstrap: str, spec: ClientSpec
) -> AsyncIterator[LibrdkafkaClient]:
    thread = CallThread(f"librdkafka-{spec.client_id}")
    client = LibrdkafkaClient(bootstrap, spec, thread)
    try:
        yield client
    except BaseException:
        thread.finish(client.destroy)
        raise
    with trio.CancelScope() as scope:
        await thread.finish_and_wait(client.destroy, _CLOSE_SECONDS)
    if scope.cancelled_caught:
        thread.finish(client.destroy)


class LibrdkafkaClient:
    """A WorkloadClient. Made by `open_librdkafka_client`."""

    library = "librdkafka"

    def __init__(self, bootstrap: str, spec: ClientSpec, thread: CallThread) -> None:
        self._bootstrap = bootstrap
        self._spec = spec
        self._thread = thread
        self._seconds = spec.delivery_timeout_ms / 1000
        self._lazy_producer: Producer | None = None
        self._lazy_consumer: Consumer | None = None
        self._rebalances: list[RebalanceNote] = []
        # Where each assigned partition goes on; None under a subscription.
        self._positions: dict[TopicPartition, int] | None = {}

    # Sending.

    async def send(
        self, records: Sequence[tuple[TopicPartition, OutgoingRecord]]
    ) -> list[Ack | ClientError]:
        found: list[Ack | ClientError] = await self._ask(lambda: self._send(records))
        return found

    def _send(
        self, records: Sequence[tuple[TopicPartition, OutgoingRecord]]
    ) -> list[Ack | ClientError]:
        outcomes: list[Ack | ClientError | None] = [None] * len(records)
        for index, (where, record) in enumerate(records):

            def delivered(error: KafkaError | None, message: Message, index: int = index) -> None:
                outcomes[index] = _outcome(error, message)

            try:
                self._producer.produce(
                    where.topic,
                    record.value,
                    record.key,
                    where.partition,
                    on_delivery=delivered,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                )
            except KafkaException as failure:
                outcomes[index] = client_error(failure.args[0])
            except BufferError as failure:
                outcomes[index] = ClientError("_QUEUE_FULL", _REFUSED, str(failure))
        # Every record gets its report: message.timeout.ms sees to it.
        while any(outcome is None for outcome in outcomes):
            self._producer.poll(0.1)
        return [outcome for outcome in outcomes if outcome is not None]

    async def init_transactions(self) -> ProducerName:
        await self._ask(lambda: self._producer.init_transactions(self._seconds))
        return self.producer_name()

    def producer_name(self) -> ProducerName:
        """The library keeps it to itself."""
        return ProducerName()

    async def begin(self) -> None:
        await self._ask(self._begin)

    def _begin(self) -> None:
        self._producer.begin_transaction()

    async def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        def send() -> None:
            group = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(_theirs(offsets), group, self._seconds)

        await self._ask(send)

    async def commit_transaction(self) -> None:
        await self._ask(lambda: self._producer.commit_transaction(self._seconds))

    async def abort_transaction(self) -> None:
        await self._ask(lambda: self._producer.abort_transaction(self._seconds))

    # Reading.

    async def assign(self, wheres: Iterable[TopicPartition], *, from_beginning: bool) -> None:
        chosen = list(wheres)
        await self._ask(lambda: self._assign(chosen, from_beginning=from_beginning))

    def _assign(self, wheres: list[TopicPartition], *, from_beginning: bool) -> None:
        before = self._positions
        if before is None:
            self._consumer.unsubscribe()
            before = {}
        new = OFFSET_BEGINNING if from_beginning else OFFSET_INVALID
        if from_beginning:
            before = {}
        self._positions = {where: before.get(where, new) for where in wheres}
        self._consumer.assign(
            [TheirPartition(*where, offset) for where, offset in self._positions.items()]
        )

    async def subscribe(self, topics: Iterable[str]) -> None:
        chosen = list(topics)

        def subscribe() -> None:
            if self._positions is not None:
                self._consumer.unassign()
                self._positions = None
            self._consumer.subscribe(
                chosen,
                on_assign=lambda _, parts: self._note("assigned", parts),
                on_revoke=lambda _, parts: self._note("revoked", parts),
                on_lost=lambda _, parts: self._note("lost", parts),
            )

        await self._ask(subscribe)

    async def poll(self, timeout_ms: int) -> list[PolledRecord]:
        most = self._spec.max_poll_records
        messages = await self._ask(lambda: self._consumer.consume(most, timeout_ms / 1000))
        records: list[PolledRecord] = []
        for message in messages:
            error = message.error()
            if error is not None:
                if records:
                    # What came before it counts; it will be said again.
                    break
                raise client_error(error)
            record = _record(message)
            records.append(record)
            if self._positions is not None:
                where = TopicPartition(record.topic, record.partition)
                self._positions[where] = record.offset + 1
        return records

    async def seek(self, where: TopicPartition, offset: int) -> None:
        await self._ask(lambda: self._seek(where, offset))

    def _seek(self, where: TopicPartition, offset: int) -> None:
        if self._positions is None:
            try:
                self._consumer.seek(TheirPartition(*where, offset))
            except KafkaException:
                # It is somebody else's now.
                return
        elif where in self._positions:
            self._positions[where] = offset
            self._consumer.assign(
                [TheirPartition(*each, at) for each, at in self._positions.items()]
            )

    def take_rebalances(self) -> list[RebalanceNote]:
        notes, self._rebalances = self._rebalances, []
        return notes

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        await self._ask(lambda: self._consumer.commit(offsets=_theirs(offsets), asynchronous=False))

    async def committed(
        self, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        asked = [TheirPartition(*where) for where in wheres]
        found = await self._ask(lambda: self._consumer.committed(asked, self._seconds))
        answer: dict[TopicPartition, CommittedOffset | None] = {}
        for each in found:
            if each.error is not None:
                raise client_error(each.error)
            where = TopicPartition(each.topic, each.partition)
            is_there = each.offset >= 0
            answer[where] = CommittedOffset(each.offset, metadata_of(each)) if is_there else None
        return answer

    # The library's objects.

    def destroy(self) -> None:
        """In the client's own thread: destroying either of them may take long."""
        consumer, self._lazy_consumer = self._lazy_consumer, None
        self._lazy_producer = None
        if consumer is not None:
            consumer.close()

    async def _ask(self, question: Any) -> Any:
        try:
            return await self._thread.call(question)
        except KafkaException as failure:
            raise client_error(failure.args[0]) from failure
        except (RuntimeError, ValueError, TypeError) as failure:
            raise ClientError(type(failure).__name__, UNKNOWN, str(failure)) from failure

    def _note(
        self, kind: Literal["assigned", "revoked", "lost"], parts: list[TheirPartition]
    ) -> None:
        wheres = tuple(TopicPartition(each.topic, each.partition) for each in parts)
        self._rebalances.append(RebalanceNote(kind, wheres))

    @property
    def _producer(self) -> Producer:
        if self._lazy_producer is None:
            spec = self._spec
            settings: dict[str, Any] = {
                "bootstrap.servers": self._bootstrap,
                "client.id": spec.client_id,
                "acks": spec.acks,
                "enable.idempotence": spec.is_idempotent,
                "compression.type": spec.compression,
                "linger.ms": 1,
                "message.timeout.ms": spec.delivery_timeout_ms,
                "request.timeout.ms": spec.request_timeout_ms,
                "log_level": 0,
                "error_cb": _unheard,
            }
            if spec.transactional_id is not None:
                settings["transactional.id"] = spec.transactional_id
                settings["transaction.timeout.ms"] = spec.transaction_timeout_ms
                # It must not outlast the transaction.
                settings["message.timeout.ms"] = spec.transaction_timeout_ms
            self._lazy_producer = Producer(settings)
        return self._lazy_producer

    @property
    def _consumer(self) -> Consumer:
        if self._lazy_consumer is None:
            spec = self._spec
            level = "read_committed" if spec.is_read_committed else "read_uncommitted"
            settings: dict[str, Any] = {
                "bootstrap.servers": self._bootstrap,
                "client.id": spec.client_id,
                "group.id": spec.group_id or f"alone-{spec.client_id}",
                "enable.auto.commit": spec.commits_by_itself,
                "auto.commit.interval.ms": spec.auto_commit_interval_ms,
                "auto.offset.reset": "earliest",
                "isolation.level": level,
                "fetch.wait.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 5_000,
                "group.protocol": spec.group_protocol,
                "log_level": 0,
                "error_cb": _unheard,
            }
            if spec.group_protocol == "classic":
                settings["session.timeout.ms"] = spec.session_timeout_ms
            if spec.group_instance_id is not None:
                settings["group.instance.id"] = spec.group_instance_id
            self._lazy_consumer = Consumer(settings)
        return self._lazy_consumer


def _unheard(error: KafkaError) -> None:
    """What goes wrong is told by the call that it concerns; otherwise `poll` would raise it."""


def _outcome(error: KafkaError | None, message: Message) -> Ack | ClientError:
    if error is not None:
        return client_error(error)
    offset = message.offset()
    partition = message.partition()
    return Ack(-1 if partition is None else partition, _known(offset))


def _known(offset: int | None) -> int | None:
    return None if offset is None or offset < 0 else offset


def _record(message: Message) -> PolledRecord:
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers() or ()
    return PolledRecord(
        message.topic() or "",
        _or(message.partition()),
        _or(message.offset()),
        _bytes(message.key()),
        _bytes(message.value()),
        timestamp_ms if kind else None,
        tuple((name, value) for name, value in headers),
        message.leader_epoch(),
    )


def _or(number: int | None) -> int:
    return -1 if number is None else number


def _bytes(data: Any) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


class Committed(Protocol):
    """The part of the library's TopicPartition that is read here."""

    @property
    def metadata(self) -> str | None: ...


def _theirs(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[TheirPartition]:
    return [
        TheirPartition(*where, each.offset, metadata=each.metadata)
        for where, each in offsets.items()
    ]


def metadata_of(committed: Committed) -> str:
    """The library reads on behind its end, up to the next zero in memory, and what it finds there
    need not be text. Readers know where it ends.
    """
    try:
        return committed.metadata or ""
    except UnicodeDecodeError as error:
        return error.object[: error.start].decode()
