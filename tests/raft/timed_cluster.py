"""The cores of `raft_cluster` on a time line: messages and disks take as long as a draw says."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from raft_cluster import Cluster

from kraftpy.raft import inputs
from kraftpy.raft.roles import Leader


class TimedCluster(Cluster):
    """What the nodes say arrives later, in an order of its own, and so does what their disks do."""

    def __init__(self, seed: int, voters: int = 3, *, delays_ms: tuple[float, float]) -> None:
        super().__init__(voters)
        self._random = Random(seed)
        for node in self.nodes.values():
            node.seed = 1_000 * seed
        self._delays_ms = delays_ms
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._syncing: dict[int, None] = {}
        self.exact_ms = 0.0

    def draw_ms(self) -> float:
        """Most are short, some are not: as on a machine that does other work."""
        shortest_ms, longest_ms = self._delays_ms
        return float(shortest_ms * (longest_ms / shortest_ms) ** self._random.random())

    def draw(self, limit: int) -> int:
        return self._random.randrange(limit)

    def plan(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._planned, (self.exact_ms + delay_ms, self._count, action))

    def run_until(self, condition: Callable[[], bool], *, limit_ms: float) -> float:
        """Let time pass until something is so; how long that took."""
        began_ms = self.exact_ms
        while not condition():
            self._plan_what_was_said()
            due_ms = min(
                float(deadline_ms)
                for node in self.nodes.values()
                if node.core is not None
                and (deadline_ms := node.core.next_deadline_ms()) is not None
            )
            if self._planned and self._planned[0][0] < due_ms:
                self.exact_ms, _, action = heappop(self._planned)
                self.now_ms = int(self.exact_ms)
                action()
            else:
                self.exact_ms = max(self.exact_ms, due_ms)
                self.now_ms = int(self.exact_ms)
                for node_id, node in self.nodes.items():
                    if node.core is not None:
                        self.step(node_id, inputs.TimeAdvanced())
            assert self.exact_ms - began_ms < limit_ms, "\n".join(self.lines[-200:])
        return self.exact_ms - began_ms

    def run_for(self, milliseconds: float) -> None:
        over: list[None] = []
        self.plan(milliseconds, lambda: over.append(None))
        self.run_until(lambda: bool(over), limit_ms=milliseconds + 1)

    def _plan_what_was_said(self) -> None:
        while self.messages:
            message = self.messages.popleft()

            def arrive(message: tuple[int, int, object] = message) -> None:
                self.messages.appendleft(message)
                self.deliver()

            self.plan(self.draw_ms(), arrive)
        for node_id, node in self.nodes.items():
            is_dirty = node.storage.last_token > node.storage.durable_token or node.waiting
            if node.core is not None and is_dirty and node_id not in self._syncing:
                self._syncing[node_id] = None

                def finish(node_id: int = node_id) -> None:
                    del self._syncing[node_id]
                    if self.nodes[node_id].core is not None:
                        self.sync(node_id)

                self.plan(self.draw_ms(), finish)

    def leads(self, *node_ids: int) -> bool:
        """Whether one of these leads and has committed a record of its epoch."""
        for node_id in node_ids:
            role = self[node_id].quorum.role
            if isinstance(role, Leader) and role.high_watermark is not None:
                return True
        return False
