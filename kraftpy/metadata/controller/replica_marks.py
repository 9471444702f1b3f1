"""What is remembered about single replicas, with changes that can be taken back.

The controller goes back to an older image when records that it appended don't become committed. A
table that was changed along with them goes back as well: every change is remembered with the
offset that caused it, until that offset is committed.

Replicas are grouped by broker, because that is how they are asked for: a heartbeat concerns those
of one broker. Tables hold exceptions, never an entry for each replica of the cluster.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeAlias, TypeVar

from kraftpy.protocol.ids import Uuid

__all__ = ["PartitionKey", "ReplicaMarks"]

V = TypeVar("V")

PartitionKey: TypeAlias = tuple[Uuid, int]


class ReplicaMarks(Generic[V]):
    """A value for some replicas; a value is never None."""

    __slots__ = ("_history", "_marks")

    def __init__(self) -> None:
        self._marks: dict[int, dict[PartitionKey, V]] = {}
        # In the order of offsets: the offset of a change, the replica, and what it had before.
        self._history: deque[tuple[int, int, PartitionKey, V | None]] = deque()

    def get(self, broker_id: int, key: PartitionKey) -> V | None:
        marks = self._marks.get(broker_id)
        return None if marks is None else marks.get(key)

    def on(self, broker_id: int) -> list[tuple[PartitionKey, V]]:
        """The marked replicas of a broker, as they are now."""
        marks = self._marks.get(broker_id)
        return [] if marks is None else list(marks.items())

    def brokers(self) -> list[int]:
        """Brokers with marked replicas."""
        return list(self._marks)

    def put(self, broker_id: int, key: PartitionKey, value: V | None, offset: int) -> None:
        """Set a replica's value, or take it away, because of the records up to `offset`."""
        old = self.get(broker_id, key)
        if old != value:
            self._history.append((offset, broker_id, key, old))
            self.put_for_good(broker_id, key, value)

    def put_for_good(self, broker_id: int, key: PartitionKey, value: V | None) -> None:
        """The same, for a reason that isn't taken back."""
        if value is not None:
            self._marks.setdefault(broker_id, {})[key] = value
            return
        marks = self._marks.get(broker_id)
        if marks is not None and marks.pop(key, None) is not None and not marks:
            del self._marks[broker_id]

    def go_back(self, offset: int) -> None:
        """Undo what the records after `offset` caused."""
        while self._history and self._history[-1][0] > offset:
            _, broker_id, key, old = self._history.pop()
            self.put_for_good(broker_id, key, old)

    def settle(self, offset: int) -> None:
        """What the records up to `offset` caused will not be undone."""
        while self._history and self._history[0][0] <= offset:
            self._history.popleft()

    def clear(self) -> None:
        self._marks.clear()
        self._history.clear()
