"""A way to the active controller: finds it, asks it, and asks again until the time is up.

Raft knows who leads; the channel asks for that anew before every attempt and keeps one connection
to whom it was told of. An attempt ends with an answer, or with one of the two signs that somebody
else must be asked: NOT_CONTROLLER, or a lost connection. Then the request is sent again, as Kafka's
brokers do, although the lost connection may have carried it: what nodes ask of the controller says
which state it is about (epochs, versions), and what users ask for twice is refused the second time
rather than done twice.

When the quorum has a new leader, whoever still waits for the old one gives up at once. So nobody
waits for a controller that hangs without breaking its connections.

A channel's requests share its connection, so that one of them may wait behind another. Hence one
channel for each purpose: heartbeats wait for nobody (KRF, 18.2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

import trio

from kraftpy.client.connection import Peer
from kraftpy.client.core import VersionRange
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k19_create_topics import CreateTopicsResponse
from kraftpy.protocol.tables import Request
from kraftpy.world import World

__all__ = [
    "ActiveController",
    "ControllerAddress",
    "ControllerChannel",
    "ControllerUnreachable",
    "WatchController",
]

log = logging.getLogger(__name__)

# The pause before the next attempt: an election takes longer, and a controller that was just
# elected needs a moment before it serves.
_RETRY_SECONDS: Final = 0.05


class ControllerAddress(NamedTuple):
    """The quorum's leader, and where its controller listener is."""

    node_id: int
    host: str
    port: int


ActiveController: TypeAlias = Callable[[], tuple[int, str, int] | None]
"""Who leads the quorum as far as this node knows; None while it knows of nobody."""

WatchController: TypeAlias = Callable[[Callable[[], None]], None]
"""Have something called whenever another node may lead the quorum."""


class ControllerUnreachable(TimeoutError):  # noqa: N818 (it names what happened)
    """Time ran out without an answer; whether the request was carried out is unknown."""


class ControllerChannel:
    """One purpose's connection to whoever is the controller. Its tasks live in `nursery`."""

    def __init__(
        self,
        world: World,
        nursery: trio.Nursery,
        active_controller: ActiveController,
        watch_controller: WatchController,
        settings: ClientSettings,
    ) -> None:
        """`settings.request_timeout_ms` is how long one attempt may take: a controller that is
        silent for longer loses the connection.
        """
        self._world = world
        self._nursery = nursery
        self._active_controller = active_controller
        self._settings = settings
        self._controller: ControllerAddress | None = None
        self._peer: Peer | None = None
        # Of everybody who waits for that controller.
        self._attempts: list[trio.CancelScope] = []
        watch_controller(self._controller_changed)

    async def request(
        self, message: Request, *, timeout_ms: int | None = None, max_version: int | None = None
    ) -> Any:
        """The active controller's answer.

        Raises ControllerUnreachable when there was none in time (None: tries for ever), and
        UnsupportedVersion when the controller knows no version of the API that would do.
        """
        seconds = inf if timeout_ms is None else timeout_ms / 1000
        with self._world.clock.move_on_after(seconds):
            return await self._ask_until_answered(message, max_version)
        raise ControllerUnreachable(f"no answer of the controller within {timeout_ms} ms")

    def controller_versions(self) -> Mapping[int, VersionRange] | None:
        """What the controller serves, by API key; None while no connection to it stands."""
        return None if self._peer is None else self._peer.versions

    def close(self) -> None:
        self._forget()

    async def _ask_until_answered(self, message: Request, max_version: int | None) -> Any:
        while True:
            await self._world.dawdle("channel-late")
            peer = self._current_peer()
            if peer is not None and self._world.buggify("channel-reconnects"):
                peer.close()
            if peer is not None:
                answer = await self._attempt(peer, message, max_version)
                if self._world.buggify("channel-loses-answer"):
                    answer = None
                if answer is not None and not _is_not_controller(answer):
                    return answer
            await self._world.clock.sleep(_RETRY_SECONDS)

    async def _attempt(self, peer: Peer, message: Request, max_version: int | None) -> Any:
        """The answer of this controller; None when it is lost, or no longer the controller.

        To close its connection is enough to let those go who wait for its answer; before there is
        one, they are let go by their scopes.
        """
        scope = trio.CancelScope()
        self._attempts.append(scope)
        try:
            if peer.standing is not None:
                return await peer.request(message, max_version=max_version)
            with scope:
                return await peer.request(message, max_version=max_version)
        except ConnectionError as error:
            log.debug("the controller at %s:%d is out of reach: %s", *peer.address, error)
        finally:
            self._attempts.remove(scope)
        return None

    def _controller_changed(self) -> None:
        """Let those go who wait for another one."""
        known = self._active_controller()
        if self._attempts and known is not None and known != self._controller:
            self._forget()

    def _current_peer(self) -> Peer | None:
        """The connection to the controller of this moment; None while there is none."""
        known = self._active_controller()
        if known is None:
            return None
        controller = ControllerAddress(*known)
        if controller != self._controller or self._peer is None:
            self._forget()
            self._controller = controller
            address = (controller.host, controller.port)
            self._peer = Peer(self._world, self._nursery, address, self._settings)
        return self._peer

    def _forget(self) -> None:
        for scope in self._attempts:
            scope.cancel()
        if self._peer is not None:
            self._peer.close()
        self._peer = None
        self._controller = None


def _is_not_controller(answer: Any) -> bool:
    """CreateTopics is the one request of brokers whose answer has a code for each item alone."""
    items = answer.topics if isinstance(answer, CreateTopicsResponse) else (answer,)
    return any(item.error_code == ErrorCode.NOT_CONTROLLER for item in items)
