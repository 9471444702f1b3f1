"""Sends and polls on a changing set of keys: W1 to W4, W10, W15, W16, and the ground of others.

A fresh process first chooses what to read. After that an operation is, with probability `sub_p`, a
new choice, otherwise sends and polls: one of them, or in transactions one to `max_micro`. Every
third choice also takes the keys with acknowledged values that nobody has polled, so that the tail
of a log is read while faults go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kraftpy.verify.history import Event
from kraftpy.verify.workloads.drawing import Crashes, KeyPool, Unseen
from kraftpy.verify.workloads.plans import Plan, SlotState, micro_plan
from kraftpy.world import Random

__all__ = ["ListAppend", "QueueGenerator", "QueueShape"]

Subscription = Literal["assign", "subscribe", "both"]


@dataclass(frozen=True, slots=True)
class QueueShape:
    subscription: Subscription = "assign"
    is_transactional: bool = False
    max_micro: int = 1
    key_count: int = 10
    max_writes_per_key: int = 1024
    sub_p: float = 1 / 64
    send_p: float = 0.5
    crash_mean_ms: float = 30_000
    sends_at_once: int = 1
    """Of an operation without a transaction: how many records are in flight together."""
    senders: float = 0.0
    """The share of slots that only send; of the rest, as many only poll. 0: all do both."""


class QueueGenerator:
    def __init__(self, shape: QueueShape, random: Random) -> None:
        self._shape = shape
        self._random = random
        self.keys = KeyPool(
            random, key_count=shape.key_count, max_writes_per_key=shape.max_writes_per_key
        )
        self.unseen = Unseen()
        self._crashes = Crashes(random, shape.crash_mean_ms)
        self._choices = 0

    def next(self, state: SlotState) -> Plan | None:
        if self._crashes.is_due(state.slot, state.now_ms) and not state.is_fresh:
            return Plan("crash")
        if state.is_fresh or self._random.random() < self._shape.sub_p:
            return self._choice()
        return self._work(state)

    def observe(self, event: Event) -> None:
        self.unseen.observe(event)

    def _choice(self) -> Plan:
        self._choices += 1
        keys = self.keys.some()
        if self._choices % 3 == 0:
            keys = sorted({*keys, *self.unseen.keys})
        kind = self._shape.subscription
        if kind == "both":
            kind = self._random.choice(("assign", "subscribe"))
        return Plan(kind, keys)

    def _work(self, state: SlotState) -> Plan:
        shape = self._shape
        if not shape.is_transactional:
            if self._sends(state):
                return micro_plan(self._burst(shape.sends_at_once), is_transactional=False)
            return micro_plan([["poll"]], is_transactional=False)
        count = self._random.randint(1, shape.max_micro)
        micro = [self._send() if self._sends(state) else ["poll"] for _ in range(count)]
        return micro_plan(micro, is_transactional=True)

    def _sends(self, state: SlotState) -> bool:
        if self._shape.senders:
            return state.slot % 4 < 4 * self._shape.senders
        return self._random.random() < self._shape.send_p

    def _send(self) -> list[Any]:
        return self._burst(1)[0]

    def _burst(self, count: int) -> list[list[Any]]:
        """To one key: only there they have an order."""
        key = self.keys.draw()
        return [["send", key, self.keys.next_value(key)] for _ in range(count)]


class ListAppend(QueueGenerator):
    """W4: a read takes one key from the beginning of its log to its end, in one operation.

    In the history it is an `assign` with a seek to the beginning, then a `poll` with meta `whole`.
    """

    def __init__(self, shape: QueueShape, random: Random) -> None:
        super().__init__(shape, random)
        self._reads: dict[int, int] = {}

    def next(self, state: SlotState) -> Plan | None:
        if self._crashes.is_due(state.slot, state.now_ms) and not state.is_fresh:
            self._reads.pop(state.slot, None)
            return Plan("crash")
        if state.is_fresh:
            self._reads.pop(state.slot, None)
        key = self._reads.pop(state.slot, None)
        if key is not None:
            return Plan("poll", [["poll"]], {"whole": key})
        if self._sends(state):
            return micro_plan([self._send()], is_transactional=False)
        key = self.keys.draw()
        self._reads[state.slot] = key
        return Plan("assign", [key], {"seek_to_beginning": True})
