"""The server of a node: its listeners, the connections they accepted, and the limits on them.

The life of a server:

1. `bind`: every port is bound, connections queue in the backlog and nothing is served.
2. `run`, as a task: lives until `stop`, or until cancelled; every other task is below it.
3. `enable`: the listeners are served, the controllers' first, then the brokers', then the others.
4. `disable`: on some listeners no connection is accepted any more and their ports are free; answers
   in flight leave, within a time of grace; their connections are closed. The others are served.
5. `stop`: the same for all of them, and `run` returns.

Connections stand in the order of their last activity, the oldest first. By that order the sweeper
closes those that are idle for too long, and by it those go that are too many.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from functools import partial

import trio

from kraftpy.net.connection import Connection, ConnectionIdentity, Surroundings
from kraftpy.net.framing import BufferPool
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import BoundListener, ListenerRole, ListenerSettings
from kraftpy.net.memory import RequestMemory
from kraftpy.net.quotas import ConnectionQuotas, TooManyConnections
from kraftpy.net.service import Service
from kraftpy.observe.metrics import Meter, MetricName, MetricRegistry
from kraftpy.security.address_quota import AddressQuota
from kraftpy.security.windows import ClientRate, QuotaWindow
from kraftpy.world import Address, Buggify, Clock, Network, Stream, assert_always, never

__all__ = ["NetworkServer"]

logger = logging.getLogger(__name__)

# The pause after an accept that failed. Mostly descriptors have run out, and others must close.
_ACCEPT_PAUSE_SECONDS = 0.1
# No listener's backlog is shorter. Connections wait there while the loop does other things, and
# whom the system drops from a full one comes back after a second. Kafka's default, 50, is for a
# thread that does nothing but accept.
_LEAST_BACKLOG = 1024
# No timed wait is shorter. One too short for the clock to move would spin.
_SHORTEST_WAIT_SECONDS = 0.001
# Connections that are held before they are closed; what comes beyond is closed at once.
_MAX_HELD = 1000


class _TooQuick(Exception):  # noqa: N818 (it names what it is)
    """Too many connections have come from an address of late."""

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.delay_ms = delay_ms


class NetworkServer:
    def __init__(
        self,
        *,
        clock: Clock,
        network: Network,
        limits: NetworkLimits,
        registry: MetricRegistry,
        quota_window: QuotaWindow | None = None,
        buggify: Buggify = never,
    ) -> None:
        """`quota_window` is for the rates of single addresses."""
        self._clock = clock
        self._network = network
        self._limits = limits
        self._registry = registry
        self._buggify = buggify
        self._listeners: list[BoundListener] = []
        self._quotas = ConnectionQuotas(limits, (), (), clock.monotonic())
        self._address_quota = AddressQuota(
            quota_window or QuotaWindow(), self._show_rate, self._hide_rate
        )
        self._held_count = 0
        self._memory = RequestMemory(limits.queued_request_max_bytes)
        # Least recently active first.
        self._connections: OrderedDict[Connection, BoundListener] = OrderedDict()
        self._surroundings: Surroundings | None = None
        self._nursery: trio.Nursery | None = None
        # Names of listeners that have a service; a dict for its order.
        self._served: dict[str, None] = {}
        # And of those that are not served any more.
        self._ended: dict[str, None] = {}
        # Each is set, and replaced by a new one, when that has happened.
        self._room_changed = trio.Event()
        self._limits_changed = trio.Event()

    @property
    def addresses(self) -> dict[str, Address]:
        """By listener's name: host, and the port that is really bound."""
        return {listener.name: listener.address for listener in self._listeners}

    @property
    def connections(self) -> list[Connection]:
        """Least recently active first."""
        return list(self._connections)

    @property
    def quotas(self) -> ConnectionQuotas:
        return self._quotas

    @property
    def memory(self) -> RequestMemory:
        return self._memory

    async def bind(self, listeners: Sequence[ListenerSettings]) -> None:
        """Bind every listener, or none: an OSError names host and port."""
        assert_always(not self._listeners, "server.bound-twice")
        bound: list[BoundListener] = []
        try:
            for settings in listeners:
                socket = await self._network.listen(
                    settings.host,
                    settings.port,
                    backlog=max(settings.backlog, _LEAST_BACKLOG),
                    options=settings.socket_options,
                )
                is_dedicated = _is_dedicated(settings, listeners)
                bound.append(BoundListener(settings, socket, is_dedicated=is_dedicated))
        except BaseException:
            for listener in bound:
                listener.close()
            raise
        # The order in which they will be served.
        self._listeners = sorted(bound, key=lambda listener: listener.settings.role)
        self._quotas = ConnectionQuotas(
            self._limits,
            [listener.name for listener in bound],
            [listener.name for listener in bound if listener.is_dedicated],
            self._clock.monotonic(),
        )
        self._add_gauges()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own all tasks of the server; return after `stop`."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._surroundings = Surroundings(
                    clock=self._clock,
                    limits=self._limits,
                    buffers=BufferPool(),
                    memory=self._memory,
                    spawn=nursery.start_soon,
                    on_activity=self._connections.move_to_end,
                    on_closed=self._on_closed,
                )
                nursery.start_soon(self._close_idle, name="net-idle-sweeper")
                task_status.started()
        finally:
            self._nursery = None
            self._close_listeners()

    async def enable(self, services: Mapping[str, Service]) -> None:
        """Serve the listeners that are named, each by its service; the others later.

        Those that are served already stay as they are.
        """
        assert_always(self._nursery is not None, "server.enabled-before-run")
        assert self._nursery is not None
        for listener in self._listeners:
            if listener.name not in services:
                continue
            if listener.name in self._served:
                logger.info("the listener is served already listener=%s", listener.name)
                continue
            self._served[listener.name] = None
            await self._nursery.start(
                self._accept_connections,
                listener,
                services[listener.name],
                name=f"net-acceptor[{listener.name}]",
            )

    async def stop(self, grace_seconds: float) -> None:
        """Stop accepting, let answers in flight leave, close everything. Idempotent.

        Cancelling it only cuts the time of grace short.
        """
        try:
            await self.disable([listener.name for listener in self._listeners], grace_seconds)
        finally:
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel()

    async def disable(self, names: Collection[str], grace_seconds: float) -> None:
        """Serve these listeners no longer; their last connection is closed when this returns.

        Idempotent. Cancelling it only cuts the time of grace short.
        """
        for listener in self._listeners:
            if listener.name in names:
                self._ended[listener.name] = None
                listener.close()

        def left() -> list[Connection]:
            return [each for each, of in self._connections.items() if of.name in names]

        try:
            with self._clock.move_on_after(grace_seconds):
                for connection in left():
                    connection.end()
                while left():
                    await self._room_changed.wait()
        finally:
            for connection in left():
                connection.close()

    def change_limits(self, limits: NetworkLimits) -> None:
        """Put new limits into force; connections that wait for admission try again.

        Frames above a new `request_max_bytes` are refused on connections that come later.
        """
        self._limits = limits
        self._quotas.change_limits(limits, self._clock.monotonic())
        self._memory.change_capacity(limits.queued_request_max_bytes)
        if self._surroundings is not None:
            self._surroundings.limits = limits
        self._close_excess()
        self._announce_room()
        self._limits_changed.set()
        self._limits_changed = trio.Event()

    def change_address_rate(self, address: str | None, rate: float | None) -> None:
        """How many connections a second may come from an address, or from any without a rate of its
        own; None takes the limit away.
        """
        self._address_quota.change(address, rate)

    async def _accept_connections(
        self,
        listener: BoundListener,
        service: Service,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        blocked = self._registry.meter(
            MetricName(
                "kafka.network",
                "Acceptor",
                "AcceptorBlockedPercent",
                (("listener", listener.name),),
            ),
            self._clock.monotonic(),
        )
        logger.info("listener=%s address=%s:%d is served", listener.name, *listener.address)
        task_status.started()
        is_failing = False
        while listener.name not in self._ended:
            try:
                stream = await listener.accept()
            except trio.ClosedResourceError:
                return
            except OSError as error:
                # Once for as long as it lasts: it may last, at ten attempts a second.
                if not is_failing:
                    logger.error("listener=%s can't accept for now: %s", listener.name, error)
                is_failing = True
                await self._clock.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            if is_failing:
                logger.info("listener=%s accepts again", listener.name)
            is_failing = False
            try:
                if self._buggify("connection-admitted-late"):
                    await self._clock.sleep(_ACCEPT_PAUSE_SECONDS)
                await self._admit(listener, stream, blocked)
            except TooManyConnections as refusal:
                logger.info("listener=%s refused a connection: %s", listener.name, refusal)
                stream.close()
            except _TooQuick as refusal:
                self._hold(stream, refusal.delay_ms)
            except BaseException:
                stream.close()
                raise
            else:
                self._start_connection(listener, stream, service)

    async def _admit(self, listener: BoundListener, stream: Stream, blocked: Meter) -> None:
        """Return when the connection is counted. Raises TooManyConnections and _TooQuick for its
        address.
        """
        clock = self._clock
        name = listener.name
        while True:
            now = clock.monotonic()
            if not self._quotas.has_room(name):
                await self._room_changed.wait()
            elif (seconds := self._quotas.seconds_to_wait(name, now)) > 0:
                with clock.move_on_after(max(_SHORTEST_WAIT_SECONDS, seconds)):
                    await self._limits_changed.wait()
            else:
                address = stream.remote_address[0]
                if self._address_quota.is_set:
                    delay_ms = self._address_quota.connected(address, clock.monotonic_ms())
                    if delay_ms > 0:
                        raise _TooQuick(delay_ms)
                self._quotas.add(name, address)
                return
            finished = clock.monotonic()
            blocked.mark(finished, finished - now)

    def _hold(self, stream: Stream, delay_ms: int) -> None:
        """Close a connection later, and serve nothing on it."""
        assert self._nursery is not None
        if self._held_count >= _MAX_HELD:
            stream.close()
        else:
            self._held_count += 1
            self._nursery.start_soon(self._close_later, stream, delay_ms, name="net-held")

    async def _close_later(self, stream: Stream, delay_ms: int) -> None:
        try:
            await self._clock.sleep(delay_ms / 1000)
        finally:
            self._held_count -= 1
            stream.close()

    def _show_rate(self, address: str, rate: ClientRate) -> None:
        self._registry.gauge(
            _rate_of_address(address), lambda: rate.rate(self._clock.monotonic_ms())
        )

    def _hide_rate(self, address: str) -> None:
        self._registry.remove(_rate_of_address(address))

    def _start_connection(self, listener: BoundListener, stream: Stream, service: Service) -> None:
        assert self._nursery is not None
        assert self._surroundings is not None
        identity = ConnectionIdentity(
            connection_id=listener.name_connection(stream),
            listener_name=listener.name,
            security_protocol=listener.settings.security_protocol,
            client_host=stream.remote_address[0],
        )
        connection = Connection(
            stream,
            service,
            identity,
            self._surroundings,
            runs_all_ahead=listener.is_dedicated,
            principal=listener.settings.principal,
        )
        self._connections[connection] = listener
        self._nursery.start_soon(connection.run, name=f"net-connection[{identity.connection_id}]")
        self._close_excess()
        if listener.name in self._ended:
            connection.end()

    def _on_closed(self, connection: Connection) -> None:
        listener = self._connections.pop(connection)
        self._quotas.remove(listener.name, connection.client_host)
        self._announce_room()

    def _announce_room(self) -> None:
        self._room_changed.set()
        self._room_changed = trio.Event()

    def _close_excess(self) -> None:
        """Close the least recently used connections that are too many, on unprotected listeners."""
        count = self._quotas.excess_count
        if count == 0:
            return
        victims = [
            connection
            for connection, listener in self._connections.items()
            if not self._quotas.is_protected(listener.name)
        ]
        for connection in victims[:count]:
            logger.info("connection=%s is closed: max.connections", connection.connection_id)
            connection.close()

    async def _close_idle(self) -> None:
        """Close who was silent for `connection_max_idle_ms`, waking when the oldest may be due."""
        while True:
            idle_seconds = self._limits.connection_max_idle_ms / 1000
            if idle_seconds < 0:
                await self._limits_changed.wait()
                continue
            now = self._clock.monotonic()
            # Of those that come while nobody is here, none can be due earlier than this.
            remaining = idle_seconds
            for connection in self.connections:
                remaining = connection.last_active + idle_seconds - now
                if remaining > 0 and not self._buggify("connection-closed-early"):
                    break
                logger.info("connection=%s is closed: idle", connection.connection_id)
                connection.close()
            with self._clock.move_on_after(max(_SHORTEST_WAIT_SECONDS, remaining)):
                await self._limits_changed.wait()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()

    def _add_gauges(self) -> None:
        registry = self._registry
        for listener in self._listeners:
            name = listener.name
            registry.gauge(
                MetricName(
                    "kafka.server",
                    "socket-server-metrics",
                    "connection-count",
                    (("listener", name),),
                    is_attribute=True,
                ),
                partial(self._quotas.count_of_listener, name),
            )
        registry.gauge(
            MetricName("kafka.network", "SocketServer", "MemoryPoolUsed"),
            lambda: self._memory.used_bytes,
        )
        registry.gauge(
            MetricName("kafka.network", "SocketServer", "MemoryPoolAvailable"),
            lambda: float("inf") if (free := self._memory.available_bytes) is None else free,
        )


def _rate_of_address(address: str) -> MetricName:
    return MetricName(
        "kafka.server",
        "socket-server-metrics",
        "connection-accept-rate",
        (("ip", address),),
        is_attribute=True,
    )


def _is_dedicated(settings: ListenerSettings, all_listeners: Sequence[ListenerSettings]) -> bool:
    """Whether only nodes connect there: clients have no business on a controllers' listener, and
    none on the brokers' own if there is another for them.
    """
    if settings.role is ListenerRole.INTER_BROKER:
        return any(other.role is ListenerRole.CLIENT for other in all_listeners)
    return settings.role is ListenerRole.CONTROLLER
