"""A broker's life with the controller, step by step and without a clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.broker.lifecycle_core import (
    BrokerIdentity,
    BrokerState,
    End,
    LifecycleCore,
    LifecycleSettings,
    RegistrationTimedOut,
    Send,
    Wait,
)
from kraftpy.metadata.features import DIRECTORIES_LEVEL
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.metadata.records import (
    METADATA_VERSION,
    Endpoint,
    FeatureRange,
    RegisterBrokerRecord,
)
from kraftpy.metadata.sorted_map import SortedMap
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from kraftpy.protocol.schema.k63_broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

DIRECTORIES = (Uuid(b"d" * 16), Uuid(b"e" * 16))
TOPIC = Uuid(b"t" * 16)
IDENTITY = BrokerIdentity(
    broker_id=4,
    cluster_id="cluster",
    incarnation_id=Uuid(b"i" * 16),
    endpoints=(Endpoint("PLAINTEXT", "here", 9092, 0),),
    features=(FeatureRange(METADATA_VERSION, 1, 30),),
    rack="r1",
    directory_ids=DIRECTORIES,
    cordoned_directory_ids=(DIRECTORIES[1],),
    previous_broker_epoch=17,
)
SETTINGS = LifecycleSettings()
CAUGHT_UP = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True)
UNFENCED = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
GO = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True, should_shut_down=True)


@dataclass
class Life:
    """A core with a clock that moves to the next step by itself."""

    settings: LifecycleSettings = SETTINGS
    now_ms: int = 1_000
    offset: int = 5
    deleted: list[Uuid] = field(default_factory=list)
    is_started: bool = True

    def __post_init__(self) -> None:
        self.core = LifecycleCore(
            IDENTITY,
            self.settings,
            metadata_offset=lambda: self.offset,
            deleted_topics=lambda: list(self.deleted),
        )
        if self.is_started:
            self.core.start(self.now_ms)

    def step(self) -> Send | Wait | End:
        return self.core.next_step(self.now_ms)

    def sent(self) -> tuple[BrokerRegistrationRequest | BrokerHeartbeatRequest, int]:
        """The next request, and the milliseconds until it was due."""
        began_ms = self.now_ms
        while isinstance(step := self.step(), Wait):
            assert step.until_ms > self.now_ms
            self.now_ms = step.until_ms
        assert isinstance(step, Send), step
        return step.request, self.now_ms - began_ms

    def register(self, epoch: int = 100) -> BrokerRegistrationRequest:
        request, _ = self.sent()
        assert isinstance(request, BrokerRegistrationRequest)
        self.core.registered(BrokerRegistrationResponse(broker_epoch=epoch), self.now_ms)
        return request

    def beat(self, answer: BrokerHeartbeatResponse) -> tuple[BrokerHeartbeatRequest, int]:
        request, waited_ms = self.sent()
        assert isinstance(request, BrokerHeartbeatRequest), request
        self.core.heartbeat_answered(answer, self.now_ms)
        return request, waited_ms

    def run(self) -> None:
        """Until it is RUNNING."""
        self.register()
        self.beat(CAUGHT_UP)
        self.core.set_ready()
        self.beat(UNFENCED)
        assert self.core.state is BrokerState.RUNNING


def test_registers_with_everything_it_is() -> None:
    life = Life()
    request = life.register()
    assert request.broker_id == 4
    assert request.cluster_id == "cluster"
    assert request.incarnation_id == IDENTITY.incarnation_id
    assert [(each.name, each.host, each.port) for each in request.listeners] == [
        ("PLAINTEXT", "here", 9092)
    ]
    assert [(each.name, each.max_supported_version) for each in request.features] == [
        (METADATA_VERSION, 30)
    ]
    assert (request.rack, request.previous_broker_epoch) == ("r1", 17)
    assert request.log_dirs == list(DIRECTORIES)
    assert life.core.broker_epoch == 100


def test_walks_from_starting_to_running() -> None:
    """CTL-58: caught up, then ready, then unfenced; 10 ms between heartbeats while starting."""
    life = Life()
    assert life.core.state is BrokerState.STARTING
    life.register()
    first, waited_ms = life.beat(BrokerHeartbeatResponse())
    assert waited_ms == 0
    assert (first.broker_epoch, first.current_metadata_offset) == (100, 5)
    assert (first.want_fence, first.want_shut_down, first.cordoned_log_dirs) == (True, False, None)
    life.offset = 9
    second, waited_ms = life.beat(CAUGHT_UP)
    assert (second.current_metadata_offset, waited_ms) == (9, 10)
    assert life.core.state is BrokerState.RECOVERY
    third, waited_ms = life.beat(CAUGHT_UP)
    assert (third.want_fence, waited_ms) == (True, 2_000)
    assert third.cordoned_log_dirs == [DIRECTORIES[1]]
    life.core.set_ready()
    fourth, waited_ms = life.beat(CAUGHT_UP)
    assert (fourth.want_fence, waited_ms) == (False, 0)
    assert life.core.state is BrokerState.RECOVERY
    life.beat(UNFENCED)
    assert life.core.state is BrokerState.RUNNING
    assert not life.core.is_fenced


def test_is_not_running_before_it_is_ready() -> None:
    """KRF-114: whatever the controller says, who is not ready does not serve."""
    life = Life()
    life.register()
    life.beat(UNFENCED)
    assert life.core.state is BrokerState.RECOVERY


def test_what_changes_during_a_heartbeat_is_said_right_after_it() -> None:
    life = Life()
    life.register()
    life.beat(CAUGHT_UP)
    request, _ = life.sent()
    assert isinstance(request, BrokerHeartbeatRequest)
    life.core.set_ready()
    life.core.heartbeat_answered(CAUGHT_UP, life.now_ms)
    request, waited_ms = life.beat(UNFENCED)
    assert (request.want_fence, waited_ms) == (False, 0)


def test_failures_are_spaced_by_pauses_that_double() -> None:
    """CTL-59: from 100 ms up to the session timeout, and back to the interval after success."""
    life = Life()
    life.run()
    pauses = []
    life.sent()
    for _ in range(9):
        life.core.failed(life.now_ms)
        pauses.append(life.sent()[1])
    assert pauses == [100, 200, 400, 800, 1_600, 3_200, 6_400, 9_000, 9_000]
    life.core.heartbeat_answered(UNFENCED, life.now_ms)
    assert life.sent()[1] == 2_000


def test_gives_up_when_nobody_registers_it() -> None:
    """CTL-59: the process ends after initial.broker.registration.timeout.ms, not before."""
    life = Life()
    refused = BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    pauses = []

    def try_for_ever() -> None:
        while True:
            pauses.append(life.sent()[1])
            life.core.registered(refused, life.now_ms)

    with pytest.raises(RegistrationTimedOut, match="broker 4 within 60000 ms"):
        try_for_ever()
    assert life.now_ms == 61_000
    assert pauses[:7] == [0, 100, 200, 400, 800, 1_600, 2_000]
    assert life.core.broker_epoch == -1


def test_a_registered_broker_has_no_such_deadline() -> None:
    life = Life()
    life.register()
    life.now_ms += 60_000
    life.beat(BrokerHeartbeatResponse())


def test_a_running_broker_asks_before_it_stops() -> None:
    """CTL-73, CTL-82: at once, again after 50 ms, then at the interval, until it is let go."""
    life = Life()
    life.run()
    life.core.begin_shutdown(life.now_ms)
    assert life.core.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    request, waited_ms = life.beat(UNFENCED)
    assert (request.want_shut_down, request.want_fence, waited_ms) == (True, False, 0)
    assert life.beat(UNFENCED)[1] == 50
    assert life.beat(UNFENCED)[1] == 2_000
    assert life.beat(GO)[1] == 2_000
    assert life.core.state is BrokerState.SHUTTING_DOWN
    assert life.step() == End()


def test_is_let_go_only_when_it_asked() -> None:
    life = Life()
    life.run()
    life.beat(replace_answer(UNFENCED, should_shut_down=True))
    assert life.core.state is BrokerState.RUNNING


def replace_answer(
    answer: BrokerHeartbeatResponse, *, should_shut_down: bool
) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(
        is_caught_up=answer.is_caught_up,
        is_fenced=answer.is_fenced,
        should_shut_down=should_shut_down,
    )


def test_stops_at_once_where_nobody_depends_on_it() -> None:
    life = Life()
    life.register()
    life.core.begin_shutdown(life.now_ms)
    assert life.step() == End()


def test_a_stop_before_the_start_is_not_forgotten() -> None:
    """A broker may be stopped while its logs are still being loaded."""
    life = Life(is_started=False)
    life.core.begin_shutdown(life.now_ms)
    life.core.start(life.now_ms)
    assert life.step() == End()


def test_a_stop_without_consent_holds_whatever_is_answered() -> None:
    """Also if the heartbeat that was under way says that the broker is not known."""
    life = Life()
    life.run()
    life.sent()
    life.core.stop_without_consent()
    stale = BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    life.core.heartbeat_answered(stale, life.now_ms)
    assert life.step() == End()


def test_stops_without_asking_if_told_so() -> None:
    """CTL-75: controlled.shutdown.enable=false."""
    life = Life(replace(SETTINGS, asks_before_stopping=False))
    life.run()
    life.core.begin_shutdown(life.now_ms)
    assert life.step() == End()


def test_stops_in_the_end_without_consent() -> None:
    """CTL-84: the wait for consent has a limit, also when nobody answers."""
    life = Life(replace(SETTINGS, consent_timeout_ms=10_000))
    life.run()
    life.core.begin_shutdown(life.now_ms)
    began_ms = life.now_ms
    while not isinstance(step := life.step(), End):
        if isinstance(step, Wait):
            life.now_ms = step.until_ms
        else:
            life.core.failed(life.now_ms)
    assert life.now_ms - began_ms == 10_000


def test_an_unknown_epoch_is_registered_anew() -> None:
    """STALE_BROKER_EPOCH: the same incarnation, a new epoch, and the way to RUNNING again."""
    life = Life()
    life.run()
    life.beat(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert life.core.state is BrokerState.STARTING
    request = life.register(epoch=200)
    assert request.incarnation_id == IDENTITY.incarnation_id
    beat, _ = life.beat(CAUGHT_UP)
    assert (beat.broker_epoch, beat.want_fence) == (200, False)
    life.beat(UNFENCED)
    assert life.core.state is BrokerState.RUNNING


def test_a_stopping_broker_that_is_not_known_just_stops() -> None:
    life = Life()
    life.run()
    life.core.begin_shutdown(life.now_ms)
    life.beat(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert life.step() == End()


def test_tells_of_failed_directories_at_once_and_for_ever() -> None:
    """KRF-115, from the broker's side; a later registration leaves them out."""
    life = Life()
    life.run()
    life.core.directory_failed(DIRECTORIES[0], life.now_ms)
    request, waited_ms = life.beat(UNFENCED)
    assert (request.offline_log_dirs, waited_ms) == ([DIRECTORIES[0]], 0)
    request, waited_ms = life.beat(UNFENCED)
    assert (request.offline_log_dirs, waited_ms) == ([DIRECTORIES[0]], 2_000)
    life.now_ms += 60_000
    life.beat(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    assert life.register().log_dirs == [DIRECTORIES[1]]


def test_stops_if_it_can_not_tell_of_a_failed_directory() -> None:
    """log.dir.failure.timeout.ms: nobody would move its leaderships away."""
    life = Life()
    life.run()
    life.core.directory_failed(DIRECTORIES[0], life.now_ms)
    began_ms = life.now_ms
    while not isinstance(step := life.step(), End):
        if isinstance(step, Wait):
            life.now_ms = step.until_ms
        else:
            life.core.failed(life.now_ms)
    assert life.now_ms - began_ms == 30_000


def test_an_answer_to_an_earlier_heartbeat_does_not_acknowledge_a_directory() -> None:
    life = Life()
    life.run()
    life.sent()
    life.core.directory_failed(DIRECTORIES[0], life.now_ms)
    life.core.heartbeat_answered(UNFENCED, life.now_ms)
    life.now_ms += 30_000
    assert life.step() == End()


def test_reports_deleted_topics_in_every_heartbeat() -> None:
    """Until the metadata no longer waits for them, which `deleted_topics` knows."""
    life = Life(deleted=[TOPIC])
    life.run()
    for _ in range(2):
        assert life.beat(UNFENCED)[0].deleted_topic_ids == [TOPIC]
    life.deleted.clear()
    assert life.beat(UNFENCED)[0].deleted_topic_ids == []


def image_with(epoch: int, log_dirs: tuple[Uuid, ...], level: int) -> MetadataImage:
    broker = RegisterBrokerRecord(4, IDENTITY.incarnation_id, epoch, (), log_dirs=log_dirs)
    return replace(
        EMPTY_IMAGE,
        brokers=SortedMap().updated({4: broker}),
        features=SortedMap().updated({METADATA_VERSION: level}),
    )


def test_amends_a_registration_without_directories() -> None:
    """14.3: the cluster has been upgraded to a version that knows of them."""
    life = Life()
    life.run()
    for image in (
        image_with(100, (), DIRECTORIES_LEVEL - 1),
        image_with(100, DIRECTORIES, DIRECTORIES_LEVEL),
        image_with(99, (), DIRECTORIES_LEVEL),
    ):
        life.core.image_published(image)
        assert isinstance(life.step(), Wait)
    life.core.image_published(image_with(100, (), DIRECTORIES_LEVEL))
    life.register(epoch=100)
    assert life.core.state is BrokerState.RUNNING
    life.beat(UNFENCED)


ANSWERS = st.builds(
    BrokerHeartbeatResponse,
    error_code=st.sampled_from(
        [ErrorCode.NONE] * 4 + [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR]
    ),
    is_caught_up=st.booleans(),
    is_fenced=st.booleans(),
    should_shut_down=st.booleans(),
)
EVENTS = st.one_of(
    st.sampled_from(["ready", "fail", "register", "refuse", "directory"]),
    ANSWERS,
)


@given(st.lists(EVENTS, max_size=60), st.integers(0, 60))
def test_whatever_happens_it_keeps_the_rules(
    events: list[str | BrokerHeartbeatResponse], stops_at: int
) -> None:
    """RUNNING only when ready and unfenced; heartbeats only when registered; never a busy loop."""
    life = Life(replace(SETTINGS, registration_timeout_ms=10**9))
    is_ready = False
    for number, event in enumerate(events):
        if number == stops_at:
            life.core.begin_shutdown(life.now_ms)
        if event == "ready":
            life.core.set_ready()
            is_ready = True
            continue
        if event == "directory":
            life.core.directory_failed(DIRECTORIES[number % 2], life.now_ms)
            continue
        began_ms = life.now_ms
        while isinstance(step := life.step(), Wait):
            assert step.until_ms > life.now_ms
            life.now_ms = step.until_ms
        assert life.now_ms - began_ms <= 9_000
        if isinstance(step, End):
            assert life.core.state is BrokerState.SHUTTING_DOWN
            return
        before = life.core.state
        if isinstance(step.request, BrokerRegistrationRequest):
            code = ErrorCode.NONE if event == "register" else ErrorCode.INVALID_REGISTRATION
            answer = BrokerRegistrationResponse(error_code=code, broker_epoch=100 + number)
            life.core.registered(answer, life.now_ms)
        elif isinstance(event, BrokerHeartbeatResponse):
            assert step.request.broker_epoch >= 100
            life.core.heartbeat_answered(event, life.now_ms)
            if life.core.state is BrokerState.RUNNING and before is not BrokerState.RUNNING:
                assert is_ready
                assert not event.is_fenced
            if life.core.state is BrokerState.SHUTTING_DOWN:
                assert before is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        else:
            life.core.failed(life.now_ms)
