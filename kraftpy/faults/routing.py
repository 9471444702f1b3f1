"""The network of a node whose connections to others go through the switchboard."""

from __future__ import annotations

import os

from kraftpy.faults.exchange import ERROR_NUMBER, read_exactly, send_all
from kraftpy.world import Address, Listener, Network, SocketOptions, Stream

__all__ = ["RoutedNetwork"]


class RoutedNetwork:
    """As the network it is made of, but for `connect`. What the node listens on itself it reaches
    directly.
    """

    __slots__ = ("_network", "_node_id", "_own_ports", "_switchboard")

    def __init__(self, network: Network, node_id: int, switchboard: Address) -> None:
        self._network = network
        self._node_id = node_id
        self._switchboard = switchboard
        self._own_ports: dict[int, None] = {}

    async def listen(
        self,
        host: str | None,
        port: int,
        *,
        backlog: int = 50,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> Listener:
        listener = await self._network.listen(host, port, backlog=backlog, options=options)
        self._own_ports[listener.address[1]] = None
        return listener

    async def connect(
        self,
        host: str,
        port: int,
        *,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> Stream:
        if port in self._own_ports:
            return await self._network.connect(host, port, options=options)
        stream = await self._network.connect(*self._switchboard, options=options)
        try:
            await send_all(stream, f"connect {self._node_id} {host} {port}\n".encode())
            [code] = ERROR_NUMBER.unpack(await read_exactly(stream, ERROR_NUMBER.size))
        except BaseException:
            stream.reset()
            raise
        if code:
            stream.reset()
            raise OSError(code, f"cannot connect to {host}:{port}: {os.strerror(code)}")
        return stream
