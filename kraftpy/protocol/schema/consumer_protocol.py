"""What consumers put into the opaque bytes of the classic group protocol.

On the wire an int16 version stands before either.
"""

from __future__ import annotations

from kraftpy.protocol.tables import ALL, Message, Struct, array, binary, int32, string


class TopicPartition(Struct):
    topic: str = string(key=True)
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    """What a consumer brings to the group: topics, own data, owned partitions."""

    topics: list[str] = array(string)
    user_data: bytes | None = binary(nullable=ALL, default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable=ALL, default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    """What a consumer gets from the group: partitions."""

    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = binary(nullable=ALL, default=None)
