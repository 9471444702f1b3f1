"""The task that carries a broker's life out: it asks the controller what lifecycle_core says.

Heartbeats have a channel of their own, so that nothing else can delay them, and wait for an answer
no longer than until the next one would be due.
"""

from __future__ import annotations

import logging

import trio

from kraftpy.broker.controller_channel import ControllerChannel, ControllerUnreachable
from kraftpy.broker.lifecycle_core import BrokerState, End, LifecycleCore, Send, Wait
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k62_broker_registration import BrokerRegistrationRequest
from kraftpy.protocol.schema.k63_broker_heartbeat import BrokerHeartbeatRequest
from kraftpy.world import Clock

__all__ = ["BrokerLifecycle"]

log = logging.getLogger(__name__)

_STATE_METRIC = MetricName("kafka.server", "KafkaServer", "BrokerState")


class BrokerLifecycle:
    """`run` it as a task; it returns when the broker may stop. A Publisher of images as well."""

    def __init__(
        self,
        core: LifecycleCore,
        channel: ControllerChannel,
        clock: Clock,
        registry: MetricRegistry,
        *,
        answer_timeout_ms: int,
    ) -> None:
        """`answer_timeout_ms` is `broker.heartbeat.interval.ms`."""
        self._core = core
        self._channel = channel
        self._clock = clock
        self._registry = registry
        self._answer_timeout_ms = answer_timeout_ms
        self._bell = clock.bell()
        # All that is asked and waited for.
        self._asking = trio.CancelScope()
        # The milestones of a start, each set for good when it was reached once.
        self.registered = trio.Event()
        self.caught_up = trio.Event()
        self.unfenced = trio.Event()

    @property
    def name(self) -> str:
        return "BrokerLifecycle"

    @property
    def state(self) -> BrokerState:
        return self._core.state

    @property
    def broker_epoch(self) -> int:
        """What this broker signs its requests with; -1 before it is registered."""
        return self._core.broker_epoch

    @property
    def is_stopping(self) -> bool:
        return self._core.state >= BrokerState.PENDING_CONTROLLED_SHUTDOWN

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        if self._core.image_published(image):
            self._bell.ring()

    def set_ready(self) -> None:
        """Everything is in place to serve: ask to be unfenced."""
        self._core.set_ready()
        self._bell.ring()

    def begin_shutdown(self) -> None:
        """Ask to be let go; `run` returns when the broker may stop. Idempotent."""
        self._core.begin_shutdown(self._clock.monotonic_ms())
        self._bell.ring()

    def stop_without_consent(self) -> None:
        """Let `run` return now; what is being asked is not waited for."""
        self._core.stop_without_consent()
        self._bell.ring()
        self._asking.cancel()

    def cordon(self, directory_ids: tuple[Uuid, ...]) -> None:
        """The directories that get no new partitions are these now."""
        self._core.cordon(directory_ids)
        self._bell.ring()

    def directory_failed(self, directory_id: Uuid) -> None:
        self._core.directory_failed(directory_id, self._clock.monotonic_ms())
        self._bell.ring()

    async def run(self) -> None:
        """Live until the broker may stop. Raises RegistrationTimedOut."""
        core, clock = self._core, self._clock
        self._registry.gauge(_STATE_METRIC, lambda: int(core.state))
        core.start(clock.monotonic_ms())
        try:
            with self._asking:
                while True:
                    self._bell.clear()
                    match core.next_step(clock.monotonic_ms()):
                        case Send(request):
                            await self._ask(request)
                            self._note_milestones()
                        case Wait(until_ms):
                            rest_ms = until_ms - clock.monotonic_ms()
                            await self._bell.wait_until(clock.monotonic() + rest_ms / 1000)
                        case End():
                            return
        finally:
            self._channel.close()
            self._registry.remove(_STATE_METRIC)

    async def _ask(self, request: BrokerRegistrationRequest | BrokerHeartbeatRequest) -> None:
        core, clock = self._core, self._clock
        try:
            answer = await self._channel.request(request, timeout_ms=self._answer_timeout_ms)
        except (ControllerUnreachable, UnsupportedVersion) as error:
            log.warning("the controller does not answer: %s", error)
            core.failed(clock.monotonic_ms())
            return
        if isinstance(request, BrokerRegistrationRequest):
            core.registered(answer, clock.monotonic_ms())
        else:
            core.heartbeat_answered(answer, clock.monotonic_ms())

    def _note_milestones(self) -> None:
        state = self._core.state
        if self._core.broker_epoch >= 0:
            self.registered.set()
        if state is BrokerState.SHUTTING_DOWN:
            return  # Which follows any state.
        if state >= BrokerState.RECOVERY:
            self.caught_up.set()
        if state >= BrokerState.RUNNING:
            self.unfenced.set()
