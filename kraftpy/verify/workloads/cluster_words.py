"""What is said about the cluster itself: W12 changes metadata, W13 joins and leaves groups."""

from __future__ import annotations

from typing import Any

from kraftpy.verify.history import Event
from kraftpy.verify.workloads.drawing import Crashes, KeyPool
from kraftpy.verify.workloads.plans import Plan, SlotState, micro_plan
from kraftpy.world import Random

__all__ = ["Membership", "Metadata"]


class Metadata:
    """W12: topics come and go, a key of their configuration changes; every broker is read.

    A value is written once, so that a read tells which write it saw. What is created is mostly
    absent and what is deleted mostly there, as far as this side knows: an answer like
    TOPIC_ALREADY_EXISTS may be about an attempt of one's own.
    """

    _FIRST_VALUE = 10**9

    def __init__(self, random: Random, *, topics: int, brokers: tuple[int, ...]) -> None:
        self._random = random
        self._topics = [f"md{number}" for number in range(topics)]
        self._brokers = brokers
        self._known: dict[str, None] = {}
        self._values = self._FIRST_VALUE

    def next(self, state: SlotState) -> Plan | None:
        topic = self._random.choice(self._topics)
        drawn = self._random.random()
        if drawn < 0.6:
            via = self._random.choice((*self._brokers, "controller"))
            return Plan("md_read", {"topic": topic, "via": via})
        if topic not in self._known:
            partitions = self._random.randint(1, 3)
            return Plan(
                "md_create", {"topic": topic, "partitions": partitions, "value": self._next_value()}
            )
        if drawn < 0.9:
            return Plan("md_write", {"topic": topic, "value": self._next_value()})
        return Plan("md_delete", {"topic": topic})

    def observe(self, event: Event) -> None:
        if event.f == "md_create" and event.type == "ok":
            self._known[event.value["topic"]] = None
        elif event.f == "md_delete" and event.type != "fail":
            self._known.pop(event.value["topic"], None)

    def _next_value(self) -> int:
        self._values += 1
        return self._values


class Membership:
    """W13: members join, look, leave, vanish; slot 0 sends something to be assigned.

    A member is a bare one that speaks either protocol itself, so that the history has exactly what
    it told the coordinator and was told. Odd slots are static members: they come back by name.
    """

    def __init__(self, random: Random, *, key_count: int, crash_mean_ms: float) -> None:
        self._random = random
        self.keys = KeyPool(random, key_count=key_count, max_writes_per_key=2**60)
        self._crashes = Crashes(random, crash_mean_ms)
        self._commits = 0

    def next(self, state: SlotState) -> Plan | None:
        if state.slot == 0:
            key = self.keys.draw()
            return micro_plan([["send", key, self.keys.next_value(key)]], is_transactional=False)
        if state.is_fresh:
            return Plan("join_view", {"subscribed": self.keys.live})
        if self._crashes.is_due(state.slot, state.now_ms):
            return Plan("crash")
        drawn = self._random.random()
        if drawn < 0.05:
            return Plan("leave", {})
        if drawn < 0.7:
            return Plan("join_view", {"subscribed": self.keys.live})
        if drawn < 0.9:
            self._commits += 1
            key = self.keys.draw()
            offset = self._random.randrange(1_000)
            value: dict[int, Any] = {key: [offset, f"c{self._commits};"]}
            return Plan("commit", value)
        return Plan("committed", self.keys.live)

    def observe(self, event: Event) -> None:
        """What a member does next doesn't follow from what it saw."""
