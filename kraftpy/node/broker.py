"""The broker's part of a node: its logs, its replicas, its life with the controller, its clients.

The order of a start, each step for a reason:

1. The first image is published, so that topics have their settings before their logs are loaded:
   recovery treats compacted logs differently.
2. The logs are loaded.
3. The broker registers, and replays metadata until the controller says that it is caught up: only
   then is what is not in the metadata really unknown to the cluster.
4. The first image is carried out: strays are put aside, roles are taken.
5. It asks to be unfenced, and clients are served when it is.

When the node stops, the controller is asked first, so that leaderships move away before anything
closes. Then clients are no longer served, so that nobody meets a log that is closed; the answers
that they wait for leave. Logs are closed in order, and the broker epoch is left for the next
process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

import trio

from kraftpy.api.data_handlers import data_handlers
from kraftpy.api.handler import Handler
from kraftpy.api.served import metadata_handlers
from kraftpy.broker.controller_channel import ActiveController, ControllerChannel, WatchController
from kraftpy.broker.forwarder import Forwarder
from kraftpy.broker.lifecycle import BrokerLifecycle
from kraftpy.broker.lifecycle_core import BrokerIdentity, LifecycleCore
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.producer_ids import ProducerIds
from kraftpy.broker.replica_parts import ReplicaParts, assemble_replicas
from kraftpy.broker.replicas import ReplicaManager
from kraftpy.broker.replication_throttles import ReplicationThrottles
from kraftpy.broker.suspects import SuspectedBrokers
from kraftpy.broker.topic_configs import TopicConfigs
from kraftpy.broker.topic_creation import AutoTopicCreation, TopicTemplate
from kraftpy.client.settings import ClientSettings
from kraftpy.config import DynamicConfig, NodeConfig
from kraftpy.log.clean_shutdown import previous_broker_epoch
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import Manifest, MetadataLoader
from kraftpy.node.broker_settings import (
    cordoned_ids,
    data_settings,
    fetcher_settings,
    lifecycle_settings,
    replica_settings,
    replication_limits,
    replication_windows,
)
from kraftpy.node.coordinators import Coordinators, assemble_coordinators, internal_topics
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.world import World

__all__ = ["BrokerPart"]


class _FirstImage:
    """A Publisher that says when there is an image."""

    name = "FirstImage"

    def __init__(self) -> None:
        self.is_there = trio.Event()

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        self.is_there.set()


@dataclass(slots=True)
class BrokerPart:
    """`run` it as a task while the quorum's part runs."""

    config: DynamicConfig
    world: World
    registry: MetricRegistry
    loader: MetadataLoader
    metadata: BrokerMetadata
    identity: BrokerIdentity
    # Data directories that can be used. Their locks are held.
    directories: tuple[str, ...]
    active_controller: ActiveController
    watch_controller: WatchController
    suspects: SuspectedBrokers
    # What clients are served by, from the moment at which they may be.
    handlers: list[Handler] = field(default_factory=list)
    is_unfenced: trio.Event = field(default_factory=trio.Event)
    # From the moment at which the logs are loaded.
    replicas: ReplicaManager | None = None
    coordinators: Coordinators | None = None
    lifecycle: BrokerLifecycle | None = None
    _stop: trio.Event = field(default_factory=trio.Event)
    _unsubscribe: Callable[[], None] = lambda: None

    async def run(self, end_service: Callable[[], Awaitable[None]]) -> None:
        """Live until the controller has let the broker go after `stop`, or until it can't go on.

        `end_service` returns when no client is served any more.
        Raises RegistrationTimedOut, and StorageError when the logs can't be used.
        """
        topic_metrics = TopicMetrics(self.registry)
        topic_metrics.show(self.world.clock.monotonic())
        configs = TopicConfigs(self.config)
        self.loader.install(configs)
        if not await self._first_image():
            return
        throttles = self._throttles(configs)
        logs = LogManager(
            self.world,
            self._log_settings(),
            config_of=configs.config_of,
            topic_metrics=topic_metrics,
            move_quota=throttles.moves,
        )
        epoch_before = await previous_broker_epoch(self.world.disk, self.directories)
        async with logs.running(), trio.open_nursery() as nursery:
            lifecycle, replicas, coordinators = self._assemble(
                nursery,
                logs,
                configs,
                topic_metrics,
                throttles=throttles,
                epoch_before=epoch_before,
            )
            self.replicas, self.coordinators = replicas, coordinators
            nursery.start_soon(self._become_ready, nursery, lifecycle, replicas, coordinators)
            await lifecycle.run()
            await end_service()
            self._unsubscribe()
            logs.broker_epoch = lifecycle.broker_epoch
            nursery.cancel_scope.cancel()

    def stop(self) -> None:
        """Ask the controller to be let go; `run` returns then."""
        self._stop.set()
        if self.lifecycle is not None:
            self.lifecycle.begin_shutdown()

    def hurry(self) -> None:
        """Don't wait for the controller any longer."""
        if self.lifecycle is not None:
            self.lifecycle.stop_without_consent()

    async def _first_image(self) -> bool:
        """Wait for it; False if the broker is stopped before it comes."""
        first = _FirstImage()
        self.loader.install(first)
        async with trio.open_nursery() as nursery:

            async def wait_for_stop() -> None:
                await self._stop.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait_for_stop)
            self.loader.publish()
            await first.is_there.wait()
            nursery.cancel_scope.cancel()
        self.loader.remove(first)
        return first.is_there.is_set()

    async def _become_ready(
        self,
        nursery: trio.Nursery,
        lifecycle: BrokerLifecycle,
        replicas: ReplicaManager,
        coordinators: Coordinators,
    ) -> None:
        await lifecycle.caught_up.wait()
        await self.world.dawdle("broker-begins-late")
        coordinators.start(nursery)
        nursery.start_soon(replicas.run, name="replicas")
        for publisher in (*coordinators.publishers(), replicas):
            self.loader.install(publisher)
        self.loader.publish()
        await replicas.first_applied.wait()
        await self.world.dawdle("broker-ready-late")
        lifecycle.set_ready()
        await lifecycle.unfenced.wait()
        self.is_unfenced.set()

    # Putting it together.

    def _assemble(
        self,
        nursery: trio.Nursery,
        logs: LogManager,
        configs: TopicConfigs,
        topic_metrics: TopicMetrics,
        *,
        throttles: ReplicationThrottles,
        epoch_before: int,
    ) -> tuple[BrokerLifecycle, ReplicaManager, Coordinators]:
        config = self.config.current
        settings = lifecycle_settings(config)

        def metadata_offset() -> int:
            """What is acted upon; before there is anything to act, what was replayed."""
            if parts.replicas.first_applied.is_set():
                return parts.replicas.applied_offset
            return self.loader.image.provenance.last_offset

        core = LifecycleCore(
            replace(self.identity, previous_broker_epoch=epoch_before),
            settings,
            metadata_offset=metadata_offset,
            deleted_topics=lambda: parts.replicas.deleted_topics(),  # noqa: PLW0108 (made below)
        )
        lifecycle = self.lifecycle = BrokerLifecycle(
            core,
            self._channel(nursery, "heartbeat"),
            self.world.clock,
            self.registry,
            answer_timeout_ms=settings.heartbeat_interval_ms,
        )
        parts = assemble_replicas(
            replica_settings(config),
            fetcher_settings(config),
            self.world,
            self.registry,
            fetcher_count=config.get_int("num.replica.fetchers"),
            listener_name=config.topology.inter_broker_listener_name,
            socket_timeout_ms=config.get_int("replica.socket.timeout.ms"),
            logs=logs,
            lifecycle=lifecycle,
            alterations=self._channel(nursery, "alter-partition"),
            assigning=self._channel(nursery, "directories"),
            suspects=self.suspects,
            topic_metrics=topic_metrics,
            min_insync_replicas=configs.min_insync_replicas,
            quota=throttles.follower,
        )
        configs.subscribe(parts.replicas.reconfigure)
        self._unsubscribe = self.config.subscribe(
            partial(self._change_settings, nursery, parts, logs)
        )
        self.loader.install(lifecycle)
        if self._stop.is_set():
            lifecycle.begin_shutdown()
        coordinators = self._make_coordinators(nursery, configs, parts, lifecycle)
        self.handlers += self._data_handlers(
            nursery, logs, parts, topic_metrics, coordinators, throttles=throttles
        )
        return lifecycle, parts.replicas, coordinators

    def _make_coordinators(
        self,
        nursery: trio.Nursery,
        configs: TopicConfigs,
        parts: ReplicaParts,
        lifecycle: BrokerLifecycle,
    ) -> Coordinators:
        """And the handlers that have a topic created."""
        forwarder = Forwarder(self._channel(nursery, "forwarding"), nursery)
        creation = self._creation(forwarder)
        creates_any = self.config.current.get_bool("auto.create.topics.enable")
        coordinators = assemble_coordinators(
            self.config,
            self.world,
            nursery,
            self.registry,
            cluster=self.metadata,
            replicas=parts.replicas,
            configs=configs,
            producer_ids=self._producer_ids(nursery, lifecycle),
            creation=creation,
        )
        self.handlers += metadata_handlers(
            self.metadata,
            forwarder=forwarder,
            creation=creation if creates_any else None,
            config=self.config,
            elections=parts.replicas.elect_leader_purgatory,
            spawn=nursery.start_soon,
        )
        self.handlers += coordinators.handlers
        return coordinators

    def _data_handlers(
        self,
        nursery: trio.Nursery,
        logs: LogManager,
        parts: ReplicaParts,
        topic_metrics: TopicMetrics,
        coordinators: Coordinators,
        *,
        throttles: ReplicationThrottles,
    ) -> list[Handler]:
        return data_handlers(
            data_settings(self.config.current),
            self.world,
            replicas=parts.replicas,
            logs=logs,
            cluster=self.metadata,
            spawn=nursery.start_soon,
            metrics=topic_metrics,
            registry=self.registry,
            moved=parts.assignments.assign,
            verifier=coordinators.transactions.verifier,
            quota=throttles.leader,
        )

    def _throttles(self, configs: TopicConfigs) -> ReplicationThrottles:
        config = self.config.current
        throttles = ReplicationThrottles(
            config.node_id,
            replication_windows(config),
            self.registry,
            self.world.clock,
            configs.throttled_replicas,
        )
        throttles.change_limits(replication_limits(config))
        self.config.subscribe(lambda now, _: throttles.change_limits(replication_limits(now)))
        configs.subscribe(throttles.reconfigure)
        throttles.reconfigure(configs.configured_topics())
        return throttles

    def _change_settings(
        self,
        nursery: trio.Nursery,
        parts: ReplicaParts,
        logs: LogManager,
        config: NodeConfig,
        keys: tuple[str, ...],
    ) -> None:
        """Dynamic settings of logs and replication take effect."""
        logs.configure(self._log_settings())
        directory_ids = dict(zip(self.directories, self.identity.directory_ids, strict=True))
        if self.lifecycle is not None:
            self.lifecycle.cordon(cordoned_ids(config, directory_ids))
        parts.replicas.change_settings(replica_settings(config))
        nursery.start_soon(
            parts.fetchers.change_settings,
            fetcher_settings(config),
            config.get_int("num.replica.fetchers"),
        )

    def _log_settings(self) -> LogManagerSettings:
        return LogManagerSettings.from_node(
            self.config.current,
            self.identity.cluster_id,
            self.directories,
            open_files_max=_OPEN_FILES_MAX,
        )

    def _channel(self, nursery: trio.Nursery, purpose: str) -> ControllerChannel:
        """A connection of its own for each purpose, so that none delays another."""
        config = self.config.current
        settings = ClientSettings(
            client_id=f"broker-{config.node_id}-{purpose}",
            request_timeout_ms=config.get_int("controller.socket.timeout.ms"),
        )
        return ControllerChannel(
            self.world, nursery, self.active_controller, self.watch_controller, settings
        )

    def _producer_ids(self, nursery: trio.Nursery, lifecycle: BrokerLifecycle) -> ProducerIds:
        return ProducerIds(
            self.config.current.node_id,
            lambda: lifecycle.broker_epoch,
            self._channel(nursery, "producer-ids"),
            nursery,
            self.world.buggify,
        )

    def _creation(self, forwarder: Forwarder) -> AutoTopicCreation:
        config = self.config.current
        template = TopicTemplate(
            config.get_int("num.partitions"), config.get_int("default.replication.factor")
        )
        return AutoTopicCreation(
            forwarder, self.world.clock, template, special=internal_topics(config)
        )


# Of the usual limit of 1,024 descriptors; sockets get the rest.
_OPEN_FILES_MAX = 500
