"""What a log goes through besides reads and writes: W8, W11, W14, W16."""

from __future__ import annotations

from typing import Any

from kraftpy.verify.history import Event
from kraftpy.verify.workloads.drawing import Crashes, KeyPool, polled_of
from kraftpy.verify.workloads.plans import Plan, SlotState, micro_plan
from kraftpy.verify.workloads.queue import QueueGenerator, QueueShape
from kraftpy.world import Random

__all__ = ["AutoCommit", "Compaction", "LogOffsets", "Reconfigure"]


class AutoCommit:
    """W8: five sends, a poll, a look at what the client has committed by itself; and again."""

    _ROUND = 7

    def __init__(self, random: Random, *, key_count: int, crash_mean_ms: float) -> None:
        self._keys = KeyPool(random, key_count=key_count, max_writes_per_key=2**60)
        self._crashes = Crashes(random, crash_mean_ms)
        self._steps: dict[int, int] = {}

    def next(self, state: SlotState) -> Plan | None:
        if self._crashes.is_due(state.slot, state.now_ms) and not state.is_fresh:
            return Plan("crash")
        if state.is_fresh:
            self._steps[state.slot] = 0
            return Plan("subscribe", self._keys.live)
        step = self._steps[state.slot] = (self._steps[state.slot] + 1) % self._ROUND
        if step < 5:
            key = self._keys.draw()
            return micro_plan([["send", key, self._keys.next_value(key)]], is_transactional=False)
        if step == 5:
            return micro_plan([["poll"]], is_transactional=False)
        return Plan("committed", self._keys.live)

    def observe(self, event: Event) -> None:
        """The steps are fixed."""


class LogOffsets(QueueGenerator):
    """W11: W1 with questions about the ends of logs, and deletions of what was read."""

    _ASK_P = 0.2
    _DELETE_P = 0.03

    def next(self, state: SlotState) -> Plan | None:
        drawn = self._random.random()
        if not state.is_fresh and drawn < self._ASK_P:
            return Plan("end_offsets", self.keys.some())
        if not state.is_fresh and drawn > 1 - self._DELETE_P and self.unseen.highest:
            key = self._random.choice(sorted(self.unseen.highest))
            # The newest record stays, so that a reader at the end is still inside the log.
            return Plan("delete_records", {key: self._random.randint(0, self.unseen.highest[key])})
        return super().next(state)


class Reconfigure(QueueGenerator):
    """W16: W1 while slot 0 moves replica sets from three brokers to one and back."""

    def __init__(self, shape: QueueShape, random: Random, *, brokers: tuple[int, ...]) -> None:
        super().__init__(shape, random)
        self._brokers = brokers

    def next(self, state: SlotState) -> Plan | None:
        if state.slot != 0:
            return super().next(state)
        count = self._random.choice((1, len(self._brokers)))
        replicas = self._random.sample(self._brokers, count)
        return Plan("reassign", {self.keys.draw(): replicas})


class Compaction:
    """W14: transactions that write a few record keys again and again, and tombstones.

    The topics roll and clean as often as they can. Readers start from the beginning each time, as
    somebody does who wants the table behind the log.
    """

    _TOMBSTONE_P = 0.1

    def __init__(
        self, random: Random, *, key_count: int, record_keys: int, crash_mean_ms: float
    ) -> None:
        self._random = random
        self._keys = KeyPool(random, key_count=key_count, max_writes_per_key=2**60)
        self._record_keys = record_keys
        self._crashes = Crashes(random, crash_mean_ms)
        self.polled = 0

    def next(self, state: SlotState) -> Plan | None:
        if self._crashes.is_due(state.slot, state.now_ms) and not state.is_fresh:
            return Plan("crash")
        if state.is_fresh or self._random.random() < 0.05:
            return Plan("assign", self._keys.live, {"seek_to_beginning": True})
        if self._random.random() < 0.4:
            return micro_plan([["poll"]], is_transactional=True)
        micro: list[list[Any]] = []
        extras = {}
        for _ in range(self._random.randint(1, 4)):
            key = self._keys.draw()
            value = self._keys.next_value(key)
            micro.append(["send", key, value])
            # A record key lives in one partition, as a partitioner would have it.
            said: dict[str, Any] = {
                "record_key": f"{key}.{self._random.randrange(self._record_keys)}"
            }
            if self._random.random() < self._TOMBSTONE_P:
                said["tombstone"] = True
            extras[key, value] = said
        return micro_plan(micro, is_transactional=True, extras=extras)

    def observe(self, event: Event) -> None:
        if event.type == "ok" and event.f in ("poll", "txn"):
            self.polled += len(polled_of(event))
