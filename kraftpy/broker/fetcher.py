"""The task of a fetcher: it carries out what fetcher_core says, on a connection of its own.

Logs are truncated through the log manager, which lowers checkpoints as well, and what has to be
flushed is flushed before the next fetch says that this replica has it. Neither is interrupted half
way: when a partition is taken from the fetcher, `settled` waits for that, and for nothing else. The
wait for an answer ends with the fetcher.

Where the leader is reached is asked anew for each request, since brokers may move.

A fetch waits at the leader until there is news, and a partition that is added meanwhile would wait
with it, for up to `replica.fetch.wait.max.ms`; after a leader has died, that is most of the time in
which nobody can produce. So a wait that is under way is given up with its connection, and the next
fetch names everything. At most once in the time of such a wait, so that it costs no more than the
fetches of an idle fetcher, and not before another was answered: one that takes long because there
is much to send must come to its end.

Short answers are taken without this task (fetch_chain.py), which then finds the step that follows
the last of them planned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import trio

from kraftpy.broker.fetch_chain import FetchChain
from kraftpy.broker.fetcher_core import FetcherCore
from kraftpy.broker.fetcher_stats import FetcherStats
from kraftpy.broker.fetcher_steps import (
    ChangeLogs,
    Fetch,
    FindOffsets,
    Flush,
    Idle,
    LogChange,
    Restart,
    Step,
    Truncate,
)
from kraftpy.broker.hosted_replicas import log_of
from kraftpy.broker.partition import Partition
from kraftpy.broker.suspects import SuspectedBrokers
from kraftpy.client.connection import Peer
from kraftpy.client.errors import ConnectionLost, Evidence, UnsupportedVersion
from kraftpy.client.settings import ClientSettings
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import LogError
from kraftpy.log.manager import LogManager
from kraftpy.log.pacing import Pace
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.protocol.schema.k01_fetch import FetchRequest, FetchResponse
from kraftpy.records.errors import RecordDataError
from kraftpy.world import LATE_SECONDS, Address, InternalInvariant, World

__all__ = ["Fetcher"]

log = logging.getLogger(__name__)

_SIGNS_OF_DEATH: Final = (Evidence.BROKEN, Evidence.REFUSED)
# What is taken at once from an answer; more would keep those who read other connections.
_SHORT_PARTITIONS: Final = 8
_SHORT_BYTES: Final = 64 * 1024


class Fetcher:
    """Copies partitions from one leader. Made and run by FetcherManager."""

    def __init__(
        self,
        name: str,
        leader_id: int,
        core: FetcherCore,
        world: World,
        *,
        logs: LogManager,
        address_of: Callable[[int], Address | None],
        settings: ClientSettings,
        suspects: SuspectedBrokers,
        registry: MetricRegistry,
    ) -> None:
        """`address_of` a broker, for other brokers; None while it is not known. `suspects` hears
        of a leader that is lost.
        """
        self.name = name
        self._leader_id = leader_id
        self._core = core
        self._world = world
        self._logs = logs
        self._address_of = address_of
        self._settings = settings
        self._suspects = suspects
        self._registry = registry
        self.partitions: dict[TopicPartition, Partition] = {}
        self._scope = trio.CancelScope()
        self._wake = trio.Event()
        self._peer: Peer | None = None
        # Of the leader where it is now.
        self._stats: FetcherStats | None = None
        # The wait for the answer to a fetch; when one was last given up, and if one came since.
        self._waiting: trio.CancelScope | None = None
        self._given_up_ms: int | None = None
        self._is_answered = True
        # What the core wants next, if it was asked already.
        self._planned: Step | None = None
        # Logs that are being changed, until that is done.
        self._changing: dict[TopicPartition, trio.Event] = {}

    @property
    def max_lag(self) -> int:
        return self._core.max_lag()

    @property
    def fetch_rate(self) -> float:
        return 0.0 if self._stats is None else self._stats.fetch_rate

    @property
    def failed_count(self) -> int:
        return len(self._core.failed)

    def add(self, partitions: Iterable[Partition]) -> None:
        for each in partitions:
            self.partitions[each.topic_partition] = each
            self._core.add(each)
        self._wake.set()
        self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        now_ms = self._world.clock.monotonic_ms()
        is_due = self._is_answered and (
            self._given_up_ms is None
            or now_ms - self._given_up_ms >= self._core.settings.max_wait_ms
        )
        if self._waiting is not None and is_due:
            self._given_up_ms = now_ms
            self._is_answered = False
            self._waiting.cancel()

    def remove(self, topic_partition: TopicPartition) -> None:
        """No more of it from now on; what is being done to its log, see `settled`."""
        if self.partitions.pop(topic_partition, None) is not None:
            self._core.remove((topic_partition,))

    async def settled(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Wait until nothing is being done to the logs of these."""
        for name in topic_partitions:
            changing = self._changing.get(name)
            if changing is not None:
                await changing.wait()

    def stop(self) -> None:
        self._scope.cancel()

    async def run(self) -> None:
        """Fetch until stopped or cancelled."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                try:
                    while True:
                        await self._take_step(nursery)
                finally:
                    self._leave_peer()

    async def _take_step(self, nursery: trio.Nursery) -> None:
        now_ms = self._world.clock.monotonic_ms()
        step, self._planned = self._planned, None
        match self._plan(now_ms) if step is None else step:
            case ChangeLogs(changes):
                await self._change_all(changes)
            case Idle(None):
                await self._wake.wait()
            case Idle(until_ms) if until_ms is not None:
                with self._world.clock.move_on_after(max(0, until_ms - now_ms) / 1000):
                    await self._wake.wait()
                await self._world.dawdle("fetcher-wakes-late")
            case Fetch() | FindOffsets() as step:
                await self._ask(step, nursery)

    def _plan(self, now_ms: int) -> Step:
        """What to do next. Partitions that come from now on may make it something else."""
        self._wake = trio.Event()
        return self._core.next_step(now_ms)

    # Requests.

    async def _ask(self, step: Fetch | FindOffsets, nursery: trio.Nursery) -> None:
        core, clock = self._core, self._world.clock
        peer = self._current_peer(nursery)
        if peer is None:
            core.failed_request(clock.monotonic_ms(), f"broker {self._leader_id} is not known")
            return
        if self._world.buggify("fetcher-reconnects"):
            peer.close()
        waiting = trio.CancelScope()
        if isinstance(step, Fetch) and self._world.buggify("fetcher-gives-up"):
            waiting = clock.move_on_after(LATE_SECONDS)
        self._waiting = waiting if isinstance(step, Fetch) else None
        try:
            with waiting:
                if isinstance(step, Fetch):
                    chain = FetchChain(await peer.connected(), clock, self._take_if_short)
                    answer = await chain.run(step.request)
                    peer.succeeded()
                else:
                    answer = await peer.request(step.request)
        except (ConnectionError, UnsupportedVersion) as error:
            if isinstance(error, ConnectionLost) and error.evidence in _SIGNS_OF_DEATH:
                self._suspects.lost(self._leader_id)
            core.failed_request(clock.monotonic_ms(), error)
            return
        finally:
            self._waiting = None
        if waiting.cancelled_caught:
            peer.close()
            core.abandoned()
            if isinstance(self._planned, FindOffsets):
                # Planned since, and abandoned with the rest.
                self._planned = None
            return
        self._suspects.answered(self._leader_id)
        if self._planned is not None:
            # The last answer was a short one.
            return
        await self._world.dawdle("fetcher-takes-late")
        try:
            if isinstance(step, Fetch):
                self._is_answered = True
                await self._take_in_slices(answer)
            else:
                core.offsets_answered(answer, clock.monotonic_ms())
        except InternalInvariant:
            raise
        except Exception as error:
            self._can_not_use(error)

    def _take_if_short(self, answer: FetchResponse) -> FetchRequest | None:
        """Append what came and say what to fetch next; None if that is not for here to do."""
        if not _is_short(answer) or self._world.buggify("fetcher-leaves-answer"):
            return None
        self._suspects.answered(self._leader_id)
        self._is_answered = True
        try:
            for _ in self._pieces(answer):
                pass
        except InternalInvariant:
            raise
        except Exception as error:
            self._can_not_use(error)
        step = self._plan(self._world.clock.monotonic_ms())
        if isinstance(step, Fetch):
            return step.request
        self._planned = step
        return None

    def _can_not_use(self, error: Exception) -> None:
        """Whatever a leader answers must not end this broker."""
        log.error("%s can't use an answer", self.name, exc_info=error)
        self._core.failed_request(self._world.clock.monotonic_ms(), error)

    async def _take_in_slices(self, answer: FetchResponse) -> None:
        """Append what came; ten megabytes at once would hold up everybody else."""
        pace = Pace(self._world.clock)
        for size_bytes in self._pieces(answer):
            await pace.rest(size_bytes)

    def _pieces(self, answer: FetchResponse) -> Iterator[int]:
        """Append what came, a partition at a time; the bytes of each, which are counted."""
        stats = self._stats
        if stats is not None:
            stats.answered()
        for size_bytes in self._core.answered_in_pieces(answer, self._world.clock.monotonic_ms()):
            if stats is not None:
                stats.received(size_bytes)
            yield size_bytes

    def _current_peer(self, nursery: trio.Nursery) -> Peer | None:
        address = self._address_of(self._leader_id)
        if self._peer is not None and self._peer.address != address:
            self._leave_peer()
        if self._peer is None and address is not None:
            self._peer = Peer(self._world, nursery, address, self._settings)
            self._stats = FetcherStats(self._registry, self._world.clock, self.name, address)
        return self._peer

    def _leave_peer(self) -> None:
        if self._peer is not None:
            self._peer.close()
        if self._stats is not None:
            self._stats.close()
        self._peer = self._stats = None

    # Changes of logs.

    async def _change_all(self, changes: Sequence[LogChange]) -> None:
        """All at once. They have begun when this is called: nobody may think otherwise."""
        for change in changes:
            self._changing[change.partition.topic_partition] = trio.Event()
        with trio.CancelScope(shield=True):
            if len(changes) == 1:
                await self._change(changes[0])
                return
            async with trio.open_nursery() as nursery:
                for change in changes:
                    nursery.start_soon(self._change, change)

    async def _change(self, change: LogChange) -> None:
        error: Exception | None = None
        try:
            await self._world.dawdle("log-changed-late")
            await self._carry_out(change)
        except (LogError, RecordDataError) as failure:
            error = failure
        finally:
            self._changing.pop(change.partition.topic_partition).set()
        self._core.changed(change, self._world.clock.monotonic_ms(), error)

    async def _carry_out(self, change: LogChange) -> None:
        replica_log = log_of(change.partition)
        match change:
            case Truncate(_, offset):
                await self._logs.truncate(replica_log, offset)
            case Restart(_, offset):
                await self._logs.truncate_fully(replica_log, offset)
            case Flush():
                await replica_log.flush()


def _is_short(answer: FetchResponse) -> bool:
    count = size_bytes = 0
    for topic in answer.responses:
        for data in topic.partitions:
            count += 1
            size_bytes += len(data.records or b"")
        if count > _SHORT_PARTITIONS or size_bytes > _SHORT_BYTES:
            return False
    return True
