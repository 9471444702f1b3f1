"""Our own client behind the port of workloads, in any World: real sockets or virtual time.

Every call has a deadline of the client's own, so none is wrapped in another one here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final, Literal

from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer import Consumer, open_consumer
from kraftpy.client.errors import ConnectionLost, Evidence, KafkaError, UnsupportedVersion
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.producer import Producer, open_producer
from kraftpy.client.producer_batch import Delivery
from kraftpy.client.settings import (
    ClientSettings,
    ConsumerSettings,
    IsolationLevel,
    ProducerSettings,
)
from kraftpy.client.transaction_errors import TransactionAbortable, TransactionRetriable
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
from kraftpy.world import Address, World

__all__ = ["OwnClient", "client_error", "open_own_client", "translated"]

_NOTHING_SENT: Final = Meaning(Effect.FAIL, AfterCommit.ABORT)


def client_error(failure: Exception, *, may_be_repeated: bool = True) -> ClientError:
    """What one of our client's exceptions says about a write. ValueError: a misused producer."""
    if isinstance(failure, ClientError):
        return failure
    if isinstance(failure, TransactionRetriable):
        return ClientError(failure.code.name, UNKNOWN, failure.detail)
    if isinstance(failure, KafkaError):
        meaning = meaning_of(failure.code, may_be_repeated=may_be_repeated)
        if isinstance(failure, TransactionAbortable):
            # The client has classified it: the transaction is there, and not ended.
            meaning = Meaning(meaning.effect, AfterCommit.ABORT)
        return ClientError(failure.code.name, meaning, failure.detail)
    if isinstance(failure, ConnectionLost):
        is_unsent = failure.evidence is Evidence.REFUSED and not may_be_repeated
        return ClientError(
            f"CONNECTION_{failure.evidence.name}",
            _NOTHING_SENT if is_unsent else UNKNOWN,
            failure.detail,
        )
    if isinstance(failure, UnsupportedVersion):
        return ClientError("UNSUPPORTED_VERSION", _NOTHING_SENT, str(failure))
    if isinstance(failure, ValueError):
        meaning = Meaning(Effect.FAIL_AND_END, AfterCommit.NO_ABORT)
        return ClientError("ILLEGAL_STATE", meaning, str(failure))
    return ClientError(type(failure).__name__, UNKNOWN, str(failure))


_FAILURES = (KafkaError, OSError, UnsupportedVersion, ValueError)


@contextmanager
def translated() -> Iterator[None]:
    """What our client raises inside of the block becomes a ClientError."""
    try:
        yield
    except _FAILURES as failure:
        raise client_error(failure) from failure


@asynccontextmanager
async def open_own_client(
    world: World, bootstrap: Sequence[Address], spec: ClientSpec
) -> AsyncIterator[OwnClient]:
    """Leaving the block in good order ends an open transaction and leaves the group; who cancels
    it makes the client vanish.
    """
    async with (
        open_producer(world, bootstrap, _producer_settings(spec)) as producer,
        open_consumer(world, bootstrap, _consumer_settings(spec)) as consumer,
    ):
        yield OwnClient(producer, consumer, spec)


class OwnClient:
    """A WorkloadClient. Made by `open_own_client`."""

    library = "own"

    def __init__(self, producer: Producer, consumer: Consumer, spec: ClientSpec) -> None:
        self._producer = producer
        self._consumer = consumer
        self._spec = spec
        self._is_subscribed = False
        self._rebalances: list[RebalanceNote] = []

    async def send(
        self, records: Sequence[tuple[TopicPartition, OutgoingRecord]]
    ) -> list[Ack | ClientError]:
        handed_over: list[Delivery | ClientError] = []
        for where, record in records:
            try:
                delivery = await self._producer.send(
                    where.topic,
                    record.value,
                    key=record.key,
                    partition=where.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=record.headers,
                )
            except _FAILURES as failure:
                handed_over.append(client_error(failure))
            else:
                handed_over.append(delivery)
        return [
            each if isinstance(each, ClientError) else await self._ack(each) for each in handed_over
        ]

    async def _ack(self, delivery: Delivery) -> Ack | ClientError:
        try:
            metadata = await self._producer.wait(delivery)
        except _FAILURES as failure:
            return client_error(failure)
        return Ack(metadata.partition, None if metadata.offset < 0 else metadata.offset)

    async def assign(self, wheres: Iterable[TopicPartition], *, from_beginning: bool) -> None:
        chosen = list(wheres)
        with translated():
            if self._is_subscribed:
                await self._consumer.unsubscribe()
                self._is_subscribed = False
            self._consumer.assign(chosen)
            if from_beginning:
                for where in chosen:
                    self._consumer.seek_to_beginning(where)

    async def subscribe(self, topics: Iterable[str]) -> None:
        self._is_subscribed = True
        self._consumer.subscribe(
            topics,
            on_assigned=partial(self._note, "assigned"),
            on_revoked=partial(self._note, "revoked"),
            on_lost=partial(self._note, "lost"),
        )

    async def poll(self, timeout_ms: int) -> list[PolledRecord]:
        with translated():
            polled = await self._consumer.poll(timeout_ms, max_records=self._spec.max_poll_records)
        return [
            PolledRecord(
                topic,
                partition,
                record.offset,
                record.key,
                record.value,
                record.timestamp_ms,
                record.headers,
            )
            for topic, partition, records in polled
            for record in records
        ]

    async def seek(self, where: TopicPartition, offset: int) -> None:
        if where in self._consumer.assignment:
            self._consumer.seek(where, offset)

    def take_rebalances(self) -> list[RebalanceNote]:
        notes, self._rebalances = self._rebalances, []
        return notes

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        with translated():
            await self._consumer.commit(_for_client(offsets))

    async def committed(
        self, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        with translated():
            found = await self._consumer.committed(wheres)
        return {
            where: None if each is None else CommittedOffset(each.offset, each.metadata)
            for where, each in found.items()
        }

    async def init_transactions(self) -> ProducerName:
        with translated():
            await self._producer.init_transactions()
        return self.producer_name()

    def producer_name(self) -> ProducerName:
        identity = self._producer.identity
        return ProducerName() if identity is None else ProducerName(*identity)

    async def begin(self) -> None:
        with translated():
            self._producer.begin_transaction()

    async def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        with translated():
            await self._producer.send_offsets_to_transaction(
                _for_client(offsets), self._consumer.group_metadata
            )

    async def commit_transaction(self) -> None:
        with translated():
            await self._producer.commit_transaction()

    async def abort_transaction(self) -> None:
        with translated():
            await self._producer.abort_transaction()

    def _note(
        self, kind: Literal["assigned", "revoked", "lost"], wheres: list[TopicPartition]
    ) -> None:
        self._rebalances.append(RebalanceNote(kind, tuple(wheres)))


def _for_client(
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        where: OffsetAndMetadata(each.offset, metadata=each.metadata)
        for where, each in offsets.items()
    }


def _client_settings(spec: ClientSpec) -> ClientSettings:
    return ClientSettings(
        client_id=spec.client_id,
        request_timeout_ms=spec.request_timeout_ms,
        socket_connection_setup_timeout_ms=spec.request_timeout_ms,
        max_versions=spec.max_versions,
    )


def _producer_settings(spec: ClientSpec) -> ProducerSettings:
    return ProducerSettings(
        client=_client_settings(spec),
        acks=spec.acks,
        enable_idempotence=spec.is_idempotent,
        compression_type=spec.compression,
        linger_ms=1,
        delivery_timeout_ms=spec.delivery_timeout_ms,
        max_block_ms=spec.delivery_timeout_ms,
        transactional_id=spec.transactional_id,
        transaction_timeout_ms=spec.transaction_timeout_ms,
    )


def _consumer_settings(spec: ClientSpec) -> ConsumerSettings:
    level = IsolationLevel.READ_UNCOMMITTED
    if spec.is_read_committed:
        level = IsolationLevel.READ_COMMITTED
    return ConsumerSettings(
        client=_client_settings(spec),
        isolation_level=level,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        default_api_timeout_ms=spec.delivery_timeout_ms,
        group_id=spec.group_id,
        group_instance_id=spec.group_instance_id,
        group_protocol=spec.group_protocol,
        session_timeout_ms=spec.session_timeout_ms,
        heartbeat_interval_ms=spec.session_timeout_ms // 6,
        enable_auto_commit=spec.commits_by_itself,
        auto_commit_interval_ms=spec.auto_commit_interval_ms,
        close_timeout_ms=spec.request_timeout_ms,
    )
