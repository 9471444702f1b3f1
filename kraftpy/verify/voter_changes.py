"""Voters of a quorum that come and go while it works, as an administrator has it done.

Only the active controller serves these requests, on its own listener. Whatever is refused or gets
no answer may have been carried out all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from kraftpy.client.admin import Admin
from kraftpy.client.admin_cluster import update_features
from kraftpy.client.admin_operations import describe_quorum
from kraftpy.client.connection import connect
from kraftpy.client.errors import UnsupportedVersion, failure_of
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema.k80_add_raft_voter import AddRaftVoterRequest, Listener
from kraftpy.protocol.schema.k81_remove_raft_voter import RemoveRaftVoterRequest
from kraftpy.protocol.tables import Request
from kraftpy.world import Address, World

__all__ = ["NoAnswerError", "VoterChanges", "ask"]

_KRAFT_VERSION = "kraft.version"


class NoAnswerError(ConnectionError):
    """Nobody could be asked, or nobody has answered."""


async def ask(world: World, address: Address, request: Request, client: ClientSettings) -> Any:
    """On a connection of its own. Raises NoAnswerError."""
    failure: Exception | None = None
    answer: Any = None
    async with trio.open_nursery() as nursery:
        try:
            connection = await connect(world, nursery, address, client)
            try:
                answer = await connection.request(request)
            finally:
                connection.close()
        except (ConnectionError, UnsupportedVersion) as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise NoAnswerError(f"{type(request).__name__}: {failure}") from failure
    return answer


class VoterChanges:
    """All raise KafkaError for a refusal, or ConnectionError."""

    def __init__(
        self, world: World, admin: Admin, client: ClientSettings, *, timeout_ms: int
    ) -> None:
        self._world = world
        self._admin = admin
        self._client = client
        self._timeout_ms = timeout_ms

    async def use_dynamic_voters(self) -> None:
        """Voters can be changed from kraft.version 1 on; until then they are configured."""
        await self._admin.run(update_features([(_KRAFT_VERSION, 1)]))

    async def remove(self, node: int, controllers: Mapping[int, Address]) -> None:
        directory = await self._directory_of(node)
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node, voter_directory_id=directory
        )
        await self._ask_leader(request, controllers)

    async def add(self, node: int, controllers: Mapping[int, Address]) -> None:
        directory = await self._directory_of(node)
        host, port = controllers[node]
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=self._timeout_ms,
            voter_id=node,
            voter_directory_id=directory,
            listeners=[Listener(name="CONTROLLER", host=host, port=port)],
        )
        await self._ask_leader(request, controllers)

    async def voters(self) -> list[int]:
        """Those that the leader counts."""
        quorum = await self._admin.run(describe_quorum())
        return [each.replica_id for each in quorum.current_voters]

    async def _directory_of(self, node: int) -> Uuid:
        quorum = await self._admin.run(describe_quorum())
        for each in (*quorum.current_voters, *quorum.observers):
            if each.replica_id == node:
                if each.replica_directory_id == ZERO_UUID:
                    break
                return each.replica_directory_id
        raise NoAnswerError(f"the quorum does not know the directory of node {node}")

    async def _ask_leader(self, request: Request, controllers: Mapping[int, Address]) -> None:
        leader = (await self._admin.run(describe_quorum())).leader_id
        if leader not in controllers:
            raise NoAnswerError("the quorum has no leader")
        answer = await ask(self._world, controllers[leader], request, self._client)
        failure = failure_of(answer.error_code, answer.error_message)
        if failure is not None:
            raise failure
