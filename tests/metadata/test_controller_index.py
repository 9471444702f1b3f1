"""The index of partitions: every set equals what a look at the whole image finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from controller_runs import Life, broker, partition, topic_id
from hypothesis import given
from hypothesis import strategies as st
from metadata_sequences import RecordSource

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.partition_index import IndexedPartition, PartitionIndex
from kraftpy.metadata.image import MetadataImage

Names = list[tuple[str, int]]


def names(partitions: Iterable[IndexedPartition]) -> Names:
    return [(topic.name, each.partition_id) for topic, each in partitions]


def found(image: MetadataImage, is_member: Callable[[r.PartitionRecord], bool]) -> Names:
    return [
        (topic.name, each.partition_id)
        for topic in image.topics.values()
        for each in topic.partitions
        if is_member(each)
    ]


def check(index: PartitionIndex, image: MetadataImage) -> None:
    for number in range(7):
        on = found(image, lambda each, number=number: number in each.replicas)
        assert names(index.partitions_on(number)) == on
        assert index.replica_count(number) == len(on)
        led = found(image, lambda each, number=number: each.leader == number)
        assert names(index.led_by(number)) == led
        assert index.led_count(number) == len(led)
        assert names(index.with_isr_member(number)) == found(
            image, lambda each, number=number: number in each.isr and number in each.replicas
        )
        assert names(index.reassigning(number)) == found(
            image,
            lambda each, number=number: (
                number in each.replicas and bool(each.adding_replicas or each.removing_replicas)
            ),
        )
    leaderless = found(image, lambda each: each.leader == -1)
    assert names(index.leaderless()) == leaderless
    assert index.leaderless_count == len(leaderless)
    reassigning = found(image, lambda each: bool(each.adding_replicas or each.removing_replicas))
    assert names(index.reassigning()) == reassigning
    assert index.reassigning_count == len(reassigning)
    not_preferred = found(image, lambda each: each.leader != each.replicas[0])
    assert names(index.not_preferred()) == not_preferred
    assert index.not_preferred_count == len(not_preferred)
    assert index.topic_count == len(image.topics)
    assert index.partition_count == len(found(image, lambda each: True))


@given(seed=st.integers(0, 1 << 32))
def test_every_set_equals_a_look_at_the_whole_image(seed: int) -> None:
    """CTL-33, CTL-140: after each step, forward and back."""
    random = Random(seed)
    source, life = RecordSource(random, transactions=False), Life()
    for _ in range(60):
        life.append(next(source))
        if random.random() < 0.1:
            life.commit(random.randrange(4))
        check(life.context.partitions, life.context.image)
    life.revert()
    check(life.context.partitions, life.context.image)


def test_unknown_brokers_have_nothing() -> None:
    """CTL-33: empty, not an error."""
    index = Life(broker(1), r.TopicRecord("a", topic_id(1)), partition(1, 0, 1)).context.partitions
    assert names(index.partitions_on(9)) == names(index.led_by(9)) == []
    assert names(index.reassigning(9)) == names(index.with_isr_member(9)) == []
    assert index.replica_count(9) == index.led_count(9) == 0


def test_order_is_by_topic_name_and_number() -> None:
    """Ids are random; what operations write must not depend on them."""
    life = Life(broker(1), r.TopicRecord("b", topic_id(1)), r.TopicRecord("a", topic_id(2)))
    life.append(*(partition(1, number, 1) for number in range(12)), partition(2, 0, 1))
    expected = [("a", 0), *(("b", number) for number in range(12))]
    assert names(life.context.partitions.partitions_on(1)) == expected


def test_a_walk_that_has_begun_sees_one_image() -> None:
    """Operations are handed lazy walks; the index may move on before they are done."""
    life = Life(broker(1), r.TopicRecord("a", topic_id(1)))
    life.append(*(partition(1, number, 1) for number in range(3)))
    walk = life.context.partitions.partitions_on(1)
    first = next(walk)
    life.append(r.RemoveTopicRecord(topic_id(1)))
    assert names([first, *walk]) == [("a", 0), ("a", 1), ("a", 2)]
