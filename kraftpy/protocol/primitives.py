"""Varints and tagged sections: the parts of the wire that no `struct` format can say.

An unsigned varint carries 7 bits in each byte, low group first, the top bit set on all but the
last; 32 bits take at most 5 bytes. Generated code reads and writes the first byte itself, fused
with the fields before it, and comes here only when there is more. The functions take a buffer and
a position, never a slice.

A function that finds bad bytes raises Malformed or IndexError, one that is given a bad value raises
Unwritable or ValueError; the codec turns them into its own errors, which name the field.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = [
    "Malformed",
    "Unwritable",
    "bad_count",
    "bad_length",
    "bad_marker",
    "checked_uuids",
    "merge_tags",
    "read_rest_of_varint",
    "read_tag",
    "read_unknown_tags",
    "read_uuids",
    "refuse_null",
    "rest_of_varint",
    "tag_section",
    "unsigned_varint",
]

_VARINT_LIMIT = 1 << 32


class Malformed(Exception):  # noqa: N818 (internal; callers see DecodeError)
    """These bytes are not what the table says."""


class Unwritable(Exception):  # noqa: N818 (internal; callers see EncodeError)
    """This value has no bytes in that version."""


def read_rest_of_varint(buffer: Buffer, first: int, position: int) -> tuple[int, int]:
    """The varint whose first byte, with its top bit set, was `first`; the rest is at `position`."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= _VARINT_LIMIT:
                raise Malformed("varint exceeds 32 bits")
            return value, position
        shift += 7
        if shift == 35:
            raise Malformed("varint longer than 5 bytes")


def _read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return read_rest_of_varint(buffer, first, position + 1)


# Nearly all of them: counts of tags, tags, and lengths of their values.
_SHORT_VARINTS = tuple(bytes((value,)) for value in range(0x80))


def unsigned_varint(value: int) -> bytes:
    if 0 <= value <= 0x7F:
        return _SHORT_VARINTS[value]
    if not 0 <= value < _VARINT_LIMIT:
        raise Unwritable(f"{value} is no unsigned 32-bit number")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def rest_of_varint(value: int) -> bytes:
    """All but the first byte, which the caller packs itself as `value & 127 | 128`."""
    return unsigned_varint(value >> 7)


def read_tag(buffer: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """Tag, first position and end of a tagged field's value."""
    tag, position = _read_varint(buffer, position)
    size, position = _read_varint(buffer, position)
    if size > end - position:
        raise Malformed(f"tagged field of {size} bytes where {end - position} remain")
    return tag, position, position + size


def read_unknown_tags(
    buffer: Buffer, first: int, position: int, end: int
) -> tuple[tuple[tuple[int, bytes], ...], int]:
    """A tagged section of which no tag is known; `first` is the first byte of its count."""
    count = first
    if first > 127:
        count, position = read_rest_of_varint(buffer, first, position)
    tags = []
    for _ in range(count):
        tag, position, value_end = read_tag(buffer, position, end)
        tags.append((tag, bytes(buffer[position:value_end])))
        position = value_end
    return tuple(tags), position


def tag_section(tags: Iterable[tuple[int, bytes]]) -> tuple[int, bytes]:
    """First byte and remaining bytes of a tagged section; tags must rise."""
    pieces: list[bytes] = []
    count = 0
    last = -1
    for tag, value in tags:
        if tag <= last:
            raise Unwritable(f"tag {tag} follows tag {last}")
        pieces += unsigned_varint(tag), unsigned_varint(len(value)), value
        last = tag
        count += 1
    section = unsigned_varint(count) + b"".join(pieces)
    return section[0], section[1:]


def merge_tags(
    known: list[tuple[int, bytes]], unknown: tuple[tuple[int, bytes], ...]
) -> list[tuple[int, bytes]]:
    """Both in the order of their tags."""
    return sorted([*known, *unknown], key=lambda tagged: tagged[0])


def read_uuids(buffer: Buffer, position: int, count: int) -> list[bytes]:
    end = position + 16 * count
    return [bytes(buffer[start : start + 16]) for start in range(position, end, 16)]


def checked_uuids(uuids: Iterable[bytes]) -> Iterable[bytes]:
    for uuid in uuids:
        if len(uuid) != 16:
            raise Unwritable("a uuid has 16 bytes")
        yield uuid


def refuse_null(buffer: Buffer, position: int) -> tuple[int, ...]:
    """Stands among the prepared readers of short arrays for the count that means null."""
    raise Malformed("null or a negative count")


def bad_length(start: int, stop: int, end: int) -> Malformed:
    """Why `start` to `stop` can't be a value in a buffer that ends at `end`."""
    if stop < start or stop - start >= 1 << 31:
        return Malformed("null or a negative length")
    return Malformed(f"{stop - start} bytes where {end - start} remain")


def bad_count(count: int, remaining: int) -> Malformed:
    if count < 0 or count >= 1 << 31:
        return Malformed("null or a negative count")
    return Malformed(f"{count} elements where {remaining} bytes remain")


def bad_marker(marker: int) -> Malformed:
    return Malformed(f"{marker} is not the presence of a struct")
