"""What consumers of the classic protocol write into its opaque bytes: subscriptions, assignments.

An int16 of the version stands before either. A member is answered in the version that it writes; a
version that is newer than ours begins like ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from kraftpy.coordinator.assignors.assignor import Partitions
from kraftpy.coordinator.groups.consumer_member import gathered
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.codec import DecodeError, decode, encode_bytes
from kraftpy.protocol.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kraftpy.protocol.tables import Message

__all__ = [
    "EmbeddedError",
    "decode_assignment",
    "decode_subscription",
    "embedded_version",
    "encode_assignment",
    "partitions_by_id",
]

_Message = TypeVar("_Message", bound=Message)

_VERSION_BYTES: Final = 2
_NEWEST_VERSION: Final = 3


class EmbeddedError(Exception):
    """The bytes are not what consumers write."""


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises EmbeddedError."""
    return _decode(ConsumerProtocolSubscription, data)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Nothing assigned is also written as nothing at all. Raises EmbeddedError."""
    return _decode(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def _decode(message_class: type[_Message], data: bytes) -> _Message:
    version, body = embedded_version(data), memoryview(data)[_VERSION_BYTES:]
    try:
        return decode(message_class, version, body, may_have_rest=True)
    except DecodeError as error:
        raise EmbeddedError(str(error)) from error


def encode_assignment(assigned: Mapping[str, Iterable[int]], version: int) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topic, partitions=sorted(assigned[topic]))
            for topic in sorted(assigned)
        ]
    )
    return version.to_bytes(_VERSION_BYTES, "big") + encode_bytes(message, version)


def embedded_version(data: bytes) -> int:
    """The version that something is written in, as far as we know it. Raises EmbeddedError."""
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version < 0:
        raise EmbeddedError("there is no version")
    return min(version, _NEWEST_VERSION)


def partitions_by_id(topics: Iterable[TopicPartition], image: MetadataImage) -> Partitions:
    """By topic id; topics that don't exist are left out."""
    known = [(image.topics.get(each.topic), each.partitions) for each in topics]
    return gathered(
        (topic.topic_id, partitions) for topic, partitions in known if topic is not None
    )
