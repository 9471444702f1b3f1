"""One record of a producer before it has a batch, and the words for what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kraftpy.client.cluster import Cluster
from kraftpy.client.errors import KafkaError
from kraftpy.client.producer_batch import Delivery
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k00_produce import PartitionProduceResponse
from kraftpy.records.reader import Header

__all__ = ["Outgoing", "detail_of", "most_bytes", "why_homeless"]

# More than the numbers in a record and a batch's header can take.
_RECORD_OVERHEAD = 96
_HEADER_OVERHEAD = 10


class Outgoing(NamedTuple):
    """A record on its way to a batch."""

    delivery: Delivery
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    partition: int | None
    size: int
    came_ms: int


def most_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """The most that a record can take."""
    size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += _HEADER_OVERHEAD + len(name.encode()) + len(content or b"")
    return size


def why_homeless(record: Outgoing, error: ErrorCode, cluster: Cluster) -> Exception:
    """Why no partition was found for a record; `error` is what the cluster says of its topic."""
    topic = record.delivery.topic
    if error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return KafkaError(error, f"topic {topic}: {error.message}")
    if cluster.failure is not None:
        why = f"no node could be asked about topic {topic}: {cluster.failure}"
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
    partition = "" if record.partition is None else f" with partition {record.partition}"
    why = f"there is no topic {topic}{partition}"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)


def detail_of(answer: PartitionProduceResponse) -> str | None:
    """What the broker says about a batch, and about single records of it."""
    words = [answer.error_message] if answer.error_message else []
    words += [
        f"record {each.batch_index}: {each.batch_index_error_message}"
        for each in answer.record_errors
        if each.batch_index_error_message
    ]
    return "; ".join(words) or None
