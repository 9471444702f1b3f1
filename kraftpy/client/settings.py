"""The settings of connections and clients, under the names Kafka's clients have for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kraftpy.client.assignors import AssignorChoice

__all__ = [
    "ACKS_ALL",
    "AdminSettings",
    "ClientSettings",
    "ConsumerSettings",
    "IsolationLevel",
    "ProducerSettings",
]

ACKS_ALL: Literal[-1] = -1

_MAX_IN_FLIGHT_OF_IDEMPOTENT = 5
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ClientSettings:
    client_id: str = "kraftpy"
    request_timeout_ms: int = 30_000
    socket_connection_setup_timeout_ms: int = 10_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    # More requests than this on one connection wait for the answers of earlier ones.
    max_in_flight_requests_per_connection: int = 64
    # A longer answer is taken for garbage rather than for a reason to allocate.
    max_answer_bytes: int = 256 * 1024 * 1024
    # How a client as a whole finds its nodes; a single connection has no use for these.
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    # By API key, the highest version to speak, as an older client would; others are as high as
    # both sides know.
    max_versions: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """`batch_size` counts bytes before compression."""

    client: ClientSettings = field(default_factory=ClientSettings)
    acks: Literal[-1, 0, 1] = ACKS_ALL
    # None: as far as `acks` allows it.
    enable_idempotence: bool | None = None
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    compression_level: int | None = None
    batch_size: int = 16_384
    linger_ms: int = 5
    buffer_memory: int = 32 * 1024 * 1024
    max_request_size: int = 1024 * 1024
    max_in_flight_requests_per_connection: int = 5
    retries: int = _INT32_MAX
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if self.acks not in (ACKS_ALL, 0, 1):
            raise ValueError(f"acks must be -1 (all), 0 or 1, not {self.acks}")
        if self.max_in_flight_requests_per_connection < 1:
            raise ValueError("max_in_flight_requests_per_connection must be at least 1")
        if self.transactional_id == "":
            raise ValueError("transactional_id must not be empty")
        if self.transactional_id is not None and not self.is_idempotent:
            raise ValueError(
                "transactional_id needs idempotence: acks=-1 (all) and"
                " max_in_flight_requests_per_connection of at most"
                f" {_MAX_IN_FLIGHT_OF_IDEMPOTENT}"
            )
        if self.enable_idempotence:
            if self.acks != ACKS_ALL:
                raise ValueError("enable_idempotence needs acks=-1 (all)")
            if self.retries == 0:
                raise ValueError("enable_idempotence needs retries: without them it has no use")
            if self.max_in_flight_requests_per_connection > _MAX_IN_FLIGHT_OF_IDEMPOTENT:
                # A broker remembers that many batches of a producer, to know a repetition by.
                raise ValueError(
                    "enable_idempotence needs max_in_flight_requests_per_connection of at most"
                    f" {_MAX_IN_FLIGHT_OF_IDEMPOTENT}"
                )
        if self.delivery_timeout_ms < self.linger_ms + self.client.request_timeout_ms:
            raise ValueError("delivery_timeout_ms must cover linger_ms and request_timeout_ms")

    @property
    def is_idempotent(self) -> bool:
        if self.enable_idempotence is not None:
            return self.enable_idempotence
        in_flight = self.max_in_flight_requests_per_connection
        return self.acks == ACKS_ALL and in_flight <= _MAX_IN_FLIGHT_OF_IDEMPOTENT


class IsolationLevel(IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    client: ClientSettings = field(default_factory=ClientSettings)
    client_rack: str = ""
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    # Where to go on when there is no position, or none that the log still has.
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    allow_auto_create_topics: bool = False
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024
    fetch_max_wait_ms: int = 500
    max_poll_records: int = 500
    check_crcs: bool = True
    default_api_timeout_ms: int = 60_000
    # What one compressed batch may become; more is taken for an attack.
    max_batch_bytes: int = 256 * 1024 * 1024
    # Of members of groups; without a group_id there is neither subscribe nor commit.
    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: Literal["classic", "consumer"] = "classic"
    # The consumer protocol's: None leaves the choice to the group.
    group_remote_assignor: str | None = None
    # The classic protocol's, in the order of preference: names, or classes of one's own.
    partition_assignment_strategy: tuple[AssignorChoice, ...] = ("range", "cooperative-sticky")
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    # How long the last commit may take, and then the farewell.
    close_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        if self.group_id == "":
            raise ValueError("group_id must not be empty")
        if self.group_id is None and self.group_instance_id is not None:
            raise ValueError("group_instance_id needs a group_id")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError("heartbeat_interval_ms must be less than session_timeout_ms")
        if not self.partition_assignment_strategy:
            raise ValueError("partition_assignment_strategy must name an assignor")


@dataclass(frozen=True, slots=True)
class AdminSettings:
    client: ClientSettings = field(default_factory=ClientSettings)
    default_api_timeout_ms: int = 60_000
