"""What the executor asks of a client, whatever library is behind it.

A client is one process of the history: one producer, one consumer. Every call ends in time of its
own accord, and raises ClientError with what the failure means; the executor's limits are only a
second line. What is not about records (topics, offsets of logs) is asked through `WorkloadAdmin`,
which is our own client for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from kraftpy.client.calls import TopicPartition
from kraftpy.records.reader import Header
from kraftpy.verify.workloads.outcomes import ClientError
from kraftpy.verify.workloads.payload import OutgoingRecord

__all__ = [
    "Ack",
    "ClientSpec",
    "CommittedOffset",
    "LogEnds",
    "OpenClient",
    "PartitionView",
    "PolledRecord",
    "ProducerName",
    "RebalanceNote",
    "TopicView",
    "WorkloadAdmin",
    "WorkloadClient",
]


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """How a client is set up. The defaults are the safe configuration."""

    client_id: str
    acks: Literal[-1, 0, 1] = -1
    is_idempotent: bool = True
    transactional_id: str | None = None
    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: Literal["classic", "consumer"] = "classic"
    is_read_committed: bool = True
    commits_by_itself: bool = False
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    request_timeout_ms: int = 2_000
    delivery_timeout_ms: int = 10_000
    transaction_timeout_ms: int = 5_000
    session_timeout_ms: int = 6_000
    auto_commit_interval_ms: int = 1_000
    max_poll_records: int = 500
    max_versions: Mapping[int, int] = field(default_factory=dict)
    """By API key, the highest version that an old client knows. For our own client only."""


class Ack(NamedTuple):
    """Where a record is; the offset is None if the answer did not say."""

    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class PolledRecord:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] | None = None
    leader_epoch: int | None = None


class RebalanceNote(NamedTuple):
    kind: Literal["assigned", "revoked", "lost"]
    partitions: tuple[TopicPartition, ...]


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str


class ProducerName(NamedTuple):
    """What InitProducerId answered, for libraries that tell; -1 for those that don't."""

    producer_id: int = -1
    epoch: int = -1


class WorkloadClient(Protocol):
    library: str

    async def send(
        self, records: Sequence[tuple[TopicPartition, OutgoingRecord]]
    ) -> list[Ack | ClientError]:
        """Hand all over before waiting for any of them; what became of each."""
        ...

    async def assign(self, wheres: Iterable[TopicPartition], *, from_beginning: bool) -> None: ...

    async def subscribe(self, topics: Iterable[str]) -> None: ...

    async def poll(self, timeout_ms: int) -> list[PolledRecord]: ...

    async def seek(self, where: TopicPartition, offset: int) -> None:
        """Go on there, if the partition is still this client's."""
        ...

    def take_rebalances(self) -> list[RebalanceNote]:
        """What happened to the assignment since the last call."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None: ...

    async def committed(
        self, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]: ...

    async def init_transactions(self) -> ProducerName: ...

    def producer_name(self) -> ProducerName:
        """Who the transactional producer is to brokers now."""
        ...

    async def begin(self) -> None: ...

    async def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Of the consumer's group, as part of the transaction."""
        ...

    async def commit_transaction(self) -> None: ...

    async def abort_transaction(self) -> None: ...


OpenClient: TypeAlias = Callable[[ClientSpec], AbstractAsyncContextManager[WorkloadClient]]


class LogEnds(NamedTuple):
    start: int
    last_stable: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    topic_id: str
    partitions: dict[int, PartitionView]
    configs: dict[str, str | None] = field(default_factory=dict)


class WorkloadAdmin(Protocol):
    """Raises ClientError, as clients do."""

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> str:
        """The new topic's id."""
        ...

    async def topic_exists(self, name: str) -> bool:
        """As the controller sees it now."""
        ...

    async def delete_topic(self, name: str) -> None: ...

    async def describe_topic(
        self, name: str, *, config_keys: Sequence[str] = (), via: int | None = None
    ) -> TopicView | None:
        """None if there is no such topic; `via` names the broker to ask. All that is told holds at
        one moment.
        """
        ...

    async def set_config(self, topic: str, key: str, value: str) -> None: ...

    async def log_ends(self, wheres: Sequence[TopicPartition]) -> dict[TopicPartition, LogEnds]: ...

    async def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """What a group has committed."""
        ...

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> None: ...

    async def reassign(self, where: TopicPartition, replicas: Sequence[int]) -> None: ...

    async def broker_ids(self) -> list[int]: ...
