"""The nodes that a core talks to: one connection to each, and what its end says about the node.

The core decides whom to ask and gives up by its own clock; here a request leaves, and its answer or
failure is reported. A request that can't be carried by any version that the other side knows is a
failure of that kind, not of the connection.

Evidence (design, decision 14). A node is reported as dead when both are true: a connection to it
stood and was ended from its side, and an attempt to connect is refused. The first is remembered
until the node answers again. As soon as a connection breaks a new one is tried, without waiting for
the core to ask for something, because a follower whose leader died waits for just that news. Time
that runs out, a path that fails and connections that we closed are no evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from kraftpy import __version__
from kraftpy.client.connection import Connection, Peer
from kraftpy.client.core import Pending
from kraftpy.client.errors import ConnectionLost, Evidence, NegotiationFailed, UnsupportedVersion
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.codec import EncodeError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest
from kraftpy.raft.effects import Send
from kraftpy.raft.inputs import Input, PeerUnreachable, RequestFailed, ResponseReceived
from kraftpy.raft.quorum import RaftConfig
from kraftpy.world import LATE_SECONDS, Address, World

__all__ = ["Peers", "peer_settings"]

# Attempts to reach a node that is not there are this much further apart in the end than at first.
_BACKOFF_GROWTH = 10


def peer_settings(config: RaftConfig) -> ClientSettings:
    """A connection to a peer is given up when the core gives up waiting for an answer on it."""
    return ClientSettings(
        client_id=f"raft-client-{config.local.node_id}",
        request_timeout_ms=config.request_timeout_ms,
        socket_connection_setup_timeout_ms=config.request_timeout_ms,
        reconnect_backoff_ms=config.retry_backoff_ms,
        reconnect_backoff_max_ms=config.retry_backoff_ms * _BACKOFF_GROWTH,
    )


class _Remote:
    """A node at an address."""

    __slots__ = ("has_broken", "is_probed", "node_id", "peer")

    def __init__(self, node_id: int, peer: Peer) -> None:
        self.node_id = node_id
        self.peer = peer
        # Whether the node ended a connection, and has not answered since.
        self.has_broken = False
        self.is_probed = False


class Peers:
    """Sends the requests of one core. `report` takes what becomes of them."""

    __slots__ = ("_nursery", "_remotes", "_report", "_settings", "_world")

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        settings: ClientSettings,
        report: Callable[[Input], object],
    ) -> None:
        self._world = world
        self._nursery = nursery
        self._settings = settings
        self._report = report
        self._remotes: dict[int, _Remote] = {}

    def send(self, send: Send) -> None:
        """Ask, without waiting; the outcome is reported later."""
        remote = self._remote(send.node_id, (send.address.host, send.address.port))
        if self._world.buggify("raft-reconnect"):
            remote.peer.close()
        is_late = self._world.buggify("raft-request-late")
        connection = remote.peer.standing
        if connection is None or is_late:
            task = f"raft-ask[{send.node_id}]"
            self._nursery.start_soon(self._ask, remote, send, is_late, name=task)
        else:
            self._submit(remote, connection, send)

    def expire(self) -> None:
        """Give up the connections on which an answer is overdue; whenever the core's time comes."""
        for remote in self._remotes.values():
            connection = remote.peer.standing
            if connection is not None:
                connection.expire()

    def _remote(self, node_id: int, address: Address) -> _Remote:
        remote = self._remotes.get(node_id)
        if remote is None or remote.peer.address != address:
            if remote is not None:
                remote.peer.close()
            peer = Peer(self._world, self._nursery, address, self._settings)
            remote = self._remotes[node_id] = _Remote(node_id, peer)
        return remote

    def _is_current(self, remote: _Remote) -> bool:
        """Whether the node is still to be found there; otherwise its old place says nothing."""
        return self._remotes.get(remote.node_id) is remote

    async def _ask(self, remote: _Remote, send: Send, is_late: bool) -> None:
        """Where there is no connection yet, or none any more."""
        before = remote.peer.last_failure
        if isinstance(before, ConnectionLost) and before.evidence is Evidence.BROKEN:
            # It broke while nobody waited for an answer.
            remote.has_broken = True
        if is_late:
            await self._world.clock.sleep(LATE_SECONDS)
        try:
            connection = await remote.peer.connected()
        except (ConnectionLost, NegotiationFailed) as failure:
            await self._fail(remote, send, failure)
        else:
            self._submit(remote, connection, send)

    def _submit(self, remote: _Remote, connection: Connection, send: Send) -> None:
        """On a connection that stands a question needs no task of its own: its answer is reported
        by the task that receives it. Every commit waits for some of these.
        """
        # An answer that is overdue is noticed by whoever asks next.
        connection.expire()
        try:
            connection.submit(send.request, partial(self._done, remote, connection, send))
        except (ConnectionLost, UnsupportedVersion, EncodeError) as failure:
            self._fail_soon(remote, send, failure)

    def _done(self, remote: _Remote, connection: Connection, send: Send, pending: Pending) -> None:
        if pending.failure is not None:
            self._fail_soon(remote, send, pending.failure)
            return
        connection.answered_count += 1
        remote.peer.succeeded()
        remote.has_broken = False
        self._report(ResponseReceived(send.node_id, send.correlation_id, pending.answer))

    def _fail_soon(self, remote: _Remote, send: Send, failure: Exception) -> None:
        """In a task, which is not heard of any more if this ends because all is cancelled."""
        task = f"raft-failure[{send.node_id}]"
        self._nursery.start_soon(self._fail, remote, send, failure, name=task)

    async def _fail(self, remote: _Remote, send: Send, failure: Exception) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._note(remote, failure)
        self._report(RequestFailed(send.node_id, send.correlation_id, _error_of(failure)))
        if isinstance(failure, ConnectionLost) and failure.evidence is Evidence.BROKEN:
            await self._probe(remote)

    async def _probe(self, remote: _Remote) -> None:
        """See at once whether the node that ended a connection takes a new one."""
        if remote.is_probed or not self._is_current(remote):
            return
        remote.is_probed = True
        question = ApiVersionsRequest(
            client_software_name="kraftpy", client_software_version=__version__
        )
        try:
            await remote.peer.request(question)
            remote.has_broken = False
        except UnsupportedVersion:
            # It talks, whatever it knows.
            remote.has_broken = False
        except (ConnectionLost, NegotiationFailed) as failure:
            self._note(remote, failure)
        finally:
            remote.is_probed = False

    def _note(self, remote: _Remote, failure: Exception) -> None:
        """Draw the conclusion from how a request failed."""
        if not isinstance(failure, ConnectionLost) or not self._is_current(remote):
            return
        if failure.evidence is Evidence.BROKEN:
            remote.has_broken = True
        elif failure.evidence is Evidence.REFUSED and remote.has_broken:
            self._report(PeerUnreachable(remote.node_id))


def _error_of(failure: Exception) -> ErrorCode:
    """As Kafka's Raft channel has it (section 4)."""
    if isinstance(failure, UnsupportedVersion | EncodeError):
        return ErrorCode.UNSUPPORTED_VERSION
    if isinstance(failure, NegotiationFailed):
        return ErrorCode.NETWORK_EXCEPTION
    return ErrorCode.BROKER_NOT_AVAILABLE
