"""The context: every field of the specification, and settings by their order of strength."""

from __future__ import annotations

from dataclasses import replace

import pytest
from controller_runs import SETTINGS, Life, broker, directory, partition, topic_id
from timeline_rig import let_happen

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.context import ELR_FEATURE, ControllerContext
from kraftpy.metadata.controller.transitions import PartitionState, ReplicaState
from kraftpy.metadata.image import Provenance

BASE = (
    *(broker(1), broker(2), broker(3, fenced=True), broker(4)),
    r.BrokerRegistrationChangeRecord(4, 10, in_controlled_shutdown=True),
    *(r.TopicRecord("a", topic_id(1)), partition(1, 0, 1, 2), partition(1, 1, 2, 3)),
    *(r.TopicRecord("old", topic_id(2)), partition(2, 0, 1, 3), r.RemoveTopicRecord(topic_id(2))),
)


def config(resource_type: int, name: str, key: str, value: str | None) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type, name, key, value)


def test_every_field_can_be_derived() -> None:
    """CTL-31: the seventeen fields, from records alone but for the epoch."""
    life = Life(*BASE)
    life.append(
        r.BrokerRegistrationChangeRecord(2, 10, log_dirs=(directory(5),)),
        r.PartitionChangeRecord(1, topic_id(1), leader=-1, adding_replicas=(3,), isr=(2,)),
    )
    context = life.context
    assert context.partition_states.unclean_election_count == 0
    assert context.partition_states.offline_count == 1
    assert context.shutting_down_broker_ids == (4,)
    assert [each.broker_id for each in context.live_brokers] == [1, 2, 4]
    assert context.live_broker_epochs == {1: 10, 2: 10, 4: 10}
    assert context.epoch == 0
    assert list(context.image.topics) == ["a"]
    assert context.replica_assignment(topic_id(1), 1) == (2, 3)
    assert [each.leader for _, each in context.all_partitions] == [1, -1]
    assert [each.partition_id for _, each in context.partitions.reassigning()] == [1]
    assert context.partition_states.state(topic_id(1), 1) is PartitionState.OFFLINE
    assert context.replica_states.state(topic_id(1), 0, 1) is ReplicaState.ONLINE
    offline = context.replicas_on_offline_dirs(2)
    assert [each.partition_id for _, each in offline] == [0, 1]
    assert [each.name for each in context.deletions.topics_to_delete] == ["old"]
    assert [each.name for each in context.deletions.topics_ineligible] == ["old"]


def test_live_brokers_with_and_without_those_shutting_down() -> None:
    """CTL-32."""
    context = Life(*BASE).context
    assert context.live_broker_ids == (1, 2)
    assert context.live_or_shutting_down_broker_ids == (1, 2, 4)


def test_unknown_arguments_are_empty() -> None:
    """CTL-33."""
    context = Life(*BASE).context
    assert len(context.partitions_for_topic("a")) == 2
    assert context.partitions_for_topic("b") == ()
    assert context.replica_assignment(topic_id(7), 0) == ()
    assert context.replica_assignment(topic_id(1), 2) == ()
    assert list(context.replicas_on_offline_dirs(9)) == []
    assert context.replicas_in_state(topic_id(7), ReplicaState.ONLINE) == []


def test_replicas_of_a_topic_by_state() -> None:
    """Of a living topic and of a removed one."""
    context = Life(*BASE).context
    offline = context.replicas_in_state(topic_id(1), ReplicaState.OFFLINE)
    assert offline == [r.PendingReplica(1, 3)]
    assert context.is_any_replica_in_state(topic_id(1), ReplicaState.OFFLINE)
    assert not context.are_all_replicas_in_state(topic_id(1), ReplicaState.ONLINE)
    waiting = context.replicas_in_state(topic_id(2), ReplicaState.DELETION_INELIGIBLE)
    assert waiting == [r.PendingReplica(0, 3)]
    assert not context.is_any_replica_in_state(topic_id(2), ReplicaState.ONLINE)


def test_committed_and_not() -> None:
    """CTL-36: what isn't committed is in the image, and gone after a revert."""
    life = Life(*BASE)
    life.append(r.TopicRecord("b", topic_id(3)))
    assert life.context.pending_offset == life.offset
    assert "b" in life.context.image.topics
    assert "b" not in life.context.stable.topics
    life.revert()
    assert life.context.pending_offset is None
    assert "b" not in life.context.image.topics


def test_settings_by_strength() -> None:
    """The topic's, this node's, the cluster's, the file's, the default."""
    static = {"min.insync.replicas": "2", "log.segment.bytes": "7000000"}
    context = ControllerContext(replace(SETTINGS, static_configs=static))
    offset = -1
    assert ControllerContext(SETTINGS).min_insync_replicas("a") == 1
    assert context.min_insync_replicas("a") == 2
    assert context.topic_config("a", "segment.bytes") == "7000000"
    for record, expected in (
        (config(4, "", "min.insync.replicas", "3"), 3),
        (config(4, "2", "min.insync.replicas", "9"), 3),
        (config(4, "1", "min.insync.replicas", "4"), 4),
        (config(2, "a", "min.insync.replicas", "5"), 5),
        (config(2, "a", "min.insync.replicas", None), 4),
        (config(4, "1", "min.insync.replicas", None), 3),
    ):
        offset += 1
        let_happen(context, [record], Provenance(offset, 1, 0))
        assert context.min_insync_replicas("a") == expected
        assert context.topic_config("a", "min.insync.replicas") == str(expected)


@pytest.mark.parametrize(("text", "expected"), [("true", True), (" TRUE ", True), ("x", False)])
def test_unclean_election_is_allowed_by_topic(text: str, expected: bool) -> None:
    """CTL-128: a topic's setting counts before the cluster's; what can't be read does nothing."""
    life = Life(*BASE, config(2, "a", "unclean.leader.election.enable", text))
    assert life.context.allows_unclean("a") is expected
    assert not life.context.allows_unclean("b")
    life.append(config(4, "", "unclean.leader.election.enable", "true"))
    assert life.context.allows_unclean("b")
    life.append(config(2, "b", "unclean.leader.election.enable", "false"))
    assert not life.context.allows_unclean("b")


def test_broken_numbers_fall_back_to_what_is_behind() -> None:
    life = Life(*BASE, config(4, "", "min.insync.replicas", "2"))
    for broken in ("0", "many", ""):
        life.append(config(2, "a", "min.insync.replicas", broken))
        assert life.context.min_insync_replicas("a") == 2


def test_eligible_leader_replicas_are_a_feature() -> None:
    life = Life(*BASE)
    assert not life.context.is_elr_enabled
    life.append(r.FeatureLevelRecord(ELR_FEATURE, 1))
    assert life.context.is_elr_enabled
    life.append(r.FeatureLevelRecord(ELR_FEATURE, 0))
    assert not life.context.is_elr_enabled
