"""The faults that befall one node from inside: what its disk and its answers ask before they act.

`die` ends the node at once; it is called in the middle of a write that is torn.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from kraftpy.faults.language import (
    DISK_OPERATIONS,
    ClockJump,
    ClockStrobe,
    DiskError,
    DiskFull,
    FailNext,
    NodeFault,
    PowerLoss,
    SlowDisk,
    TornWrite,
    api_key_of,
)
from kraftpy.protocol.errors import ErrorCode

__all__ = ["NodeFaults"]


class NodeFaults:
    __slots__ = (
        *("_delays_ms", "_die", "_errors", "_failing", "_is_torn", "_jumped_ms", "_strobes"),
        *("is_full", "is_powerless"),
    )

    def __init__(self, die: Callable[[], None]) -> None:
        self._die = die
        self._failing: dict[int, list[ErrorCode]] = {}
        self._errors: dict[str, None] = {}
        self._is_torn = False
        self._delays_ms: dict[str, int] = {}
        self._jumped_ms = 0
        self._strobes: list[ClockStrobe] = []
        self.is_full = False
        self.is_powerless = False

    def apply(self, fault: NodeFault) -> None:
        match fault:
            case FailNext(api, error, times):
                self._failing.setdefault(api_key_of(api), []).extend([ErrorCode[error]] * times)
            case DiskFull():
                self.is_full = True
            case DiskError(_, operation):
                self._errors[operation] = None
            case SlowDisk(_, milliseconds, operation):
                self._delays_ms[operation] = milliseconds
            case TornWrite():
                self._is_torn = True
            case ClockJump(_, milliseconds):
                self._jumped_ms += milliseconds
            case ClockStrobe():
                self._strobes.append(fault)
            case PowerLoss(_, policy):
                if policy != "drop-all":
                    raise ValueError(f"{policy}: a real node loses all that is unsynced")
                self.is_powerless = True

    def heal(self) -> None:
        self._failing.clear()
        self._errors.clear()
        self._delays_ms.clear()
        self._strobes.clear()
        self._jumped_ms = 0
        self._is_torn = False
        self.is_full = False

    def fail_everything(self) -> None:
        """Nothing that a dead node still tries has an effect."""
        self._errors = dict.fromkeys(DISK_OPERATIONS)

    def take_failure(self, api_key: int) -> ErrorCode | None:
        """What the next request of this kind is answered with; None to serve it."""
        waiting = self._failing.get(api_key)
        return waiting.pop(0) if waiting else None

    def check_disk(self, operation: str, path: str) -> None:
        """Raises OSError if the disk can't do that now."""
        if operation in self._errors:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def check_space(self, path: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def disk_delay_ms(self, operation: str) -> int:
        return self._delays_ms.get(operation, 0)

    def wall_offset_ms(self, monotonic_ms: int) -> int:
        """How far the wall clock is ahead of the truth."""
        ahead = (each for each in self._strobes if monotonic_ms // each.period_ms % 2 == 0)
        return self._jumped_ms + sum(each.milliseconds for each in ahead)

    def takes_torn_write(self) -> bool:
        """Whether the write that begins now is the one."""
        is_torn, self._is_torn = self._is_torn, False
        return is_torn

    def die(self) -> None:
        self._die()
