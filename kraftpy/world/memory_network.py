"""The simulated network: one fabric, and for each host a Network of its own.

    fabric = MemoryFabric(MemoryRng(seed))
    nursery.start_soon(fabric.run)
    network = fabric.host("node-1")       # the Network port of node-1; boots it if it was down
    fabric.cut("node-1", "node-2")        # one way

The fabric's time is trio's clock, its randomness the Rng handed in, one stream for each directed
pair of hosts. What connections do is in memory_stream, what links do in memory_link.

A host is known by its name and by an address 10.0.0.n; `localhost` is the host itself. A connect
takes one latency each way. Lost or unanswered attempts are repeated after 1, 2, 4, ... seconds
until the link's connect time-out, as TCP does; a time-out is a bare ConnectionError (ETIMEDOUT).

Two ways to die: `kill` ends the process, its kernel closes what it held and refuses connections;
`vanish` is loss of power: nobody is told, and peers notice by a reset when they send after the
host is back, by their own time-outs, or never. In both cases the old Network and its streams turn
into ghosts; the next call of `host` starts anew.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import NoReturn

import trio

from kraftpy.world.alarms import TRIO_TIME, TrueTime
from kraftpy.world.invariants import assert_always
from kraftpy.world.memory_host import Host, Parking, Process
from kraftpy.world.memory_link import Link, LinkProfile, Path, Timetable
from kraftpy.world.memory_stream import MemoryStream, NetworkObserver, Pipe, Segment
from kraftpy.world.ports import Address, Rng, SocketOptions

__all__ = ["LinkProfile", "MemoryFabric", "MemoryListener", "MemoryNetwork", "NetworkObserver"]

_ANY_INTERFACE = frozenset({"", "0.0.0.0", "::"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_LOOPBACK_IP = "127.0.0.1"
_FIRST_RETRY_SECONDS = 1.0


class MemoryListener:
    __slots__ = (
        "_accepting",
        "_backlog",
        "_backlog_limit",
        "_closed",
        "_network",
        "address",
        "options",
    )

    address: Address

    def __init__(
        self, network: MemoryNetwork, address: Address, backlog: int, options: SocketOptions
    ) -> None:
        self._network = network
        self._backlog_limit = backlog
        self._backlog: deque[MemoryStream] = deque()
        self._accepting = Parking()
        self._closed = False
        self.address = address
        self.options = options

    async def accept(self) -> MemoryStream:
        await trio.lowlevel.checkpoint()
        while True:
            if self._closed:
                raise trio.ClosedResourceError("the listener was closed")
            await self.process.wait_running()
            if self._backlog:
                return self._backlog.popleft()
            await self._accepting.wait()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._accepting.wake()
            if self.process.alive:
                self.relinquish()

    def relinquish(self) -> None:
        """Free the port and reset those who wait to be accepted."""
        self._network.unbind(self)
        for stream in self._backlog:
            stream.reset()
        self._backlog.clear()

    @property
    def process(self) -> Process:
        return self._network.process

    @property
    def is_full(self) -> bool:
        return len(self._backlog) >= self._backlog_limit

    def admit(self, stream: MemoryStream) -> bool:
        """A connection has come; is there anybody to take it?"""
        if self._closed or self.is_full or not self.process.alive:
            return False
        self._backlog.append(stream)
        self._accepting.wake()
        return True


class MemoryNetwork:
    """The Network port of one process on one host. Made by `MemoryFabric.host`."""

    __slots__ = ("_fabric", "_listeners", "process")

    def __init__(self, fabric: MemoryFabric, process: Process) -> None:
        self._fabric = fabric
        self._listeners: dict[int, MemoryListener] = {}
        self.process = process

    async def listen(
        self,
        host: str | None,
        port: int,
        *,
        backlog: int = 50,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> MemoryListener:
        await trio.lowlevel.checkpoint()
        await self.process.wait_running()
        own = self.process.host
        place = f"{'*' if host is None else host}:{port}"
        if host is None or host in _ANY_INTERFACE:
            bound_host = "0.0.0.0"
        elif host in _LOOPBACK:
            bound_host = _LOOPBACK_IP
        elif host in (own.name, own.ip):
            bound_host = own.ip
        else:
            _raise(errno.EADDRNOTAVAIL, f"cannot listen on {place}")
        if port in self._listeners:
            _raise(errno.EADDRINUSE, f"cannot listen on {place}")
        bound_port = port or own.ephemeral_port()
        listener = MemoryListener(self, (bound_host, bound_port), backlog, options)
        self._listeners[bound_port] = listener
        return listener

    async def connect(
        self,
        host: str,
        port: int,
        *,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> MemoryStream:
        await trio.lowlevel.checkpoint()
        await self.process.wait_running()
        attempt = f"cannot connect to {host}:{port}"
        loopback = host in _LOOPBACK
        target = self.process.host if loopback else self._fabric.find(host)
        if target is None:
            raise OSError(socket.EAI_NONAME, f"{attempt}: Name or service not known")
        address = (_LOOPBACK_IP if loopback else target.ip, port)
        profile = self._fabric.path(self.process.host, target).out.profile
        retry_seconds = _FIRST_RETRY_SECONDS
        with trio.move_on_after(profile.connect_timeout_seconds):
            await trio.sleep(profile.connect_delay_seconds)
            while True:
                stream = await self._knock(target, address, options, attempt)
                if stream is not None:
                    return stream
                await trio.sleep(retry_seconds)
                retry_seconds *= 2
        raise ConnectionError(errno.ETIMEDOUT, f"{attempt}: {os.strerror(errno.ETIMEDOUT)}")

    async def _knock(
        self, target: Host, address: Address, options: SocketOptions, attempt: str
    ) -> MemoryStream | None:
        """One attempt to connect; None when it, or its answer, was lost."""
        path = self._fabric.path(self.process.host, target)
        if not await _travel(path.out) or not target.powered:
            return None
        listener = self._fabric.listener_at(target, address)
        if listener is not None and listener.is_full:
            return None
        if path.out.happens(path.out.profile.refuse_probability):
            listener = None
        if not await _travel(path.back):
            return None
        await self.process.wait_running()
        if listener is None:
            _raise(errno.ECONNREFUSED, attempt)
        return self._fabric.join(self.process, listener, address, options, path)

    def unbind(self, listener: MemoryListener) -> None:
        self._listeners.pop(listener.address[1], None)

    def listener_on(self, address: Address) -> MemoryListener | None:
        listener = self._listeners.get(address[1])
        if listener is None or (listener.address[0] == _LOOPBACK_IP and address[0] != _LOOPBACK_IP):
            return None
        return listener

    def end(self, *, with_machine: bool) -> None:
        """The process is killed, or vanishes with its machine."""
        if not with_machine:
            # Before the streams: those that nobody accepted are reset, not finished.
            for listener in list(self._listeners.values()):
                listener.relinquish()
        self.process.end(with_machine=with_machine)


async def _travel(link: Link) -> bool:
    """Be under way for one latency; did it arrive?"""
    await trio.sleep(link.latency_seconds())
    await trio.sleep_until(link.clogged_until)
    return not link.cut


def _raise(code: int, attempt: str) -> NoReturn:
    raise OSError(code, f"{attempt}: {os.strerror(code)}")


class MemoryFabric:
    """All hosts, all links, and the task that delivers (`run`)."""

    __slots__ = (
        "_hosts",
        "_links",
        "_networks",
        "_observer",
        "_profile",
        "_rng",
        "_timetable",
        "_true",
    )

    def __init__(
        self,
        rng: Rng,
        *,
        profile: LinkProfile = LinkProfile(),  # noqa: B008 (frozen)
        observer: NetworkObserver | None = None,
        true_time: TrueTime = TRIO_TIME,
    ) -> None:
        """`profile` is for links that got none of their own."""
        self._rng = rng
        self._profile = profile
        self._observer = observer
        self._true = true_time
        self._timetable = Timetable(true_time)
        self._hosts: dict[str, Host] = {}
        self._networks: dict[str, MemoryNetwork] = {}
        self._links: dict[tuple[str, str], Link] = {}

    async def run(self) -> None:
        """Deliver, until cancelled."""
        await self._timetable.run()

    @property
    def turn(self) -> int | None:
        """No task has run between two things that are delivered in the same turn. None if this
        is delivered by itself.
        """
        return self._timetable.turn

    def host(self, name: str) -> MemoryNetwork:
        """The network as `name` sees it; a host that is new or down is started."""
        network = self._networks.get(name)
        if network is None:
            host = self._hosts.get(name)
            if host is None:
                host = self._hosts[name] = Host(name, f"10.0.0.{len(self._hosts) + 1}")
            network = self._networks[name] = MemoryNetwork(self, Process(host))
            host.powered = True
            for (_, target), link in self._links.items():
                if target == name:
                    link.release()
        return network

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            random = self._rng.stream(f"link {source}>{target}")
            link = self._links[source, target] = Link(self._profile, random, self._true)
        return link

    def path(self, source: Host, target: Host) -> Path:
        return Path(self.link(source.name, target.name), self.link(target.name, source.name))

    # Faults.

    def set_profile(self, source: str, target: str, profile: LinkProfile) -> None:
        self.link(source, target).set_profile(profile)

    def cut(self, source: str, target: str) -> None:
        """Nothing passes from `source` to `target`; the other way is another link."""
        self.link(source, target).cut = True

    def heal(self, source: str, target: str) -> None:
        self.link(source, target).heal()

    def heal_all(self) -> None:
        """Take away every cut and clog."""
        for link in self._links.values():
            link.heal()

    def clog(self, source: str, target: str, seconds: float) -> None:
        """Nothing arrives for that long; then everything does."""
        self.link(source, target).clogged_until = self._true.now + seconds

    def reset(self, source: str, target: str) -> None:
        """Break all connections that the two have with each other, at once and on both ends."""
        network, peer = self._networks.get(source), self._hosts.get(target)
        if network is None or peer is None:
            return
        for tenant in network.process.tenants():
            if isinstance(tenant, MemoryStream) and tenant.remote_address[0] == peer.ip:
                tenant.outgoing.break_both()

    def pause(self, name: str) -> None:
        """Neither deliver to this process nor take what it sends, until `resume`."""
        self._networks[name].process.paused = True

    def resume(self, name: str) -> None:
        self._networks[name].process.resume()

    def kill(self, name: str) -> None:
        self._networks.pop(name).end(with_machine=False)

    def vanish(self, name: str) -> None:
        self._hosts[name].powered = False
        self._networks.pop(name).end(with_machine=True)

    # For MemoryNetwork.

    def find(self, name_or_ip: str) -> Host | None:
        for host in self._hosts.values():
            if name_or_ip in (host.name, host.ip):
                return host
        return None

    def listener_at(self, host: Host, address: Address) -> MemoryListener | None:
        network = self._networks.get(host.name)
        return None if network is None else network.listener_on(address)

    def join(
        self,
        process: Process,
        listener: MemoryListener,
        address: Address,
        options: SocketOptions,
        path: Path,
    ) -> MemoryStream:
        """Make both ends of a connection; the accepting one hears of it a latency later."""
        assert_always(self._timetable.running, "fabric-is-not-running")
        local_ip = _LOOPBACK_IP if address[0] == _LOOPBACK_IP else process.host.ip
        local_address = (local_ip, process.host.ephemeral_port())
        way_back = path.reversed()
        near = _end(process, local_address, address, options, path)
        far = _end(listener.process, address, local_address, listener.options, way_back)
        far.on_open = listener.admit
        near.outgoing = far.incoming = Pipe(near, far, path, self._timetable, self._observer)
        far.outgoing = near.incoming = Pipe(far, near, way_back, self._timetable, self._observer)
        near.outgoing.send_mark(Segment.OPEN)
        return near


def _end(
    process: Process,
    local_address: Address,
    remote_address: Address,
    options: SocketOptions,
    path: Path,
) -> MemoryStream:
    send_buffer_bytes = options.send_buffer_bytes or path.out.profile.send_buffer_bytes
    receive_buffer_bytes = options.receive_buffer_bytes or path.back.profile.receive_buffer_bytes
    return MemoryStream(
        process,
        local_address,
        remote_address,
        send_buffer_bytes=send_buffer_bytes,
        receive_buffer_bytes=receive_buffer_bytes,
    )
