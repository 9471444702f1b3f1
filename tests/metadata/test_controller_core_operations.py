"""The product's operations and tasks, bound to the controller."""

from __future__ import annotations

import pytest
from controller_core_rig import WHOLE_BOOTSTRAP, Rig, topic

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.effects import Answer, AppendRecords, ProbeBroker
from kraftpy.metadata.controller.event_queue import EventKind
from kraftpy.metadata.controller.result import Caller
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.features import supported_features
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k30_create_acls as k30
from kraftpy.protocol.schema import k31_delete_acls as k31
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k37_create_partitions as k37
from kraftpy.protocol.schema import k43_elect_leaders as k43
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.protocol.schema import k45_alter_partition_reassignments as k45
from kraftpy.protocol.schema import k46_list_partition_reassignments as k46
from kraftpy.protocol.schema import k49_alter_client_quotas as k49
from kraftpy.protocol.schema import k51_alter_user_scram_credentials as k51
from kraftpy.protocol.schema import k56_alter_partition as k56
from kraftpy.protocol.schema import k57_update_features as k57
from kraftpy.protocol.schema import k62_broker_registration as k62
from kraftpy.protocol.schema import k63_broker_heartbeat as k63
from kraftpy.protocol.schema import k64_unregister_broker as k64
from kraftpy.protocol.schema import k67_allocate_producer_ids as k67
from kraftpy.protocol.schema import k70_controller_registration as k70
from kraftpy.protocol.schema import k73_assign_replicas_to_dirs as k73

START_MS = 1_000
KINDS = {
    k19.CreateTopicsRequest: EventKind.TOPIC_CHANGE,
    k20.DeleteTopicsRequest: EventKind.TOPIC_DELETION,
    k30.CreateAclsRequest: None,
    k31.DeleteAclsRequest: None,
    k33.AlterConfigsRequest: None,
    k37.CreatePartitionsRequest: EventKind.PARTITION_MODIFICATIONS,
    k43.ElectLeadersRequest: EventKind.REPLICA_LEADER_ELECTION,
    k44.IncrementalAlterConfigsRequest: None,
    k45.AlterPartitionReassignmentsRequest: EventKind.API_PARTITION_REASSIGNMENT,
    k46.ListPartitionReassignmentsRequest: EventKind.LIST_PARTITION_REASSIGNMENTS,
    k49.AlterClientQuotasRequest: None,
    k51.AlterUserScramCredentialsRequest: None,
    k56.AlterPartitionRequest: EventKind.ISR_CHANGE_NOTIFICATION,
    k57.UpdateFeaturesRequest: None,
    k62.BrokerRegistrationRequest: EventKind.BROKER_CHANGE,
    k63.BrokerHeartbeatRequest: EventKind.BROKER_CHANGE,
    k64.UnregisterBrokerRequest: EventKind.BROKER_CHANGE,
    k67.AllocateProducerIdsRequest: None,
    k70.ControllerRegistrationRequest: None,
    k73.AssignReplicasToDirsRequest: None,
}


def broker(broker_id: int, *, fenced: bool = False) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(
        broker_id,
        Uuid(bytes([broker_id] * 16)),
        broker_epoch=broker_id,
        end_points=(r.Endpoint("PLAINTEXT", f"host{broker_id}", 9092, 0),),
        features=supported_features(),
        fenced=fenced,
        log_dirs=(directory(broker_id),),
    )


def directory(broker_id: int) -> Uuid:
    return Uuid(b"d" * 15 + bytes([broker_id]))


def partition(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int) -> r.PartitionRecord:
    return r.PartitionRecord(
        0,
        topic("a").topic_id,
        replicas,
        isr,
        leader=leader,
        leader_epoch=5,
        directories=tuple(map(directory, replicas)),
    )


def whole(*records: r.MetadataRecord, settings: ControllerSettings | None = None) -> Rig:
    """An active controller on a log with these records."""
    rig = Rig(is_whole=True, bootstrap=WHOLE_BOOTSTRAP, settings=settings)
    rig.append(1, *WHOLE_BOOTSTRAP, *records)
    rig.lead(2)
    rig.run()
    rig.commit()
    return rig


def heartbeat(
    broker_id: int, *, offset: int = 0, want_fence: bool = False, want_shut_down: bool = False
) -> k63.BrokerHeartbeatRequest:
    return k63.BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=broker_id,
        current_metadata_offset=offset,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
    )


# The table.


def test_every_request_has_its_operation_and_its_kind() -> None:
    """CTL-27, the triggers of the table."""
    operations = whole().parts.operations
    assert set(operations) == set(KINDS)
    for request_type, kind in KINDS.items():
        assert operations[request_type].kind(request_type()) is kind


@pytest.mark.parametrize("request_type", KINDS, ids=lambda each: each.__name__)
def test_every_operation_answers_an_empty_request(request_type: type) -> None:
    """Bound as it must be: neither a failure of ours nor silence; CTL-30 for a standby."""
    rig = whole()
    rig.submit(1, request_type(), Caller(0))
    rig.run()
    rig.commit()
    rig.run()
    assert [number for number, _ in (*rig.answers, *rig.refusals)] == [1]
    assert rig.controller.is_active
    rig.controller.leadership_lost(2, rig.now_ms)
    rig.submit(2, request_type(), Caller(0))
    rig.run()
    assert rig.refusals[-1] == (2, ErrorCode.NOT_CONTROLLER)


def test_kinds_depend_on_what_is_asked() -> None:
    """CTL-27: controlled shutdown, failed disks, finished deletions, amended registrations."""
    moving = r.PartitionRecord(0, topic("a").topic_id, (1, 2), (1,), adding_replicas=(2,), leader=1)
    rig = whole(broker(1), topic("a"), moving)
    kind = {each: operation.kind for each, operation in rig.parts.operations.items()}
    beat = kind[k63.BrokerHeartbeatRequest]
    assert beat(heartbeat(1, want_shut_down=True)) is EventKind.CONTROLLED_SHUTDOWN
    failed = k63.BrokerHeartbeatRequest(offline_log_dirs=[directory(1)])
    assert beat(failed) is EventKind.LOG_DIR_EVENT_NOTIFICATION
    done = k63.BrokerHeartbeatRequest(deleted_topic_ids=[directory(1)])
    assert beat(done) is EventKind.TOPIC_DELETION_STOP_REPLICA_RESPONSE_RECEIVED
    again = k62.BrokerRegistrationRequest(broker_id=1, incarnation_id=Uuid(bytes([1] * 16)))
    assert kind[k62.BrokerRegistrationRequest](again) is EventKind.BROKER_MODIFICATIONS
    alteration = k56.AlterPartitionRequest(
        topics=[
            k56.RequestTopicData(
                topic_id=topic("a").topic_id,
                partitions=[k56.RequestPartitionData(partition_index=0)],
            )
        ]
    )
    assert kind[k56.AlterPartitionRequest](alteration) is (
        EventKind.PARTITION_REASSIGNMENT_ISR_CHANGE
    )


def test_users_are_limited_and_the_cluster_is_not() -> None:
    """KRF-103: fencing a broker with many partitions must work."""
    operations = whole().parts.operations
    nodes = {
        k56.AlterPartitionRequest,
        k62.BrokerRegistrationRequest,
        k63.BrokerHeartbeatRequest,
        k64.UnregisterBrokerRequest,
        k67.AllocateProducerIdsRequest,
        k70.ControllerRegistrationRequest,
        k73.AssignReplicasToDirsRequest,
    }
    readers = {k46.ListPartitionReassignmentsRequest}
    assert {each for each in operations if operations[each].is_read} == readers
    assert {each for each in operations if operations[each].is_users} == (
        set(operations) - nodes - readers
    )


def test_a_broker_epoch_is_the_offset_of_its_registration() -> None:
    """KRF-107, CTL-46."""
    rig = whole()
    expected = rig.end_offset
    request = k62.BrokerRegistrationRequest(
        broker_id=4,
        cluster_id="cluster",
        incarnation_id=Uuid(b"i" * 16),
        listeners=[k62.Listener(name="PLAINTEXT", host="h", port=1, security_protocol=0)],
        features=[
            k62.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in supported_features()
        ],
        log_dirs=[directory(4)],
    )
    rig.submit(1, request, Caller(4))
    rig.run()
    rig.commit()
    rig.run()
    ((_, answer),) = rig.answers
    assert isinstance(answer, k62.BrokerRegistrationResponse)
    assert answer.broker_epoch == expected == rig.context.stable.brokers[4].broker_epoch


# Activation.


def test_a_new_controller_gives_leaderless_partitions_a_leader() -> None:
    """CTL-13: a live member of the ISR is enough, whatever the one before left undone."""
    rig = whole(broker(1), broker(2), topic("a"), partition((1, 2), (1, 2), r.NO_LEADER))
    after = rig.context.stable.topics["a"].partitions[0]
    assert (after.leader, after.leader_epoch) == (1, 6)


@pytest.mark.parametrize(
    ("isr", "leader"),
    [((2,), 2), ((2,), r.NO_LEADER), ((1, 2), 1), ((1, 2), 2)],
    ids=["still led", "leaderless", "both, led by 1", "both, led by 2"],
)
def test_both_orders_of_the_incident_end_without_a_leader(
    isr: tuple[int, ...], leader: int
) -> None:
    """CTL-14, CTL-69: replicas 1 and 2 are gone; the last member of the ISR is kept."""
    rig = whole(
        *(r.FeatureLevelRecord("eligible.leader.replicas.version", 0),),
        broker(1, fenced=True),
        broker(2, fenced=True),
        broker(3),
        topic("a"),
        partition((1, 2), isr, leader),
    )
    rig.run_until(START_MS + 100)
    assert "reevaluate" not in rig.controller.describe().timers
    after = rig.context.stable.topics["a"].partitions[0]
    assert (after.leader, after.isr) == (r.NO_LEADER, (2,))


def test_a_leader_that_is_gone_is_replaced_by_one_that_is_there() -> None:
    """CTL-14: the offline transition first, then the election."""
    rig = whole(broker(1, fenced=True), broker(2), topic("a"), partition((1, 2), (1, 2), leader=1))
    after = rig.context.stable.topics["a"].partitions[0]
    assert (after.leader, after.isr) == (2, (2,))


def many_partitions(count: int, *, leader: int = 1) -> list[r.MetadataRecord]:
    topic_id = topic("a").topic_id
    return [
        topic("a"),
        *(
            r.PartitionRecord(number, topic_id, (1, 3), (1, 3), leader=leader, leader_epoch=5)
            for number in range(count)
        ),
    ]


def test_every_absent_broker_is_taken_offline_in_parts() -> None:
    """CTL-14 for many: 100 partitions at once, then the next ones, then the next broker."""
    all_three = (2, 1, 3)
    other = r.PartitionRecord(0, topic("b").topic_id, all_three, all_three, leader=2)
    absent = broker(1, fenced=True), broker(2, fenced=True)
    rig = whole(*absent, broker(3), *many_partitions(201), topic("b"), other)
    assert [len(each.records) for each in rig.appended] == [100, 100, 2, 1]
    assert rig.context.partitions.led_count(3) == 202
    assert rig.context.stable.topics["b"].partitions[0].isr == (3,)
    assert "reevaluate" not in rig.controller.describe().timers


def kinds(records: tuple[r.MetadataRecord, ...]) -> list[str]:
    """Partitions by their number, and what is about brokers by its name."""
    return [
        str(each.partition_id) if isinstance(each, r.PartitionChangeRecord) else type(each).__name__
        for each in records
    ]


def in_twos(*records: r.MetadataRecord) -> Rig:
    """An active controller that looks at two partitions at once."""
    rig = whole(*records, settings=ControllerSettings(1, "cluster", partitions_at_once=2))
    rig.effects.clear()
    return rig


CHANGE = "BrokerRegistrationChangeRecord"


@pytest.mark.parametrize(
    ("wish", "batches"),
    [
        ({"want_fence": True}, [["0", "1"], ["2", "3"], ["4", CHANGE]]),
        # Its own record comes first in its batch: the broker is never seen to lead and to stop.
        ({"want_shut_down": True}, [["0", "1"], ["2", "3"], [CHANGE, "4"]]),
    ],
)
def test_a_broker_leaves_in_parts(wish: dict[str, bool], batches: list[list[str]]) -> None:
    """The answer waits for the last, and nobody is served in between, whatever is due."""
    rig = in_twos(broker(1), broker(3), *many_partitions(5))
    offset = rig.end_offset - 1
    rig.submit(1, heartbeat(1, offset=offset, **wish), Caller(2))
    rig.submit(2, heartbeat(3, offset=offset, want_fence=True), Caller(2))
    rig.poll()
    # Time for a sign of life in the log, which goes before all that waits, but not before this.
    rig.now_ms += 600
    rig.poll()
    rig.poll()
    assert [kinds(each.records) for each in rig.appended] == batches
    assert rig.answers == []
    rig.commit()
    # The brokers are looked for, too.
    rig.poll()
    rig.poll()
    assert kinds(rig.appended[-1].records) == ["NoOpRecord"]
    [(request_id, answer)] = rig.answers
    assert request_id == 1
    assert answer.is_fenced is ("want_fence" in wish)  # type: ignore[attr-defined]


def test_a_broker_comes_in_parts() -> None:
    """It is there first, then it leads."""
    rig = in_twos(broker(1, fenced=True), broker(3, fenced=True), *many_partitions(4, leader=-1))
    rig.submit(1, heartbeat(3, offset=rig.end_offset - 1), Caller(2))
    rig.run()
    assert [kinds(each.records) for each in rig.appended] == [[CHANGE, "0"], ["1", "2"], ["3"]]
    assert rig.context.partitions.led_count(3) == 4


def test_a_dead_broker_and_a_stale_one_are_fenced_in_parts() -> None:
    rig = in_twos(broker(1), broker(3), *many_partitions(3))
    rig.controller.note_contact(3, 3, rig.now_ms + 8_000)
    rig.run_until(START_MS + 9_000)
    rig.effects.clear()
    rig.run_until(START_MS + 9_001)
    fencing = [kinds(each.records) for each in rig.appended]
    assert fencing == [["0", "1"], ["2", CHANGE]]
    rig.controller.note_disconnected(3, rig.now_ms)
    rig.run()
    rig.effects.clear()
    rig.controller.note_refused(3, rig.now_ms)
    rig.run()
    assert [kinds(each.records) for each in rig.appended] == [["0", "1"], ["2", CHANGE]]
    assert not rig.context.live_broker_ids


def test_a_registration_and_an_unregistration_in_parts() -> None:
    rig = in_twos(broker(1), broker(3), *many_partitions(3))
    rig.submit(1, k64.UnregisterBrokerRequest(broker_id=1), Caller(0))
    rig.run()
    sizes = [kinds(each.records) for each in rig.appended]
    assert sizes == [["0", "1"], ["2", "UnregisterBrokerRecord"]]
    assert list(rig.context.image.brokers) == [3]


def test_a_controller_that_loses_its_role_between_two_parts_does_not_go_on() -> None:
    """KRF-60: what was decided and not handed to Raft is never written. Whoever asked is told."""
    rig = in_twos(broker(1), broker(3), *many_partitions(5))
    rig.submit(1, heartbeat(1, offset=rig.end_offset - 1, want_fence=True), Caller(2))
    rig.poll()
    assert rig.context.partitions.led_count(3) == 2
    rig.controller.leadership_lost(2, rig.now_ms)
    rig.run()
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER)]
    assert len(rig.appended) == 1
    assert rig.context.partitions.led_count(3) == 0


def test_a_cluster_in_order_is_left_alone() -> None:
    rig = whole(broker(1), broker(2), topic("a"), partition((1, 2), (1, 2), leader=2))
    assert rig.appended == []


def test_a_move_that_waits_for_a_broker_goes_on_when_it_comes() -> None:
    """CTL-64: nobody has to ask again; its replica joins, and that is the end of the move."""
    rig = whole(
        broker(1),
        broker(2),
        broker(3, fenced=True),
        topic("a"),
        partition((1, 2), (1, 2), leader=1),
    )
    move = k45.ReassignablePartition(partition_index=0, replicas=[1, 3])
    asked = [k45.ReassignableTopic(name="a", partitions=[move])]
    rig.submit(1, k45.AlterPartitionReassignmentsRequest(topics=asked), Caller(0))
    rig.run()
    rig.commit()
    waiting = rig.context.stable.topics["a"].partitions[0]
    assert (waiting.replicas, waiting.isr) == ((1, 3, 2), (1, 2))
    assert (waiting.adding_replicas, waiting.removing_replicas) == ((3,), (2,))
    joining = [
        k56.BrokerState(broker_id=broker_id, broker_epoch=broker_id) for broker_id in (1, 2, 3)
    ]

    def join(request_id: int) -> ErrorCode:
        alteration = k56.RequestPartitionData(
            leader_epoch=waiting.leader_epoch,
            new_isr_with_epochs=joining,
            partition_epoch=waiting.partition_epoch,
        )
        topics = [k56.RequestTopicData(topic_id=topic("a").topic_id, partitions=[alteration])]
        request = k56.AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=topics)
        rig.submit(request_id, request, Caller(3))
        rig.run()
        rig.commit()
        rig.run()
        answer: k56.AlterPartitionResponse = dict(rig.answers)[request_id]  # type: ignore[assignment]
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    assert join(2) is ErrorCode.INELIGIBLE_REPLICA
    rig.submit(3, heartbeat(3, offset=rig.end_offset - 1), Caller(2))
    rig.run()
    rig.commit()
    assert join(4) is ErrorCode.NONE
    done = rig.context.stable.topics["a"].partitions[0]
    assert (done.replicas, done.isr, done.leader) == ((1, 3), (1, 3), 1)
    assert not done.adding_replicas
    assert not done.removing_replicas


def test_permission_for_many_topics_is_one_event() -> None:
    """Each takes its turn before all that waits: one for each topic would hold everybody up."""
    names = [f"topic-{number}" for number in range(50)]
    rig = whole(*(topic(name) for name in names))
    permission = k44.AlterableConfig(
        name="unclean.leader.election.enable", config_operation=0, value="true"
    )
    resources = [
        k44.AlterConfigsResource(resource_type=2, resource_name=name, configs=[permission])
        for name in names
    ]
    rig.submit(1, k44.IncrementalAlterConfigsRequest(resources=resources), Caller(1))
    rig.poll()
    waiting = [tag for tag in rig.controller.describe().timers if tag.startswith("bringOnline")]
    assert waiting == ["bringOnline"]


# Tasks.


def test_signs_of_life_in_the_log() -> None:
    """KRF-105, CTL-9: every half second, and none after the leadership."""
    rig = whole()
    rig.run_until(START_MS + 2_400)
    assert [each.records for each in rig.appended] == [(r.NoOpRecord(),)] * 4
    rig.controller.leadership_lost(2, rig.now_ms)
    rig.run_until(START_MS + 60_000)
    assert len(rig.appended) == 4


def test_tasks_that_are_switched_off() -> None:
    """CTL-138."""
    rig = whole(
        settings=ControllerSettings(
            1, "cluster", metadata_max_idle_interval_ms=0, auto_leader_rebalance_enable=False
        )
    )
    assert sorted(rig.controller.describe().timers) == [
        "electUncleanLeaders",
        "fenceStaleBrokers",
        "lookForBrokers",
    ]


def test_leaders_are_balanced_after_five_seconds_and_then_in_the_interval() -> None:
    """CTL-138, CTL-9."""
    rig = whole(
        broker(1),
        broker(2),
        topic("a"),
        partition((1, 2), (1, 2), leader=2),
        settings=ControllerSettings(1, "cluster", broker_session_timeout_ms=10_000_000),
    )
    rig.run_until(START_MS + 4_999)
    assert rig.context.image.topics["a"].partitions[0].leader == 2
    rig.run_until(START_MS + 5_000)
    assert rig.context.image.topics["a"].partitions[0].leader == 1


def test_silent_brokers_are_fenced_one_after_the_other() -> None:
    """CTL-55, CTL-56, CTL-57, KRF-111, KRF-112: after a whole session of the new controller."""
    rig = whole(broker(1), broker(2), broker(3))
    rig.now_ms += 5_000
    rig.controller.note_contact(3, 3, rig.now_ms)
    rig.now_ms -= 5_000
    rig.run_until(START_MS + 9_000)
    assert rig.context.live_broker_ids == (1, 2, 3)
    rig.effects.clear()
    # In the millisecond in which their sessions end.
    rig.run_until(START_MS + 9_001)
    fencing = [
        record
        for effect in rig.effects
        if isinstance(effect, AppendRecords)
        for record in effect.records
        if isinstance(record, r.BrokerRegistrationChangeRecord)
    ]
    assert [record.broker_id for record in fencing] == [1, 2]
    assert rig.context.live_broker_ids == (3,)


def test_a_broker_that_is_dead_by_evidence_is_fenced_at_once() -> None:
    """Decision 14, through the product's operation."""
    rig = whole(broker(1), broker(2), topic("a"), partition((1, 2), (1, 2), leader=1))
    rig.controller.note_contact(1, 1, rig.now_ms)
    rig.controller.note_contact(2, 2, rig.now_ms)
    rig.controller.note_disconnected(1, rig.now_ms)
    assert ProbeBroker(1, "host1", 9092) in rig.run()
    rig.controller.note_refused(1, rig.now_ms)
    rig.run()
    assert rig.context.image.brokers[1].fenced
    assert rig.context.image.topics["a"].partitions[0].leader == 2


def test_a_late_heartbeat_is_noted_and_refused() -> None:
    """KRF-106, KRF-111: half the interval is its limit."""
    rig = whole(broker(1))
    offset = rig.end_offset - 1
    rig.submit(1, heartbeat(1, offset=offset, want_fence=True), Caller(2))
    rig.now_ms += 1_000
    rig.run()
    assert rig.refusals == [(1, ErrorCode.REQUEST_TIMED_OUT)]
    assert rig.context.heartbeats is not None
    assert rig.context.heartbeats.metadata_offset(1) == offset
    assert not rig.context.image.brokers[1].fenced
    rig.submit(2, heartbeat(9), Caller(2))
    rig.now_ms += 1_000
    rig.run()
    assert rig.refusals[-1] == (2, ErrorCode.REQUEST_TIMED_OUT)


def test_waiting_elections_and_shutdowns_are_preempted_as_a_whole() -> None:
    """CTL-22: the API makes of it an error for each partition, or for the broker."""
    rig = whole(broker(1))
    rig.submit(1, k43.ElectLeadersRequest(), Caller(2))
    rig.submit(2, heartbeat(1, want_shut_down=True), Caller(2))
    rig.controller.leadership_lost(2, rig.now_ms)
    rig.run()
    assert rig.refusals == [(1, ErrorCode.NOT_CONTROLLER), (2, ErrorCode.NOT_CONTROLLER)]


def test_a_topic_is_created_and_told_when_it_is_committed() -> None:
    """KRF-98 with the product's operation; a colliding name is seen in what is not committed."""
    rig = whole(broker(1))
    wanted = k19.CreatableTopic(name="orders.new", num_partitions=2, replication_factor=1)
    rig.submit(1, k19.CreateTopicsRequest(topics=[wanted]), Caller(7))
    colliding = k19.CreatableTopic(name="orders_new", num_partitions=1, replication_factor=1)
    rig.submit(2, k19.CreateTopicsRequest(topics=[colliding]), Caller(7))
    rig.run()
    assert rig.answers == []
    rig.commit()
    first, second = (effect for effect in rig.run() if isinstance(effect, Answer))
    assert isinstance(first.response, k19.CreateTopicsResponse)
    assert isinstance(second.response, k19.CreateTopicsResponse)
    assert first.response.topics[0].error_code == ErrorCode.NONE
    assert second.response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
