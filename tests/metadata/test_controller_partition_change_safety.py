"""The safety of partition changes against logs that can be looked into.

The model knows nothing of ISRs and elections but what a record says: it has the logs of replicas,
as sets of what was written, and the set of what was acknowledged. A leader that came to be without
permission to lose anything must have all that was acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.partition_change import (
    ChangeRules,
    Election,
    PartitionChangeBuilder,
)
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.protocol.ids import Uuid

TOPIC = Uuid(b"topic-id-0000001")
BROKERS = (0, 1, 2, 3, 4)


def rules(*, elr: bool, epoch_raised_by_shrink: bool = False) -> ChangeRules:
    return ChangeRules(
        EMPTY_IMAGE,
        is_elr_enabled=elr,
        is_epoch_raised_by_shrink=epoch_raised_by_shrink,
        has_directories=False,
    )


def check_shape(
    before: r.PartitionRecord,
    record: r.PartitionChangeRecord | None,
    *,
    elr: bool,
    alive: frozenset[int],
) -> r.PartitionRecord:
    """What holds of any change; returns the partition as it is then."""
    if record is None:
        return before
    after = before.changed_by(record)
    assert after != replace(before, partition_epoch=after.partition_epoch), "says nothing"
    assert after.leader == r.NO_LEADER or after.leader in after.isr
    assert len(set(after.isr)) == len(after.isr)
    assert set(after.isr) <= set(after.replicas)
    assert set(after.eligible_leader_replicas) <= set(after.replicas) - set(after.isr)
    assert after.isr or elr
    assert elr or not after.eligible_leader_replicas
    is_leader_given = record.leader != r.LEADER_UNCHANGED
    assert (after.leader_epoch > before.leader_epoch) == is_leader_given
    assert not (set(before.replicas) - set(after.replicas)) or is_leader_given
    assert after.leader == before.leader or after.leader in alive or after.leader == r.NO_LEADER
    return after


@st.composite
def partitions(draw: st.DrawFn, *, elr: bool) -> r.PartitionRecord:
    replicas = tuple(draw(st.lists(st.sampled_from(BROKERS), min_size=1, unique=True)))
    subset = st.lists(st.sampled_from(replicas), unique=True).map(tuple)
    isr = draw(subset.filter(lambda chosen: bool(chosen) or elr))
    leader = draw(st.sampled_from((r.NO_LEADER, *isr)))
    adding = tuple(sorted(draw(subset)))
    removing = tuple(sorted(set(draw(subset)) - set(adding)))
    eligible = tuple(each for each in draw(subset) if each not in isr) if elr else ()
    return r.PartitionRecord(
        0,
        TOPIC,
        replicas,
        isr,
        leader=leader,
        leader_epoch=3,
        adding_replicas=adding,
        removing_replicas=removing,
        eligible_leader_replicas=eligible,
        last_known_elr=draw(st.lists(st.sampled_from(BROKERS), max_size=2).map(tuple)),
        leader_recovery_state=draw(st.sampled_from((r.RECOVERED, r.RECOVERING))),
    )


@given(data=st.data(), elr=st.booleans(), election=st.sampled_from(Election))
def test_any_change_leaves_a_partition_that_makes_sense(
    data: st.DataObject, elr: bool, election: Election
) -> None:
    """KRF-116, KRF-117, KRF-118, CTL-42, CTL-43: whatever the partition and whatever is wanted."""
    before = data.draw(partitions(elr=elr))
    alive = frozenset(data.draw(st.lists(st.sampled_from(BROKERS), unique=True)))
    gone = frozenset(data.draw(st.lists(st.sampled_from(BROKERS), unique=True)))
    change_rules = rules(elr=elr, epoch_raised_by_shrink=data.draw(st.booleans()))
    acceptable = alive - gone
    builder = PartitionChangeBuilder(
        before,
        change_rules,
        lambda _, broker_id: broker_id in acceptable,
        data.draw(st.integers(1, 4)),
        election,
    )
    builder.isr = tuple(each for each in before.isr if each not in gone)
    builder.uncleanly_stopped = tuple(sorted(gone)) if data.draw(st.booleans()) else ()
    record = builder.build()
    after = check_shape(before, record, elr=elr, alive=acceptable)
    assert not set(builder.uncleanly_stopped) & set(after.eligible_leader_replicas)
    if record is not None and record.leader > r.NO_LEADER:
        had_everything = before.isr + (before.eligible_leader_replicas if elr else ())
        is_clean = record.leader in had_everything
        is_last_leader = elr and before.last_known_elr == (record.leader,)
        assert is_clean or election is Election.UNCLEAN or is_last_leader
        if not is_clean:
            assert (after.isr, after.eligible_leader_replicas) == ((record.leader,), ())
            assert after.leader_recovery_state == r.RECOVERING
            # Nobody who has everything was passed over.
            in_sync = set(before.isr) - gone
            passed_over = in_sync or (set(after.replicas) & set(before.eligible_leader_replicas))
            assert not passed_over & acceptable - set(before.removing_replicas)
        else:
            # No earlier replica would have done as well, unless it led already.
            index = after.replicas.index(record.leader)
            earlier = set(after.replicas[:index]) & set(after.isr) & acceptable
            is_kept = record.leader == before.leader
            assert is_kept or not earlier


@dataclass
class Model:
    """One partition on real logs. A broker that is down neither writes nor leads."""

    elr: bool
    min_isr: int
    allows_unclean: bool
    partition: r.PartitionRecord
    down: set[int] = field(default_factory=set)
    logs: dict[int, frozenset[int]] = field(default_factory=dict)
    acknowledged: frozenset[int] = frozenset()
    written: int = 0

    def log(self, broker_id: int) -> frozenset[int]:
        return self.logs.get(broker_id, frozenset())

    def write(self) -> None:
        """The leader writes; the ISR has it before anybody is told."""
        partition = self.partition
        if partition.leader == r.NO_LEADER:
            return
        self.written += 1
        enough = min(self.min_isr, len(partition.replicas))
        is_acknowledged = not self.elr or len(partition.isr) >= enough
        holders = partition.isr if is_acknowledged else (partition.leader,)
        for broker_id in holders:
            self.logs[broker_id] = self.log(broker_id) | {self.written}
        if is_acknowledged:
            self.acknowledged |= {self.written}

    def builder(self, adding: int | None = None) -> PartitionChangeBuilder:
        election = Election.UNCLEAN if self.allows_unclean else Election.ONLINE
        return PartitionChangeBuilder(
            self.partition,
            rules(elr=self.elr),
            lambda _, broker_id: broker_id == adding or broker_id not in self.down,
            self.min_isr,
            election,
        )

    def become(self, builder: PartitionChangeBuilder) -> None:
        before = self.partition
        # Who is about to join the ISR has it all, too.
        has_everything = before.isr + before.eligible_leader_replicas + builder.isr
        record = builder.build()
        alive = frozenset(BROKERS) - self.down
        self.partition = after = check_shape(before, record, elr=self.elr, alive=alive)
        if after.leader in (before.leader, r.NO_LEADER):
            return
        leader_log = self.log(after.leader)
        was_known_as_last = before.last_known_elr == (after.leader,) and self.elr
        if after.leader not in has_everything and (self.allows_unclean or was_known_as_last):
            assert after.leader_recovery_state == r.RECOVERING
            self.acknowledged &= leader_log
        assert self.acknowledged <= leader_log, "a clean leader lacks what was acknowledged"
        # Followers cut what the new leader doesn't have.
        for broker_id in after.isr:
            assert self.acknowledged <= self.log(broker_id)
        for broker_id in after.replicas:
            self.logs[broker_id] = self.log(broker_id) & leader_log

    def fail(self, broker_id: int, *, loses_log: bool) -> None:
        """A broker dies. Without ELR, Kafka's promise holds only for logs that survive it."""
        self.down.add(broker_id)
        is_unclean = loses_log and self.elr
        if is_unclean:
            self.logs[broker_id] = frozenset()
        builder = self.builder()
        builder.isr = tuple(each for each in self.partition.isr if each != broker_id)
        builder.uncleanly_stopped = (broker_id,) if is_unclean else ()
        self.become(builder)

    def come_back(self, broker_id: int) -> None:
        self.down.discard(broker_id)
        if self.partition.leader == r.NO_LEADER:
            self.become(self.builder(adding=broker_id))

    def shrink(self, broker_id: int) -> None:
        """The leader finds a follower too slow."""
        partition = self.partition
        if broker_id in partition.isr and broker_id != partition.leader != r.NO_LEADER:
            builder = self.builder()
            builder.isr = tuple(each for each in partition.isr if each != broker_id)
            self.become(builder)

    def catch_up(self, broker_id: int) -> None:
        """A follower has all that the leader has, and joins the ISR."""
        partition = self.partition
        is_candidate = broker_id in partition.replicas and broker_id not in partition.isr
        if partition.leader == r.NO_LEADER or not is_candidate or broker_id in self.down:
            return
        self.logs[broker_id] = self.log(partition.leader)
        builder = self.builder()
        builder.isr = (*partition.isr, broker_id)
        builder.recovery_state = r.RECOVERED
        self.become(builder)

    def move(self, target: tuple[int, ...]) -> None:
        """An operator wants the replicas elsewhere."""
        current = self.partition.replicas
        builder = self.builder()
        builder.adding = tuple(sorted(set(target) - set(current)))
        builder.removing = tuple(sorted(set(current) - set(target)))
        builder.replicas = target + builder.removing
        self.become(builder)


STEPS = st.one_of(
    st.just(("write",)),
    st.tuples(
        st.sampled_from(["fail", "lose", "back", "shrink", "join"]), st.sampled_from(BROKERS)
    ),
    st.tuples(
        st.just("move"),
        st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True).map(tuple),
    ),
)


def run(model: Model, steps: list[tuple[object, ...]]) -> None:
    for step in steps:
        match step:
            case ("write",):
                model.write()
            case ("fail", int(broker_id)):
                model.fail(broker_id, loses_log=False)
            case ("lose", int(broker_id)):
                model.fail(broker_id, loses_log=True)
            case ("back", int(broker_id)):
                model.come_back(broker_id)
            case ("shrink", int(broker_id)):
                model.shrink(broker_id)
            case ("join", int(broker_id)):
                model.catch_up(broker_id)
            case ("move", tuple(target)):
                model.move(target)


@given(
    steps=st.lists(STEPS, max_size=40),
    elr=st.booleans(),
    allows_unclean=st.booleans(),
    min_isr=st.integers(1, 4),
    replicas=st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True).map(tuple),
)
def test_a_clean_leader_has_everything_that_was_acknowledged(
    *,
    steps: list[tuple[object, ...]],
    elr: bool,
    allows_unclean: bool,
    min_isr: int,
    replicas: tuple[int, ...],
) -> None:
    """KRF-117, KRF-118, KRF-119, KRF-121: brokers die, with their logs too, and replicas move."""
    partition = r.PartitionRecord(0, TOPIC, replicas, replicas, leader=replicas[0])
    model = Model(elr, min_isr, allows_unclean, partition)
    run(model, [("write",), *steps])
    # Whoever had it is back, so that somebody leads again.
    for broker_id in BROKERS:
        model.come_back(broker_id)
    assert model.partition.leader != r.NO_LEADER or not model.partition.isr
