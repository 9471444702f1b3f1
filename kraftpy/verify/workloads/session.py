"""The executor: slots of clients that follow a script, for a time; then a read of everything.

A slot is one place for a client. Its processes follow one another: one whose outcome is unknown,
or that crashed, vanishes without a word, and the next has a new number, fresh clients and a fresh
transactional id. The same code runs on real sockets and in a simulation: time, randomness and
network are the World's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from math import inf

import trio

from kraftpy.verify.history import Event, Recorder
from kraftpy.verify.workloads.catalogue import Drain, Script
from kraftpy.verify.workloads.drawing import Unseen, polled_of, sent_of
from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.outcomes import ClientError
from kraftpy.verify.workloads.own_admin import open_own_admin
from kraftpy.verify.workloads.plans import Plan, SlotState
from kraftpy.verify.workloads.port import ClientSpec, OpenClient, WorkloadAdmin
from kraftpy.verify.workloads.process import ClientProcess, Tools
from kraftpy.verify.workloads.raw_client import open_raw_client
from kraftpy.verify.workloads.raw_member import RawMember
from kraftpy.verify.workloads.topics import Topics
from kraftpy.world import Address, Random, World

__all__ = ["FinalRead", "Pace", "Session", "open_session"]

_IDLE_SECONDS = 0.05
_OPEN_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Pace:
    slots: int = 6
    rate: float = 100.0
    """Operations a second, of all slots together."""
    final_read_seconds: float = 200.0
    final_round_seconds: float = 10.0
    final_poll_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class FinalRead:
    """How far the read of everything came: keys that were not read to the highest offset known."""

    behind: dict[int, int]

    @property
    def is_complete(self) -> bool:
        return not self.behind


@asynccontextmanager
async def open_session(
    world: World,
    bootstrap: Sequence[Address],
    script: Script,
    *,
    pace: Pace,
    recorder: Recorder,
    open_client: OpenClient,
    random: Random,
    keys: KeySpace | None = None,
) -> AsyncIterator[Session]:
    """`recorder` tells the monotonic time of `world`, in nanoseconds."""
    async with open_own_admin(world, bootstrap) as admin:
        yield Session(
            world,
            bootstrap,
            script,
            pace=pace,
            recorder=recorder,
            open_client=open_client,
            admin=admin,
            random=random,
            keys=keys or KeySpace(),
        )


def now_ns(world: World) -> int:
    """The clock of a recorder."""
    return int(world.clock.monotonic() * 1e9)


class Session:
    """Made by `open_session`."""

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[Address],
        script: Script,
        *,
        pace: Pace,
        recorder: Recorder,
        open_client: OpenClient,
        admin: WorkloadAdmin,
        random: Random,
        keys: KeySpace,
    ) -> None:
        self._world = world
        self._bootstrap = list(bootstrap)
        self._script = script
        self._pace = pace
        self._open_client = open_client
        self._random = random
        self._deadline = 0.0
        self._next_process = list(range(pace.slots))
        self.keys = keys
        self.topics = Topics(
            admin,
            keys,
            replication_factor=script.replication_factor,
            configs=script.topic_configs,
        )
        self._groups: dict[str, None] = {}
        self.known = Unseen()
        self.counts = {"ok": 0, "fail": 0, "info": 0}
        self._done: dict[str, int] = {}
        self._tools = Tools(
            recorder,
            lambda: now_ns(world),
            world.clock,
            random,
            keys,
            self.topics,
            admin,
            script.manners,
            self._observe,
        )

    @property
    def servers(self) -> list[Address]:
        return list(self._bootstrap)

    @property
    def groups(self) -> list[str]:
        """Those that processes of this session were members of."""
        return sorted(self._groups)

    def _observe(self, event: Event) -> None:
        self.counts[event.type] += 1
        if event.type == "ok":
            self._done[event.f] = self._done.get(event.f, 0) + 1
        self.known.observe(event)
        self._script.generator.observe(event)

    # The main phase.

    async def run(self, seconds: float) -> None:
        """Let every slot work for that time; what is under way then is finished."""
        self._deadline = self._world.clock.monotonic() + seconds
        async with trio.open_nursery() as nursery:
            for slot in range(self._pace.slots):
                nursery.start_soon(self._work, slot, name=f"slot-{slot}")

    def end_soon(self) -> None:
        """Let no slot begin anything more; `run` returns when all is finished."""
        self._deadline = self._world.clock.monotonic()

    async def drain(self, seconds: float) -> bool:
        """Let a workload that has an end come to it, in a cluster that is well; does it?"""
        drain = self._script.drain
        if drain is None:
            return True
        drain.end()
        return await self.run_until(lambda: self._is_drained(drain), seconds)

    async def run_until(self, is_enough: Callable[[], Awaitable[bool]], seconds: float) -> bool:
        """Let every slot work until that holds, but no longer than so many seconds; does it?"""
        is_done = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run, seconds)
            ends_at = self._world.clock.monotonic() + seconds
            while not is_done and self._world.clock.monotonic() < ends_at:
                await self._world.clock.sleep(_OPEN_AGAIN_SECONDS)
                is_done = await is_enough()
            self._deadline = self._world.clock.monotonic()
        return is_done

    async def has_done(self, kinds: Sequence[str]) -> bool:
        """Whether each of these kinds of operations was ok at least once."""
        return all(self._done.get(kind) for kind in kinds)

    async def _is_drained(self, drain: Drain) -> bool:
        wheres = [self.keys.where(key) for key in drain.keys]
        try:
            ends = await self._tools.admin.log_ends(wheres)
            offsets = await self._tools.admin.group_offsets(drain.group_id)
        except ClientError:
            return False
        return all(
            ends[where].last_stable == ends[where].high_watermark
            and offsets.get(where, ends[where].start) >= ends[where].high_watermark
            for where in wheres
        )

    @property
    def _is_time_left(self) -> bool:
        return self._world.clock.monotonic() < self._deadline

    async def _work(self, slot: int) -> None:
        while self._is_time_left:
            number = self._take_number(slot)
            async with self._process(number, self._script.spec_of(slot, number)) as process:
                await self._follow(slot, process)
            if self._is_time_left:
                # A node that refuses every connection must not make processes by the thousand.
                await self._world.clock.sleep(_OPEN_AGAIN_SECONDS)

    def _take_number(self, slot: int) -> int:
        number = self._next_process[slot]
        self._next_process[slot] += self._pace.slots
        return number

    async def _follow(self, slot: int, process: ClientProcess) -> None:
        clock = self._world.clock
        rate = self._pace.rate * self._script.rate_factor / self._pace.slots
        while not process.is_over and self._is_time_left:
            state = SlotState(slot, process.number, process.is_fresh, clock.monotonic_ms())
            plan = self._script.generator.next(state)
            if plan is None:
                await clock.sleep(_IDLE_SECONDS)
                continue
            await process.perform(plan)
            await clock.sleep(self._random.expovariate(rate))

    @asynccontextmanager
    async def _process(self, number: int, spec: ClientSpec) -> AsyncIterator[ClientProcess]:
        """A process with its clients. One that is over vanishes; others say good-bye."""
        if spec.group_id is not None:
            self._groups[spec.group_id] = None
        with trio.CancelScope() as scope:
            async with AsyncExitStack() as stack:
                member = None
                if self._script.has_bare_members and spec.group_id is not None:
                    raw = await stack.enter_async_context(
                        open_raw_client(self._world, self._bootstrap, spec.client_id)
                    )
                    member = RawMember(raw, self._tools.admin, self.keys, spec, self._random)
                client = await stack.enter_async_context(self._open_client(spec))
                process = ClientProcess(number, client, spec, self._tools, member)
                try:
                    yield process
                finally:
                    if process.is_over:
                        scope.cancel()
                    elif spec.group_id is not None:
                        # It commits all that it has returned, if it commits by itself.
                        self._tools.recorder.invoke(number, "close", None).ok(None)

    async def boot(self, seconds: float) -> None:
        """Wait until a topic can be made, and do what the workload begins with; TooSlowError if
        that takes longer.
        """
        with self._world.clock.fail_after(seconds):
            while not await self._is_open():
                await self._world.clock.sleep(_OPEN_AGAIN_SECONDS)

    async def _is_open(self) -> bool:
        try:
            await self.topics.ensure([0])
        except ClientError:
            return False
        if self._script.opening is None:
            return True
        number = self._take_number(0)
        async with self._process(number, self._script.spec_of(0, number)) as process:
            event = await process.perform(self._script.opening(number))
        return event.type == "ok"

    # The end.

    async def final_read(self, began_anew: Mapping[int, int] | None = None) -> FinalRead:
        """Fresh clients of every slot read every key from its beginning, until they have seen the
        highest offsets that anybody was told of.

        A key in `began_anew` has been another log since the event of that index: offsets from
        before are not there any more, and nobody waits for them.
        """
        targets = self._targets(began_anew or {})
        behind: list[dict[int, int]] = []
        deadline = self._world.clock.monotonic() + self._pace.final_read_seconds

        async def read(slot: int) -> None:
            behind.append(await self._read_all(slot, targets, deadline))

        if targets:
            async with trio.open_nursery() as nursery:
                for slot in range(self._pace.slots):
                    nursery.start_soon(read, slot, name=f"final-read-{slot}")
        # A key counts as read if anybody has read it.
        return FinalRead(
            {key: targets[key] for key in targets if all(key in each for each in behind)}
        )

    def _targets(self, began_anew: Mapping[int, int]) -> dict[int, int]:
        """How far each key has to be read; -1 for one that need not have anything.

        Of a log that began anew, only offsets count that were acknowledged to whoever asked
        later: a poll may give what its client had fetched from the log before.
        """
        targets = {key: -1 if key in began_anew else self.known.highest[key] for key in self._keys}
        operations = self._tools.recorder.history({}).operations if began_anew else ()
        for operation in operations:
            event = operation.completion
            if event is None or event.type != "ok" or event.f not in ("send", "txn"):
                continue
            for key, _, offset in sent_of(event):
                if offset is not None and operation.index > began_anew.get(key, inf):
                    targets[key] = max(offset, targets[key])
        return targets

    @property
    def _keys(self) -> list[int]:
        """Those of which anybody was told an offset."""
        return sorted(self.known.highest)

    async def _read_all(
        self, slot: int, targets: dict[int, int], deadline: float
    ) -> dict[int, int]:
        clock = self._world.clock
        wanted = {key: offset for key, offset in targets.items() if offset >= 0}
        while True:
            left = dict(wanted)
            number = self._take_number(slot)
            round_ends = min(deadline, clock.monotonic() + self._pace.final_round_seconds)
            async with self._process(number, _reader(number, self._script)) as process:
                await self._read_round(process, left, round_ends)
            if not left or clock.monotonic() >= deadline:
                return left

    async def _read_round(
        self, process: ClientProcess, left: dict[int, int], round_ends: float
    ) -> None:
        meta = {"final": True}
        await process.perform(Plan("debug", self._keys, meta))
        if process.is_over:
            return
        plan = Plan("assign", self._keys, {"seek_to_beginning": True, **meta})
        event = await process.perform(plan)
        while event.type == "ok" and left and self._world.clock.monotonic() < round_ends:
            event = await process.perform(Plan("poll", [["poll"]], meta))
            for key, _, offset in polled_of(event):
                if offset >= left.get(key, inf):
                    del left[key]


def _reader(number: int, script: Script) -> ClientSpec:
    is_read_committed = script.expectations.isolation == "read_committed"
    return ClientSpec(client_id=f"p{number}", is_read_committed=is_read_committed)
