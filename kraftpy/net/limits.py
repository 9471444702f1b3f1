"""What the network allows its peers, as plain values. The node maps configuration keys onto them.

`NetworkServer.change_limits` puts new ones into force at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["UNLIMITED", "NetworkLimits"]

UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    # socket.request.max.bytes
    request_max_bytes: int = 100 * 1024 * 1024
    # queued.max.request.bytes; None is Kafka's -1
    queued_request_max_bytes: int | None = None
    # connections.max.idle.ms; negative: never
    connection_max_idle_ms: int = 600_000
    # max.connections, and listener.name.<name>.max.connections
    max_connections: int = UNLIMITED
    listener_max_connections: Mapping[str, int] = field(default_factory=dict)
    # max.connections.per.ip and max.connections.per.ip.overrides
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    # max.connection.creation.rate, in connections a second, for the node and for a listener
    max_connection_creation_rate: int = UNLIMITED
    listener_max_connection_creation_rate: Mapping[str, int] = field(default_factory=dict)
    # The run-ahead window in frames (design, decision 5); its bytes are request_max_bytes.
    run_ahead_frames: int = 16

    def max_connections_of_ip(self, ip: str) -> int:
        return self.max_connections_per_ip_overrides.get(ip, self.max_connections_per_ip)

    def max_connections_of_listener(self, listener: str) -> int:
        return self.listener_max_connections.get(listener, UNLIMITED)

    def creation_rate_of_listener(self, listener: str) -> int:
        return self.listener_max_connection_creation_rate.get(listener, UNLIMITED)
