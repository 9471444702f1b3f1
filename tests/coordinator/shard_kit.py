"""A real shard over a log in memory, on a clock that is moved by hand.

    rig = ShardRig(GroupMachine-factory, GROUP_RECORDS)
    waiting = rig.write(lambda machine: machine.heartbeat(...))
    waiting.answer            # None until committed
    rig.commit()              # flushes the open batch, and commits everything
    rig.advance(45_000)       # time passes; timers ring

With `commits_at_once` everything is committed as soon as it is written, as on a broker alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kraftpy.coordinator.batch import Producer
from kraftpy.coordinator.memory_shard_log import MemoryShardLog
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.coordinator.ports import Machine, ShardContext
from kraftpy.coordinator.shard import Shard, ShardState
from kraftpy.coordinator.shard_writing import ShardSettings, ShardWorld
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.protocol.coordinator_records import RecordTypes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.purgatory.timer import Timer
from kraftpy.records.control import EndTransactionMarker
from kraftpy.world.memory_clock import MemoryClock

_Machine = TypeVar("_Machine", bound=Machine)

START_MS = 1_767_225_600_000


class HandClock(MemoryClock):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return START_MS + self.now_ms


class Waiting:
    """Somebody who waits for a reply."""

    def __init__(self) -> None:
        self.replies: list[Any] = []

    def __call__(self, reply: Any) -> None:
        self.replies.append(reply)

    @property
    def is_answered(self) -> bool:
        return bool(self.replies)

    @property
    def answer(self) -> Any:
        """The only answer, which is no error."""
        assert len(self.replies) <= 1, f"answered {len(self.replies)} times"
        if not self.replies:
            return None
        assert not isinstance(self.replies[0], CoordinatorError), self.replies[0]
        return self.replies[0]

    @property
    def error(self) -> ErrorCode | None:
        assert len(self.replies) <= 1, f"answered {len(self.replies)} times"
        if not self.replies:
            return None
        assert isinstance(self.replies[0], CoordinatorError), self.replies[0]
        return self.replies[0].code


class ShardRig(Generic[_Machine]):
    def __init__(
        self,
        make_machine: Callable[[ShardContext], _Machine],
        records: RecordTypes,
        *,
        settings: ShardSettings | None = None,
        image: MetadataImage = EMPTY_IMAGE,
        commits_at_once: bool = False,
        log: MemoryShardLog | None = None,
    ) -> None:
        self.clock = HandClock()
        self.log = MemoryShardLog() if log is None else log
        self.image = image
        self.commits_at_once = commits_at_once
        self.leader_epoch = 0
        self.reloads = 0
        self._make_machine = make_machine
        self._world = ShardWorld(
            self.clock,
            Timer("test", self.clock),
            Timer("test-slow", self.clock),
            settings or ShardSettings(),
            records,
        )
        self.shard = self._elect()

    @property
    def machine(self) -> _Machine:
        return self.shard.machine

    # Requests.

    def write(self, operation: Callable[[_Machine], Outcome[Any]]) -> Waiting:
        waiting = Waiting()
        self.shard.write(operation, waiting)
        self.settle()
        return waiting

    def call(self, operation: Callable[[_Machine], Outcome[Any]]) -> Any:
        """Write, commit, and return the answer."""
        waiting = self.write(operation)
        self.commit()
        return waiting.answer

    def refusal(self, operation: Callable[[_Machine], Outcome[Any]]) -> ErrorCode:
        """The error of a write that writes nothing."""
        end = self.log.log_end_offset
        waiting = self.write(operation)
        self.commit()
        assert waiting.error is not None, "not answered"
        assert self.log.log_end_offset == end, "a refused operation has written"
        return waiting.error

    def write_transactional(
        self, operation: Callable[[_Machine], Outcome[Any]], producer: Producer
    ) -> Waiting:
        waiting = Waiting()
        self.shard.write_transactional(operation, waiting, producer)
        self.settle()
        return waiting

    def complete_transaction(self, producer: Producer, *, is_commit: bool) -> Waiting:
        waiting = Waiting()
        marker = EndTransactionMarker(is_commit, 0)
        self.shard.complete_transaction(marker, waiting, producer, 2)
        self.settle()
        return waiting

    # Time and fate.

    def settle(self) -> None:
        if self.commits_at_once:
            self.commit()

    def flush(self) -> None:
        """The end of the loop's round: what is due now happens."""
        while self._world.timer.advance() or self._world.slow.advance():
            pass

    def commit(self, offset: int | None = None) -> None:
        """Flush, and let everything be committed, or what is below `offset`."""
        self.flush()
        self.log.high_watermark = self.log.log_end_offset if offset is None else offset
        self.shard.high_watermark_moved(self.log.high_watermark)

    def advance(self, milliseconds: int) -> None:
        """Time passes, and what becomes due happens at its time."""
        end_ms = self.clock.now_ms + milliseconds
        while True:
            self.flush()
            self.settle()
            if self.clock.now_ms >= end_ms:
                return
            self.clock.now_ms = min(end_ms, self.clock.now_ms + 50)

    def fail_next(self, code: ErrorCode) -> None:
        """The next append fails."""
        self.log.failures.append(CoordinatorError(code))

    # Leadership.

    def move(self, meanwhile: Callable[[Shard[_Machine]], None] | None = None) -> None:
        """The shard moves to another broker: a new machine is made from what is in the log.

        `meanwhile` is done while that is loaded.
        """
        self.shard.close()
        self.leader_epoch += 1
        self.shard = self._elect(meanwhile)

    def _elect(self, meanwhile: Callable[[Shard[_Machine]], None] | None = None) -> Shard[_Machine]:
        shard = Shard(
            0,
            self.leader_epoch,
            self.log,
            self._world,
            self._make_machine,
            image=self.image,
            reload=self._reload,
        )
        shard.begin_loading(self.log.log_start_offset)
        if self.log.log_end_offset > self.log.log_start_offset:
            for _ in shard.load(self.log.read_now(0)):
                pass
        if meanwhile is not None:
            meanwhile(shard)
        shard.activate()
        assert shard.state is ShardState.ACTIVE
        return shard

    def _reload(self, shard: Shard[_Machine]) -> None:
        self.reloads += 1
        self.shard = self._elect()
