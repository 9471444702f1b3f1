"""The faults that befall one node from inside: what its disk and its answers ask before they act.

`die` ends the node at once; it is called in the middle of a write that is torn.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from kraftpy.faults.language import (
    DISK_OPERATIONS,
    DiskError,
    DiskFull,
    FailNext,
    NodeFault,
    api_key_of,
)
from kraftpy.protocol.errors import ErrorCode

__all__ = ["NodeFaults"]


class NodeFaults:
    __slots__ = ("_die", "_errors", "_failing", "_is_torn", "is_full")

    def __init__(self, die: Callable[[], None]) -> None:
        self._die = die
        self._failing: dict[int, list[ErrorCode]] = {}
        self._errors: dict[str, None] = {}
        self._is_torn = False
        self.is_full = False

    def apply(self, fault: NodeFault) -> None:
        if isinstance(fault, FailNext):
            waiting = self._failing.setdefault(api_key_of(fault.api), [])
            waiting += [ErrorCode[fault.error]] * fault.times
        elif isinstance(fault, DiskFull):
            self.is_full = True
        elif isinstance(fault, DiskError):
            self._errors[fault.operation] = None
        else:
            self._is_torn = True

    def heal(self) -> None:
        self._failing.clear()
        self._errors.clear()
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

    def takes_torn_write(self) -> bool:
        """Whether the write that begins now is the one."""
        is_torn, self._is_torn = self._is_torn, False
        return is_torn

    def die(self) -> None:
        self._die()
