"""A broker's life as it agrees on it with the controller: who says what when. No I/O, no clock.

    NOT_RUNNING -> STARTING -> RECOVERY -> RUNNING -> PENDING_CONTROLLED_SHUTDOWN -> SHUTTING_DOWN

STARTING registers and replays metadata until the controller says that it is caught up. RECOVERY is
caught up and fenced: it loads its logs, and asks to be unfenced when it is ready. RUNNING serves.
A stop of a running broker first asks for consent, so that the controller hands its leaderships
over; from any other state nobody depends on the broker, and it stops at once.

One communication is under way at a time: `next_step` says what it is, or until when to wait, and
is not asked again before the outcome was told. A failure is followed by pauses of 100 ms, doubled
each time. Whoever changes what the controller should hear (`set_ready`, `begin_shutdown`,
`directory_failed`) makes the next heartbeat due at once.

A broker that the controller doesn't know under its epoch was unregistered, or the id is somebody
else's now. It registers again: as the same incarnation, but with a new epoch, and fenced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, TypeAlias

from kraftpy.metadata.features import DIRECTORIES_LEVEL
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import Endpoint, FeatureRange
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from kraftpy.protocol.schema.k63_broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

__all__ = [
    "BrokerIdentity",
    "BrokerState",
    "End",
    "LifecycleCore",
    "LifecycleSettings",
    "RegistrationTimedOut",
    "Send",
    "Step",
    "Wait",
]

log = logging.getLogger(__name__)

NO_EPOCH: Final = -1
_CATCHING_UP_MS: Final = 10
_FIRST_CONSENT_MS: Final = 50
_FIRST_RETRY_MS: Final = 100


class BrokerState(IntEnum):
    """Kafka's numbers, which the metric BrokerState shows."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class RegistrationTimedOut(Exception):  # noqa: N818 (it names what happened)
    """No controller has registered this broker in time; the process ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSettings:
    heartbeat_interval_ms: int = 2_000
    """`broker.heartbeat.interval.ms`"""
    session_timeout_ms: int = 9_000
    """`broker.session.timeout.ms`; no pause between attempts is longer."""
    registration_timeout_ms: int = 60_000
    """`initial.broker.registration.timeout.ms`"""
    directory_failure_timeout_ms: int = 30_000
    """`log.dir.failure.timeout.ms`"""
    asks_before_stopping: bool = True
    """`controlled.shutdown.enable`"""
    consent_timeout_ms: int = 300_000
    """How long a stopping broker waits for consent before it stops all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdentity:
    """What a process registers as."""

    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    """Random, one for each process."""
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None = None
    directory_ids: tuple[Uuid, ...] = ()
    cordoned_directory_ids: tuple[Uuid, ...] = ()
    previous_broker_epoch: int = NO_EPOCH
    """Of the process before, if that one stopped in order."""


@dataclass(frozen=True, slots=True)
class Send:
    """Ask the controller; then `registered`, `heartbeat_answered` or `failed`."""

    request: BrokerRegistrationRequest | BrokerHeartbeatRequest


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before that moment, unless somebody changes something."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class End:
    """The broker stops now."""


Step: TypeAlias = Send | Wait | End


class LifecycleCore:
    __slots__ = (
        "_consent_deadline_ms",
        "_deleted_topics",
        "_directory_deadlines",
        "_failure_count",
        "_has_asked_to_stop",
        "_identity",
        "_is_ready",
        "_is_urgent",
        "_metadata_offset",
        "_next_ms",
        "_offline_directories",
        "_registers_next",
        "_registration_deadline_ms",
        "_sent_directories",
        "_settings",
        "broker_epoch",
        "is_fenced",
        "state",
    )

    def __init__(
        self,
        identity: BrokerIdentity,
        settings: LifecycleSettings,
        *,
        metadata_offset: Callable[[], int],
        deleted_topics: Callable[[], list[Uuid]] = list,
    ) -> None:
        """`metadata_offset` is the last one that this broker acts on. `deleted_topics` are those of
        which this broker has no file left while the metadata still waits for it to say so.
        """
        self._identity = identity
        self._settings = settings
        self._metadata_offset = metadata_offset
        self._deleted_topics = deleted_topics
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = NO_EPOCH
        # As the controller answered last.
        self.is_fenced = True
        self._is_ready = False
        # Something has changed since the last communication began.
        self._is_urgent = False
        self._registers_next = True
        self._has_asked_to_stop = False
        self._failure_count = 0
        self._next_ms = 0
        # Until it has been registered once.
        self._registration_deadline_ms: int | None = None
        self._consent_deadline_ms: int | None = None
        # All that have failed, and those of them that the controller may not know of yet.
        self._offline_directories: dict[Uuid, None] = {}
        self._directory_deadlines: dict[Uuid, int] = {}
        self._sent_directories: tuple[Uuid, ...] = ()

    def start(self, now_ms: int) -> None:
        """Begin, unless the broker was stopped before it could."""
        if self.state is BrokerState.NOT_RUNNING:
            self.state = BrokerState.STARTING
        self._registration_deadline_ms = now_ms + self._settings.registration_timeout_ms
        self._next_ms = now_ms

    # What the broker has to say.

    def set_ready(self) -> None:
        """The logs are loaded and the first image is applied: unfence this broker."""
        if not self._is_ready:
            self._is_ready = True
            self._is_urgent = True

    def begin_shutdown(self, now_ms: int) -> None:
        """Ask for consent to stop, if somebody may depend on this broker. Idempotent."""
        if self.state >= BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            return
        if self.state is BrokerState.RUNNING and self._settings.asks_before_stopping:
            log.info("broker asks the controller to be let go")
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._consent_deadline_ms = now_ms + self._settings.consent_timeout_ms
            self._is_urgent = True
        else:
            self.state = BrokerState.SHUTTING_DOWN

    def stop_without_consent(self) -> None:
        """Whoever stops the broker can't wait, or knows that nobody is left to consent."""
        self.state = BrokerState.SHUTTING_DOWN

    def cordon(self, directory_ids: tuple[Uuid, ...]) -> None:
        """These directories, and no others, get no new partitions from now on."""
        if directory_ids != self._identity.cordoned_directory_ids:
            self._identity = replace(self._identity, cordoned_directory_ids=directory_ids)
            self._is_urgent = True

    def directory_failed(self, directory_id: Uuid, now_ms: int) -> None:
        """Tell the controller; a broker that can't for long had better stop."""
        if directory_id in self._offline_directories:
            return
        self._offline_directories[directory_id] = None
        deadline_ms = now_ms + self._settings.directory_failure_timeout_ms
        self._directory_deadlines[directory_id] = deadline_ms
        self._is_urgent = True

    def image_published(self, image: MetadataImage) -> bool:
        """Whether there is something to say now.

        A registration without directories is from before clusters knew of them: amend it.
        """
        registered = image.brokers.get(self._identity.broker_id)
        if (
            registered is None
            or registered.broker_epoch != self.broker_epoch
            or registered.log_dirs
            or not self._identity.directory_ids
            or image.metadata_version < DIRECTORIES_LEVEL
        ):
            return False
        self._registers_next = True
        self._is_urgent = True
        return True

    # What comes next.

    def next_step(self, now_ms: int) -> Step:
        """Raises RegistrationTimedOut."""
        self._check_deadlines(now_ms)
        if self.state is BrokerState.SHUTTING_DOWN:
            return End()
        # Attempts that fail keep their pace, whatever there is to say.
        is_urgent = self._is_urgent and self._failure_count == 0
        if now_ms < self._next_ms and not is_urgent:
            return Wait(self._first_deadline_ms(self._next_ms))
        self._is_urgent = False
        return Send(self._registration() if self._registers_next else self._heartbeat())

    def _check_deadlines(self, now_ms: int) -> None:
        if _is_over(self._registration_deadline_ms, now_ms):
            raise RegistrationTimedOut(
                f"no controller has registered broker {self._identity.broker_id} within "
                f"{self._settings.registration_timeout_ms} ms"
            )
        if _is_over(self._consent_deadline_ms, now_ms):
            log.warning("the controller has not let the broker go in time; it stops all the same")
            self.state = BrokerState.SHUTTING_DOWN
        if any(_is_over(deadline, now_ms) for deadline in self._directory_deadlines.values()):
            log.error("the controller can't be told of a failed data directory; the broker stops")
            self.state = BrokerState.SHUTTING_DOWN

    def _first_deadline_ms(self, next_ms: int) -> int:
        deadlines = [
            self._registration_deadline_ms,
            self._consent_deadline_ms,
            *self._directory_deadlines.values(),
        ]
        return min([next_ms, *[each for each in deadlines if each is not None]])

    def _registration(self) -> BrokerRegistrationRequest:
        identity = self._identity
        return BrokerRegistrationRequest(
            broker_id=identity.broker_id,
            cluster_id=identity.cluster_id,
            incarnation_id=identity.incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port, security_protocol=security_protocol)
                for name, host, port, security_protocol in identity.endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in identity.features
            ],
            rack=identity.rack,
            log_dirs=[
                each for each in identity.directory_ids if each not in self._offline_directories
            ],
            previous_broker_epoch=identity.previous_broker_epoch,
        )

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        is_caught_up = self.state is not BrokerState.STARTING
        self._sent_directories = tuple(self._offline_directories)
        return BrokerHeartbeatRequest(
            broker_id=self._identity.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._is_ready,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._sent_directories),
            cordoned_log_dirs=(
                list(self._identity.cordoned_directory_ids) if is_caught_up else None
            ),
            deleted_topic_ids=self._deleted_topics(),
        )

    # What the controller says.

    def failed(self, now_ms: int) -> None:
        """There was no answer."""
        # A starting broker may well be refused until the session of the process before it ends,
        # and should not sleep long past that moment.
        settings = self._settings
        longest_ms = settings.session_timeout_ms
        if self._registers_next:
            longest_ms = min(longest_ms, settings.heartbeat_interval_ms)
        pause_ms = min(_FIRST_RETRY_MS << min(self._failure_count, 20), longest_ms)
        self._failure_count += 1
        self._next_ms = now_ms + pause_ms

    def registered(self, answer: BrokerRegistrationResponse, now_ms: int) -> None:
        if answer.error_code != ErrorCode.NONE:
            log.warning("not registered error=%s", _name(answer.error_code))
            self.failed(now_ms)
            return
        if answer.broker_epoch != self.broker_epoch:
            log.info("broker is registered epoch=%d", answer.broker_epoch)
        self.broker_epoch = answer.broker_epoch
        self._registers_next = False
        self._registration_deadline_ms = None
        self._succeeded(now_ms)

    def heartbeat_answered(self, answer: BrokerHeartbeatResponse, now_ms: int) -> None:
        if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
            self._not_known(now_ms)
            return
        if answer.error_code != ErrorCode.NONE:
            log.warning("heartbeat failed error=%s", _name(answer.error_code))
            self.failed(now_ms)
            return
        for directory_id in self._sent_directories:
            self._directory_deadlines.pop(directory_id, None)
        if answer.is_fenced and not self.is_fenced and self.state is BrokerState.RUNNING:
            log.warning("the controller has fenced this broker")
        self.is_fenced = answer.is_fenced
        self._succeeded(now_ms + self._move_on(answer))

    def _not_known(self, now_ms: int) -> None:
        if self.state >= BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            # Who isn't registered leads nothing.
            self.state = BrokerState.SHUTTING_DOWN
            return
        log.warning("epoch %d of this broker is not registered any more", self.broker_epoch)
        self.state = BrokerState.STARTING
        self.is_fenced = True
        self._registers_next = True
        self.failed(now_ms)

    def _move_on(self, answer: BrokerHeartbeatResponse) -> int:
        """The state that follows from the answer; the pause before the next heartbeat."""
        interval_ms = self._settings.heartbeat_interval_ms
        if self.state is BrokerState.STARTING:
            if not answer.is_caught_up:
                return _CATCHING_UP_MS
            self._enter(BrokerState.RECOVERY)
        if self.state is BrokerState.RECOVERY and self._is_ready and not answer.is_fenced:
            self._enter(BrokerState.RUNNING)
        elif self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if answer.should_shut_down:
                self._enter(BrokerState.SHUTTING_DOWN)
            elif not self._has_asked_to_stop:
                self._has_asked_to_stop = True
                return _FIRST_CONSENT_MS
        return interval_ms

    def _enter(self, state: BrokerState) -> None:
        log.info("broker state %s follows %s", state.name, self.state.name)
        self.state = state

    def _succeeded(self, next_ms: int) -> None:
        self._failure_count = 0
        self._next_ms = next_ms


def _is_over(deadline_ms: int | None, now_ms: int) -> bool:
    return deadline_ms is not None and now_ms >= deadline_ms


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
