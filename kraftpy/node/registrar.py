"""A controller's own registration, so that others know its listeners and what it supports.

A controller whose incarnation is not in the metadata registers with the active one, itself perhaps,
and tries again with growing pauses until the metadata shows it. Features are judged by these
registrations, and clients that ask a controller for the cluster are told of them.
"""

from __future__ import annotations

import logging

import trio

from kraftpy.broker.controller_channel import ControllerChannel, ControllerUnreachable
from kraftpy.client.backoff import Backoff
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.features import CONTROLLER_REGISTRATION_LEVEL, supported_features
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.metadata.records import Endpoint
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k70_controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from kraftpy.world import World

__all__ = ["ControllerRegistrar"]

log = logging.getLogger(__name__)

_FIRST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 120_000
_TIMEOUT_MS = 60_000


class ControllerRegistrar:
    """A Publisher; `run` it as a task."""

    name = "ControllerRegistrar"

    def __init__(
        self,
        world: World,
        channel: ControllerChannel,
        controller_id: int,
        incarnation_id: Uuid,
        endpoints: tuple[Endpoint, ...],
    ) -> None:
        self._world = world
        self._channel = channel
        self._controller_id = controller_id
        self._incarnation_id = incarnation_id
        self._endpoints = endpoints
        self._is_missing = False
        self._changed = trio.Event()

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        registered = image.controllers.get(self._controller_id)
        self._is_missing = image.metadata_version >= CONTROLLER_REGISTRATION_LEVEL and (
            registered is None or registered.incarnation_id != self._incarnation_id
        )
        if self._is_missing:
            self._changed.set()

    async def run(self) -> None:
        backoff = Backoff(
            initial_ms=_FIRST_PAUSE_MS,
            max_ms=_LONGEST_PAUSE_MS,
            random=self._world.rng.stream("controller registration"),
        )
        while True:
            while not self._is_missing:
                await self._until_missing()
            await self._world.dawdle("controller-registers-late")
            if await self._register():
                backoff.succeeded()
                await self._until_missing()
            else:
                await self._world.clock.sleep(backoff.failed() / 1000)

    async def _until_missing(self) -> None:
        """The next metadata in which it is not."""
        self._changed = trio.Event()
        await self._changed.wait()

    async def _register(self) -> bool:
        request = ControllerRegistrationRequest(
            controller_id=self._controller_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port, security_protocol=security_protocol)
                for name, host, port, security_protocol in self._endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in supported_features()
            ],
        )
        try:
            answer = await self._channel.request(request, timeout_ms=_TIMEOUT_MS)
        except (ControllerUnreachable, UnsupportedVersion) as error:
            log.warning("this controller can't register: %s", error)
            return False
        if answer.error_code != ErrorCode.NONE:
            log.warning("this controller is not registered: %s", answer.error_message)
            return False
        return True
