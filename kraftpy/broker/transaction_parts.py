"""Puts together what transactions need: coordinator, markers, and the questions of leaders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from kraftpy.broker.broker_peers import BrokerPeers
from kraftpy.broker.coordinator_host import CoordinatorHost
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.broker.marker_sender import TransactionMarkerSender
from kraftpy.broker.marker_writer import CompleteInGroups, MarkerWriter
from kraftpy.broker.metadata_view import BrokerMetadata, endpoint_of
from kraftpy.broker.transaction_verifier import TransactionVerifier, VerifierSettings
from kraftpy.client.settings import ClientSettings
from kraftpy.coordinator.ports import ShardContext
from kraftpy.coordinator.shard_writing import ShardSettings
from kraftpy.coordinator.transactions.machine import TransactionMachine
from kraftpy.coordinator.transactions.ports import ProvideProducerId
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.protocol.coordinator_records import TRANSACTION_RECORDS
from kraftpy.world import Address, World

__all__ = [
    "TRANSACTION_TOPIC",
    "TransactionBrokerSettings",
    "TransactionParts",
    "assemble_transactions",
]

TRANSACTION_TOPIC: Final = "__transaction_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionBrokerSettings:
    broker_id: int
    listener_name: str
    """Of the listener between brokers."""
    transactions: TransactionSettings
    verifier: VerifierSettings
    request_timeout_ms: int = 30_000
    """request.timeout.ms"""
    load_buffer_bytes: int = 5_242_880
    """transaction.state.log.load.buffer.size"""


@dataclass(frozen=True, slots=True)
class TransactionParts:
    """`host` and `sender` are Publishers, the host to be installed before the replicas; `host.run`
    is a task.
    """

    host: CoordinatorHost[TransactionMachine]
    sender: TransactionMarkerSender
    writer: MarkerWriter
    service: TransactionService
    verifier: TransactionVerifier


def assemble_transactions(
    settings: TransactionBrokerSettings,
    world: World,
    nursery: trio.Nursery,
    registry: MetricRegistry,
    *,
    cluster: BrokerMetadata,
    lookup: CoordinatorLookup,
    replicas: HostedReplicas,
    complete_in_groups: CompleteInGroups,
    provide_producer_id: ProvideProducerId,
    max_batch_bytes: Callable[[], int],
    is_verification_enabled: Callable[[], bool],
) -> TransactionParts:
    """`lookup` is that of transactional ids, `max_batch_bytes` the topic's `max.message.bytes`."""
    clock = world.clock

    def peers(purpose: str) -> BrokerPeers:
        client_settings = ClientSettings(
            client_id=f"broker-{settings.broker_id}-{purpose}",
            request_timeout_ms=settings.request_timeout_ms,
        )
        address_of = partial(_address_of, cluster, settings.listener_name)
        return BrokerPeers(world, nursery, address_of, client_settings)

    writer = MarkerWriter(
        replicas, complete_in_groups, clock=clock, timeout_ms=settings.request_timeout_ms
    )
    sender = TransactionMarkerSender(
        settings.broker_id,
        clock,
        nursery,
        peers=peers("transaction-markers"),
        writer=writer,
        registry=registry,
    )

    def machine(context: ShardContext) -> TransactionMachine:
        return TransactionMachine(context, settings.transactions, sender, provide_producer_id)

    host = CoordinatorHost(
        TRANSACTION_TOPIC,
        clock,
        machine,
        TRANSACTION_RECORDS,
        # Each at once: a producer waits for it, and few share a shard with others at that moment.
        ShardSettings(append_linger_ms=0, write_timeout_ms=settings.request_timeout_ms),
        load_buffer_bytes=settings.load_buffer_bytes,
        max_batch_bytes=max_batch_bytes,
        buggify=world.buggify,
    )
    service = TransactionService(
        host.runtime,
        settings.transactions,
        shard_of=lookup.partition_of,
        provide_producer_id=provide_producer_id,
        clock=clock,
    )
    verifier = TransactionVerifier(
        settings.broker_id,
        clock,
        nursery,
        settings=settings.verifier,
        peers=peers("transaction-verification"),
        service=service,
        coordinator_of=partial(_coordinator_of, lookup, settings.listener_name),
        is_enabled=is_verification_enabled,
        registry=registry,
    )
    return TransactionParts(host, sender, writer, service, verifier)


def _coordinator_of(
    lookup: CoordinatorLookup, listener_name: str, transactional_id: str
) -> int | None:
    node = lookup.coordinator_of(transactional_id, listener_name)
    return None if node is None else node.node_id


def _address_of(cluster: BrokerMetadata, listener_name: str, broker_id: int) -> Address | None:
    broker = cluster.image.brokers.get(broker_id)
    if broker is None:
        return None
    endpoint = endpoint_of(broker.end_points, listener_name)
    return None if endpoint is None else (endpoint.host, endpoint.port)
