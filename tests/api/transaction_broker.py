"""Broker 1 with its coordinators of transactions and groups, asked by frames.

Everything is real but the other brokers, whose answers are scripted, and the controller's producer
ids. All partitions have one replica, unless a test says otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from api.data_rig import Asked, Broker
from broker.replica_rig import ME, Rig, topic

from kraftpy.api.data_handlers import DataSettings, data_handlers
from kraftpy.api.transaction_handlers import transaction_handlers
from kraftpy.broker.coordinator_host import CoordinatorHost
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.transaction_parts import (
    TRANSACTION_TOPIC,
    TransactionBrokerSettings,
    TransactionParts,
    assemble_transactions,
)
from kraftpy.broker.transaction_verifier import VerifierSettings
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.shard_writing import ShardSettings
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.metadata.features import TRANSACTION_VERSION
from kraftpy.metadata.records import FeatureLevelRecord, MetadataRecord
from kraftpy.protocol.coordinator_records import GROUP_RECORDS
from kraftpy.protocol.schema.k22_init_producer_id import InitProducerIdRequest
from kraftpy.protocol.schema.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kraftpy.protocol.schema.k26_end_txn import EndTxnRequest
from kraftpy.protocol.schema.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kraftpy.protocol.tables import Request
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import EndTransactionMarker, read_control_record
from kraftpy.records.reader import read_records
from kraftpy.records.walker import walk_batches
from kraftpy.world import Random

OFFSETS_TOPIC = "__consumer_offsets"
ID = "order-service"
# When the world's clocks begin.
WALL_START_MS = 1_767_225_600_000


class CountedIds:
    """Producer ids from 4000 on, at once."""

    def __init__(self) -> None:
        self.next_id = 4000

    def provide(self, reply: Callable[[Any], None]) -> None:
        self.next_id += 1
        reply(self.next_id - 1)


class ScriptedPeers:
    """The other brokers: they answer with what `answer` says, and are noted."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Request]] = []
        self.answer: Callable[[int, Any], Awaitable[Any]] = self._refuse

    async def _refuse(self, broker_id: int, message: Any) -> Any:
        raise ConnectionRefusedError

    async def request(self, broker_id: int, message: Request) -> Any:
        self.asked.append((broker_id, message))
        return await self.answer(broker_id, message)


class TransactionBroker(Broker):
    parts: TransactionParts
    peers: ScriptedPeers
    groups: CoordinatorHost[GroupMachine]
    switch: dict[str, bool]

    async def answered(self, asked: Asked) -> Any:
        for _ in range(20_000):
            if asked.answer.outcome:
                return asked.response
            await trio.sleep(0.001)
        raise AssertionError("not answered within twenty seconds")

    async def request(self, request: Request, version: int) -> Any:
        return await self.answered(self.begin(request, version))

    async def init(
        self,
        *,
        name: str | None = ID,
        timeout_ms: int = 60_000,
        given: tuple[int, int] = (-1, -1),
        version: int = 5,
    ) -> Any:
        return await self.request(
            InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
                producer_id=given[0],
                producer_epoch=given[1],
            ),
            version,
        )

    async def producer(self, name: str = ID) -> tuple[int, int]:
        answer = await self.init(name=name)
        assert answer.error_code == 0, answer
        return answer.producer_id, answer.producer_epoch

    async def end(
        self,
        producer: tuple[int, int],
        *,
        is_commit: bool = True,
        version: int = 5,
        name: str = ID,
    ) -> Any:
        return await self.request(
            EndTxnRequest(
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                committed=is_commit,
            ),
            version,
        )

    async def add(
        self, producer: tuple[int, int], topics: dict[str, list[int]], version: int = 3
    ) -> dict[tuple[str, int], int]:
        answer = await self.request(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in topics.items()
                ],
            ),
            version,
        )
        return {
            (each.name, result.partition_index): result.partition_error_code
            for each in answer.results_by_topic_v3_and_below
            for result in each.results_by_partition
        }

    def begin_send(
        self,
        producer: tuple[int, int],
        *values: bytes,
        sequence: int = 0,
        version: int = 12,
        name: str = "a",
        index: int = 0,
        acks: int = -1,
    ) -> Asked:
        records = transactional(producer, *values, sequence=sequence)
        return self.begin_produce(
            {(name, index): bytes(records)}, acks=acks, version=version, transactional_id=ID
        )

    async def send(self, producer: tuple[int, int], *values: bytes, **terms: Any) -> int:
        """The error of the one partition."""
        answer = await self.answered(self.begin_send(producer, *values, **terms))
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    async def mark(
        self,
        producer: tuple[int, int],
        *,
        is_commit: bool,
        transaction_version: int = 2,
        coordinator_epoch: int = 0,
        topics: dict[str, list[int]] | None = None,
        version: int = 2,
    ) -> dict[tuple[str, int], int]:
        answer = await self.request(
            WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=producer[0],
                        producer_epoch=producer[1],
                        transaction_result=is_commit,
                        coordinator_epoch=coordinator_epoch,
                        transaction_version=transaction_version,
                        topics=[
                            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                            for name, indexes in (topics or {"a": [0]}).items()
                        ],
                    )
                ]
            ),
            version,
        )
        [marker] = answer.markers
        assert marker.producer_id == producer[0]
        return {
            (each.name, result.partition_index): result.error_code
            for each in marker.topics
            for result in each.partitions
        }

    def stable_values(self, name: str = "a", index: int = 0) -> list[bytes]:
        """What a read_committed consumer sees."""
        return committed_values(self, name, index)

    async def settle(self) -> None:
        """What nobody waits for is done: markers, completions."""
        await trio.sleep(0.2)


def transactional(
    producer: tuple[int, int], *values: bytes, sequence: int = 0, is_transactional: bool = True
) -> bytearray:
    builder = BatchBuilder(
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    for value in values or (b"v",):
        builder.append(None, value, timestamp_ms=WALL_START_MS)
    return builder.build()


def committed_values(broker: Broker, name: str, index: int = 0) -> list[bytes]:
    """As a client makes them of answers: without aborted transactions and markers."""
    ignored: dict[int, None] = {}
    found: list[bytes] = []
    offset = 0
    while True:
        data = broker.fetch(name, offset, index, isolation_level=1)
        aborted = sorted(
            (each.first_offset, each.producer_id) for each in data.aborted_transactions or ()
        )
        batches = list(walk_batches(bytes(data.records or b"")))  # type: ignore[arg-type]
        if not batches:
            assert offset == data.last_stable_offset
            return found
        for batch in batches:
            assert isinstance(batch, RecordBatch)
            assert batch.last_offset < data.last_stable_offset
            offset = batch.next_offset
            while aborted and aborted[0][0] <= batch.last_offset:
                ignored[aborted.pop(0)[1]] = None
            if batch.is_control:
                [record] = read_records(batch, max_bytes=1 << 20)
                marker = read_control_record(record)
                assert isinstance(marker, EndTransactionMarker)
                if not marker.is_commit:
                    ignored.pop(batch.producer_id, None)
            elif not (batch.is_transactional and batch.producer_id in ignored):
                found += [record.value or b"" for record in read_records(batch, max_bytes=1 << 20)]


def _group_host(rig: Rig) -> CoordinatorHost[GroupMachine]:
    return CoordinatorHost(
        OFFSETS_TOPIC,
        rig.world.clock,
        lambda context: GroupMachine(context, GroupSettings(), Random(1)),
        GROUP_RECORDS,
        ShardSettings(),
        load_buffer_bytes=1 << 20,
        max_batch_bytes=lambda: 1 << 20,
    )


def _topics() -> list[MetadataRecord]:
    return [
        *topic(TRANSACTION_TOPIC, 1, replicas=(1,)),
        *topic(OFFSETS_TOPIC, 1, replicas=(1,)),
        *topic("a", 1, 1, replicas=(1,)),
        *topic("b", 1, replicas=(1,)),
    ]


@asynccontextmanager
async def transaction_broker(
    *,
    level: int = 2,
    settings: TransactionSettings | None = None,
    verifier: VerifierSettings | None = None,
) -> AsyncIterator[TransactionBroker]:
    rig = Rig()
    async with rig.running() as replicas, trio.open_nursery() as nursery:
        cluster = BrokerMetadata(cluster_id="c", random=Random(0))
        lookups = [
            CoordinatorLookup(name, cluster, 1) for name in (TRANSACTION_TOPIC, OFFSETS_TOPIC)
        ]
        groups = _group_host(rig)
        ids: Any = CountedIds()
        switch = {"verifies": True}
        parts = assemble_transactions(
            TransactionBrokerSettings(
                broker_id=ME,
                listener_name="PLAINTEXT",
                transactions=settings or TransactionSettings(),
                verifier=verifier or VerifierSettings(),
            ),
            rig.world,
            nursery,
            rig.registry,
            cluster=cluster,
            lookup=lookups[0],
            replicas=replicas,
            complete_in_groups=groups.runtime.complete_transaction,
            provide_producer_id=ids.provide,
            max_batch_bytes=lambda: 1 << 20,
            is_verification_enabled=lambda: switch["verifies"],
        )
        peers: Any = ScriptedPeers()
        parts.sender._peers = peers
        parts.verifier._peers = peers
        for host in (groups, parts.host):
            replicas.listen(host.topic, host.role_changed, host.committed)
            nursery.start_soon(host.run)
        rig.metadata.publishers[:0] = [cluster, groups, parts.host, parts.sender]
        handlers = [
            *data_handlers(
                DataSettings(),
                rig.world,
                replicas=replicas,
                logs=rig.logs,
                cluster=cluster,
                spawn=nursery.start_soon,
                metrics=rig.topic_metrics,
                registry=rig.registry,
                moved=lambda *where: None,
                verifier=parts.verifier,
            ),
            *transaction_handlers(
                parts,
                producer_ids=ids,
                cluster=cluster,
                replicas=replicas,
                groups=groups.runtime,
                group_lookup=lookups[1],
            ),
        ]
        rig.metadata.begin(1, 2, 3)
        broker = TransactionBroker(rig, handlers)
        broker.parts, broker.peers, broker.groups, broker.switch = parts, peers, groups, switch
        await rig.apply(FeatureLevelRecord(TRANSACTION_VERSION, level), *_topics())
        await broker.settle()
        yield broker
        nursery.cancel_scope.cancel()
