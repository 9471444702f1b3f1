"""A shell without sockets: a core's calls go to a FakeCluster, and faults come from a script.

Calls to one node wait in a line, as on a connection. `step` deals with the first of some line; a
Produce call meets the next fault of the script, others get lost now and then. When a connection
goes, so does every call in its line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from random import Random

from client.fake_cluster import FakeCluster

from kraftpy.client.calls import Call, ClientCore
from kraftpy.client.errors import ConnectionLost, Evidence
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k00_produce import ProduceRequest


class Fault(Enum):
    NONE = "none"
    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    ALL_ANSWERS_LOST = "answers lost, all that waited was carried out"
    LATE = "connection lost, request carried out later"
    REFUSED = "too few replicas"
    REFUSED_AFTER_APPEND = "too few replicas, after the append"
    TIMED_OUT_AFTER_APPEND = "time-out, after the append"
    LEADER_MOVES = "another leader"
    INVALID = "refused for good"


REFUSALS = {
    Fault.REFUSED: ErrorCode.NOT_ENOUGH_REPLICAS,
    Fault.REFUSED_AFTER_APPEND: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Fault.TIMED_OUT_AFTER_APPEND: ErrorCode.REQUEST_TIMED_OUT,
    Fault.INVALID: ErrorCode.INVALID_RECORD,
}
MAX_STEPS = 20_000


class SimShell:
    def __init__(
        self, core: ClientCore, cluster: FakeCluster, faults: Iterable[Fault] = (), seed: int = 0
    ) -> None:
        self._core = core
        self._cluster = cluster
        self.faults = deque(faults)
        self._random = Random(seed)
        self._lines: dict[int, deque[Call]] = {}
        self._late: list[tuple[int, Call]] = []
        self.now_ms = 1_000

    def run(self, until: Callable[[], bool]) -> None:
        for _ in range(MAX_STEPS):
            if until():
                return
            self.step()
        raise AssertionError(f"not done after {MAX_STEPS} steps")

    def step(self) -> None:
        """One turn of the shell, and one thing that happens."""
        node_of = {address: node_id for node_id, address in self._cluster.addresses.items()}
        while calls := self._core.calls(self.now_ms):
            for call in calls:
                self._lines.setdefault(node_of[call.address], deque()).append(call)
        nodes = sorted(node_id for node_id, line in self._lines.items() if line)
        if self._late and self._random.random() < 0.3:
            node_id, call = self._late.pop(0)
            self._cluster.handle(node_id, call.message)
        elif nodes and self._random.random() < 0.5:
            self._serve(self._random.choice(nodes))
        else:
            wake_at_ms = self._core.wake_at_ms()
            later_ms = self.now_ms + 1
            self.now_ms = later_ms if nodes or wake_at_ms is None else max(later_ms, wake_at_ms)

    def _serve(self, node_id: int) -> None:
        line = self._lines[node_id]
        call = line[0]
        is_produce = isinstance(call.message, ProduceRequest)
        fault = Fault.NONE
        if is_produce and self.faults:
            fault = self.faults.popleft()
        elif not is_produce and self.faults and self._random.random() < 0.1:
            fault = self._random.choice([Fault.REQUEST_LOST, Fault.ANSWER_LOST])
        if fault is Fault.LEADER_MOVES:
            self._cluster.move(self._random.choice(list(self._cluster.partitions)))
        if fault in (Fault.REQUEST_LOST, Fault.LATE):
            if fault is Fault.LATE:
                self._late += [(node_id, each) for each in line]
            self.lose(node_id)
            return
        refusal = REFUSALS.get(fault) if is_produce else None
        answer = self._cluster.handle(node_id, call.message, refusal)
        if fault is Fault.ALL_ANSWERS_LOST:
            for each in list(line)[1:]:
                self._cluster.handle(node_id, each.message)
        if fault in (Fault.ANSWER_LOST, Fault.ALL_ANSWERS_LOST):
            self.lose(node_id)
            return
        line.popleft()
        call.answered(answer, self.now_ms)

    def lose(self, node_id: int) -> None:
        line = self._lines.pop(node_id, deque())
        for call in line:
            call.failed(ConnectionLost(Evidence.BROKEN, "by the test"), self.now_ms)
