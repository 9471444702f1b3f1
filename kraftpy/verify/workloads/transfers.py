"""Transactions with a purpose: W5 copies, W6 moves money, W7 aborts, W9 is fenced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftpy.verify.history import Event
from kraftpy.verify.workloads.drawing import Crashes, KeyPool
from kraftpy.verify.workloads.plans import Extras, Plan, SlotState, micro_plan
from kraftpy.verify.workloads.queue import QueueGenerator, QueueShape
from kraftpy.world import Random

__all__ = ["AbortRewind", "Bank", "EosCopy", "Fencing"]


class EosCopy:
    """W5: one slot feeds the inputs, one reads the outputs, the others copy.

    A copier polls its group's share of the inputs, and sends one output for each record in a
    transaction that carries the offsets. Outputs have values of their own, since a copy that was
    aborted is made again, and say what they are copies of.
    """

    def __init__(self, random: Random, *, slots: int, inputs: int, crash_mean_ms: float) -> None:
        if slots < 3:
            raise ValueError("eos-copy needs a feeder, a copier and a reader")
        self._slots = slots
        self.inputs = list(range(inputs))
        self.outputs = list(range(inputs, 2 * inputs))
        self.keys = KeyPool(random, key_count=2 * inputs, max_writes_per_key=2**60)
        self._random = random
        self._crashes = Crashes(random, crash_mean_ms)
        self._is_ending = False

    def is_copier(self, slot: int) -> bool:
        return 0 < slot < self._slots - 1

    def end(self) -> None:
        """No more input, no more crashes: what is there is copied."""
        self._is_ending = True

    def next(self, state: SlotState) -> Plan | None:
        if state.slot == 0:
            if self._is_ending:
                return None
            key = self._random.choice(self.inputs)
            return micro_plan([["send", key, self.keys.next_value(key)]], is_transactional=False)
        if not self.is_copier(state.slot):
            return Plan("assign", self.outputs) if state.is_fresh else Plan("poll", [["poll"]])
        is_crash = self._crashes.is_due(state.slot, state.now_ms) and not self._is_ending
        if is_crash and not state.is_fresh:
            return Plan("crash")
        if state.is_fresh:
            return Plan("subscribe", self.inputs)
        return Plan("txn", [["poll"]], {"transactional": True}, reaction=self._copies)

    def observe(self, event: Event) -> None:
        """Copiers go by what they poll."""

    def _copies(self, polled: Mapping[int, list[list[Any]]]) -> tuple[list[list[Any]], Extras]:
        sends: list[list[Any]] = []
        extras = {}
        for key, records in polled.items():
            if key not in self.inputs:
                # It shares its topic with an input: who subscribes gets all of it.
                continue
            target = self.outputs[self.inputs.index(key)]
            for record in records:
                value = self.keys.next_value(target)
                sends.append(["send", target, value])
                extras[target, value] = {"from": [key, record[1]]}
        return sends, extras


class Bank:
    """W6: a transaction takes from one account and gives to another; the sum stays.

    Records carry the new balance, under the account as record key. Two transactions never work on
    one account at a time; an account whose last transfer has an unknown outcome is left alone, for
    nobody knows its balance. All accounts are opened before the first transfer, in one transaction;
    to open them twice does no harm.
    """

    OPENING = 100

    def __init__(self, random: Random, *, accounts: int, keys: int, crash_mean_ms: float) -> None:
        self._random = random
        self._values = KeyPool(random, key_count=keys, max_writes_per_key=2**60)
        self._crashes = Crashes(random, crash_mean_ms)
        self._balances = dict.fromkeys(range(accounts), self.OPENING)
        # What a process is about: the balances before and after.
        self._under_way: dict[int, tuple[dict[int, int], dict[int, int]]] = {}
        self.total = accounts * self.OPENING

    def next(self, state: SlotState) -> Plan | None:
        if self._crashes.is_due(state.slot, state.now_ms) and not state.is_fresh:
            return Plan("crash")
        if state.is_fresh:
            return Plan("assign", self._values.live)
        if len(self._balances) < 2 or self._random.random() < 0.3:
            return micro_plan([["poll"]], is_transactional=True)
        source, target = self._random.sample(sorted(self._balances), 2)
        has, gets = self._balances[source], self._balances[target]
        amount = self._random.randint(0, has)
        return self._write(state.process, {source: has - amount, target: gets + amount})

    def opening(self, process: int) -> Plan:
        """Open all accounts."""
        return self._write(process, dict(self._balances))

    def observe(self, event: Event) -> None:
        if not isinstance(event.process, int) or event.process not in self._under_way:
            return
        before, after = self._under_way.pop(event.process)
        if event.type == "ok":
            self._balances |= after
        elif event.type == "fail" or before == after:
            self._balances |= before

    def _write(self, process: int, after: dict[int, int]) -> Plan:
        self._under_way[process] = ({each: self._balances.pop(each) for each in after}, after)
        micro: list[list[Any]] = []
        extras = {}
        for account, balance in after.items():
            key = self._values.live[account % len(self._values.live)]
            value = self._values.next_value(key)
            micro.append(["send", key, value])
            extras[key, value] = {
                "account": account,
                "balance": balance,
                "record_key": f"account-{account}",
            }
        return micro_plan(micro, is_transactional=True, extras=extras)


class AbortRewind:
    """W7: one client copies in transactions and aborts every other one, at a random step.

    After such an abort the executor polls once more, and notes in meta `after_abort` where each key
    went on: `advance`, `rewind`, `rewind-further` or `other`. Slot 0 feeds, the last one watches
    the committed offsets.
    """

    def __init__(self, random: Random, *, slots: int, keys: int) -> None:
        self._random = random
        self._slots = slots
        self._keys = KeyPool(random, key_count=2 * keys, max_writes_per_key=2**60)
        self.inputs = list(range(keys))
        self._outputs = list(range(keys, 2 * keys))

    def is_feeder(self, slot: int) -> bool:
        return slot == 0

    def next(self, state: SlotState) -> Plan | None:
        if self.is_feeder(state.slot):
            return micro_plan([self._send(self.inputs)], is_transactional=False)
        if state.is_fresh:
            return Plan("subscribe", self.inputs)
        if self._random.random() < 0.2:
            return Plan("committed", self.inputs)
        micro = [["poll"], self._send(self._outputs), ["poll"]]
        meta: dict[str, Any] = {"transactional": True}
        if self._random.random() < 0.5:
            meta["abort_at"] = self._random.randint(1, len(micro))
        return Plan("txn", micro, meta)

    def observe(self, event: Event) -> None:
        """What to do next doesn't follow from what was seen."""

    def _send(self, keys: list[int]) -> list[Any]:
        key = self._random.choice(keys)
        return ["send", key, self._keys.next_value(key)]


class Fencing(QueueGenerator):
    """W9: processes of several slots share a transactional id, so each that starts fences another.

    A fresh process introduces itself (`init_producer`), then sends in transactions, until it is
    fenced itself. Some transactions pause for longer than they may last. Every fourth slot reads,
    without transactions.
    """

    def __init__(self, random: Random, *, key_count: int, crash_mean_ms: float) -> None:
        shape = QueueShape(
            is_transactional=True,
            max_micro=4,
            key_count=key_count,
            crash_mean_ms=crash_mean_ms,
            send_p=1.0,
        )
        super().__init__(shape, random)

    @staticmethod
    def is_reader(slot: int) -> bool:
        return slot % 4 == 3

    def next(self, state: SlotState) -> Plan | None:
        if self._crashes.is_due(state.slot, state.now_ms) and not state.is_fresh:
            return Plan("crash")
        if self.is_reader(state.slot):
            is_choice = state.is_fresh or self._random.random() < self._shape.sub_p
            return self._choice() if is_choice else Plan("poll", [["poll"]])
        if state.is_fresh:
            return Plan("init_producer", {"transactional_id": shared_id(state.slot)})
        plan = self._work(state)
        if self._random.random() < 0.02:
            return Plan(plan.f, plan.value, {**plan.meta, "pauses": True}, plan.extras)
        return plan


def shared_id(slot: int) -> str:
    """The transactional id of a slot in W9: two of them, whatever the number of slots."""
    return f"shared-{slot % 2}"
