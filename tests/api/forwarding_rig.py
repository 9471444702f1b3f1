"""A real controller on Raft, a broker that forwards to it, and clients, on hosts in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio
from api.every_handler import no_elections
from client.peers import Places, memory_places
from metadata.controller_core_rig import STATIC, WHOLE_BOOTSTRAP, whole_controls

from kraftpy.api.dispatch import Dispatcher
from kraftpy.api.handler import Handler
from kraftpy.api.k18_api_versions import FeatureView
from kraftpy.api.served import controller_listener_handlers, metadata_handlers
from kraftpy.broker.controller_channel import ControllerChannel
from kraftpy.broker.forwarder import Forwarder
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.topic_creation import AutoTopicCreation, TopicTemplate
from kraftpy.client.connection import Connection, connect
from kraftpy.client.settings import ClientSettings
from kraftpy.config import DynamicConfig, NodeConfig, from_mapping
from kraftpy.metadata.committed_feed import CommittedFeed
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.controller import Controller
from kraftpy.metadata.controller.metrics import ControllerMetrics
from kraftpy.metadata.controller.parts import assemble
from kraftpy.metadata.controller.runner import ControllerRunner
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.features import supported_features
from kraftpy.metadata.publisher import LoaderFault, MetadataLoader
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import ListenerRole, ListenerSettings
from kraftpy.net.server import NetworkServer
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k62_broker_registration as k62
from kraftpy.protocol.schema import k63_broker_heartbeat as k63
from kraftpy.raft.driver import open_driver
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.storage import metadata_log_config
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from kraftpy.world import Random, World

SETTINGS = ClientSettings(request_timeout_ms=30_000, reconnect_backoff_ms=10)
Leader = tuple[int, str, int]


@dataclass
class Cluster:
    places: Places
    nursery: trio.Nursery
    metadata: BrokerMetadata
    context: ControllerContext
    registry: MetricRegistry
    # Where the real controller is, and where the broker believes it to be.
    controller: Leader
    leader: Leader | None
    broker_port: int = 0

    async def client(self, host: str = "client") -> Connection:
        world = self.places.world(host)
        return await connect(world, self.nursery, ("broker", self.broker_port), SETTINGS)

    async def at_controller(self, host: str = "node") -> Connection:
        world = self.places.world(host)
        return await connect(world, self.nursery, self.controller[1:], SETTINGS)


@asynccontextmanager
async def serving(
    world: World,
    listener: ListenerSettings,
    handlers: list[Handler],
    features: FeatureView,
    metrics: RequestMetrics,
) -> AsyncIterator[int]:
    server = NetworkServer(
        clock=world.clock,
        network=world.network,
        limits=NetworkLimits(),
        registry=MetricRegistry(),
    )
    await server.bind([listener])
    dispatcher = Dispatcher(handlers, features=features, metrics=metrics, clock=world.clock)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await server.enable({listener.name: dispatcher})
        yield server.addresses[listener.name][1]
        await server.stop(grace_seconds=0)


@asynccontextmanager
async def forwarding_cluster(
    template: TopicTemplate | None = None,
) -> AsyncIterator[Cluster]:
    """With `template`, the broker creates topics that are asked for."""
    async with memory_places() as places, trio.open_nursery() as nursery:
        async with _controller(places, nursery) as cluster:
            world = places.world("broker")
            channel = ControllerChannel(
                world, nursery, lambda: cluster.leader, lambda _: None, SETTINGS
            )
            forwarder = Forwarder(channel, nursery)
            creation = None
            if template is not None:
                creation = AutoTopicCreation(forwarder, world.clock, template)
            handlers = metadata_handlers(
                cluster.metadata,
                config=DynamicConfig(NodeConfig(from_mapping(STATIC, "test"))),
                forwarder=forwarder,
                creation=creation,
                elections=no_elections(),
                spawn=nursery.start_soon,
            )
            async with serving(
                world,
                ListenerSettings("PLAINTEXT", "broker", 0),
                handlers,
                cluster.metadata,
                RequestMetrics(MetricRegistry()),
            ) as port:
                cluster.broker_port = port
                yield cluster
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _controller(places: Places, nursery: trio.Nursery) -> AsyncIterator[Cluster]:
    world = places.world("controller")
    voters = VoterSet([Voter(ReplicaKey(1), (Endpoint("C", "controller", 9093),))])
    config = RaftConfig(
        cluster_id="cluster",
        local=ReplicaKey(1, Uuid(b"d" * 16)),
        endpoints=(Endpoint("C", "controller", 9093),),
        static_voters=voters,
    )
    driver = await open_driver(world, config, "/metadata", metadata_log_config())
    faults: list[LoaderFault] = []
    loader = MetadataLoader(faults.append, is_strict=True)
    context = ControllerContext(ControllerSettings(1, "cluster", features=supported_features()))
    parts = assemble(whole_controls(context), WHOLE_BOOTSTRAP, loader.open_transaction)
    registry = MetricRegistry()
    metrics = ControllerMetrics(registry, world.clock.monotonic_ms(), world.clock.wall_ms)
    controller = Controller(context, parts, metrics)
    metadata = BrokerMetadata(cluster_id="cluster", random=Random(5))
    loader.install(controller)
    loader.install(metadata)
    runner = ControllerRunner(controller, driver, world)
    feed = CommittedFeed(driver.log, loader, runner, node_id=1, clock=world.clock)
    driver.listen(feed)
    request_metrics = RequestMetrics(registry)
    handlers = controller_listener_handlers(
        metadata,
        config=DynamicConfig(NodeConfig(from_mapping(STATIC, "test"))),
        controller=runner,
        member=driver,
        metrics=request_metrics,
        clock=world.clock,
    )
    listener = ListenerSettings("C", "controller", 9093, role=ListenerRole.CONTROLLER)
    async with (
        trio.open_nursery() as tasks,
        serving(world, listener, handlers, metadata, request_metrics) as port,
    ):
        tasks.start_soon(feed.run)
        tasks.start_soon(runner.run)
        await tasks.start(driver.run)
        leader = (1, "controller", port)
        yield Cluster(places, nursery, metadata, context, registry, leader, leader)
        tasks.cancel_scope.cancel()
    assert not faults


async def register_broker(cluster: Cluster, connection: Connection) -> None:
    """Make broker 1 a live one, as its lifecycle would."""
    registered = await connection.request(
        k62.BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="cluster",
            incarnation_id=Uuid(b"i" * 16),
            listeners=[
                k62.Listener(
                    name="PLAINTEXT", host="broker", port=cluster.broker_port, security_protocol=0
                )
            ],
            features=[
                k62.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in supported_features()
            ],
            log_dirs=[Uuid(b"l" * 16)],
        )
    )
    assert registered.error_code == 0
    beaten = await connection.request(
        k63.BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=registered.broker_epoch, current_metadata_offset=1 << 40
        )
    )
    assert (beaten.error_code, beaten.is_fenced) == (0, False)
