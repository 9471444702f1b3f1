"""What a node and the switchboard say to each other before a connection is the peer's.

A node begins with one line: `connect NODE HOST PORT`, to be put through, or `control NODE`, to be
told of faults. The answer to the first is an error number of the system's in four bytes, 0 when the
connection stands: so a peer that refuses is seen to refuse. On a control connection each line
is a fault, and the node answers it with a line that is empty, or says what was wrong.
"""

from __future__ import annotations

import struct
from typing import Final

from kraftpy.world import Stream

__all__ = ["ERROR_NUMBER", "MAX_LINE_BYTES", "WELCOME", "read_exactly", "read_line", "send_all"]

ERROR_NUMBER: Final = struct.Struct(">i")
MAX_LINE_BYTES: Final = 4096
WELCOME: Final = "welcome"
"""Ends the faults that a node begins with."""


async def send_all(stream: Stream, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        sent = stream.send((rest,))
        rest = rest[sent:]
        if not sent:
            await stream.wait_writable()


async def read_exactly(stream: Stream, length: int) -> bytes:
    """Raises ConnectionResetError when the peer leaves before."""
    buffer = bytearray(length)
    filled = 0
    while filled < length:
        count = stream.receive_into(memoryview(buffer)[filled:])
        if count is None:
            await stream.wait_readable()
        elif count == 0:
            raise ConnectionResetError("the peer has left in the middle")
        else:
            filled += count
    return bytes(buffer)


async def read_line(stream: Stream) -> str:
    """Without its end. Byte by byte: what follows it may belong to somebody else."""
    line = bytearray()
    while (byte := await read_exactly(stream, 1)) != b"\n":
        line += byte
        if len(line) > MAX_LINE_BYTES:
            raise ConnectionResetError("a line without end")
    return line.decode()
