"""One request to one node, once: for those who must know what became of every single attempt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from kraftpy.client.connection import Peer
from kraftpy.client.errors import UnsupportedVersion, failure_of
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.schema.k10_find_coordinator import FindCoordinatorRequest
from kraftpy.protocol.tables import Request
from kraftpy.verify.workloads.outcomes import ClientError
from kraftpy.verify.workloads.own_client import client_error
from kraftpy.world import Address, World

__all__ = ["RawClient", "open_raw_client"]

REQUEST_TIMEOUT_MS = 10_000
_CONNECT_TIMEOUT_MS = 2_000
_GROUP = 0


@asynccontextmanager
async def open_raw_client(
    world: World, bootstrap: Sequence[Address], client_id: str
) -> AsyncIterator[RawClient]:
    async with trio.open_nursery() as nursery:
        raw = RawClient(world, nursery, bootstrap, client_id)
        try:
            yield raw
        finally:
            raw.close()
            nursery.cancel_scope.cancel()


class RawClient:
    """Made by `open_raw_client`. What can be known from a failure is in its ClientError."""

    def __init__(
        self, world: World, nursery: trio.Nursery, bootstrap: Sequence[Address], client_id: str
    ) -> None:
        self._world = world
        self._nursery = nursery
        self._bootstrap = list(bootstrap)
        self._settings = ClientSettings(
            client_id=client_id,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            socket_connection_setup_timeout_ms=_CONNECT_TIMEOUT_MS,
        )
        self._peers: dict[Address, Peer] = {}

    async def request(
        self, address: Address, message: Request, *, max_version: int | None = None
    ) -> Any:
        if address not in self._peers:
            self._peers[address] = Peer(self._world, self._nursery, address, self._settings)
        try:
            return await self._peers[address].request(message, max_version=max_version)
        except (OSError, UnsupportedVersion) as failure:
            raise client_error(failure, may_be_repeated=False) from failure

    async def request_any(self, message: Request) -> Any:
        """The first node that answers; for questions only, since others may have heard it too."""
        failure: ClientError | None = None
        for address in self._bootstrap:
            try:
                return await self.request(address, message)
            except ClientError as error:
                failure = error
        raise failure or ValueError("no bootstrap server was given")

    async def coordinator(self, key: str, key_type: int = _GROUP) -> Address:
        """Of a group or a transactional id."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        [found] = (await self.request_any(request)).coordinators
        failure = failure_of(found.error_code, found.error_message)
        if failure is not None:
            raise client_error(failure, may_be_repeated=False)
        return found.host, found.port

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
