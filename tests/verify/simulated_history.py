"""Valid histories from a log that is right by construction, drawn from a seed.

Processes run side by side in virtual time. A send takes effect at one moment between its invocation
and its completion, a transaction shows nothing before its commit, and readers see the log up to the
first open transaction. Nothing here is shared with the checkers.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kraftpy.verify.history import History, Invocation, Recorder


@dataclass
class Draw:
    """What kind of history to make."""

    operations: int = 60
    processes: int = 4
    keys: int = 3
    transactional: bool = True
    abort_probability: float = 0.15
    info_probability: float = 0.05
    max_assigned: int = 8
    max_records: int = 8
    final_read: bool = True


@dataclass
class Log:
    """One key: records as (value, transaction or None), and what became of transactions."""

    records: list[tuple[int, int | None]] = field(default_factory=list)


@dataclass
class Process:
    number: int
    positions: dict[int, int] = field(default_factory=dict)
    invocation: Invocation | None = None
    plan: list[list[Any]] = field(default_factory=list)
    done: list[list[Any]] = field(default_factory=list)
    outcome: str = "ok"
    is_transactional: bool = False


class Generator:
    def __init__(self, draw: Draw, seed: int) -> None:
        self.draw = draw
        self.random = Random(seed)
        self.now_ns = 0
        self.recorder = Recorder(lambda: self.now_ns)
        self.logs = {key: Log() for key in range(draw.keys)}
        self.next_value = dict.fromkeys(range(draw.keys), 0)
        self.outcomes: dict[int, str] = {}
        self.next_process = draw.processes
        self.queue: list[tuple[int, int, Process]] = []
        self.ticket = 0
        self.begun = 0

    def history(self) -> History:
        for number in range(self.draw.processes):
            self.later(Process(number))
        while self.queue:
            self.now_ns, _, process = heapq.heappop(self.queue)
            self.step(process)
        if self.draw.final_read:
            self.read_finally()
        return self.recorder.history({})

    def later(self, process: Process) -> None:
        self.ticket += 1
        delay = self.random.randrange(1, 1_000)
        heapq.heappush(self.queue, (self.now_ns + delay, self.ticket, process))

    def step(self, process: Process) -> None:
        if process.invocation is None:
            if self.begun >= self.draw.operations:
                return
            self.begun += 1
            self.begin(process)
        elif len(process.done) < len(process.plan):
            process.done.append(self.carry_out(process, process.plan[len(process.done)]))
        else:
            process = self.complete(process)
        self.later(process)

    def begin(self, process: Process) -> None:
        if not process.positions or self.random.random() < 0.05:
            most = min(len(self.logs), self.draw.max_assigned)
            keys = self.random.sample(range(len(self.logs)), self.random.randint(1, most))
            process.positions = {key: process.positions.get(key, 0) for key in sorted(keys)}
            process.plan, process.done = [], []
            process.outcome = "ok"
            process.is_transactional = False
            asked = list(process.positions)
            process.invocation = self.recorder.invoke(process.number, "assign", asked)
            return
        transactional = self.draw.transactional and self.random.random() < 0.7
        count = self.random.randint(1, 4) if transactional else 1
        process.plan = [self.micro() for _ in range(count)]
        process.done = []
        process.is_transactional = transactional
        process.outcome = "ok"
        if self.random.random() < self.draw.info_probability:
            process.outcome = "info"
        elif transactional and self.random.random() < self.draw.abort_probability:
            process.outcome = "fail"
        kinds = {micro[0] for micro in process.plan}
        f = "txn" if len(kinds) > 1 else kinds.pop()
        meta = {"transactional": True} if transactional else {}
        process.invocation = self.recorder.invoke(process.number, f, process.plan, meta)

    def micro(self) -> list[Any]:
        if self.random.random() < 0.5:
            return ["poll"]
        key = self.random.randrange(len(self.logs))
        self.next_value[key] += 1
        return ["send", key, self.next_value[key]]

    def carry_out(self, process: Process, micro: list[Any]) -> list[Any]:
        """The moment at which one part of an operation takes effect."""
        assert process.invocation is not None
        if micro[0] == "poll":
            return ["poll", self.poll(process)]
        _, key, value = micro
        transaction = process.invocation.event.index if process.is_transactional else None
        self.logs[key].records.append((value, transaction))
        return ["send", key, [len(self.logs[key].records) - 1, value]]

    def poll(self, process: Process) -> dict[int, list[list[int]]]:
        found: dict[int, list[list[int]]] = {}
        for key in process.positions:
            limit = self.random.randint(0, self.draw.max_records)
            records = self.visible(key, process.positions[key], limit)
            if records:
                found[key] = records
                process.positions[key] = records[-1][0] + 1
        return found

    def visible(self, key: int, position: int, limit: int) -> list[list[int]]:
        """Committed records from a position, up to the first that is still open."""
        found: list[list[int]] = []
        log = self.logs[key].records
        while position < len(log) and len(found) < limit:
            value, transaction = log[position]
            outcome = "commit" if transaction is None else self.outcomes.get(transaction)
            if outcome is None:
                break
            if outcome == "commit":
                found.append([position, value])
            position += 1
        return found

    def complete(self, process: Process) -> Process:
        invocation = process.invocation
        assert invocation is not None
        process.invocation = None
        index = invocation.event.index
        if process.outcome == "ok":
            self.outcomes[index] = "commit"
            value = process.done if invocation.event.f != "assign" else list(process.positions)
            invocation.ok(value)
            return process
        if process.outcome == "fail":
            self.outcomes[index] = "abort"
            self.rewind(process)
            invocation.fail("ABORTED", process.done)
            return process
        # The client does not know, but one of the two happened.
        self.outcomes[index] = self.random.choice(["commit", "abort"])
        # What an unknown non-transactional send was told is not known either.
        told = [
            micro if micro[0] == "poll" or process.is_transactional else process.plan[place]
            for place, micro in enumerate(process.done)
        ]
        invocation.info("TIMEOUT", told)
        self.next_process += 1
        return Process(self.next_process - 1)

    def rewind(self, process: Process) -> None:
        for key in process.positions:
            for micro in process.done:
                if micro[0] == "poll" and key in micro[1]:
                    process.positions[key] = micro[1][key][0][0]
                    break

    def read_finally(self) -> None:
        process = Process(self.next_process, dict.fromkeys(sorted(self.logs), 0))
        self.now_ns += 1_000
        final = {"final": True, "seek_to_beginning": True}
        self.recorder.invoke(process.number, "assign", list(process.positions), final).ok(
            list(process.positions)
        )
        while True:
            invocation = self.recorder.invoke(process.number, "poll", [["poll"]], {"final": True})
            found = {key: self.visible(key, process.positions[key], 100) for key in self.logs}
            found = {key: records for key, records in found.items() if records}
            for key, records in found.items():
                process.positions[key] = records[-1][0] + 1
            self.now_ns += 1_000
            invocation.ok([["poll", found]])
            if not found:
                return


def valid_history(draw: Draw, seed: int) -> History:
    return Generator(draw, seed).history()
