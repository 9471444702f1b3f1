"""The settings of a connection, under the names Kafka's clients have for them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClientSettings"]


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
