"""Registration of brokers and controllers: epochs, checks in their order, cleaning up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from broker_cluster import (
    CALLER,
    SESSION_MS,
    BrokerCluster,
    directory,
    features,
    incarnation,
    registration,
    unregistration,
)

from kraftpy.metadata import records as r
from kraftpy.metadata.controller import registration_checks as limits
from kraftpy.metadata.controller.controllers import ControllerRegistrations
from kraftpy.metadata.controller.result import ControllerError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k70_controller_registration as k70
from kraftpy.protocol.schema.k62_broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)


def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ControllerError) as caught:
        call()
    return caught.value.code


def refused(cluster: BrokerCluster, request: BrokerRegistrationRequest) -> ErrorCode:
    return refusal(lambda: cluster.ask(request))


def test_the_epoch_is_the_next_offset_of_the_log() -> None:
    """CTL-46, KRF-107: it grows with every process, under whatever controller."""
    cluster = BrokerCluster()
    epochs = []
    for process in range(1, 6):
        offset = cluster.next_offset
        epochs.append(cluster.register(1, process))
        assert epochs[-1] == offset
        if process % 2:
            cluster.fail_over()
        cluster.now_ms += SESSION_MS + 1
    assert epochs == sorted(set(epochs))


def test_everything_that_is_said_is_in_the_metadata() -> None:
    """CTL-47, CTL-52: and the broker begins fenced."""
    cluster = BrokerCluster()
    listeners = [
        Listener(name="PLAIN", host="a", port=1, security_protocol=0),
        Listener(name="SECURE", host="b", port=65_535, security_protocol=3),
    ]
    directories = [directory(1, number) for number in range(3)]
    epoch = cluster.register(1, listeners=listeners, rack=None, log_dirs=directories)
    broker = cluster.broker(1)
    assert broker == r.RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=incarnation(1),
        broker_epoch=epoch,
        end_points=(r.Endpoint("PLAIN", "a", 1, 0), r.Endpoint("SECURE", "b", 65_535, 3)),
        features=broker.features,
        rack=None,
        fenced=True,
        log_dirs=tuple(directories),
    )
    assert [(each.name, each.max_supported_version) for each in features()] == [
        (each.name, each.max_supported_version) for each in broker.features
    ]


def test_the_checks_in_their_order() -> None:
    """CTL-48, CTL-49, KRF-108: everything is wrong, and put right one by one."""
    cluster = BrokerCluster()
    cluster.start(1)
    cluster.register(9)
    request = registration(1, process=2, cluster_id="another", is_migrating_zk_broker=True)
    request.log_dirs = []
    too_old = Feature(name=r.METADATA_VERSION, min_supported_version=7, max_supported_version=29)
    request.features = [too_old]
    request.listeners[0].security_protocol = 4
    assert refused(cluster, request) is ErrorCode.INCONSISTENT_CLUSTER_ID
    request.cluster_id = "cluster"
    assert refused(cluster, request) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += SESSION_MS + 1
    assert refused(cluster, request) is ErrorCode.BROKER_ID_NOT_REGISTERED
    request.is_migrating_zk_broker = False
    for log_dirs in (
        [],
        [directory(1), r.DIRECTORY_LOST],
        [directory(1), Uuid(bytes(15) + b"\x63")],
        [directory(1), directory(1)],
        [directory(1), directory(9)],
    ):
        request.log_dirs = log_dirs
        assert refused(cluster, request) is ErrorCode.INVALID_REGISTRATION, log_dirs
    request.log_dirs = [directory(1), Uuid(bytes(15) + b"\x64")]
    assert refused(cluster, request) is ErrorCode.UNSUPPORTED_VERSION
    request.features = []
    assert refused(cluster, request) is ErrorCode.INVALID_REGISTRATION
    request.features = features()
    assert refused(cluster, request) is ErrorCode.INVALID_REGISTRATION
    request.listeners[0].security_protocol = 3
    assert cluster.carry_out(cluster.ask(request)).broker_epoch > 0


def test_a_refused_request_leaves_nothing_behind() -> None:
    cluster = BrokerCluster()
    assert refused(cluster, registration(1, log_dirs=[])) is ErrorCode.INVALID_REGISTRATION
    assert cluster.table.next_expiry_ms() is None
    assert cluster.table.next_probe_ms() is None


def test_features_at_the_levels_of_the_cluster() -> None:
    """KRF-108: the range must hold the level; a feature that isn't named is one at 0 only."""
    cluster = BrokerCluster(elr=True)
    request = registration(1)
    request.features = [
        Feature(name=r.METADATA_VERSION, min_supported_version=30, max_supported_version=30)
    ]
    assert refused(cluster, request) is ErrorCode.UNSUPPORTED_VERSION
    elr = Feature(name="eligible.leader.replicas.version", max_supported_version=1)
    request.features.append(elr)
    cluster.carry_out(cluster.ask(request))
    request.features[0].min_supported_version = 31
    assert refused(cluster, request) is ErrorCode.INVALID_REGISTRATION
    request.features[0].max_supported_version = 31
    assert refused(cluster, request) is ErrorCode.UNSUPPORTED_VERSION


def too_many_listeners(request: BrokerRegistrationRequest) -> None:
    request.listeners = [
        Listener(name=f"L{number}", host="h", port=1) for number in range(limits.LISTENERS_MAX + 1)
    ]


def too_many_features(request: BrokerRegistrationRequest) -> None:
    count = limits.FEATURES_MAX + 1 - len(request.features)
    request.features += [Feature(name=f"f{number}") for number in range(count)]


def too_many_directories(request: BrokerRegistrationRequest) -> None:
    request.log_dirs = [Uuid(b"%016d" % number) for number in range(limits.LOG_DIRS_MAX + 1)]


def long_text(request: BrokerRegistrationRequest) -> None:
    request.rack = "r" * (limits.TEXT_LENGTH_MAX + 1)


def long_host(request: BrokerRegistrationRequest) -> None:
    request.listeners[0].host = "h" * (limits.TEXT_LENGTH_MAX + 1)


def twice_the_same_listener(request: BrokerRegistrationRequest) -> None:
    request.listeners *= 2


def negative_id(request: BrokerRegistrationRequest) -> None:
    request.broker_id = -1


@pytest.mark.parametrize(
    "spoil",
    [
        too_many_listeners,
        too_many_features,
        too_many_directories,
        long_text,
        long_host,
        twice_the_same_listener,
        negative_id,
    ],
)
def test_absurd_requests(spoil: Callable[[BrokerRegistrationRequest], None]) -> None:
    cluster = BrokerCluster()
    request = registration(1)
    spoil(request)
    assert refused(cluster, request) is ErrorCode.INVALID_REGISTRATION


def test_the_limits_themselves_are_allowed() -> None:
    cluster = BrokerCluster()
    request = registration(1)
    for spoil in (too_many_listeners, too_many_features, too_many_directories):
        spoil(request)
    for each in (request.listeners, request.features, request.log_dirs):
        each.pop()  # type: ignore[attr-defined]
    request.rack = "r" * limits.TEXT_LENGTH_MAX
    cluster.carry_out(cluster.ask(request))
    assert len(cluster.broker(1).log_dirs) == limits.LOG_DIRS_MAX


def test_the_same_process_amends_what_it_said() -> None:
    """CTL-51, CTL-70, KRF-107: epoch and fences stay; what says nothing new writes nothing."""
    cluster = BrokerCluster()
    cluster.start(1)
    before = cluster.broker(1)
    assert cluster.ask(registration(1)).records == ()
    listeners = [Listener(name="PLAINTEXT", host="moved", port=1)]
    result = cluster.ask(registration(1, listeners=listeners))
    end_points = (r.Endpoint("PLAINTEXT", "moved", 1, 0),)
    assert result.records == (replace(before, end_points=end_points),)
    assert cluster.carry_out(result).broker_epoch == before.broker_epoch
    assert not cluster.broker(1).fenced


def test_an_amended_broker_in_shutdown_stays_in_it() -> None:
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([1, 2])
    cluster.beat(1, want_shut_down=True)
    cluster.register(1, rack="south")
    assert cluster.broker(1).in_controlled_shutdown


def test_the_same_process_after_its_directory_is_gone() -> None:
    """What it does not list any more, it can't lead."""
    cluster = BrokerCluster()
    directories = [directory(1, 0), directory(1, 1)]
    cluster.start(1, log_dirs=directories)
    cluster.start(2)
    cluster.topic([1, 2])
    cluster.register(1, log_dirs=directories[1:])
    assert cluster.leaders() == [2]
    assert cluster.in_sync() == [(2,)]


def test_the_next_process_may_come_when_the_session_is_over() -> None:
    """CTL-49, CTL-50, KRF-107"""
    cluster = BrokerCluster()
    cluster.start(1)
    cluster.now_ms += SESSION_MS
    request = registration(1, process=2, log_dirs=[directory(1, 2)])
    assert refused(cluster, request) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 1
    assert cluster.register(1, process=2) > 0
    assert cluster.broker(1).fenced


def test_a_fenced_process_that_still_speaks_keeps_its_id() -> None:
    """CTL-49: the session counts, not the fence."""
    cluster = BrokerCluster()
    cluster.register(1)
    cluster.now_ms += SESSION_MS
    cluster.beat(1, want_fence=True)
    cluster.now_ms += 1
    request = registration(1, process=2, log_dirs=[directory(1, 2)])
    assert refused(cluster, request) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_whoever_has_the_directories_is_the_successor() -> None:
    """CTL-50: the lock on a directory proves that the process before is gone, session or not."""
    cluster = BrokerCluster()
    cluster.register(1, log_dirs=[directory(1, 1), directory(1, 2)])
    first = cluster.broker(1).broker_epoch
    stranger = registration(1, process=2, log_dirs=[directory(1, 3)])
    assert refused(cluster, stranger) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.register(1, process=2, log_dirs=[directory(1, 2), directory(1, 3)]) > first


def test_a_bounced_broker_is_cleaned_up_before_it_registers() -> None:
    """CTL-60, CTL-61: it was never seen dead, and is out of all leaderships and ISRs first."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([1, 2], [2, 1], [1])
    cluster.now_ms += SESSION_MS + 1
    cluster.table.touch(2, cluster.broker(2).broker_epoch, cluster.now_ms)
    offset = cluster.next_offset
    result = cluster.ask(registration(1, process=2))
    assert [type(record) for record in result.records] == [r.PartitionChangeRecord] * 3 + [
        r.RegisterBrokerRecord
    ]
    assert cluster.carry_out(result).broker_epoch == offset
    assert cluster.leaders() == [2, 2, -1]
    assert cluster.in_sync() == [(2,), (2,), (1,)]
    assert cluster.broker(1).fenced
    # CTL-53: its registration is the last record of the batch, and that is what it must see.
    assert cluster.beat(1, offset + 2).is_fenced
    assert not cluster.beat(1, offset + 3).is_fenced
    assert cluster.leaders() == [2, 2, 1]


@pytest.mark.parametrize("is_clean", [True, False])
def test_how_a_process_stopped_matters_with_eligible_leader_replicas(*, is_clean: bool) -> None:
    """KRF-119: only who has left its epoch behind may still have everything."""
    cluster = BrokerCluster(elr=True)
    cluster.start(1, 2, 3)
    cluster.happen(r.ConfigRecord(4, "", "min.insync.replicas", "2"))
    cluster.topic([1, 2])
    cluster.die(2)
    cluster.die(1)
    assert cluster.in_sync() == [()]
    assert cluster.partition().eligible_leader_replicas == (1, 2)
    previous = cluster.broker(2).broker_epoch if is_clean else cluster.broker(2).broker_epoch - 1
    cluster.register(2, process=2, previous_broker_epoch=previous)
    expected = (1, 2) if is_clean else (1,)
    assert cluster.partition().eligible_leader_replicas == expected
    cluster.beat(2)
    assert cluster.leaders() == [2 if is_clean else -1]


def test_an_unclean_stop_of_an_unfenced_broker_takes_it_out_of_the_isr_too() -> None:
    cluster = BrokerCluster(elr=True)
    cluster.start(1, 2)
    cluster.happen(r.ConfigRecord(4, "", "min.insync.replicas", "2"))
    cluster.topic([1, 2])
    cluster.now_ms += SESSION_MS + 1
    cluster.register(1, process=2)
    assert cluster.leaders() == [2]
    assert cluster.in_sync() == [(2,)]
    assert cluster.partition().eligible_leader_replicas == ()


def test_without_eligible_leader_replicas_a_process_is_never_unclean() -> None:
    cluster = BrokerCluster()
    cluster.start(1)
    cluster.topic([1])
    cluster.now_ms += SESSION_MS + 1
    cluster.register(1, process=2)
    assert cluster.in_sync() == [(1,)]
    cluster.beat(1)
    assert cluster.leaders() == [1]


def test_old_clusters_know_no_directories() -> None:
    cluster = BrokerCluster(level=16)
    cluster.register(1, log_dirs=[])
    assert cluster.broker(1).log_dirs == ()
    cluster.register(2, log_dirs=[r.DIRECTORY_LOST])
    assert cluster.broker(2).log_dirs == ()


# Leaving for good.


def test_unregistering() -> None:
    """CTL-72: alive or not; it leaves leaderships and ISRs, and may come again."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([1, 2], [2, 1])
    epoch = cluster.broker(1).broker_epoch
    cluster.unregister(1)
    assert cluster.log[-1] == r.UnregisterBrokerRecord(1, epoch)
    assert 1 not in cluster.context.image.brokers
    assert cluster.leaders() == [2, 2]
    assert cluster.in_sync() == [(2,), (2,)]
    request = cluster.request(1, broker_epoch=epoch)
    cluster.table.touch(1, epoch, cluster.now_ms)
    code = refusal(lambda: cluster.control.heartbeat(request, CALLER, cluster.now_ms, 99))
    assert code is ErrorCode.STALE_BROKER_EPOCH
    assert cluster.register(1, process=2) > epoch


def test_unregistering_takes_eligible_leader_replicas_along() -> None:
    cluster = BrokerCluster(elr=True)
    cluster.start(1, 2)
    cluster.happen(r.ConfigRecord(4, "", "min.insync.replicas", "2"))
    cluster.topic([1, 2])
    cluster.die(2)
    assert cluster.partition().eligible_leader_replicas == (2,)
    cluster.unregister(2)
    assert cluster.partition().eligible_leader_replicas == ()
    assert cluster.in_sync() == [(1,)]


def test_unregistering_a_stranger() -> None:
    """CTL-72"""
    cluster = BrokerCluster()
    code = refusal(lambda: cluster.control.unregister_broker(unregistration(5), CALLER))
    assert code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_nothing_of_this_without_an_active_controller() -> None:
    cluster = BrokerCluster()
    cluster.start(1)
    request = cluster.request(1)
    cluster.context.heartbeats = None
    control, now_ms = cluster.control, cluster.now_ms
    for call in (
        lambda: cluster.ask(registration(1)),
        lambda: control.heartbeat(request, CALLER, now_ms, 9),
        lambda: control.fence_stale(now_ms),
        lambda: control.fence_dead(1),
        lambda: control.unregister_broker(unregistration(1), CALLER),
    ):
        assert refusal(call) is ErrorCode.NOT_CONTROLLER


# Controllers.


def controller_request(controller_id: int = 100) -> k70.ControllerRegistrationRequest:
    return k70.ControllerRegistrationRequest(
        controller_id=controller_id,
        incarnation_id=incarnation(1),
        listeners=[k70.Listener(name="CONTROLLER", host="c", port=9093)],
        features=[
            k70.Feature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in features()
        ],
    )


def test_a_controller_registers() -> None:
    cluster = BrokerCluster()
    controllers = ControllerRegistrations(cluster.context)
    cluster.carry_out(controllers.register_controller(controller_request(), CALLER))
    known = cluster.context.image.controllers[100]
    assert known.end_points == (r.Endpoint("CONTROLLER", "c", 9093, 0),)
    assert known.incarnation_id == incarnation(1)
    assert controllers.register_controller(controller_request(), CALLER).records == ()
    again = controller_request()
    again.incarnation_id = incarnation(2)
    assert len(controllers.register_controller(again, CALLER).records) == 1


def test_the_checks_of_a_controller() -> None:
    def code(request: k70.ControllerRegistrationRequest, level: int = 30) -> ErrorCode:
        controllers = ControllerRegistrations(BrokerCluster(level=level).context)
        return refusal(lambda: controllers.register_controller(request, CALLER))

    assert code(controller_request(), level=14) is ErrorCode.UNSUPPORTED_VERSION
    assert code(controller_request(-1)) is ErrorCode.INVALID_REGISTRATION
    request = controller_request()
    request.features = [each for each in request.features if each.name != r.METADATA_VERSION]
    assert code(request) is ErrorCode.INVALID_REGISTRATION
    request = controller_request()
    for each in request.features:
        each.max_supported_version = each.min_supported_version
    assert code(request) is ErrorCode.UNSUPPORTED_VERSION
    request = controller_request()
    request.listeners[0].security_protocol = -1
    assert code(request) is ErrorCode.INVALID_REGISTRATION
