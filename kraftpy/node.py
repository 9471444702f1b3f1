"""The composition root: one node from one configuration, in one nursery.

The only place that knows everyone. It reads configuration keys and hands plain values to the rooms
below, so that none of them knows where its limits come from. A node touches the machine through the
World it is given and shares nothing with other nodes of the same interpreter.

The life of a node:

    bind every listener -> know the real ports -> serve -> `stop` -> answers in flight leave -> end

Nothing is served before every port is bound (NET-10), and a port that can't be had ends the start
with an error that names it (NET-5). A broken invariant in any task ends the node: it rises out of
`run`, and whoever runs the node turns it into an exit code (NET-53).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import trio

from kraftpy.api.cluster import LoneNode
from kraftpy.api.dispatch import Dispatcher
from kraftpy.api.served import broker_handlers, controller_handlers
from kraftpy.config import DynamicConfig, EndPoint, NodeConfig
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import ListenerRole, ListenerSettings
from kraftpy.net.server import NetworkServer
from kraftpy.net.service import Service
from kraftpy.observe.loop_lag import watch_loop
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.world import Address, SocketOptions, World

__all__ = ["Node", "NodeAddresses"]

log = logging.getLogger(__name__)

# How long answers in flight may take to leave when the node stops.
_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """Where a running node is found, by listener name, as it tells others."""

    brokers: Mapping[str, Address]
    controllers: Mapping[str, Address]


class Node:
    """One node: `run` it as a task, `stop` it from anywhere in the same loop."""

    def __init__(
        self, config: NodeConfig, world: World, *, cluster_id: str, host_name: str = "localhost"
    ) -> None:
        """`host_name` is advertised for listeners that are bound to every interface."""
        self._static = config
        self._world = world
        # What dynamic settings make of the configuration; subscribers put a change into force.
        self.config = DynamicConfig(config)
        self._cluster_id = cluster_id
        self._host_name = host_name
        self._stop = trio.Event()
        self.registry = MetricRegistry()

    async def run(
        self, *, task_status: trio.TaskStatus[NodeAddresses] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Live until `stop`; `started` gives the addresses once clients can connect.

        Raises OSError when a port can't be bound.
        """
        for warning in self._static.warnings:
            log.warning("configuration: %s", warning)
        server = NetworkServer(
            clock=self._world.clock,
            network=self._world.network,
            limits=network_limits(self._static),
            registry=self.registry,
        )
        self.config.subscribe(lambda config, _: server.change_limits(network_limits(config)))
        await server.bind(listener_settings(self._static))
        addresses = self._advertised(server.addresses)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            nursery.start_soon(watch_loop, self._world.clock, self.registry, name="loop-lag")
            await server.enable(self._services(addresses))
            log.info("node is up cluster_id=%s roles=%s", self._cluster_id, self._roles())
            task_status.started(addresses)
            await self._stop.wait()
            log.info("node stops")
            await server.stop(_GRACE_SECONDS)
            nursery.cancel_scope.cancel()
        log.info("node is down")

    def stop(self) -> None:
        """End `run`: answers in flight leave, then everything closes. Idempotent."""
        self._stop.set()

    def _services(self, addresses: NodeAddresses) -> dict[str, Service]:
        """A service for each listener: brokers' APIs or controllers'."""
        cluster = LoneNode(
            cluster_id=self._cluster_id,
            node_id=self._static.node_id,
            rack=_optional_text(self._static["broker.rack"]),
            broker_endpoints=addresses.brokers,
            controller_endpoints=addresses.controllers,
        )
        metrics = RequestMetrics(self.registry)
        broker = Dispatcher(
            broker_handlers(cluster), features=cluster, metrics=metrics, clock=self._world.clock
        )
        controller = Dispatcher(
            controller_handlers(cluster), features=cluster, metrics=metrics, clock=self._world.clock
        )
        topology = self._static.topology
        services: dict[str, Service] = {}
        for endpoint in topology.broker_listeners:
            services[endpoint.listener_name] = broker
        for endpoint in topology.controller_listeners:
            services[endpoint.listener_name] = controller
        return services

    def _advertised(self, bound: Mapping[str, Address]) -> NodeAddresses:
        topology = self._static.topology
        return NodeAddresses(
            brokers=self._published(topology.advertised_broker_listeners, bound),
            controllers=self._published(topology.advertised_controller_listeners, bound),
        )

    def _published(
        self, endpoints: Iterable[EndPoint], bound: Mapping[str, Address]
    ) -> dict[str, Address]:
        """NET-2: a port of 0 is replaced by the one that was bound."""
        published = {}
        for endpoint in endpoints:
            name = endpoint.listener_name
            if name in bound:
                port = endpoint.port or bound[name][1]
                published[name] = (endpoint.host or self._host_name, port)
        return published

    def _roles(self) -> str:
        return ",".join(self._static.topology.roles)


def listener_settings(config: NodeConfig) -> list[ListenerSettings]:
    """What the network needs to know about each listener."""
    topology = config.topology
    options = SocketOptions(
        send_buffer_bytes=_unless_negative(config.get_int("socket.send.buffer.bytes")),
        receive_buffer_bytes=_unless_negative(config.get_int("socket.receive.buffer.bytes")),
    )

    def role_of(name: str) -> ListenerRole:
        if name in topology.controller_listener_names:
            return ListenerRole.CONTROLLER
        if name == topology.inter_broker_listener_name:
            return ListenerRole.INTER_BROKER
        return ListenerRole.CLIENT

    return [
        ListenerSettings(
            name=endpoint.listener_name,
            host=endpoint.host or None,
            port=endpoint.port,
            security_protocol=endpoint.security_protocol.value,
            role=role_of(endpoint.listener_name),
            backlog=config.get_int("socket.listen.backlog.size"),
            socket_options=options,
        )
        for endpoint in topology.listeners
    ]


def network_limits(config: NodeConfig) -> NetworkLimits:
    """What the network allows its peers."""
    names = [endpoint.listener_name for endpoint in config.topology.listeners]

    def for_listeners(key: str) -> dict[str, int]:
        prefixed = {name: f"listener.name.{name.lower()}.{key}" for name in names}
        return {name: config.get_int(key) for name, key in prefixed.items() if key in config}

    return NetworkLimits(
        request_max_bytes=config.get_int("socket.request.max.bytes"),
        queued_request_max_bytes=_unless_negative(config.get_int("queued.max.request.bytes")),
        connection_max_idle_ms=config.get_int("connections.max.idle.ms"),
        max_connections=config.get_int("max.connections"),
        listener_max_connections=for_listeners("max.connections"),
        max_connections_per_ip=config.get_int("max.connections.per.ip"),
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        max_connection_creation_rate=config.get_int("max.connection.creation.rate"),
        listener_max_connection_creation_rate=for_listeners("max.connection.creation.rate"),
    )


def _unless_negative(value: int) -> int | None:
    """Kafka's -1 for "not limited" or "the system's own"."""
    return None if value < 0 else value


def _optional_text(value: object) -> str | None:
    return value if isinstance(value, str) else None
