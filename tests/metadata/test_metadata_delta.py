"""Replaying records: what each one does, what is refused, and the fold as a whole."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_sequences import NaiveMetadata, RecordSource, contents

from kraftpy.metadata import records as r
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.record_format import RECORD_TYPES
from kraftpy.metadata.replay_error import ReplayError
from kraftpy.protocol.ids import Uuid

AT = Provenance(99, 3, 1_000)
TOPIC = Uuid(b"topic-id-0000001")
OTHER = Uuid(b"topic-id-0000002")
DIRECTORY = Uuid(b"directory-000001")
ENTRY = Uuid(b"access-entry-001")


def broker(broker_id: int, epoch: int = 10, *, fenced: bool = False) -> r.RegisterBrokerRecord:
    endpoint = r.Endpoint("PLAINTEXT", "localhost", 9092, 0)
    return r.RegisterBrokerRecord(broker_id, OTHER, epoch, (endpoint,), fenced=fenced)


def partition(partition_id: int, *replicas: int, topic: Uuid = TOPIC) -> r.PartitionRecord:
    return r.PartitionRecord(partition_id, topic, replicas, replicas, leader=replicas[0])


BASE: tuple[r.MetadataRecord, ...] = (
    r.FeatureLevelRecord(r.METADATA_VERSION, 30),
    *(broker(1), broker(2), broker(3)),
    r.TopicRecord("orders", TOPIC),
    *(partition(0, 1, 2), partition(1, 2, 3)),
    r.ConfigRecord(2, "orders", "retention.ms", "5"),
    r.ProducerIdsRecord(1, 10, 1000),
    r.AccessControlEntryRecord(ENTRY, 2, "orders", 3, "User:a", "*", 3, 3),
    r.UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),
    r.DelegationTokenRecord("User:a", "User:b", (), 1, 2, 3, "token"),
)


def image_of(*records: r.MetadataRecord, base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(base)
    for record in records:
        delta.replay(record)
    return delta.apply(AT)


def test_every_record_type_can_be_replayed() -> None:
    """The source of the tests below has them all but the one that stands in snapshots only."""
    records = RecordSource(Random(1)).take(3_000)
    classes = {type(record) for record in records} | {r.PendingDeletionRecord}
    assert classes == {record_type.record_class for record_type in RECORD_TYPES}
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(r.PendingDeletionRecord(OTHER, "other", (r.PendingReplica(0, 1),)))
    for record in records:
        delta.replay(record)


@given(seed=st.integers(0, 2**32), count=st.integers(0, 400))
def test_an_image_is_the_fold_of_the_log(seed: int, count: int) -> None:
    """The naive fold of the same records agrees, transactions included (KRF-127)."""
    source = RecordSource(Random(seed))
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in source.take(count):
        delta.replay(record)
    image = delta.apply(AT)
    assert contents(image) == source.model.visible()
    assert image.provenance == AT


@given(seed=st.integers(0, 2**32))
def test_images_do_not_change_behind_their_readers(seed: int) -> None:
    """CTL-141: an image taken earlier keeps its state whatever is replayed later."""
    source = RecordSource(Random(seed))
    model = NaiveMetadata()
    delta = MetadataDelta(EMPTY_IMAGE)
    taken = []
    for _ in range(5):
        for record in source.take(25):
            delta.replay(record)
            model.replay(record)
        image = delta.apply(AT)
        taken.append((image, contents(image)))
        if not delta.in_transaction:
            delta = MetadataDelta(image)
    for image, state in taken:
        assert contents(image) == state
    assert taken[-1][1] == model.visible()


def test_a_change_shares_what_it_does_not_touch() -> None:
    """CTL-143: partitions that are not mentioned are the very same."""
    topics = [r.TopicRecord(f"t{n}", Uuid(n.to_bytes(16, "big"))) for n in range(3_000)]
    before = image_of(*BASE, *topics)
    after = image_of(r.PartitionChangeRecord(0, TOPIC, leader=2), base=before)
    assert after.topics["orders"].partitions[0].leader == 2
    assert after.topics["orders"].partitions[1] is before.topics["orders"].partitions[1]
    assert after.brokers is before.brokers
    assert after.topic_names is before.topic_names
    chunks = zip(before.topics._chunks, after.topics._chunks, strict=True)
    assert sum(old is not new for old, new in chunks) == 1


def test_a_leader_in_a_change_begins_a_leader_epoch_even_the_same_one() -> None:
    """KRF-116, CTL-43: any change begins a partition epoch."""
    image = image_of(*BASE, r.PartitionChangeRecord(0, TOPIC, leader=1))
    changed = image.partition(TOPIC, 0)
    assert changed == replace(partition(0, 1, 2), leader_epoch=1, partition_epoch=1)
    image = image_of(*BASE, r.PartitionChangeRecord(0, TOPIC, isr=(1,)))
    assert image.partition(TOPIC, 0) == replace(partition(0, 1, 2), isr=(1,), partition_epoch=1)
    image = image_of(*BASE, r.PartitionChangeRecord(0, TOPIC, leader=r.NO_LEADER))
    assert image.partition(TOPIC, 0) == replace(
        partition(0, 1, 2), leader=-1, leader_epoch=1, partition_epoch=1
    )


def test_an_empty_list_in_a_change_replaces() -> None:
    start = image_of(*BASE, r.PartitionChangeRecord(0, TOPIC, eligible_leader_replicas=(2,)))
    kept = image_of(r.PartitionChangeRecord(0, TOPIC, isr=(1,)), base=start).partition(TOPIC, 0)
    assert kept is not None
    assert kept.eligible_leader_replicas == (2,)
    gone = image_of(
        r.PartitionChangeRecord(0, TOPIC, isr=(), eligible_leader_replicas=()), base=start
    ).partition(TOPIC, 0)
    assert gone is not None
    assert (gone.isr, gone.eligible_leader_replicas) == ((), ())


def test_clear_elr_is_a_change_of_the_partitions_that_have_some() -> None:
    """KRF-119, the record: by name, and for every topic if the name is empty."""
    source = (*BASE, r.TopicRecord("other", OTHER), partition(0, 1, topic=OTHER))
    elr = [
        r.PartitionChangeRecord(0, topic, eligible_leader_replicas=(1,), last_known_elr=(1,))
        for topic in (TOPIC, OTHER)
    ]
    one = image_of(*source, *elr, r.ClearElrRecord("orders"))
    cleared, kept = one.partition(TOPIC, 0), one.partition(OTHER, 0)
    assert cleared == replace(partition(0, 1, 2), partition_epoch=2)
    assert kept is not None
    assert kept.eligible_leader_replicas == (1,)
    assert one.partition(TOPIC, 1) == partition(1, 2, 3)
    everywhere = image_of(*source, *elr, r.ClearElrRecord())
    assert everywhere.partition(OTHER, 0) == replace(
        partition(0, 1, topic=OTHER), partition_epoch=2
    )


def test_a_registration_changes_only_as_told() -> None:
    """CTL-142: and with it no topic."""
    start = image_of(*BASE)
    change = r.BrokerRegistrationChangeRecord
    fenced = image_of(change(1, 10, fenced=1), base=start)
    assert fenced.topics is start.topics
    assert fenced.brokers[1] == broker(1, fenced=True)
    assert image_of(change(1, 10, fenced=-1), base=fenced).brokers[1] == broker(1)
    assert image_of(change(1, 10, fenced=0), base=fenced).brokers[1] == fenced.brokers[1]
    leaving = image_of(change(1, 10, in_controlled_shutdown=True), base=start)
    assert leaving.brokers[1].in_controlled_shutdown
    # Nothing but a new registration ends it.
    unfenced = image_of(change(1, 10, fenced=-1, log_dirs=(DIRECTORY,)), base=leaving)
    assert unfenced.brokers[1].in_controlled_shutdown
    assert unfenced.brokers[1].log_dirs == (DIRECTORY,)
    assert unfenced.brokers[1].cordoned_log_dirs is None
    cordoned = image_of(change(1, 10, cordoned_log_dirs=()), base=unfenced)
    assert cordoned.brokers[1].cordoned_log_dirs == ()
    assert cordoned.brokers[1].log_dirs == (DIRECTORY,)
    again = image_of(broker(1, epoch=11, fenced=True), base=cordoned)
    assert again.brokers[1] == broker(1, epoch=11, fenced=True)


def test_a_removed_topic_leaves_nothing_but_its_pending_deletion() -> None:
    """CTL-98, CTL-104 in the image: settings go with it, and its name is free at once."""
    image = image_of(*BASE, r.RemoveTopicRecord(TOPIC))
    assert len(image.topics) == len(image.topic_names) == 0
    assert image.topic_by_id(TOPIC) is None
    assert image.config(r.ConfigResourceType.TOPIC, "orders") == {}
    replicas = tuple(r.PendingReplica(*pair) for pair in ((0, 1), (0, 2), (1, 2), (1, 3)))
    pending = r.PendingDeletionRecord(TOPIC, "orders", replicas)
    assert dict(image.pending_deletions.items()) == {TOPIC: pending}
    again = image_of(r.TopicRecord("orders", OTHER), base=image)
    assert again.topics["orders"].topic_id == OTHER
    assert TOPIC in again.pending_deletions


def test_a_deletion_is_pending_until_every_broker_has_reported_or_is_gone() -> None:
    """CTL-102: the entry is in the image, so it outlives any controller."""
    image = image_of(*BASE, r.RemoveTopicRecord(TOPIC))
    image = image_of(r.ReplicaDeletedRecord(TOPIC, 0, 2), base=image)
    left = [tuple(replica) for replica in image.pending_deletions[TOPIC].replicas]
    assert left == [(0, 1), (1, 2), (1, 3)]
    image = image_of(r.UnregisterBrokerRecord(3, 10), base=image)
    image = image_of(r.ReplicaDeletedRecord(TOPIC, 1, 2), base=image)
    assert TOPIC in image.pending_deletions
    image = image_of(r.ReplicaDeletedRecord(TOPIC, 0, 1), base=image)
    assert len(image.pending_deletions) == 0


def test_nobody_waits_for_a_broker_that_was_unregistered_before() -> None:
    image = image_of(*BASE, r.UnregisterBrokerRecord(1, 10), r.RemoveTopicRecord(TOPIC))
    brokers = {replica.broker_id for replica in image.pending_deletions[TOPIC].replicas}
    assert brokers == {2, 3}
    alone = (r.TopicRecord("alone", OTHER), partition(0, 7, topic=OTHER))
    assert len(image_of(*alone, r.RemoveTopicRecord(OTHER)).pending_deletions) == 0


def test_settings_come_and_go() -> None:
    image = image_of(
        *BASE,
        r.ConfigRecord(2, "orders", "cleanup.policy", "compact"),
        r.ConfigRecord(4, "", "retention.ms", "7"),
        r.ConfigRecord(2, "orders", "retention.ms", None),
    )
    assert image.config(r.ConfigResourceType.TOPIC, "orders") == {"cleanup.policy": "compact"}
    assert image.config(r.ConfigResourceType.BROKER, "") == {"retention.ms": "7"}
    image = image_of(r.ConfigRecord(2, "orders", "cleanup.policy", None), base=image)
    assert [resource.name for resource in image.configs] == [""]
    user, client = r.QuotaEntity("user", None), r.QuotaEntity("client-id", "a")
    image = image_of(
        r.ClientQuotaRecord((client, user), "producer_byte_rate", 5.0),
        r.ClientQuotaRecord((user, client), "consumer_byte_rate", 6.0),
    )
    (quotas,) = image.client_quotas.values()
    assert quotas.entity == (client, user)
    assert quotas.limits == {"consumer_byte_rate": 6.0, "producer_byte_rate": 5.0}
    image = image_of(r.FeatureLevelRecord("group.version", 1), base=image)
    assert image.features.get("group.version") == 1
    image = image_of(r.FeatureLevelRecord("group.version", 0), base=image)
    assert "group.version" not in image.features


REFUSED: list[tuple[str, tuple[r.MetadataRecord, ...]]] = [
    ("a second topic of a live name", (r.TopicRecord("orders", OTHER),)),
    ("a topic id twice", (r.TopicRecord("other", TOPIC),)),
    (
        "a topic id that is pending deletion",
        (r.RemoveTopicRecord(TOPIC), r.TopicRecord("orders", TOPIC)),
    ),
    ("a partition of an unknown topic", (partition(0, 1, topic=OTHER),)),
    ("a partition twice", (partition(1, 1),)),
    ("a gap between partitions", (partition(3, 1),)),
    ("directories that do not match", (replace(partition(2, 1, 2), directories=(DIRECTORY,)),)),
    ("a change of an unknown topic", (r.PartitionChangeRecord(0, OTHER),)),
    ("a change of an unknown partition", (r.PartitionChangeRecord(2, TOPIC),)),
    ("a change of a negative partition", (r.PartitionChangeRecord(-1, TOPIC),)),
    (
        "a change to directories that do not match",
        (r.PartitionChangeRecord(0, TOPIC, directories=(DIRECTORY,)),),
    ),
    ("the removal of an unknown topic", (r.RemoveTopicRecord(OTHER),)),
    ("clearing an unknown topic", (r.ClearElrRecord("other"),)),
    ("a broker going back in epochs", (broker(1, epoch=9),)),
    ("unregistering an unknown broker", (r.UnregisterBrokerRecord(9, 10),)),
    ("unregistering another epoch", (r.UnregisterBrokerRecord(1, 11),)),
    ("fencing another epoch", (r.FenceBrokerRecord(1, 9),)),
    ("unfencing an unknown broker", (r.UnfenceBrokerRecord(9, 10),)),
    ("changing another epoch", (r.BrokerRegistrationChangeRecord(1, 9, fenced=1),)),
    ("changing an unknown broker", (r.BrokerRegistrationChangeRecord(9, 10),)),
    ("fencing by an unknown code", (r.BrokerRegistrationChangeRecord(1, 10, fenced=2),)),
    ("an unknown resource type", (r.ConfigRecord(3, "x", "y", "z"),)),
    ("a quota for nothing", (r.ClientQuotaRecord((), "rate", 1.0),)),
    (
        "a quota for two users",
        (
            r.ClientQuotaRecord(
                (r.QuotaEntity("user", "a"), r.QuotaEntity("user", None)), "rate", 1.0
            ),
        ),
    ),
    ("producer ids that stand still", (r.ProducerIdsRecord(1, 10, 1000),)),
    ("an access control entry twice", (BASE[9],)),
    ("the removal of an unknown entry", (r.RemoveAccessControlEntryRecord(OTHER),)),
    ("an unknown mechanism", (r.UserScramCredentialRecord("a", 3, b"", b"", b"", 1),)),
    ("the removal of an unknown credential", (r.RemoveUserScramCredentialRecord("alice", 2),)),
    ("the removal of an unknown token", (r.RemoveDelegationTokenRecord("x"),)),
    ("metadata.version switched off", (r.FeatureLevelRecord(r.METADATA_VERSION, 0),)),
    ("a negative level", (r.FeatureLevelRecord("group.version", -1),)),
    ("a deletion of an unknown topic", (r.ReplicaDeletedRecord(OTHER, 0, 1),)),
    (
        "a deletion reported twice",
        (r.RemoveTopicRecord(TOPIC), *(r.ReplicaDeletedRecord(TOPIC, 0, 1),) * 2),
    ),
    (
        "the pending deletion of a live topic",
        (r.PendingDeletionRecord(TOPIC, "orders", (r.PendingReplica(0, 1),)),),
    ),
    ("a pending deletion of nothing", (r.PendingDeletionRecord(OTHER, "other", ()),)),
    ("a transaction in a transaction", (r.BeginTransactionRecord(), r.BeginTransactionRecord())),
    ("the end of no transaction", (r.EndTransactionRecord(),)),
    ("the abort of no transaction", (r.AbortTransactionRecord(),)),
]


@pytest.mark.parametrize(("why", "records"), REFUSED, ids=[why for why, _ in REFUSED])
def test_replay_is_strict_and_a_refused_record_changes_nothing(
    why: str, records: tuple[r.MetadataRecord, ...]
) -> None:
    delta = MetadataDelta(image_of(*BASE))
    for record in records[:-1]:
        delta.replay(record)
    before = delta.apply(AT)
    with pytest.raises(ReplayError, match=type(records[-1]).__name__):
        delta.replay(records[-1])
    assert delta.apply(AT) == before, why
    delta.replay(r.NoOpRecord())


def test_a_transaction_is_hidden_until_its_end_and_gone_after_its_abort() -> None:
    """KRF-127."""
    start = image_of(*BASE)
    delta = MetadataDelta(start)
    delta.replay(r.TopicRecord("before", OTHER))
    delta.replay(r.BeginTransactionRecord("start"))
    delta.replay(r.RemoveTopicRecord(TOPIC))
    hidden = delta.apply(AT)
    assert delta.in_transaction
    assert list(hidden.topics) == ["before", "orders"]
    delta.replay(r.AbortTransactionRecord())
    assert not delta.in_transaction
    assert delta.apply(AT) == hidden
    delta.replay(r.BeginTransactionRecord())
    delta.replay(r.RemoveTopicRecord(TOPIC))
    delta.replay(r.EndTransactionRecord())
    assert list(delta.apply(AT).topics) == ["before"]


def test_a_directory_is_that_of_the_replica() -> None:
    second = Uuid(b"directory-000002")
    placed = replace(partition(0, 4, 2), directories=(DIRECTORY, second))
    assert placed.directory_of(4) == DIRECTORY
    assert placed.directory_of(2) == second
    assert placed.directory_of(9) is None
    assert partition(0, 4).directory_of(4) == r.DIRECTORY_MIGRATING
