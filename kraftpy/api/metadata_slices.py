"""A large Metadata answer in slices: one frame that is put together piece by piece.

Making the objects of an answer and writing their bytes takes some 4 us for each partition, and a
cluster of ten thousand is not to keep the loop for that long. An image doesn't change, so others
may run between the topics. Their bytes are the same in whatever answer they stand: a few of them
are written as an answer of their own, of which the array's elements are kept. What stands around
the elements follows from the version alone.
"""

from __future__ import annotations

from copy import copy

from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.frames import response_frame
from kraftpy.protocol.schema.k03_metadata import MetadataResponse, MetadataResponseTopic
from kraftpy.protocol.tables import Part

__all__ = ["SlicedTopics"]

_FIRST_FLEXIBLE_VERSION = 9


class SlicedTopics:
    """The topics of one answer, as bytes."""

    __slots__ = ("_bare_size", "_count", "_pieces", "_size_behind", "_version")

    def __init__(self, version: int) -> None:
        self._version = version
        self._count = 0
        self._pieces: list[bytes] = []
        self._size_behind = _size_behind(version)
        self._bare_size = len(self._head_and_tail(MetadataResponse())[0])

    def append(self, topics: list[MetadataResponseTopic]) -> None:
        """Write the next topics of the answer."""
        data = encode_bytes(MetadataResponse(topics=topics), self._version)
        start = self._bare_size + len(self._array_length(len(topics)))
        self._pieces.append(data[start : len(data) - self._size_behind])
        self._count += len(topics)

    def encode_response(
        self, response: MetadataResponse, version: int, correlation_id: int
    ) -> list[Part]:
        """The frame of an answer that has these topics, whatever it says of topics itself."""
        head, tail = self._head_and_tail(response)
        body = b"".join((head, self._array_length(self._count), *self._pieces, tail))
        return response_frame(MetadataResponse, [body], version, correlation_id)

    def _head_and_tail(self, response: MetadataResponse) -> tuple[bytes, bytes]:
        """What stands before and behind the array of topics."""
        shell = copy(response)
        shell.topics = []
        data = encode_bytes(shell, self._version)
        end = len(data) - self._size_behind
        return data[: end - len(self._array_length(0))], data[end:]

    def _array_length(self, count: int) -> bytes:
        if self._version < _FIRST_FLEXIBLE_VERSION:
            return count.to_bytes(4, "big")
        # An unsigned varint of one more, since 0 is for null.
        rest, data = count + 1, bytearray()
        while rest > 0x7F:
            data.append(rest & 0x7F | 0x80)
            rest >>= 7
        data.append(rest)
        return bytes(data)


def _size_behind(version: int) -> int:
    """Bytes behind the array: authorized operations, the error, tagged fields."""
    operations = 4 if 8 <= version <= 10 else 0
    error = 2 if version >= 13 else 0
    tags = 1 if version >= _FIRST_FLEXIBLE_VERSION else 0
    return operations + error + tags
