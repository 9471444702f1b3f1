"""How far the metadata log is known to be on the medium: the file `durable-end` beside it.

A start must tell two things apart. What a crash tore off at the end of the log was never promised
to anybody, and is cut off. What was synced and can't be read any more is damage: to go on without
it would be to forget what the quorum has decided. This offset is where the one may begin.

After each sync the file is written over in place, which costs no sync of its own: after the end of
a process it is exact, after a loss of power it may be older, and so it is always true. For that it
must fall before the log does: a lower offset replaces the file, and is durable, before anything is
cut off.

The content is `<offset, 19 digits> <CRC-32 of these, 8 hexadecimal digits>` and a line feed. One
that is torn says nothing, and the log may end anywhere then.

Invariant: the log on the medium reaches at least to the offset on the medium.
"""

from __future__ import annotations

import logging
from zlib import crc32

from kraftpy.log.checkpoints import AtomicFile
from kraftpy.world import Disk, File

__all__ = ["DURABLE_END", "DurableEnd"]

_log = logging.getLogger(__name__)

DURABLE_END = "durable-end"
_DIGITS = 19


class DurableEnd:
    """Begins with what the last process has left; 0 if it left nothing."""

    __slots__ = ("_disk", "_file", "_replaceable", "offset")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._replaceable = AtomicFile(disk, f"{directory}/{DURABLE_END}")
        self._file: File | None = None
        self.offset = 0

    def read(self) -> None:
        """Take over what is on record. Raises OSError."""
        path = self._replaceable.path
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return
        try:
            content = file.pread(file.size(), 0)
        finally:
            file.close()
        digits = content[:_DIGITS]
        if digits.isdigit() and content == _content(int(digits)):
            self.offset = int(digits)
        else:
            _log.warning("%s can't be read: a crash may end the log anywhere", path)

    async def replace(self, offset: int) -> None:
        """Durable when this returns, whether it rises or falls."""
        self.close()
        await self._replaceable.replace(_content(offset))
        self.offset = offset

    async def lower(self, offset: int) -> None:
        """The log is about to end there, or before what it had."""
        if offset < self.offset:
            await self.replace(offset)

    def raise_to(self, offset: int) -> None:
        """Everything below has been synced. Raises OSError."""
        if offset <= self.offset:
            return
        if self._file is None:
            self._file = self._disk.open(self._replaceable.path, write=True)
        self._file.pwrite([_content(offset)], 0)
        self.offset = offset

    def close(self) -> None:
        """Let go of the file; it is opened again when needed."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _content(offset: int) -> bytes:
    # Always as long, so that writing it over leaves nothing of what was there.
    digits = b"%0*d" % (_DIGITS, offset)
    return b"%s %08x\n" % (digits, crc32(digits))
