"""Connections from this broker to others, for one purpose: made when needed, kept while they stand.

Where a broker is reached is asked anew for each request, since brokers may move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraftpy.client.connection import Peer
from kraftpy.client.errors import ConnectionLost, Evidence
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.tables import Request
from kraftpy.world import Address, World

__all__ = ["BrokerPeers"]


class BrokerPeers:
    """Its tasks live in `nursery`."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        address_of: Callable[[int], Address | None],
        settings: ClientSettings,
    ) -> None:
        """`address_of` a broker, for other brokers; None while it is not known."""
        self._world = world
        self._nursery = nursery
        self._address_of = address_of
        self._settings = settings
        self._peers: dict[int, Peer] = {}

    async def request(self, broker_id: int, message: Request) -> Any:
        """The broker's answer. Raises ConnectionLost, or UnsupportedVersion."""
        address = self._address_of(broker_id)
        peer = self._peers.get(broker_id)
        if peer is not None and peer.address != address:
            peer.close()
            peer = None
        if address is None:
            raise ConnectionLost(Evidence.REFUSED, f"broker {broker_id} is not known")
        if peer is None:
            peer = self._peers[broker_id] = Peer(
                self._world, self._nursery, address, self._settings
            )
        await self._world.dawdle("broker-asked-late")
        if self._world.buggify("broker-reconnects"):
            peer.close()
        answer = await peer.request(message)
        if self._world.buggify("broker-answer-lost"):
            raise ConnectionLost(Evidence.TIMED_OUT, "an answer is lost")
        return answer

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
