"""An answer that can't be given yet: it ends when its condition holds, or when its time is over.

Everything here is synchronous. Between reading a condition and setting `is_completed` there is no
await and so nobody else, which is what the locks of a threaded broker are for. What remains is
re-entry: completing an operation runs code that may complete, check or add others, also the same
one. Hence the flag is set first, then the operation leaves the timer, then `on_complete` runs.

What needs I/O (reading the log again, say) is not done in `on_complete`: it notes the outcome and
leaves the rest to the task that waits for it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from kraftpy.purgatory.chain import Linked
from kraftpy.purgatory.timer import TimerTask

__all__ = ["DelayedOperation", "Keeper", "Watch"]


class Watch(Linked):
    """The place of an operation in the watch list of one key."""

    __slots__ = ("operation",)

    def __init__(self, operation: DelayedOperation) -> None:
        super().__init__()
        self.operation = operation


class Keeper(Protocol):
    """The purgatory, as an operation in it sees it."""

    def release(self, operation: DelayedOperation) -> None:
        """This operation is completed: it needs no timer and no watching any more."""
        ...


class DelayedOperation(TimerTask):
    """Subclasses say what is waited for and what happens then. Compared by identity."""

    __slots__ = ("delay_ms", "is_completed", "keeper", "watch_count", "watches")

    def __init__(self, delay_ms: int) -> None:
        super().__init__()
        self.delay_ms = delay_ms
        self.is_completed = False
        # The rest is the keeper's: the places that it gave, and how many of them are still held.
        self.keeper: Keeper | None = None
        self.watches: list[Watch] = []
        self.watch_count = 0

    @abstractmethod
    def try_complete(self) -> bool:
        """Return `self.force_complete()` if the condition holds, otherwise False.

        To look must not itself be an event: a check that asks for a check never ends.
        """

    @abstractmethod
    def on_complete(self) -> None:
        """Give the answer. Called exactly once, whoever completes the operation."""

    def on_expiration(self) -> None:
        """The time was over first; called after `on_complete`."""

    def force_complete(self) -> bool:
        """Complete it now, whatever the condition. True for the one caller who did."""
        if not self._end():
            return False
        self.on_complete()
        return True

    def abandon(self) -> bool:
        """End it without an answer: whoever waited for it is gone."""
        return self._end()

    def run(self) -> None:
        """The time is over."""
        if self.force_complete():
            self.on_expiration()

    def _end(self) -> bool:
        if self.is_completed:
            return False
        self.is_completed = True
        if self.keeper is not None:
            self.keeper.release(self)
        return True
