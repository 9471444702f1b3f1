"""Bytes on their way out: what the system has not taken yet, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kraftpy.net.service import Part
from kraftpy.world import Buffer, FileSlice, assert_always

__all__ = ["Outbox", "Sender"]


class Sender(Protocol):
    """The sending half of a stream."""

    def send(self, parts: Sequence[Buffer]) -> int:
        """Take as many bytes as fit now and say how many; 0: none at present."""
        ...


class Outbox:
    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[Buffer] = []

    def put(self, parts: Sequence[Part]) -> None:
        for part in parts:
            # Only a node's log has file slices, and it sends them as answers.
            assert_always(not isinstance(part, FileSlice), "client-sends-file-slice")
            if len(part):
                self._parts.append(part)  # type: ignore[arg-type]

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def clear(self) -> None:
        self._parts.clear()

    def send_to(self, sender: Sender) -> bool:
        """Send until all is gone or nothing more is taken; is all gone?"""
        while self._parts:
            sent = sender.send(self._parts)
            if sent == 0:
                return False
            self._drop(sent)
        return True

    def _drop(self, count: int) -> None:
        whole = 0
        for part in self._parts:
            if count < len(part):
                break
            count -= len(part)
            whole += 1
        del self._parts[:whole]
        if count:
            self._parts[0] = memoryview(self._parts[0])[count:]
