"""Heartbeats: every cell of the table of states, with the records and the flags of its answer."""

from __future__ import annotations

from itertools import product

import pytest
from broker_cluster import (
    CALLER,
    OTHER_TOPIC,
    SESSION_MS,
    TOPIC,
    BrokerCluster,
    directory,
)

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.broker_states import BrokerState, Wishes, next_state
from kraftpy.metadata.controller.replica_states import ReplicaState
from kraftpy.metadata.controller.result import ControllerError
from kraftpy.protocol.errors import ErrorCode

FENCED, UNFENCED = BrokerState.FENCED, BrokerState.UNFENCED
SHUTTING_DOWN, SHUTDOWN_NOW = BrokerState.CONTROLLED_SHUTDOWN, BrokerState.SHUTDOWN_NOW

# Kafka's table, one line for each of its rows: the state, what the heartbeat must say (None: any),
# and what follows. The first line that fits counts.
ROWS: tuple[tuple[BrokerState, dict[str, bool], BrokerState], ...] = (
    (FENCED, {"shut_down": True}, SHUTDOWN_NOW),
    (FENCED, {"fence": False, "is_caught_up": True}, UNFENCED),
    (FENCED, {}, FENCED),
    (UNFENCED, {"fence": True, "shut_down": True}, SHUTDOWN_NOW),
    (UNFENCED, {"fence": True}, FENCED),
    (UNFENCED, {"shut_down": True, "leads": True}, SHUTTING_DOWN),
    (UNFENCED, {"shut_down": True, "leads": False}, SHUTDOWN_NOW),
    (UNFENCED, {}, UNFENCED),
    (SHUTTING_DOWN, {"leads": True}, SHUTTING_DOWN),
    (SHUTTING_DOWN, {"is_shutdown_known": True}, SHUTDOWN_NOW),
    (SHUTTING_DOWN, {}, SHUTTING_DOWN),
)
WISHES = ("fence", "shut_down", "is_caught_up", "leads", "is_shutdown_known")


@pytest.mark.parametrize("present", [FENCED, UNFENCED, SHUTTING_DOWN])
def test_every_cell_of_the_table(present: BrokerState) -> None:
    """KRF-110, CTL-83: all 32 combinations of each state."""
    for values in product([False, True], repeat=len(WISHES)):
        wishes = dict(zip(WISHES, values, strict=True))
        expected = next(
            after
            for before, needed, after in ROWS
            if before is present and needed.items() <= wishes.items()
        )
        assert next_state(present, Wishes(**wishes)) is expected, wishes


def flags(cluster: BrokerCluster, broker_id: int, **fields: object) -> tuple[bool, bool, bool]:
    answer = cluster.beat(broker_id, **fields)  # type: ignore[arg-type]
    return answer.is_caught_up, answer.is_fenced, answer.should_shut_down


def change(broker_id: int, cluster: BrokerCluster, **fields: object) -> r.MetadataRecord:
    epoch = cluster.broker(broker_id).broker_epoch
    return r.BrokerRegistrationChangeRecord(broker_id, epoch, **fields)  # type: ignore[arg-type]


def two_brokers() -> BrokerCluster:
    """Both lead and follow; broker 1 has a partition alone."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([1, 2], [2, 1], [1])
    return cluster


def test_fenced_until_its_own_registration_is_replayed() -> None:
    """CTL-52, CTL-53, KRF-109: one record short is too short."""
    cluster = BrokerCluster()
    epoch = cluster.register(1)
    cluster.happen(r.NoOpRecord())
    assert flags(cluster, 1, offset=epoch - 1) == (False, True, False)
    assert flags(cluster, 1, offset=epoch, want_fence=True) == (True, True, False)
    assert cluster.broker(1).fenced
    result = cluster.ask_beat(1, epoch)
    assert result.records == (change(1, cluster, fenced=-1),)
    assert not cluster.carry_out(result).is_fenced
    assert not cluster.broker(1).fenced
    assert cluster.ask_beat(1, epoch).records == ()


def test_unfencing_gives_leaders_to_what_has_none() -> None:
    """CTL-63: the broker is there first, then it leads."""
    cluster = two_brokers()
    cluster.die(1)
    cluster.die(2)
    assert cluster.leaders() == [-1, -1, -1]
    assert cluster.in_sync() == [(2,), (2,), (1,)]
    result = cluster.ask_beat(2)
    assert result.records[0] == change(2, cluster, fenced=-1)
    assert cluster.carry_out(result).is_fenced is False
    assert cluster.leaders() == [2, 2, -1]
    cluster.beat(1)
    assert cluster.leaders() == [2, 2, 1]


def test_a_broker_that_wants_to_be_fenced() -> None:
    """KRF-110, CTL-66, CTL-69: partitions first, then the fence."""
    cluster = two_brokers()
    result = cluster.ask_beat(1, want_fence=True)
    assert result.records == (
        r.PartitionChangeRecord(0, TOPIC, isr=(2,), leader=2),
        r.PartitionChangeRecord(1, TOPIC, isr=(2,)),
        r.PartitionChangeRecord(2, TOPIC, leader=-1),
        change(1, cluster, fenced=1),
    )
    answer = cluster.carry_out(result)
    assert (answer.is_fenced, answer.should_shut_down) == (True, False)
    assert cluster.in_sync() == [(2,), (2,), (1,)]
    assert cluster.table.has_session(1, cluster.now_ms)


def test_a_broker_that_wants_to_be_fenced_and_to_stop() -> None:
    """KRF-110: it needn't wait for anybody."""
    cluster = two_brokers()
    assert flags(cluster, 1, want_fence=True, want_shut_down=True) == (True, True, True)
    assert cluster.broker(1).fenced
    assert not cluster.broker(1).in_controlled_shutdown
    assert cluster.leaders() == [2, 2, -1]


def test_a_fenced_broker_may_stop_at_once() -> None:
    """CTL-83: and its next process may come at once, too."""
    cluster = BrokerCluster()
    cluster.register(1)
    result = cluster.ask_beat(1, -1, want_shut_down=True)
    assert result.records == ()
    answer = cluster.carry_out(result)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)
    assert cluster.register(1, process=2)


@pytest.mark.parametrize("epoch", [-1, 0, 10**6])
def test_a_stale_epoch(epoch: int) -> None:
    """CTL-54"""
    cluster = BrokerCluster()
    cluster.start(1)
    cluster.now_ms += SESSION_MS
    with pytest.raises(ControllerError) as caught:
        cluster.ask_beat(1, broker_epoch=epoch)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert not cluster.table.has_session(1, cluster.now_ms + 1)


def test_a_stranger() -> None:
    """CTL-54"""
    cluster = BrokerCluster()
    with pytest.raises(ControllerError) as caught:
        cluster.ask_beat(7)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_nobody_has_replayed_what_is_not_written() -> None:
    cluster = BrokerCluster()
    cluster.start(1)
    cluster.beat(1, 2**63 - 1)
    assert cluster.table.metadata_offset(1) == cluster.next_offset - 1
    cluster.beat(1, -(2**63))
    assert cluster.table.metadata_offset(1) == cluster.next_offset - 1


def test_heartbeats_make_new_replicas_online() -> None:
    """The replica states learn of what brokers have replayed."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([1, 2])
    state = cluster.context.replica_states.state
    assert state(TOPIC, 0, 1) is ReplicaState.NEW
    cluster.beat(1, cluster.next_offset - 2)
    assert state(TOPIC, 0, 1) is ReplicaState.NEW
    cluster.beat(1, cluster.next_offset - 1)
    assert state(TOPIC, 0, 1) is ReplicaState.ONLINE
    assert state(TOPIC, 0, 2) is ReplicaState.NEW


def test_a_heartbeat_that_waited_too_long_is_noted_and_no_more() -> None:
    """KRF-111"""
    cluster = BrokerCluster()
    epoch = cluster.register(1)
    cluster.now_ms += SESSION_MS + 1
    request = cluster.request(1)
    cluster.control.late_heartbeat(request, cluster.now_ms, cluster.next_offset)
    assert cluster.table.has_session(1, cluster.now_ms)
    assert cluster.table.metadata_offset(1) == epoch
    assert cluster.broker(1).fenced
    for stale in (cluster.request(1, broker_epoch=epoch + 1), cluster.request(2)):
        cluster.control.late_heartbeat(stale, cluster.now_ms, cluster.next_offset)


def test_an_unfenced_broker_always_has_a_session() -> None:
    """Even if it ended while its heartbeat waited: else nobody would ever fence it."""
    cluster = BrokerCluster()
    cluster.register(1)
    cluster.table.end_session(1)
    request = cluster.request(1)
    result = cluster.control.heartbeat(request, CALLER, cluster.now_ms, cluster.next_offset)
    cluster.carry_out(result)
    assert not cluster.broker(1).fenced
    assert cluster.table.oldest_expired(cluster.now_ms + SESSION_MS + 1) == 1


# Directories.


def two_disks() -> BrokerCluster:
    """Broker 1 leads three partitions: on disk 0, on disk 1, and on a disk not chosen yet."""
    cluster = BrokerCluster()
    cluster.start(1, log_dirs=[directory(1, 0), directory(1, 1)])
    cluster.start(2)
    cluster.topic([1, 2], [1, 2], [1, 2])
    for number, place in ((1, directory(1, 1)), (2, r.DIRECTORY_UNASSIGNED)):
        places = (place, directory(2))
        cluster.happen(r.PartitionChangeRecord(number, TOPIC, directories=places))
    return cluster


def test_a_failed_directory() -> None:
    """CTL-71, KRF-115: what is on it moves, what is elsewhere stays; said once."""
    cluster = two_disks()
    result = cluster.ask_beat(1, offline_log_dirs=[directory(1, 0), directory(7)])
    assert result.records == (
        r.PartitionChangeRecord(0, TOPIC, isr=(2,), leader=2),
        change(1, cluster, log_dirs=(directory(1, 1),)),
    )
    assert not cluster.carry_out(result).is_fenced
    assert cluster.leaders() == [2, 1, 1]
    again = cluster.ask_beat(1, offline_log_dirs=[directory(1, 0)])
    assert again.records == ()


def test_a_broker_whose_directories_all_failed_is_fenced() -> None:
    """It can't serve, and can't be unfenced while that is so."""
    cluster = two_disks()
    gone = [directory(1, 0), directory(1, 1)]
    assert flags(cluster, 1, offline_log_dirs=gone) == (True, True, False)
    assert cluster.leaders() == [2, 2, 2]
    assert cluster.ask_beat(1, offline_log_dirs=gone).records == ()
    assert cluster.broker(1).fenced


def test_a_directory_that_fails_while_the_broker_is_unfenced() -> None:
    """It is not elected for what lies there."""
    cluster = two_disks()
    cluster.die(2)
    cluster.die(1)
    assert cluster.in_sync() == [(1,)] * 3
    cluster.beat(1, offline_log_dirs=[directory(1, 1)])
    assert not cluster.broker(1).fenced
    assert cluster.broker(1).log_dirs == (directory(1, 0),)
    assert cluster.leaders() == [1, -1, 1]


def test_a_directory_that_fails_while_the_broker_is_being_fenced() -> None:
    cluster = two_disks()
    result = cluster.ask_beat(1, want_fence=True, offline_log_dirs=[directory(1, 0)])
    assert result.records[-1] == change(1, cluster, fenced=1, log_dirs=(directory(1, 1),))
    cluster.carry_out(result)
    assert cluster.leaders() == [2, 2, 2]
    numbers = [each.partition_id for each in result.records[:-1]]  # type: ignore[union-attr]
    assert numbers == [0, 1, 2]


def test_cordoned_directories() -> None:
    """Null says nothing, an empty list that there are none; written when it differs."""
    cluster = two_disks()
    assert cluster.ask_beat(1, cordoned_log_dirs=[]).records == ()
    cordoned = [directory(1, 1), directory(9)]
    result = cluster.ask_beat(1, cordoned_log_dirs=cordoned)
    assert result.records == (change(1, cluster, cordoned_log_dirs=(directory(1, 1),)),)
    cluster.carry_out(result)
    assert cluster.ask_beat(1, cordoned_log_dirs=cordoned).records == ()
    assert cluster.ask_beat(1, cordoned_log_dirs=None).records == ()
    cluster.beat(1, cordoned_log_dirs=[])
    assert cluster.broker(1).cordoned_log_dirs == ()


@pytest.mark.parametrize("level", [16, 29])
def test_older_clusters_have_no_records_for_directories(level: int) -> None:
    cluster = BrokerCluster(level=level)
    log_dirs = [directory(1, 0), directory(1, 1)]
    cluster.start(1, log_dirs=log_dirs)
    assert cluster.ask_beat(1, cordoned_log_dirs=log_dirs[:1]).records == ()
    lost = cluster.ask_beat(1, offline_log_dirs=log_dirs[:1])
    assert bool(lost.records) is (level >= 17)


# Deletions.


def test_reports_of_unlinked_topics() -> None:
    """Spec 10.6, CTL-65: each replica of the broker's is reported once, until all are gone."""
    cluster = BrokerCluster()
    cluster.start(1, 2)
    cluster.topic([1, 2], [2, 1])
    cluster.happen(r.RemoveTopicRecord(TOPIC))
    result = cluster.ask_beat(1, deleted_topic_ids=[TOPIC, OTHER_TOPIC, TOPIC])
    assert result.records == (
        r.ReplicaDeletedRecord(TOPIC, 0, 1),
        r.ReplicaDeletedRecord(TOPIC, 1, 1),
    )
    cluster.carry_out(result)
    assert cluster.ask_beat(1, deleted_topic_ids=[TOPIC]).records == ()
    cluster.fail_over()
    cluster.beat(2, deleted_topic_ids=[TOPIC])
    assert cluster.context.deletions.topics_to_delete_count == 0
