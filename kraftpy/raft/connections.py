"""Who was asked what, and who must not be asked yet.

At most one request is outstanding for each node. An answer counts only if it belongs to that very
request. A failure makes the node wait a little; a request without any answer for the request
timeout is given up. A change of role forgets everything, so that answers to an old role's questions
change nothing in the new one.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Connections", "Outstanding"]


class Outstanding(NamedTuple):
    correlation_id: int
    expires_ms: int
    is_fetch: bool


class Connections:
    __slots__ = (
        "_backoff_until",
        "_heard_ms",
        "_next_correlation_id",
        "_outstanding",
        "backoff_ms",
        "timeout_ms",
    )

    def __init__(self, *, timeout_ms: int, backoff_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.backoff_ms = backoff_ms
        self._next_correlation_id = 0
        self._outstanding: dict[int, Outstanding] = {}
        self._backoff_until: dict[int, int] = {}
        # A fact about a node, whatever the role in which it was asked.
        self._heard_ms: dict[int, int] = {}

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        outstanding = self._outstanding.get(node_id)
        if outstanding is not None and now_ms < outstanding.expires_ms:
            return False
        return now_ms >= self._backoff_until.get(node_id, 0)

    def is_backing_off(self, node_id: int, now_ms: int) -> bool:
        return now_ms < self._backoff_until.get(node_id, 0)

    def fetches_anywhere(self, now_ms: int) -> bool:
        """Whether a Fetch is under way: two could append the same data twice."""
        for outstanding in self._outstanding.values():
            if outstanding.is_fetch and now_ms < outstanding.expires_ms:
                return True
        return False

    def sent(self, node_id: int, now_ms: int, *, is_fetch: bool) -> int:
        """Note a request; its correlation id."""
        self._next_correlation_id += 1
        self._outstanding[node_id] = Outstanding(
            self._next_correlation_id, now_ms + self.timeout_ms, is_fetch
        )
        return self._next_correlation_id

    def answered(self, node_id: int, now_ms: int) -> None:
        """An answer of this node has come, whatever it says."""
        self._heard_ms[node_id] = now_ms

    def last_heard_ms(self, node_id: int) -> int | None:
        """When it answered last, if it ever did."""
        return self._heard_ms.get(node_id)

    def expects(self, node_id: int, correlation_id: int) -> bool:
        """Whether this answer is awaited; it is then no more."""
        outstanding = self._outstanding.get(node_id)
        if outstanding is None or outstanding.correlation_id != correlation_id:
            return False
        del self._outstanding[node_id]
        return True

    def back_off(self, node_id: int, now_ms: int, *, backoff_ms: int | None = None) -> None:
        """Don't ask this node for a while; as long as after any failure unless told otherwise."""
        wait_ms = self.backoff_ms if backoff_ms is None else backoff_ms
        self._backoff_until[node_id] = now_ms + wait_ms

    def expire(self, now_ms: int) -> list[int]:
        """Give up what got no answer; the nodes that did not answer."""
        # After every input, and as a rule there is nothing to do.
        expired = []
        if self._outstanding:
            for node_id, outstanding in self._outstanding.items():
                if now_ms >= outstanding.expires_ms:
                    expired.append(node_id)
            for node_id in expired:
                del self._outstanding[node_id]
        if self._backoff_until:
            for node_id in [each for each, until in self._backoff_until.items() if now_ms >= until]:
                del self._backoff_until[node_id]
        return expired

    def forget(self) -> None:
        self._outstanding.clear()
        self._backoff_until.clear()

    def next_deadline_ms(self) -> int | None:
        earliest: int | None = None
        for outstanding in self._outstanding.values():
            if earliest is None or outstanding.expires_ms < earliest:
                earliest = outstanding.expires_ms
        if self._backoff_until:
            until_ms = min(self._backoff_until.values())
            if earliest is None or until_ms < earliest:
                earliest = until_ms
        return earliest
