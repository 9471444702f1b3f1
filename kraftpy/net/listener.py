"""One listener: its settings, its bound port, and the names of the connections it accepts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum

from kraftpy.security.acl_terms import ANONYMOUS
from kraftpy.world import Address, InternalInvariant, Listener, SocketOptions, Stream

__all__ = [
    "BoundListener",
    "ListenerRole",
    "ListenerSettings",
    "connection_id_of",
    "remote_host_of",
]

_INDEX_MAX = 2**31 - 1
_CONNECTION_ID = re.compile(r"(.+):(\d+)-(.+):(\d+)-(\d+)")


class ListenerRole(IntEnum):
    """Who connects; in the order in which listeners begin to be served."""

    CONTROLLER = 0
    INTER_BROKER = 1
    CLIENT = 2


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    name: str
    # None: every interface.
    host: str | None
    # 0: one that the system chooses.
    port: int
    security_protocol: str = "PLAINTEXT"
    role: ListenerRole = ListenerRole.CLIENT
    # Who connects, as far as nobody has proved to be somebody else.
    principal: str = ANONYMOUS
    backlog: int = 50
    socket_options: SocketOptions = field(default_factory=SocketOptions)


class BoundListener:
    """A listener whose port is bound; connections queue in its backlog."""

    __slots__ = ("_next_index", "_socket", "is_dedicated", "settings")

    def __init__(self, settings: ListenerSettings, socket: Listener, *, is_dedicated: bool) -> None:
        self.settings = settings
        # Nodes only, no clients, connect here: it is protected from what clients do to limits,
        # and all its requests may run ahead.
        self.is_dedicated = is_dedicated
        self._socket = socket
        self._next_index = 0

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def address(self) -> Address:
        return self._socket.address

    async def accept(self) -> Stream:
        return await self._socket.accept()

    def close(self) -> None:
        """Free the port; who waits in `accept` gets trio.ClosedResourceError. Idempotent."""
        self._socket.close()

    def name_connection(self, stream: Stream) -> str:
        """A connection id. The index tells a connection from an earlier one between the same
        ports, whose requests may still be in work.
        """
        index = self._next_index
        self._next_index = 0 if index == _INDEX_MAX else index + 1
        return connection_id_of(stream.local_address, stream.remote_address, index)


def connection_id_of(local: Address, remote: Address, index: int) -> str:
    """`localHost:localPort-remoteHost:remotePort-index`."""
    return f"{local[0]}:{local[1]}-{remote[0]}:{remote[1]}-{index}"


def remote_host_of(connection_id: str) -> str:
    match = _CONNECTION_ID.fullmatch(connection_id)
    if match is None:
        raise InternalInvariant(f"connection-id.malformed {connection_id!r}")
    return match[3]
