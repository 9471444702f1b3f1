"""The lz4 frame header, for the sake of one old mistake.

A frame starts with its magic number, two bytes of flags and optional fields (the descriptor), and
one byte of checksum: bits 8 to 15 of the XXH32 of the descriptor. Kafka's first implementation
hashed the magic number too. Messages with magic 0 keep that mistake forever; from magic 1 on frames
are right. Readers of magic 0 don't check the byte, so that both kinds pass; as the lz4 library
insists on it, we put the right one in. A frame that ends within its header is an IndexError here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = ["fix_legacy_checksum", "spoil_checksum"]

_MAGIC_SIZE = 4
_FLAGS_SIZE = 2
_CONTENT_SIZE_FLAG = 0x08
_CONTENT_SIZE_SIZE = 8
_DICTIONARY_FLAG = 0x01
_DICTIONARY_SIZE = 4

_XXH_PRIME_1 = 2654435761
_XXH_PRIME_2 = 2246822519
_XXH_PRIME_3 = 3266489917
_XXH_PRIME_4 = 668265263
_XXH_PRIME_5 = 374761393
_MASK_32 = 0xFFFFFFFF


def fix_legacy_checksum(frame: memoryview) -> bytearray:
    """A copy of `frame` whose header checksum is right."""
    checksum_at = _checksum_position(frame)
    fixed = bytearray(frame)
    fixed[checksum_at] = _checksum(frame[_MAGIC_SIZE:checksum_at])
    return fixed


def spoil_checksum(frame: bytes) -> bytes:
    """`frame` with the header checksum that old Kafka clients expect with magic 0."""
    checksum_at = _checksum_position(frame)
    spoilt = bytearray(frame)
    spoilt[checksum_at] = _checksum(frame[:checksum_at])
    return bytes(spoilt)


def _checksum_position(frame: Buffer) -> int:
    flags = frame[_MAGIC_SIZE]
    position = _MAGIC_SIZE + _FLAGS_SIZE
    if flags & _CONTENT_SIZE_FLAG:
        position += _CONTENT_SIZE_SIZE
    if flags & _DICTIONARY_FLAG:
        position += _DICTIONARY_SIZE
    return position


def _checksum(data: Buffer) -> int:
    return (_xxh32_short(bytes(data)) >> 8) & 0xFF


def _xxh32_short(data: bytes) -> int:
    """XXH32 with seed 0 of less than 16 bytes, where the algorithm is short too."""
    result = (_XXH_PRIME_5 + len(data)) & _MASK_32
    position = 0
    while position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        result = (result + word * _XXH_PRIME_3) & _MASK_32
        result = (_rotate_left(result, 17) * _XXH_PRIME_4) & _MASK_32
        position += 4
    for byte in data[position:]:
        result = (result + byte * _XXH_PRIME_5) & _MASK_32
        result = (_rotate_left(result, 11) * _XXH_PRIME_1) & _MASK_32
    result = ((result ^ (result >> 15)) * _XXH_PRIME_2) & _MASK_32
    result = ((result ^ (result >> 13)) * _XXH_PRIME_3) & _MASK_32
    return result ^ (result >> 16)


def _rotate_left(word: int, count: int) -> int:
    return ((word << count) | (word >> (32 - count))) & _MASK_32
