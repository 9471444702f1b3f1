"""Topic deletion: tracked in records until each broker has reported that its files are gone."""

from __future__ import annotations

from random import Random

from controller_runs import (
    GONE,
    INELIGIBLE,
    STARTED,
    Life,
    broker,
    directory,
    led_along,
    partition,
    topic_id,
)
from hypothesis import given
from hypothesis import strategies as st
from metadata_sequences import RecordSource

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.context import ControllerContext

BASE = (broker(1), broker(2), broker(3), r.TopicRecord("orders", topic_id(1)))
PARTITIONS = (partition(1, 0, 1, 2), partition(1, 1, 2, 3))
REMOVE = r.RemoveTopicRecord(topic_id(1))


def change(broker_id: int, fenced: int) -> r.BrokerRegistrationChangeRecord:
    return r.BrokerRegistrationChangeRecord(broker_id, 10, fenced=fenced)


def counts(context: ControllerContext) -> tuple[int, int, int, int]:
    """Topics and replicas to delete, and how many of them can't be now."""
    deletions = context.deletions
    return (
        deletions.topics_to_delete_count,
        deletions.replicas_to_delete_count,
        deletions.topics_ineligible_count,
        deletions.replicas_ineligible_count,
    )


def test_a_topic_goes_when_its_last_replica_is_reported() -> None:
    """CTL-105, 109, 116: started at once, complete with the last report."""
    life = Life(*BASE, *PARTITIONS)
    life.append(REMOVE)
    assert "orders" not in life.context.image.topics
    assert counts(life.context) == (1, 4, 0, 0)
    assert life.state(1, 0, 1) == life.state(1, 1, 2) == STARTED
    records = life.context.deletions.reported(2, [topic_id(1), topic_id(9), topic_id(1)])
    assert records == (
        r.ReplicaDeletedRecord(topic_id(1), 0, 2),
        r.ReplicaDeletedRecord(topic_id(1), 1, 2),
    )
    life.append(*records)
    assert counts(life.context) == (1, 2, 0, 0)
    assert life.state(1, 0, 2) == GONE
    assert life.context.deletions.reported(2, [topic_id(1)]) == ()
    assert life.context.deletions.pending_on(1) == [topic_id(1)]
    assert life.context.deletions.pending_on(2) == []
    for broker_id in (1, 3):
        life.append(*life.context.deletions.reported(broker_id, [topic_id(1)]))
    assert counts(life.context) == (0, 0, 0, 0)


def test_a_broker_that_is_down_holds_back_only_its_own_part() -> None:
    """CTL-100, CTL-101: ineligible while it is away, deleted when it is back, unasked."""
    life = Life(*BASE, *PARTITIONS, change(3, 1))
    life.append(REMOVE)
    assert counts(life.context) == (1, 4, 1, 1)
    assert [each.name for each in life.context.deletions.topics_ineligible] == ["orders"]
    assert life.state(1, 1, 3) == INELIGIBLE
    assert life.state(1, 1, 2) == STARTED
    for broker_id in (1, 2):
        life.append(*life.context.deletions.reported(broker_id, [topic_id(1)]))
    assert counts(life.context) == (1, 1, 1, 1)
    life.append(change(3, -1))
    assert counts(life.context) == (1, 1, 0, 0)
    assert life.state(1, 1, 3) == STARTED
    life.append(*life.context.deletions.reported(3, [topic_id(1)]))
    assert counts(life.context) == (0, 0, 0, 0)


def test_unregistering_waits_no_longer() -> None:
    """UnregisterBroker clears its part, and who isn't registered is not waited for at all."""
    life = Life(*BASE, *PARTITIONS, change(3, 1))
    life.append(REMOVE)
    life.append(r.UnregisterBrokerRecord(3, 10))
    assert counts(life.context) == (1, 3, 0, 0)
    assert life.state(1, 1, 3) == GONE


def test_only_topics_in_deletion_are_ineligible() -> None:
    """CTL-106: a living topic on a dead broker isn't."""
    life = Life(*BASE, *PARTITIONS, change(2, 1))
    assert counts(life.context) == (0, 0, 0, 0)


def test_a_topic_under_reassignment_goes_as_a_whole() -> None:
    """CTL-107: the replicas that come and those that leave are waited for alike."""
    life = Life(*BASE, *PARTITIONS)
    life.append(
        r.PartitionChangeRecord(
            *(0, topic_id(1)),
            replicas=(3, 1, 2),
            adding_replicas=(3,),
            removing_replicas=(1, 2),
            directories=(directory(6), directory(2), directory(4)),
        )
    )
    life.append(REMOVE)
    assert [life.state(1, 0, each) for each in (1, 2, 3)] == [STARTED] * 3
    assert life.context.partitions.reassigning_count == 0


def test_a_name_is_free_again_while_files_remain() -> None:
    """CTL-104: two topics of one name in deletion, and a third alive."""
    life = Life(*BASE, *PARTITIONS)
    for number in (1, 2):
        life.append(r.RemoveTopicRecord(topic_id(number)))
        life.append(r.TopicRecord("orders", topic_id(number + 1)), partition(number + 1, 0, 1))
    pending = [(each.topic_id, each.name) for each in life.context.deletions.topics_to_delete]
    assert pending == [(topic_id(1), "orders"), (topic_id(2), "orders")]
    assert life.context.image.topics["orders"].topic_id == topic_id(3)


def test_deletions_survive_a_failover() -> None:
    """CTL-102: another node that replays the same images has them; lost removals are undone."""
    life = Life(*BASE, *PARTITIONS, change(3, 1))
    life.append(REMOVE)
    life.commit()
    life.append(*life.context.deletions.reported(1, [topic_id(1)]))
    life.revert()
    standby = led_along([life.images[0], life.images[-1]])
    assert counts(standby) == counts(life.context) == (1, 4, 1, 1)


@given(seed=st.integers(0, 1 << 32))
def test_counts_equal_a_look_at_the_whole_image(seed: int) -> None:
    """CTL-109: after each step, forward and back."""
    random = Random(seed)
    source, life = RecordSource(random, transactions=False), Life()
    for step in range(121):
        if step == 120:
            life.revert()
        else:
            life.append(next(source))
        if random.random() < 0.1:
            life.commit(random.randrange(4))
        image = life.context.image
        live = {each.broker_id for each in image.brokers.values() if not each.fenced}
        pending = list(image.pending_deletions.values())
        away = [
            (deletion.topic_id, replica)
            for deletion in pending
            for replica in deletion.replicas
            if replica.broker_id not in live
        ]
        topics_away = sorted({topic for topic, _ in away})
        assert counts(life.context) == (
            len(pending),
            sum(len(deletion.replicas) for deletion in pending),
            len(topics_away),
            len(away),
        )
        assert [each.topic_id for each in life.context.deletions.topics_ineligible] == topics_away
