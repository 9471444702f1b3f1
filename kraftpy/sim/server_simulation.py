"""The way of a request through a node: connections, answers that wait, timers. All of it is real.

Clients send frames on many connections, several at a time, and go away in every way there is. The
service answers at once, or lets an answer wait in a purgatory for an event or for its timeout. The
rules: answers come in the order of their requests; what has reached its condition does not wait
any more, and nobody waits longer than its timeout; as many connections are counted as there are,
and none when all clients are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import trio

from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import ListenerSettings
from kraftpy.net.server import NetworkServer
from kraftpy.net.service import Answer, Channel
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.purgatory.purgatory import Purgatory
from kraftpy.purgatory.timer import Timer
from kraftpy.sim.coordinator_rules import claim
from kraftpy.sim.digest import EventDigest, RunTrace
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.runner import run_simulation
from kraftpy.sim.simulation import Simulation
from kraftpy.world import Clock, Stream, World
from kraftpy.world.memory_link import LinkProfile
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["ServerRun", "ServerSimulation"]

_SERVER: Final = "server"
_LISTENER: Final = ListenerSettings("PLAINTEXT", "0.0.0.0", 9092)
_SIZE_BYTES: Final = 4
_KEYS: Final = 4
_CHECK_SECONDS: Final = 0.05
# How late the end of a waiting operation may be, and how long everything may take at the end.
_LATE_MS: Final = 500
_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ServerRun:
    """What a run did; `event_count` are the pieces of streams that arrived."""

    seed: int
    trace: RunTrace
    event_count: int
    virtual_us: int
    answered: int
    expired: int


class _Waiting(DelayedOperation):
    """Ends when its key's count has come far enough; its end may be an event for another key."""

    __slots__ = ("_owner", "_then", "answer", "deadline_ms", "frame", "key", "target")

    def __init__(self, owner: _WaitingRoom, frame: bytes, answer: Answer, now_ms: int) -> None:
        _, _, key, more, delay_ms, then = frame.split()
        super().__init__(int(delay_ms))
        self._owner = owner
        self.frame = frame
        self.answer = answer
        self.key = int(key)
        self.target = owner.counts[self.key] + int(more)
        self.deadline_ms = now_ms + self.delay_ms
        self._then = int(then)

    @property
    def is_due(self) -> bool:
        return self._owner.counts[self.key] >= self.target

    def try_complete(self) -> bool:
        return self.is_due and self.force_complete()

    def on_complete(self) -> None:
        del self._owner.waiting[self]
        self._owner.reply(self.frame, self.answer)
        if self._then >= 0:
            self._owner.happen(self._then)

    def on_expiration(self) -> None:
        self._owner.expired_count += 1


class _WaitingRoom:
    """The service. A frame is `number echo`, `number event key`, or `number wait key …`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.timer = Timer("simulated", clock)
        self._purgatory: Purgatory[_Waiting] = Purgatory("Simulated", self.timer, MetricRegistry())
        self.counts = [0] * _KEYS
        self.waiting: dict[_Waiting, None] = {}
        self.answered_count = self.expired_count = 0

    def may_run_ahead(self, frame: memoryview) -> bool:
        return True

    def serve(self, channel: Channel, frame: memoryview, answer: Answer) -> None:
        data = bytes(frame)
        words = data.split()
        if words[1] == b"wait":
            operation = _Waiting(self, data, answer, self._clock.monotonic_ms())
            self.waiting[operation] = None
            # Once for its own key, and once for one that has nothing to do with it.
            keys = (operation.key, (operation.key + 1) % _KEYS)
            self._purgatory.try_complete_else_watch(operation, keys)
        else:
            if words[1] == b"event":
                self.happen(int(words[2]))
            self.reply(data, answer)

    def happen(self, key: int) -> None:
        self.counts[key] += 1
        self._purgatory.check_and_complete(key)

    def reply(self, frame: bytes, answer: Answer) -> None:
        self.answered_count += 1
        answer.send((_framed(frame.split()[0]),))

    def check(self) -> None:
        """Invariant 24."""
        now_ms = self._clock.monotonic_ms()
        for operation in self.waiting:
            claim(not operation.is_due, "wake-up-lost", operation.frame)
            late_ms = now_ms - operation.deadline_ms
            claim(late_ms < _LATE_MS, "timer-overdue", f"{operation.frame!r}: {late_ms} ms")


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(_SIZE_BYTES, "big") + payload


class ServerSimulation:
    def __init__(self, seed: int, window: range = range(0)) -> None:
        random = MemoryRng(seed, "server").stream("swarm")
        self.seed = seed
        self.digest = EventDigest(window)
        self._clients = random.choice((2, 5, 9))
        self._limits = NetworkLimits(
            max_connections=random.choice((3, 6, 1_000)),
            max_connections_per_ip=random.choice((1, 2, 1_000)),
            connection_max_idle_ms=random.choice((300, 600_000)),
            run_ahead_frames=random.choice((1, 4, 16)),
        )
        self._link = LinkProfile(
            latency_min_seconds=0.0005,
            latency_mean_seconds=random.choice((0.0005, 0.01)),
            chunk_max_bytes=random.choice((3, 65_536)),
            reset_probability=random.choice((0.0, 0.01)),
        )
        self._rounds_left = 0

    def run(self, round_limit: int) -> ServerRun:
        """So many connections, of all clients together."""
        self._rounds_left = round_limit
        try:
            result = run_simulation(
                self._main, seed=self.seed, time_limit_seconds=3_600, digest=self.digest
            )
        except Exception as error:
            error.add_note(
                f"replay: python -m kraftpy.sim.server_run --seed {self.seed}"
                f" --events {round_limit}"
            )
            raise
        room = result.value
        return ServerRun(
            self.seed,
            result.trace,
            result.trace.event_count,
            int(result.virtual_seconds * 1e6),
            room.answered_count,
            room.expired_count,
        )

    async def _main(self, simulation: Simulation) -> _WaitingRoom:
        world = simulation.world(_SERVER)
        self._clock = world.clock
        room = _WaitingRoom(world.clock)
        server = NetworkServer(
            clock=world.clock,
            network=world.network,
            limits=self._limits,
            registry=MetricRegistry(),
        )
        failures: list[InvariantViolated] = []
        await server.bind([_LISTENER])
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            nursery.start_soon(room.timer.run)
            await server.enable({_LISTENER.name: room})
            try:
                await self._use(simulation, room, server)
            except* InvariantViolated as group:
                failures += _leaves(group)
            await server.stop(0)
            nursery.cancel_scope.cancel()
        if failures:
            raise failures[0]
        return room

    async def _use(self, simulation: Simulation, room: _WaitingRoom, server: NetworkServer) -> None:
        def check() -> None:
            room.check()
            counted, there = server.quotas.total, len(server.connections)
            claim(counted == there, "connections-miscounted", f"{counted}, not {there}")

        async with trio.open_nursery() as monitors:
            monitors.start_soon(self._watch, check)
            async with trio.open_nursery() as clients:
                for number in range(self._clients):
                    name = f"client{number}"
                    for source, target in ((name, _SERVER), (_SERVER, name)):
                        simulation.fabric.set_profile(source, target, self._link)
                    clients.start_soon(self._client, simulation.world(name), number)
            monitors.cancel_scope.cancel()
        deadline = self._clock.monotonic() + _PATIENCE_SECONDS
        while server.quotas.total or room.waiting:
            check()
            is_late = self._clock.monotonic() > deadline
            claim(not is_late, "connections-leaked", server.quotas.total)
            await self._clock.sleep(_CHECK_SECONDS)

    async def _watch(self, check: Callable[[], None]) -> None:
        while True:
            await self._clock.sleep(_CHECK_SECONDS)
            check()

    # Clients.

    async def _client(self, world: World, number: int) -> None:
        random = world.rng.stream("client")
        while self._rounds_left > 0:
            self._rounds_left -= 1
            try:
                with world.clock.fail_after(_PATIENCE_SECONDS):
                    stream = await world.network.connect(_SERVER, _LISTENER.port)
            except (OSError, trio.TooSlowError) as error:
                raise InvariantViolated("not-connected", f"client {number}: {error}") from error
            try:
                await self._talk(world.clock, stream, random)
            except (OSError, EOFError):
                pass
            finally:
                stream.close()
            await world.clock.sleep(random.expovariate(10))

    async def _talk(self, clock: Clock, stream: Stream, random: Random) -> None:
        """Several requests at a time, and all of their answers, or not all of them."""
        for _ in range(random.choice((1, 3))):
            frames = [self._frame(random, number) for number in range(random.choice((1, 5, 30)))]
            await _send(stream, b"".join(map(_framed, frames)))
            if random.random() < 0.2:
                await clock.sleep(random.expovariate(5))
                return
            for number in range(len(frames)):
                answer = await self._receive(clock, stream)
                claim(answer == b"%d" % number, "answer-out-of-order", f"{answer!r}, not {number}")

    def _frame(self, random: Random, number: int) -> bytes:
        chance = random.random()
        if chance < 0.3:
            return b"%d echo" % number
        if chance < 0.6:
            return b"%d event %d" % (number, random.randrange(_KEYS))
        delay_ms = random.choice((0, 15, 60, 700, 9_000))
        then = random.choice((-1, random.randrange(_KEYS)))
        words = (number, random.randrange(_KEYS), random.randrange(4), delay_ms, then)
        return b"%d wait %d %d %d %d" % words

    async def _receive(self, clock: Clock, stream: Stream) -> bytes:
        try:
            with clock.fail_after(_PATIENCE_SECONDS):
                size = int.from_bytes(await _read(stream, _SIZE_BYTES), "big")
                return await _read(stream, size)
        except trio.TooSlowError as error:
            raise InvariantViolated("not-answered", "within a minute") from error


async def _send(stream: Stream, data: bytes) -> None:
    view = memoryview(data)
    while view:
        sent = stream.send((view,))
        view = view[sent:]
        if not sent:
            await stream.wait_writable()


async def _read(stream: Stream, length: int) -> bytes:
    buffer = bytearray(length)
    position = 0
    while position < length:
        received = stream.receive_into(memoryview(buffer)[position:])
        if received is None:
            await stream.wait_readable()
        elif received == 0:
            raise EOFError
        else:
            position += received
    return bytes(buffer)


def _leaves(group: BaseExceptionGroup[InvariantViolated]) -> list[InvariantViolated]:
    found: list[InvariantViolated] = []
    for each in group.exceptions:
        found += _leaves(each) if isinstance(each, BaseExceptionGroup) else [each]
    return found
