"""A broker, as far as coordinators go: the real runtimes on a simulated clock.

Whatever happens to a broker is an event of the heap. One that is paused gets its events when it
goes on, all at once; one that crashes forgets everything but what partitions keep. After each event
comes the end of the loop's round: timers that are due, and batches that are to be appended.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.ports import ShardContext
from kraftpy.coordinator.runtime import CoordinatorRuntime
from kraftpy.coordinator.shard import Shard
from kraftpy.coordinator.shard_writing import ShardSettings, ShardWorld
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.protocol.coordinator_records import GROUP_RECORDS, TRANSACTION_RECORDS
from kraftpy.purgatory.timer import Timer
from kraftpy.sim.coordinator_markers import MarkerMessages
from kraftpy.sim.coordinator_partition import NOBODY, Reign, SimulatedPartition
from kraftpy.sim.coordinator_swarm import CoordinatorSwarm
from kraftpy.sim.kernel import EventHeap
from kraftpy.world.memory_clock import MemoryClock

if TYPE_CHECKING:
    from kraftpy.coordinator.transactions.machine import TransactionMachine
    from kraftpy.coordinator.transactions.ports import MarkerJob
    from kraftpy.sim.coordinator_network import CoordinatorNetwork

__all__ = ["GROUP_TOPIC", "TRANSACTION_TOPIC", "CoordinatorBroker", "SimulatedClock"]

GROUP_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
_TASK_US: Final = 20
_WALL_START_MS: Final = 1_767_225_600_000


class SimulatedClock(MemoryClock):
    """The heap's time, fast or slow."""

    __slots__ = ("_heap", "_local_rate")

    def __init__(self, heap: EventHeap, rate: float = 1.0) -> None:
        super().__init__()
        self._heap = heap
        self._local_rate = rate

    def monotonic(self) -> float:
        return self._heap.now_us * self._local_rate / 1e6

    def monotonic_ms(self) -> int:
        return int(self._heap.now_us * self._local_rate) // 1000

    def wall_ms(self) -> int:
        return _WALL_START_MS + self.monotonic_ms()

    def us_until(self, local_ms: int) -> int:
        """True time until the clock shows it."""
        return max(1, int(local_ms * 1000 / self._local_rate) + 2 - self._heap.now_us)


class CoordinatorBroker:
    network: CoordinatorNetwork

    def __init__(
        self,
        broker_id: int,
        heap: EventHeap,
        swarm: CoordinatorSwarm,
        random: Random,
        *,
        image: MetadataImage,
        group_settings: GroupSettings,
        happened: Callable[[CoordinatorBroker, str], None],
        decided: Callable[[MarkerJob], None],
        new_producer_id: Callable[[], int],
    ) -> None:
        """`happened` is called after each event, `decided` when markers are to be sent."""
        self.broker_id = broker_id
        self.swarm = swarm
        self.heap = heap
        self.random = random
        rate = 1 + random.uniform(-swarm.drift, swarm.drift)
        self.clock = SimulatedClock(heap, rate)
        self._image = image
        self._group_settings = group_settings
        self._happened = happened
        self.decided = decided
        self._new_producer_id = new_producer_id
        self.is_up = False
        self.is_paused = False
        self._life = 0
        self._inbox: list[tuple[str, Callable[[], None]]] = []
        self._next_turn_us: int | None = None
        self.start()

    # Life.

    def start(self) -> None:
        settings = ShardSettings(
            append_linger_ms=self.swarm.linger_ms, write_timeout_ms=self.swarm.write_timeout_ms
        )
        self.timer = Timer("simulated", self.clock)
        self._slow = Timer("simulated-slow", self.clock)
        self._next_turn_us = None
        self._waiting: dict[Reign, list[tuple[int, Callable[[], None]]]] = {}
        # Of each partition, the newest leadership that this broker has heard of.
        self.heard: dict[SimulatedPartition, Reign] = {}
        self.is_up = True
        groups = ShardWorld(self.clock, self.timer, self._slow, settings, GROUP_RECORDS)
        self.groups = CoordinatorRuntime(GROUP_TOPIC, groups, self._group_machine, load=self._load)
        self.markers = MarkerMessages(self)
        transactions = ShardWorld(self.clock, self.timer, self._slow, settings, TRANSACTION_RECORDS)
        self.transactions: CoordinatorRuntime[TransactionMachine] = CoordinatorRuntime(
            TRANSACTION_TOPIC, transactions, self.markers.machine, load=self._load
        )
        self.transaction_service = TransactionService(
            self.transactions,
            TransactionSettings(),
            shard_of=lambda transactional_id: 0,
            provide_producer_id=self.provide_producer_id,
            clock=self.clock,
        )
        for runtime in self.runtimes():
            runtime.publish(ImageChanges(EMPTY_IMAGE, self._image), self._image)

    def provide_producer_id(self, provided: Callable[[int], None]) -> None:
        provided(self._new_producer_id())

    def publish(self, image: MetadataImage) -> None:
        """Newer metadata, or such as was overtaken on its way."""
        if image.provenance.last_offset <= self._image.provenance.last_offset:
            return
        before, self._image = self._image, image
        for runtime in self.runtimes():
            runtime.publish(ImageChanges(before, image), image)

    def runtimes(self) -> tuple[CoordinatorRuntime[Any], ...]:
        return self.groups, self.transactions

    def runtime_of(self, topic: str) -> CoordinatorRuntime[Any] | None:
        return next((each for each in self.runtimes() if each.topic == topic), None)

    def crash(self) -> None:
        self.is_up = self.is_paused = False
        self._life += 1
        self._inbox.clear()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        waiting, self._inbox = self._inbox, []
        for kind, action in waiting:
            self.post(1, kind, action)

    def _group_machine(self, context: ShardContext) -> GroupMachine:
        return GroupMachine(context, self._group_settings, self.random)

    # Events.

    def post(self, delay_us: int, kind: str, action: Callable[[], None]) -> None:
        """Have something happen here, unless this process is dead by then."""
        life = self._life
        self.heap.plan(delay_us, lambda: self._event(life, kind, action))

    def _event(self, life: int, kind: str, action: Callable[[], None]) -> None:
        if life != self._life or not self.is_up:
            return
        if self.is_paused:
            self._inbox.append((kind, action))
            return
        action()
        self._plan_turn(_TASK_US)
        self._happened(self, kind)

    def _plan_turn(self, delay_us: int) -> None:
        moment = self.heap.now_us + delay_us
        if self._next_turn_us is None or moment < self._next_turn_us:
            self._next_turn_us = moment
            life = self._life
            self.heap.plan(delay_us, lambda: self._turn(life, moment))

    def _turn(self, life: int, moment: int) -> None:
        """The end of the loop's round."""
        if life != self._life or not self.is_up or moment != self._next_turn_us:
            return
        if self.is_paused:
            self._inbox.append(("wake", lambda: None))
            self._next_turn_us = None
            return
        self._next_turn_us = None
        is_idle = True
        while self.timer.advance() or self._slow.advance():
            is_idle = False
        self.markers.pump()
        next_ms = self.timer.next_deadline_ms()
        if next_ms is not None:
            self._plan_turn(self.clock.us_until(next_ms))
        self._happened(self, "idle turn" if is_idle else "turn")

    # What it hears of partitions.

    def hear(self, partition: SimulatedPartition, reign: Reign) -> None:
        known = self.heard.get(partition)
        if known is not None and known.epoch >= reign.epoch:
            return
        self.heard[partition] = reign
        self.markers.metadata_changed()
        runtime = self.runtime_of(partition.name[0])
        if runtime is None:
            return
        if reign.broker_id == self.broker_id:
            runtime.elected(partition.name[1], reign.epoch, reign)
        else:
            runtime.resigned(partition.name[1], reign.epoch)

    def committed(self, partition: SimulatedPartition, reign: Reign) -> None:
        waiting = self._waiting.pop(reign, [])
        for end, action in waiting:
            if end <= reign.high_watermark:
                action()
            else:
                self._waiting.setdefault(reign, []).append((end, action))
        runtime = self.runtime_of(partition.name[0])
        if runtime is not None and self.heard.get(partition) is reign:
            runtime.high_watermark_moved(partition.name[1], reign.high_watermark)

    def when_committed(self, reign: Reign, action: Callable[[], None]) -> None:
        """All that is in the log now; never, if leadership is lost before."""
        self._waiting.setdefault(reign, []).append((reign.log_end_offset, action))

    def leads(self, partition: SimulatedPartition) -> Reign | None:
        """Its leadership, as far as this broker knows."""
        reign = self.heard.get(partition)
        return reign if reign is not None and reign.broker_id == self.broker_id else None

    def leader_of(self, partition: SimulatedPartition) -> int:
        reign = self.heard.get(partition)
        return NOBODY if reign is None else reign.broker_id

    def _load(self, shard: Shard[Any]) -> None:
        self.post(_TASK_US, "begin loading", lambda: self._begin_loading(shard))

    def _begin_loading(self, shard: Shard[Any]) -> None:
        if shard.is_loading:
            shard.begin_loading(shard.log.log_start_offset)
            self._go_on_loading(shard)

    def _go_on_loading(self, shard: Shard[Any]) -> None:
        reign = shard.log
        if not isinstance(reign, Reign) or not shard.is_loading:
            return
        offset = shard.timeline.last_written
        if offset >= reign.log_end_offset:
            shard.activate()
            return
        for _ in shard.load(reign.read_now(offset, self.swarm.load_bytes)):
            pass
        self.post(_TASK_US, "load", lambda: self._go_on_loading(shard))
