"""What the network is told of a node's configuration: listeners and limits."""

from __future__ import annotations

from kraftpy.config import NodeConfig
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import ListenerRole, ListenerSettings
from kraftpy.world import SocketOptions

__all__ = ["listener_settings", "network_limits"]


def listener_settings(config: NodeConfig) -> list[ListenerSettings]:
    """What the network needs to know about each listener."""
    topology = config.topology
    options = SocketOptions(
        send_buffer_bytes=_unless_negative(config.get_int("socket.send.buffer.bytes")),
        receive_buffer_bytes=_unless_negative(config.get_int("socket.receive.buffer.bytes")),
    )

    def role_of(name: str) -> ListenerRole:
        if name in topology.controller_listener_names:
            return ListenerRole.CONTROLLER
        if name == topology.inter_broker_listener_name:
            return ListenerRole.INTER_BROKER
        return ListenerRole.CLIENT

    return [
        ListenerSettings(
            name=endpoint.listener_name,
            host=endpoint.host or None,
            port=endpoint.port,
            security_protocol=endpoint.security_protocol.value,
            role=role_of(endpoint.listener_name),
            principal=str(config.for_listener(endpoint.listener_name, "kraftpy.principal")),
            backlog=config.get_int("socket.listen.backlog.size"),
            socket_options=options,
        )
        for endpoint in topology.listeners
    ]


def network_limits(config: NodeConfig) -> NetworkLimits:
    """What the network allows its peers."""
    names = [endpoint.listener_name for endpoint in config.topology.listeners]

    def for_listeners(key: str) -> dict[str, int]:
        prefixed = {name: f"listener.name.{name.lower()}.{key}" for name in names}
        return {name: config.get_int(key) for name, key in prefixed.items() if key in config}

    return NetworkLimits(
        request_max_bytes=config.get_int("socket.request.max.bytes"),
        queued_request_max_bytes=_unless_negative(config.get_int("queued.max.request.bytes")),
        connection_max_idle_ms=config.get_int("connections.max.idle.ms"),
        max_connections=config.get_int("max.connections"),
        listener_max_connections=for_listeners("max.connections"),
        max_connections_per_ip=config.get_int("max.connections.per.ip"),
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        max_connection_creation_rate=config.get_int("max.connection.creation.rate"),
        listener_max_connection_creation_rate=for_listeners("max.connection.creation.rate"),
    )


def _unless_negative(value: int) -> int | None:
    """Kafka's -1 for "not limited" or "the system's own"."""
    return None if value < 0 else value
