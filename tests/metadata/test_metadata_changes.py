"""What differs between images, and what that means for one broker."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from metadata_sequences import RecordSource, contents

from kraftpy.metadata import records as r
from kraftpy.metadata.changes import ImageChanges, PartitionChange
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.local_changes import local_changes
from kraftpy.metadata.snapshot import load_snapshot, snapshot_batches
from kraftpy.protocol.ids import Uuid
from kraftpy.records.batch import RecordBatch

AT = Provenance(5, 1, 0)
OLD = Uuid(b"topic-id-0000001")
NEW = Uuid(b"topic-id-0000002")
DIRECTORY = Uuid(b"directory-000001")


def image_of(*records: r.MetadataRecord, base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(base)
    for record in records:
        delta.replay(record)
    return delta.apply(AT)


def partition(partition_id: int, *replicas: int, topic: Uuid = OLD) -> r.PartitionRecord:
    return r.PartitionRecord(partition_id, topic, replicas, replicas, leader=replicas[0])


BASE = image_of(
    r.TopicRecord("orders", OLD), partition(0, 1, 2), partition(1, 2, 3), partition(2, 3, 1)
)


def where(changes: tuple[PartitionChange, ...]) -> list[tuple[Uuid, int]]:
    return [(change.topic.topic_id, change.partition_id) for change in changes]


@given(seed=st.integers(0, 2**32), is_reloaded=st.booleans())
def test_changes_lead_from_one_image_to_the_other(seed: int, *, is_reloaded: bool) -> None:
    """Exactly what differs, also when the later image shares nothing with the earlier one."""
    source = RecordSource(Random(seed), transactions=False)
    before = image_of(*source.take(150))
    after = image_of(*source.take(80), base=before)
    if is_reloaded:
        after = load_snapshot(map(RecordBatch, snapshot_batches(after)), AT)
    changes = ImageChanges(before, after)
    old, new = contents(before), contents(after)
    for part, found in (
        ("brokers", changes.brokers),
        ("controllers", changes.controllers),
        ("features", changes.features),
        ("acls", changes.access_control_entries),
        ("scram", changes.scram_credentials),
        ("tokens", changes.delegation_tokens),
    ):
        expected = {
            key: (old[part].get(key), new[part].get(key))
            for key in old[part].keys() | new[part].keys()
            if old[part].get(key) != new[part].get(key)
        }
        assert {change.key: (change.before, change.after) for change in found} == expected, part
    assert {change.key for change in changes.pending_deletions} == {
        key
        for key in old["deletions"].keys() | new["deletions"].keys()
        if old["deletions"].get(key) != new["deletions"].get(key)
    }
    assert len(changes.client_quotas) == sum(
        old["quotas"].get(key) != new["quotas"].get(key)
        for key in old["quotas"].keys() | new["quotas"].keys()
    )
    partitions = {
        (topic_id, number): partition
        for topic_id, (_, numbered) in old["topics"].items()
        for number, partition in numbered.items()
    }
    for change in changes.partitions():
        key = (change.topic.topic_id, change.partition_id)
        assert change.before != change.after
        assert partitions.pop(key, None) == change.before
        if change.after is not None:
            partitions[key] = change.after
    assert partitions == {
        (topic_id, number): partition
        for topic_id, (_, numbered) in new["topics"].items()
        for number, partition in numbered.items()
    }


def test_settings_set_to_what_they_were_count_as_changed() -> None:
    """A broker reloads its key store when its path is set again."""
    setting = r.ConfigRecord(4, "1", "ssl.keystore.location", "/a")
    before = image_of(setting, r.ConfigRecord(4, "2", "x", "y"))
    after = image_of(setting, base=before)
    assert after == before
    assert [change.key.name for change in ImageChanges(before, after).configs] == ["1"]
    assert ImageChanges(before, image_of(r.NoOpRecord(), base=before)).configs == ()


def test_a_topic_made_again_in_one_step_is_two_changes() -> None:
    """KRF-128, CTL-104: the old log goes, the new one comes, in this order."""
    after = image_of(
        r.RemoveTopicRecord(OLD),
        r.TopicRecord("orders", NEW),
        partition(0, 1, 3, topic=NEW),
        base=BASE,
    )
    changes = ImageChanges(BASE, after)
    assert [
        (change.before and change.before.topic_id, change.after and change.after.topic_id)
        for change in changes.topics
    ] == [(OLD, None), (None, NEW)]
    local = local_changes(changes, 1)
    assert where(local.deletions) == [(OLD, 0), (OLD, 2)]
    assert where(local.elected_leaders) == [(NEW, 0)]


def test_a_brokers_part_of_a_change() -> None:
    """Section 18: deletes, leaders, elected leaders, followers, directories."""
    first = local_changes(ImageChanges(EMPTY_IMAGE, BASE), 1)
    assert where(first.leaders) == where(first.elected_leaders) == [(OLD, 0)]
    assert where(first.followers) == [(OLD, 2)]
    assert not first.deletions
    assert [directory for _, directory in first.directories] == [r.DIRECTORY_MIGRATING] * 2

    shrunk = image_of(r.PartitionChangeRecord(0, OLD, isr=(1,)), base=BASE)
    local = local_changes(ImageChanges(BASE, shrunk), 1)
    assert where(local.leaders) == [(OLD, 0)]
    assert (local.elected_leaders, local.followers, local.directories) == ((), (), ())
    assert where(local_changes(ImageChanges(BASE, shrunk), 2).followers) == [(OLD, 0)]

    led = image_of(r.PartitionChangeRecord(2, OLD, leader=1), base=BASE)
    assert where(local_changes(ImageChanges(BASE, led), 1).elected_leaders) == [(OLD, 2)]
    leaderless = image_of(r.PartitionChangeRecord(0, OLD, leader=r.NO_LEADER), base=BASE)
    assert where(local_changes(ImageChanges(BASE, leaderless), 1).followers) == [(OLD, 0)]

    moved = image_of(
        r.PartitionChangeRecord(0, OLD, replicas=(2, 3), directories=(DIRECTORY, DIRECTORY)),
        base=BASE,
    )
    changes = ImageChanges(BASE, moved)
    assert where(local_changes(changes, 1).deletions) == [(OLD, 0)]
    assert [directory for _, directory in local_changes(changes, 3).directories] == [DIRECTORY]
    assert local_changes(changes, 4) == local_changes(ImageChanges(BASE, BASE), 4)

    # A role is taken up for a new partition epoch, whatever else may differ.
    same_epoch = image_of(
        r.TopicRecord("orders", OLD), r.PartitionRecord(0, OLD, (1, 2), (1,), leader=2)
    )
    local = local_changes(ImageChanges(BASE, same_epoch), 1)
    assert (local.leaders, local.followers) == ((), ())

    removed = image_of(r.RemoveTopicRecord(OLD), base=BASE)
    assert where(local_changes(ImageChanges(BASE, removed), 3).deletions) == [(OLD, 1), (OLD, 2)]


def test_a_grown_topic_changes_by_its_new_partitions() -> None:
    grown = image_of(partition(3, 1, 2), base=BASE)
    (change,) = ImageChanges(BASE, grown).partitions()
    assert (change.partition_id, change.before) == (3, None)


@given(seed=st.integers(0, 2**32), size=st.integers(1, 40))
def test_parts_of_changes_are_all_of_them(seed: int, size: int) -> None:
    """So many partitions at a time, in their order; everything else with the last ones."""
    source = RecordSource(Random(seed), transactions=False)
    before = image_of(*source.take(150))
    after = image_of(*source.take(80), base=before)
    whole = ImageChanges(before, after)
    *parts, last = whole.in_parts(size)
    partitions = [list(part.partitions()) for part in (*parts, last)]
    assert [change for part in partitions for change in part] == list(whole.partitions())
    assert all(len(part) == size for part in partitions[:-1])
    assert len(partitions[-1]) <= size
    for part in parts:
        assert (part.before, part.after) == (before, after)
        assert part.topics == part.brokers == part.pending_deletions == part.configs == ()
    assert last.topics == whole.topics
    assert last.brokers == whole.brokers
    assert last.pending_deletions == whole.pending_deletions
    assert last.configs == whole.configs
