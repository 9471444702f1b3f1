"""The broker's part of a node: it registers, follows the metadata, and serves clients.

Order. Publishers are installed before the metadata flows. The broker registers, replays metadata
until the controller says that it is caught up, applies its first image, and only then asks to be
unfenced; clients are served when it is. When the node stops, the controller is asked first, so that
leaderships move away before anything closes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from kraftpy.api.handler import Handler
from kraftpy.api.served import metadata_handlers
from kraftpy.broker.controller_channel import ActiveController, ControllerChannel
from kraftpy.broker.forwarder import Forwarder
from kraftpy.broker.lifecycle import BrokerLifecycle
from kraftpy.broker.lifecycle_core import BrokerIdentity, LifecycleCore, LifecycleSettings
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.topic_creation import AutoTopicCreation, TopicTemplate
from kraftpy.client.settings import ClientSettings
from kraftpy.config import DynamicConfig, NodeConfig
from kraftpy.metadata.features import supported_features
from kraftpy.metadata.publisher import MetadataLoader
from kraftpy.metadata.records import Endpoint
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.protocol.ids import Uuid, random_uuid
from kraftpy.world import World

__all__ = ["BrokerPart", "broker_identity", "lifecycle_settings"]


@dataclass(slots=True)
class BrokerPart:
    """Made before the metadata flows; `run` it as a task."""

    config: DynamicConfig
    world: World
    registry: MetricRegistry
    loader: MetadataLoader
    metadata: BrokerMetadata
    identity: BrokerIdentity
    active_controller: ActiveController
    # What clients are served by, from the moment at which they may be.
    handlers: list[Handler] = field(default_factory=list)
    is_unfenced: trio.Event = field(default_factory=trio.Event)
    _lifecycle: BrokerLifecycle | None = None

    async def run(self) -> None:
        """Live until the controller has let the broker go after `stop`, or until it can't go on.

        Raises RegistrationTimedOut.
        """
        async with trio.open_nursery() as nursery:
            lifecycle = self._lifecycle = self._make_lifecycle(nursery)
            forwarder = Forwarder(self._channel(nursery, "forwarding"), nursery)
            self.handlers = metadata_handlers(
                self.metadata,
                forwarder=forwarder,
                creation=self._creation(forwarder),
                config=self.config,
            )
            self.loader.install(lifecycle)
            nursery.start_soon(self._become_ready, lifecycle)
            await lifecycle.run()
            nursery.cancel_scope.cancel()

    def stop(self) -> None:
        """Ask the controller to be let go; `run` returns then."""
        if self._lifecycle is not None:
            self._lifecycle.begin_shutdown()

    def hurry(self) -> None:
        """Don't wait for the controller any longer."""
        if self._lifecycle is not None:
            self._lifecycle.stop_without_consent()

    async def _become_ready(self, lifecycle: BrokerLifecycle) -> None:
        await lifecycle.caught_up.wait()
        lifecycle.set_ready()
        await lifecycle.unfenced.wait()
        self.is_unfenced.set()

    def _make_lifecycle(self, nursery: trio.Nursery) -> BrokerLifecycle:
        settings = lifecycle_settings(self.config.current)
        core = LifecycleCore(
            self.identity,
            settings,
            metadata_offset=lambda: self.loader.image.provenance.last_offset,
        )
        return BrokerLifecycle(
            core,
            self._channel(nursery, "heartbeat"),
            self.world.clock,
            self.registry,
            answer_timeout_ms=settings.heartbeat_interval_ms,
        )

    def _channel(self, nursery: trio.Nursery, purpose: str) -> ControllerChannel:
        """A connection of its own for each purpose, so that none delays another."""
        settings = ClientSettings(
            client_id=f"broker-{self.config.current.node_id}-{purpose}",
            request_timeout_ms=self.config.current.get_int("controller.socket.timeout.ms"),
        )
        return ControllerChannel(self.world, nursery, self.active_controller, settings)

    def _creation(self, forwarder: Forwarder) -> AutoTopicCreation | None:
        config = self.config.current
        if not config.get_bool("auto.create.topics.enable"):
            return None
        return AutoTopicCreation(
            forwarder,
            self.world.clock,
            TopicTemplate(
                config.get_int("num.partitions"), config.get_int("default.replication.factor")
            ),
        )


def broker_identity(
    config: NodeConfig,
    cluster_id: str,
    endpoints: tuple[Endpoint, ...],
    directory_ids: tuple[Uuid, ...],
    world: World,
) -> BrokerIdentity:
    """What this process registers as; every process is another incarnation."""
    rack = config["broker.rack"]
    return BrokerIdentity(
        broker_id=config.node_id,
        cluster_id=cluster_id,
        incarnation_id=random_uuid(world.rng.stream("incarnation")),
        endpoints=endpoints,
        features=supported_features(),
        rack=rack if isinstance(rack, str) else None,
        directory_ids=directory_ids,
    )


def lifecycle_settings(config: NodeConfig) -> LifecycleSettings:
    return LifecycleSettings(
        heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
        session_timeout_ms=config.get_int("broker.session.timeout.ms"),
        registration_timeout_ms=config.get_int("initial.broker.registration.timeout.ms"),
        directory_failure_timeout_ms=config.get_int("log.dir.failure.timeout.ms"),
        asks_before_stopping=config.get_bool("controlled.shutdown.enable"),
    )
