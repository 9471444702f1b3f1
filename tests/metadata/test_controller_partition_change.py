"""The builder of partition changes: each rule by example, with the records that come out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.partition_change import (
    ChangeRules,
    Election,
    PartitionChangeBuilder,
    default_directory,
)
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.protocol.ids import Uuid

TOPIC = Uuid(b"topic-id-0000001")
ONLY = Uuid(b"directory-000001")
FIRST = Uuid(b"directory-000002")
SECOND = Uuid(b"directory-000003")

ALL = (0, 1, 2, 3, 4, 5, 6)


def image_with(level: int = 30, *, elr: bool = True) -> MetadataImage:
    """Broker 4 has one directory and broker 5 has two; the others say nothing about theirs."""
    directories = {4: (ONLY,), 5: (FIRST, SECOND)}
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(r.FeatureLevelRecord(r.METADATA_VERSION, level))
    if elr:
        delta.replay(r.FeatureLevelRecord("eligible.leader.replicas.version", 1))
    for broker_id in ALL:
        dirs = directories.get(broker_id, ())
        delta.replay(r.RegisterBrokerRecord(broker_id, TOPIC, 10, (), fenced=False, log_dirs=dirs))
    return delta.apply(Provenance(9, 1, 1))


PLAIN = ChangeRules.of(image_with(elr=False))
WITH_ELR = ChangeRules.of(image_with())


def partition(
    replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, **fields: tuple[int, ...] | int
) -> r.PartitionRecord:
    base = r.PartitionRecord(
        0, TOPIC, replicas, isr, leader=leader, leader_epoch=5, partition_epoch=7
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def builder(
    before: r.PartitionRecord,
    alive: Collection[int] = ALL,
    *,
    rules: ChangeRules = PLAIN,
    min_isr: int = 1,
    election: Election = Election.ONLINE,
) -> PartitionChangeBuilder:
    def is_acceptable(_: r.PartitionRecord, broker_id: int) -> bool:
        return broker_id in alive

    return PartitionChangeBuilder(before, rules, is_acceptable, min_isr, election)


def change(**fields: object) -> r.PartitionChangeRecord:
    return replace(r.PartitionChangeRecord(0, TOPIC), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("election", [Election.ONLINE, Election.UNCLEAN])
def test_nothing_to_change_is_no_record(election: Election) -> None:
    """CTL-42, step 8: every target is what the partition has."""
    before = partition((0, 1, 2), (2, 0), 2)
    assert builder(before, election=election).build() is None
    same = builder(before)
    same.isr, same.replicas = (2, 0), (0, 1, 2)
    assert same.build() is None


@pytest.mark.parametrize(
    ("before", "alive", "election", "expected"),
    [
        # A leader that can stay does, unless the preferred one is asked for.
        (partition((0, 1, 2), (0, 1, 2), 1), ALL, Election.ONLINE, None),
        (partition((0, 1, 2), (0, 1, 2), 1), ALL, Election.UNCLEAN, None),
        (partition((0, 1, 2), (0, 1, 2), 1), ALL, Election.PREFERRED, change(leader=0)),
        # The order of the replicas decides, not that of the ISR.
        (partition((0, 1, 2), (0, 2, 1), 0), (1, 2), Election.ONLINE, change(leader=1)),
        (partition((0, 1, 2), (0, 2, 1), -1), (1, 2), Election.ONLINE, change(leader=1)),
        # Who is alive but not in sync waits.
        (partition((0, 1, 2), (0, 2), 0), (1, 2), Election.ONLINE, change(leader=2)),
        (partition((0, 1, 2), (0,), 0), (1, 2), Election.ONLINE, change(leader=-1)),
        (partition((0, 1, 2), (0,), -1), (1, 2), Election.ONLINE, None),
        (partition((0, 1, 2), (0,), -1), (0,), Election.ONLINE, change(leader=0)),
        # Preferred: the first replica must be alive and in sync; then the leader stays; then any.
        (partition((0, 1, 2), (1, 2), 2), ALL, Election.PREFERRED, None),
        (partition((0, 1, 2), (0, 1, 2), 2), (1, 2), Election.PREFERRED, None),
        (partition((0, 1, 2), (1, 2), -1), (1, 2), Election.PREFERRED, change(leader=1)),
        # Unclean only if asked for, only if nobody is in sync, in the order of the replicas.
        (partition((0, 1, 2), (0,), 0), (1, 2), Election.PREFERRED, change(leader=-1)),
        (partition((0, 1, 2), (0, 2), 0), (1, 2), Election.UNCLEAN, change(leader=2)),
        (
            partition((0, 1, 2), (0,), 0),
            (2, 1),
            Election.UNCLEAN,
            change(leader=1, isr=(1,), leader_recovery_state=r.RECOVERING),
        ),
        (
            partition((0, 1, 2), (0,), -1, leader_recovery_state=r.RECOVERING),
            (2,),
            Election.UNCLEAN,
            change(leader=2, isr=(2,)),
        ),
        (partition((0, 1, 2), (0,), 0), (), Election.UNCLEAN, change(leader=-1)),
    ],
)
def test_elections(
    before: r.PartitionRecord,
    alive: tuple[int, ...],
    election: Election,
    expected: r.PartitionChangeRecord | None,
) -> None:
    """Step 3: KRF-118, CTL-125, CTL-126, CTL-127, CTL-130."""
    assert builder(before, alive, election=election).build() == expected


def test_the_last_member_stays_in_the_isr_without_elr() -> None:
    """KRF-117, CTL-69: nobody leads, and only who has everything can come back."""
    before = partition((0, 1), (0,), 0)
    leaving = builder(before, (1,))
    leaving.isr = ()
    record = leaving.build()
    assert record == change(leader=-1)
    after = before.changed_by(record)
    assert (after.isr, after.leader_epoch, after.partition_epoch) == ((0,), 6, 8)
    again = builder(after, (1,))
    again.isr = ()
    assert again.build() is None
    assert builder(after, (0, 1)).build() == change(leader=0)


def test_the_isr_may_be_empty_with_elr() -> None:
    """KRF-117, KRF-119: the last member becomes eligible, and leads when it is back."""
    before = partition((0, 1), (0,), 0)
    leaving = builder(before, (1,), rules=WITH_ELR)
    leaving.isr = ()
    record = leaving.build()
    assert record == change(leader=-1, isr=(), eligible_leader_replicas=(0,), last_known_elr=(0,))
    after = before.changed_by(record)
    back = builder(after, (0, 1), rules=WITH_ELR).build()
    assert back == change(leader=0, isr=(0,), eligible_leader_replicas=(), last_known_elr=())


@pytest.mark.parametrize(
    ("isr", "elr", "target", "emptied", "min_isr", "expected"),
    [
        ((0, 1, 2), (), (0, 1), (), 2, ()),
        ((0, 1, 2), (), (0,), (), 2, (1, 2)),
        ((0, 1), (), (0,), (), 2, (1,)),
        ((0,), (1,), (0, 1), (), 2, ()),
        ((0,), (1,), (0, 2), (), 3, (1,)),
        ((0,), (1, 2), (0, 2), (), 3, (1,)),
        ((0, 1), (2,), (0,), (1,), 3, (2,)),
        ((0,), (1, 2), (0,), (1,), 2, (2,)),
        # More wanted than there are replicas: all of them are enough.
        ((0, 1), (), (0, 1, 2), (), 5, ()),
        ((0, 1, 2), (), (0, 1), (), 5, (2,)),
    ],
)
def test_eligible_leader_replicas(
    *,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    target: tuple[int, ...],
    emptied: tuple[int, ...],
    min_isr: int,
    expected: tuple[int, ...],
) -> None:
    """KRF-119, 15.4: who leaves too small an ISR is eligible, unless it stopped uncleanly."""
    before = partition((0, 1, 2), isr, 0, eligible_leader_replicas=elr)
    changing = builder(before, rules=WITH_ELR, min_isr=min_isr)
    changing.isr, changing.uncleanly_stopped = target, emptied
    record = changing.build()
    after = before if record is None else before.changed_by(record)
    assert after.eligible_leader_replicas == expected
    assert after.isr == target


def test_an_eligible_replica_leads_only_if_nobody_is_in_sync() -> None:
    """15.2, step 3; the others stay eligible, as the one that leads is in sync alone."""
    fields = {"eligible_leader_replicas": (0, 2), "last_known_elr": (3,)}
    in_sync = partition((0, 1, 2, 3), (1,), -1, **fields)
    assert builder(in_sync, (0, 2), rules=WITH_ELR, min_isr=3).build() is None
    nobody = partition((0, 1, 2, 3), (), -1, **fields)
    record = builder(nobody, (2, 3), rules=WITH_ELR, min_isr=3, election=Election.UNCLEAN).build()
    assert record == change(leader=2, isr=(2,), eligible_leader_replicas=(0,), last_known_elr=())


def test_an_unclean_leader_clears_the_eligible_replicas() -> None:
    """15.2, step 3: what they have is no longer the truth."""
    before = partition((0, 1, 2), (), -1, eligible_leader_replicas=(0,), last_known_elr=(0,))
    record = builder(before, (1,), rules=WITH_ELR, min_isr=2, election=Election.UNCLEAN).build()
    assert record == change(
        leader=1,
        isr=(1,),
        leader_recovery_state=r.RECOVERING,
        eligible_leader_replicas=(),
        last_known_elr=(),
    )


@pytest.mark.parametrize("election", list(Election))
def test_the_last_leader_comes_back_if_nobody_has_everything(election: Election) -> None:
    """KRF-119, 15.4: without permission, but marked as recovering."""
    before = partition((1, 0), (), -1, last_known_elr=(0,))
    record = builder(before, (0, 1), rules=WITH_ELR, min_isr=2, election=election).build()
    assert record == change(
        leader=0, isr=(0,), leader_recovery_state=r.RECOVERING, last_known_elr=()
    )


@pytest.mark.parametrize(
    ("fields", "rules", "alive"),
    [
        ({"last_known_elr": (0,), "eligible_leader_replicas": (2,)}, WITH_ELR, (0, 1)),
        ({"last_known_elr": (0, 1)}, WITH_ELR, (0, 1)),
        ({"last_known_elr": (0,)}, WITH_ELR, (1,)),
        ({"last_known_elr": (4,)}, WITH_ELR, (0, 1, 4)),
        ({"last_known_elr": ()}, WITH_ELR, (0, 1)),
    ],
)
def test_the_last_leader_stays_away_otherwise(
    fields: dict[str, tuple[int, ...]], rules: ChangeRules, alive: tuple[int, ...]
) -> None:
    """Somebody may have everything; it is one of several, or dead, or has no replica any more."""
    before = partition((0, 1, 2), (), -1, **fields)
    assert builder(before, alive, rules=rules, min_isr=2).build() is None


def test_the_last_leader_is_noted_once() -> None:
    """15.4: when the partition becomes leaderless, not later, and not a leader that never was."""
    before = partition((0, 1), (), -1, eligible_leader_replicas=(0, 1), last_known_elr=(1,))
    losing = builder(before, (), rules=WITH_ELR, min_isr=2)
    losing.uncleanly_stopped = (0,)
    assert losing.build() == change(eligible_leader_replicas=(1,))


def test_the_last_leader_is_not_noted_while_somebody_is_in_sync() -> None:
    """15.4: the one in sync is waited for, dead or not."""
    before = partition((0, 1), (0, 1), 0)
    losing = builder(before, (), rules=WITH_ELR)
    losing.isr = (1,)
    assert losing.build() == change(leader=-1, isr=(1,))


def test_eligible_replicas_go_with_the_feature() -> None:
    """What is left from when the feature was on is cleared by the next change, and never used."""
    before = partition((0, 1), (0,), 0, eligible_leader_replicas=(1,), last_known_elr=(1,))
    leaving = builder(before, (1,), rules=PLAIN)
    leaving.isr = ()
    record = leaving.build()
    assert record == change(leader=-1, eligible_leader_replicas=(), last_known_elr=())


@pytest.mark.parametrize(
    ("level", "isr", "leader"),
    [
        (11, (0, 1), 0),
        (12, (0, 1), r.LEADER_UNCHANGED),
        (11, (0, 1, 2, 3), r.LEADER_UNCHANGED),
        (11, (2, 1, 0), r.LEADER_UNCHANGED),
    ],
)
def test_a_smaller_isr_raised_the_epoch_before_3_6(
    level: int, isr: tuple[int, ...], leader: int
) -> None:
    """Step 4: below level 12 a shrink names the leader again; growth and order never do."""
    before = partition((0, 1, 2, 3), (0, 1, 2), 0)
    changing = builder(before, rules=ChangeRules.of(image_with(level, elr=False)))
    changing.isr = isr
    record = changing.build()
    assert record == change(isr=isr, leader=leader)
    assert before.changed_by(record).leader_epoch == (5 if leader == r.LEADER_UNCHANGED else 6)


@pytest.mark.parametrize(
    ("isr", "is_finished"),
    [
        ((1, 2, 3), False),
        ((1, 4, 5), False),
        ((4, 5, 6), True),
        ((1, 4, 5, 6), True),
    ],
)
def test_a_reassignment_finishes_when_all_added_are_in_sync(
    isr: tuple[int, ...], is_finished: bool
) -> None:
    """KRF-121, CTL-129, CTL-133: [1,2,3] to [4,5,6]; the leader comes from the target."""
    before = partition(
        (4, 5, 6, 1, 2, 3), (1, 2, 3), 1, adding_replicas=(4, 5, 6), removing_replicas=(1, 2, 3)
    )
    changing = builder(before, (1, 2, 3, 5, 6))
    changing.isr = isr
    record = changing.build()
    assert (record is not None and record.replicas is not None) == is_finished
    if is_finished:
        assert record == change(
            leader=5,
            isr=(4, 5, 6),
            replicas=(4, 5, 6),
            adding_replicas=(),
            removing_replicas=(),
            directories=record.directories if record else None,
        )


@pytest.mark.parametrize(("isr", "is_finished"), [((0, 3), False), ((0, 1, 3), True)])
def test_a_shrinking_reassignment_waits_for_its_whole_target(
    isr: tuple[int, ...], is_finished: bool
) -> None:
    """KRF-121: [0,1,2,3] to [0,1] must not leave one copy where two were asked for."""
    before = partition((0, 1, 2, 3), (0, 3), 0, removing_replicas=(2, 3))
    changing = builder(before)
    changing.isr = isr
    record = changing.build()
    after = before if record is None else before.changed_by(record)
    assert (after.replicas == (0, 1)) == is_finished
    # The leader stays, but whoever was removed must not go on under its epoch.
    assert after.leader_epoch == (6 if is_finished else 5)


def test_an_exchange_does_not_wait_for_replicas_that_lag() -> None:
    """15.5: as many added as removed: the added ones and anybody in sync are enough."""
    before = partition((0, 1, 4, 2), (2, 0), 0, adding_replicas=(4,), removing_replicas=(2,))
    changing = builder(before)
    changing.isr = (2, 0, 4)
    record = changing.build()
    assert record is not None
    assert (record.replicas, record.isr) == ((0, 1, 4), (0, 4))


def test_a_reassignment_never_ends_with_nobody_in_sync() -> None:
    before = partition((0, 1), (1,), 1, removing_replicas=(1,))
    assert builder(before).build() is None


def test_a_removed_replica_is_not_eligible() -> None:
    """The ELR is within the replicas, also when one goes that had everything."""
    before = partition((0, 1, 4, 2), (0, 2), 0, adding_replicas=(4,), removing_replicas=(2,))
    changing = builder(before, rules=WITH_ELR, min_isr=3)
    changing.isr = (0, 2, 4)
    record = changing.build()
    assert record is not None
    after = before.changed_by(record)
    assert (after.replicas, after.isr, after.eligible_leader_replicas) == ((0, 1, 4), (0, 4), ())


def test_new_replicas_get_directories() -> None:
    """Step 7: the broker's only directory, or unassigned; the others keep theirs."""
    before = replace(partition((0, 1), (0, 1), 0), directories=(FIRST, SECOND))
    changing = builder(before)
    changing.replicas, changing.adding = (1, 0, 4, 5), (4, 5)
    record = changing.build()
    assert record == change(
        replicas=(1, 0, 4, 5),
        adding_replicas=(4, 5),
        directories=(SECOND, FIRST, ONLY, r.DIRECTORY_UNASSIGNED),
    )
    assert default_directory(image_with(), 77) == r.DIRECTORY_UNASSIGNED


def test_no_directories_before_3_7() -> None:
    rules = ChangeRules.of(image_with(16, elr=False))
    changing = builder(partition((0, 1), (0, 1), 0), rules=rules)
    changing.replicas, changing.adding = (0, 1, 4), (4,)
    assert changing.build() == change(replicas=(0, 1, 4), adding_replicas=(4,))


def test_a_broker_says_where_its_replica_is() -> None:
    """15.8: only this directory changes, and none if it is known."""
    before = partition((0, 1), (0, 1), 0)
    changing = builder(before)
    changing.assigned_directories = {1: FIRST}
    record = changing.build()
    assert record == change(directories=(r.DIRECTORY_MIGRATING, FIRST))
    again = builder(before.changed_by(record))
    again.assigned_directories = {1: FIRST}
    assert again.build() is None


def test_the_recovery_ends_when_the_leader_says_so() -> None:
    before = partition((0, 1), (0,), 0, leader_recovery_state=r.RECOVERING)
    changing = builder(before)
    changing.recovery_state = r.RECOVERED
    assert changing.build() == change(leader_recovery_state=r.RECOVERED)


def test_naming_a_leader_begins_an_epoch() -> None:
    """KRF-116, CTL-43, CTL-115: any leader, even the same or none; the partition epoch always."""
    before = partition((0, 1), (0, 1), 0)
    for record, epoch in (
        (change(leader=0), 6),
        (change(leader=1), 6),
        (change(leader=-1), 6),
        (change(isr=(0,)), 5),
    ):
        after = before.changed_by(record)
        assert (after.leader_epoch, after.partition_epoch) == (epoch, 8)
