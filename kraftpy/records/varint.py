"""Varints: the variable-length integers inside a record.

Seven bits a byte, the lowest group first, bit 7 set on every byte but the last. Numbers are zig-zag
mapped before (0, -1, 1, -2 become 0, 1, 2, 3), so that small negative ones stay short. A varint
carries 32 bits in at most 5 bytes, a varlong 64 bits in at most 10.

Nearly all of them take one byte. Loops over records therefore test for that case themselves
(`byte < 0x80`) and come here for the rest. A read beyond the buffer raises IndexError, which those
loops turn into InvalidRecord once, around the loop, where it costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftpy.records.errors import InvalidRecord

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = ["MAX_INT64", "append_varint", "read_varint", "read_varlong", "wrap_int64"]

MAX_INT64 = 2**63 - 1

_VARINT_BITS = 32
_VARLONG_BITS = 64


def append_varint(buffer: bytearray, value: int) -> None:
    """Append `value`, which the caller knows to fit 32 or 64 bits: both encode alike."""
    remaining = (value << 1) ^ (value >> 63)
    while remaining > 0x7F:
        buffer.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    buffer.append(remaining)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The 32-bit number at `position`, and the position behind it."""
    first = buffer[position]
    if first < 0x80:
        return (first >> 1) ^ -(first & 1), position + 1
    second = buffer[position + 1]
    if second < 0x80:  # Lengths up to 8,191: common enough to be spared the loop.
        both = first & 0x7F | second << 7
        return (both >> 1) ^ -(both & 1), position + 2
    return _read(buffer, position, _VARINT_BITS)


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """The 64-bit number at `position`, and the position behind it."""
    return _read(buffer, position, _VARLONG_BITS)


def _read(buffer: Buffer, position: int, bits: int) -> tuple[int, int]:
    result = 0
    shift = 0
    while True:
        byte = buffer[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise InvalidRecord(f"a varint of {bits} bits has more than {shift // 7} bytes")
    if result >> bits:
        raise InvalidRecord(f"a varint exceeds {bits} bits")
    return (result >> 1) ^ -(result & 1), position


def wrap_int64(value: int) -> int:
    """`value` as Java's long holds it after an overflow, which its readers and writers ignore."""
    return (value + MAX_INT64 + 1) % 2**64 - MAX_INT64 - 1
