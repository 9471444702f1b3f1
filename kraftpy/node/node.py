"""One node from one configuration: what is put together, in which order it lives and ends.

The life of a node:

    directories are whose they should be -> every listener is bound, so the real ports are known
    -> the quorum's part runs and controllers are served -> the broker's part registers, catches up
    and is unfenced -> clients are served -> `stop` -> the controller lets the broker go -> clients'
    answers in flight leave and their listeners close -> logs are closed -> the quorum's part leaves
    -> controllers' answers in flight leave -> end

Nothing is served before every port is bound (NET-10), and a port that can't be had ends the start
with an error that names it (NET-5). Clients that connect early wait until they can be served. A
broken invariant or a lost metadata disk in any task ends the node: it rises out of `run`, and
whoever runs the node turns it into an exit code (NET-53).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import trio

from kraftpy.api.dispatch import Dispatcher
from kraftpy.api.handler import Handler
from kraftpy.api.request_quotas import RequestQuotas
from kraftpy.api.served import controller_listener_handlers
from kraftpy.broker.controller_channel import ControllerChannel
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.suspects import SuspectedBrokers
from kraftpy.client.settings import ClientSettings
from kraftpy.config import DynamicConfig, EndPoint, NodeConfig
from kraftpy.log.log_directory import lock_directory
from kraftpy.metadata.directories import DirectoryPaths, NodeStorage, verify_directories
from kraftpy.metadata.records import Endpoint
from kraftpy.net.server import NetworkServer
from kraftpy.node.access_control import AccessControlPublisher, authorizer_of
from kraftpy.node.broker import BrokerPart
from kraftpy.node.broker_settings import broker_identity, client_window, mutation_window
from kraftpy.node.client_quotas import ClientQuotaPublisher
from kraftpy.node.dynamic import DynamicSettings
from kraftpy.node.network import listener_settings, network_limits
from kraftpy.node.quorum import QuorumPart, open_quorum
from kraftpy.node.registrar import ControllerRegistrar
from kraftpy.observe.loop_lag import watch_loop
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.protocol.ids import random_uuid
from kraftpy.raft.settings import raft_config
from kraftpy.world import Address, World

__all__ = ["Node", "NodeAddresses"]

log = logging.getLogger(__name__)

# How long answers in flight may take to leave when the node stops.
_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """Where a running node is found, by listener name, as it tells others."""

    cluster_id: str
    brokers: Mapping[str, Address]
    controllers: Mapping[str, Address]
    # Where health and metrics are; None if nowhere.
    http: Address | None = None


class Node:
    """One node: `run` it as a task, `stop` it from anywhere in the same loop."""

    def __init__(
        self,
        config: NodeConfig,
        world: World,
        paths: DirectoryPaths,
        *,
        host_name: str = "localhost",
        config_path: str = "CONFIG",
        decorate: Callable[[Handler], Handler] | None = None,
    ) -> None:
        """`host_name` is advertised for listeners that are bound to every interface.

        `config_path` is for the command that an error tells people to run. `decorate` is for tests:
        each handler of requests to the broker is replaced by what it makes of it.
        """
        self._static = config
        self._world = world
        self._paths = paths
        # What dynamic settings make of the configuration; subscribers put a change into force.
        self.config = DynamicConfig(config)
        self._host_name = host_name
        self._config_path = config_path
        self._decorate = decorate
        self._stop = trio.Event()
        self._hurry = trio.Event()
        self._is_ready = False
        self.registry = MetricRegistry()
        self._metrics = RequestMetrics(self.registry)
        self._quotas = RequestQuotas(
            self.registry,
            world.clock,
            window=client_window(config),
            mutation_window=mutation_window(config),
        )
        self._authorizer = authorizer_of(config)
        # What it consists of while it runs, for those who look at it from outside (rule 15).
        self.server: NetworkServer | None = None
        self.quorum: QuorumPart | None = None
        self.broker: BrokerPart | None = None

    async def run(
        self, *, task_status: trio.TaskStatus[NodeAddresses] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Live until `stop`; `started` gives the addresses once clients are served.

        Raises UnusableStorageError, or OSError when a port can't be bound.
        """
        for warning in self._static.warnings:
            log.warning("configuration: %s", warning)
        storage = await verify_directories(
            self._static,
            self._paths,
            disk=self._world.disk,
            random=self._world.rng.stream("uuid"),
            config_path=self._config_path,
        )
        with ExitStack() as locks:
            # Raft must not run twice on one promise, so before anything else.
            for path in storage.directory_ids:
                locks.callback(lock_directory(self._world.disk, path).release)
            await self._run(storage, task_status)

    async def _run(self, storage: NodeStorage, task_status: trio.TaskStatus[NodeAddresses]) -> None:
        server = self.server = NetworkServer(
            clock=self._world.clock,
            network=self._world.network,
            limits=network_limits(self._static),
            registry=self.registry,
            quota_window=client_window(self._static),
            buggify=self._world.buggify,
        )
        self.config.subscribe(lambda config, _: server.change_limits(network_limits(config)))
        await server.bind(listener_settings(self._static))
        addresses = self._advertised(storage.cluster_id, server.addresses)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            addresses = replace(addresses, http=await self._serve_http(nursery))
            nursery.start_soon(watch_loop, self._world.clock, self.registry, name="loop-lag")
            await self._take_part(server, storage, addresses, task_status)
            log.info("node stops")
            await server.stop(_GRACE_SECONDS)
            nursery.cancel_scope.cancel()
        log.info("node is down")

    async def _serve_http(self, nursery: trio.Nursery) -> Address | None:
        port = self._static["kraftpy.http.port"]
        if not isinstance(port, int):
            return None
        from kraftpy.observe.http import HttpServer, node_pages

        http = HttpServer(
            clock=self._world.clock,
            network=self._world.network,
            pages=node_pages(
                self.registry, lambda: self._is_ready and not self._stop.is_set(), self._world.clock
            ),
        )
        address = await http.bind(self._static.get_str("kraftpy.http.host"), port)
        nursery.start_soon(http.run, name="http")
        return address

    def stop(self) -> None:
        """End `run` in good order, however far it has come.

        The broker asks the controller to hand its leaderships over, and Raft lets another lead. A
        second call waits for neither, which is right when the others are gone: what is on disk is
        brought in order all the same.
        """
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _take_part(
        self,
        server: NetworkServer,
        storage: NodeStorage,
        addresses: NodeAddresses,
        task_status: trio.TaskStatus[NodeAddresses],
    ) -> None:
        """Be a member of the cluster until `stop`, or until the broker can't go on."""
        raft = raft_config(
            self._static,
            cluster_id=storage.cluster_id,
            directory_id=storage.metadata_directory_id,
            controller_addresses=addresses.controllers,
        )
        has_leader = trio.Event()
        quorum = await open_quorum(
            self.config,
            raft,
            storage,
            world=self._world,
            registry=self.registry,
            on_leader=lambda _, leader_id: has_leader.set() if leader_id >= 0 else None,
        )
        self.quorum = quorum
        suspects = SuspectedBrokers(self._world.clock)
        metadata = BrokerMetadata(
            cluster_id=storage.cluster_id,
            random=self._world.rng.stream("metadata view"),
            leader_id=lambda: quorum.driver.election.leader_id,
            kraft_version=lambda: quorum.driver.kraft_version,
            suspected=suspects.current,
        )
        quorum.loader.install(metadata)
        quorum.loader.install(DynamicSettings(self.config))
        quorum.loader.install(ClientQuotaPublisher(self._quotas, server.change_address_rate))
        if self._authorizer is not None:
            quorum.loader.install(AccessControlPublisher(self._authorizer))
        async with trio.open_nursery() as nursery:
            if quorum.controller is not None:
                registrar = self._registrar(nursery, quorum, addresses)
                quorum.loader.install(registrar)
                nursery.start_soon(registrar.run, name="controller-registration")
            await nursery.start(quorum.run)
            await self._serve_controllers(server, quorum, metadata)
            if self._static.is_broker:
                self.broker = self._broker_part(storage, addresses, quorum, metadata, suspects)
                await self._be_broker(self.broker, server, addresses, task_status)
            else:
                await self._be_controller(has_leader, addresses, task_status)
            await quorum.leave(self._hurry)
            nursery.cancel_scope.cancel()

    def _registrar(
        self, nursery: trio.Nursery, quorum: QuorumPart, addresses: NodeAddresses
    ) -> ControllerRegistrar:
        node_id = self._static.node_id
        settings = ClientSettings(client_id=f"controller-{node_id}-registration")
        return ControllerRegistrar(
            self._world,
            ControllerChannel(
                self._world,
                nursery,
                quorum.active_controller,
                quorum.driver.watch_leader,
                settings,
            ),
            node_id,
            random_uuid(self._world.rng.stream("controller incarnation")),
            self._endpoints(addresses.controllers),
        )

    async def _be_controller(
        self,
        has_leader: trio.Event,
        addresses: NodeAddresses,
        task_status: trio.TaskStatus[NodeAddresses],
    ) -> None:
        """A controller alone is up when it knows who is the active one."""

        async def tell_when_up() -> None:
            await has_leader.wait()
            self._is_up(addresses, task_status)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell_when_up)
            await self._stop.wait()
            nursery.cancel_scope.cancel()

    def _broker_part(
        self,
        storage: NodeStorage,
        addresses: NodeAddresses,
        quorum: QuorumPart,
        metadata: BrokerMetadata,
        suspects: SuspectedBrokers,
    ) -> BrokerPart:
        directories = tuple(path for path in self._paths.data if path in storage.directory_ids)
        return BrokerPart(
            config=self.config,
            world=self._world,
            registry=self.registry,
            loader=quorum.loader,
            metadata=metadata,
            identity=broker_identity(
                self._static,
                storage.cluster_id,
                self._endpoints(addresses.brokers),
                {path: storage.directory_ids[path] for path in directories},
                self._world,
            ),
            directories=directories,
            active_controller=quorum.active_controller,
            watch_controller=quorum.driver.watch_leader,
            suspects=suspects,
        )

    async def _end_service(self, server: NetworkServer) -> None:
        """Serve no client any more, in good order unless there is a hurry."""
        names = [each.listener_name for each in self._static.topology.broker_listeners]
        async with trio.open_nursery() as nursery:

            async def cut_short() -> None:
                await self._hurry.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(cut_short)
            await server.disable(names, _GRACE_SECONDS)
            nursery.cancel_scope.cancel()

    async def _be_broker(
        self,
        broker: BrokerPart,
        server: NetworkServer,
        addresses: NodeAddresses,
        task_status: trio.TaskStatus[NodeAddresses],
    ) -> None:
        """A broker is up when it is unfenced; it ends when the controller has let it go."""

        async def serve_when_ready() -> None:
            await broker.is_unfenced.wait()
            await self._world.dawdle("clients-served-late")
            handlers = broker.handlers
            if self._decorate is not None:
                handlers = list(map(self._decorate, handlers))
            await server.enable(
                {
                    endpoint.listener_name: self._dispatcher(handlers, broker.metadata)
                    for endpoint in self._static.topology.broker_listeners
                }
            )
            self._is_up(addresses, task_status)

        async def stop_when_asked() -> None:
            await self._stop.wait()
            broker.stop()
            await self._hurry.wait()
            broker.hurry()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_when_ready)
            nursery.start_soon(stop_when_asked)
            await broker.run(partial(self._end_service, server))
            nursery.cancel_scope.cancel()

    async def _serve_controllers(
        self, server: NetworkServer, quorum: QuorumPart, metadata: BrokerMetadata
    ) -> None:
        if quorum.controller is None:
            return
        handlers = controller_listener_handlers(
            metadata,
            config=self.config,
            controller=quorum.controller,
            member=quorum.driver,
            metrics=self._metrics,
            clock=self._world.clock,
            quotas=self._quotas,
        )
        service = self._dispatcher(handlers, metadata)
        await server.enable(
            {
                endpoint.listener_name: service
                for endpoint in self._static.topology.controller_listeners
            }
        )

    def _dispatcher(self, handlers: list[Handler], metadata: BrokerMetadata) -> Dispatcher:
        return Dispatcher(
            handlers,
            features=metadata,
            metrics=self._metrics,
            clock=self._world.clock,
            quotas=self._quotas,
            authorizer=self._authorizer,
        )

    def _is_up(self, addresses: NodeAddresses, task_status: trio.TaskStatus[NodeAddresses]) -> None:
        self._is_ready = True
        log.info("node is up cluster_id=%s roles=%s", addresses.cluster_id, self._roles())
        task_status.started(addresses)

    def _endpoints(self, addresses: Mapping[str, Address]) -> tuple[Endpoint, ...]:
        """Addresses by listener, as the metadata has them."""
        protocols = {
            endpoint.listener_name: endpoint.security_protocol
            for endpoint in self._static.topology.listeners
        }
        return tuple(
            Endpoint(name, host, port, protocols[name].number)
            for name, (host, port) in addresses.items()
        )

    def _advertised(self, cluster_id: str, bound: Mapping[str, Address]) -> NodeAddresses:
        topology = self._static.topology
        return NodeAddresses(
            cluster_id=cluster_id,
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
