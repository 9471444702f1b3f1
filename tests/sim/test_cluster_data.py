"""The cluster simulation with real replicas: seeds with data, and the checker of what they keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from kraftpy.broker.memory_replica_log import MemoryReplicaLog
from kraftpy.broker.partition import Partition
from kraftpy.log.log_config import LogConfig
from kraftpy.metadata import records as r
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.protocol.ids import Uuid
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import EndTransactionMarker, build_end_transaction
from kraftpy.sim.cluster_data_rules import DataRules, PartitionKey
from kraftpy.sim.cluster_data_run import data_simulation
from kraftpy.sim.cluster_producer_rules import ProducerFold
from kraftpy.sim.cluster_simulation import ClusterRun, ClusterSimulation
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.world.memory_clock import MemoryClock

GROUPS = 6
SEEDS_IN_GROUP = 4
EVENTS = 6_000


def run_with_data(first_seed: int, count: int) -> list[ClusterRun]:
    return [data_simulation(seed).run(EVENTS) for seed in range(first_seed, first_seed + count)]


@pytest.mark.parametrize("group", range(GROUPS))
def test_seeds_with_data_keep_every_invariant(group: int) -> None:
    """Invariants 10 to 17 of testing.md 7.8, equal replicas in the end; REP-123, REP-124"""
    runs = run_with_data(70_000 + 100 * group, SEEDS_IN_GROUP)
    assert sum(run.delivered for run in runs) > 0


def test_data_is_drawn_in_both_modes_and_used() -> None:
    swarms = [ClusterSimulation(seed).swarm for seed in range(200)]
    assert 20 < sum(swarm.data for swarm in swarms) < 80
    assert {swarm.flush_messages == 1 for swarm in swarms if swarm.data} == {True, False}
    runs = run_with_data(0, 3)
    assert sum(run.acknowledged for run in runs) > 50
    assert sum(run.delivered for run in runs) > 50
    assert run_with_data(0, 3) == runs


def test_replicas_are_compared_once_a_late_follower_has_truncated() -> None:
    """After an unclean election it ended where its leader did, and was about to truncate"""
    data_simulation(118_104_828).run(2_500)


def test_a_partition_may_commit_when_it_has_just_been_deleted() -> None:
    """By the controller's answer to a proposal from before: nobody is left whom it could harm."""
    simulation = data_simulation(3)
    simulation.run(1_500)
    hosts = [each.replicas for each in simulation.brokers.values() if each.replicas is not None]
    replicas = next(each for each in hosts if each.hosted)
    key, partition = next(iter(replicas.hosted.items()))
    del replicas.logs[key]
    replicas.high_watermark_moved(partition)


# The checker itself.

TOPIC_ID = Uuid(b"t" * 16)
KEY: PartitionKey = (TOPIC_ID, 0)


class StillClock(MemoryClock):
    def wall_ms(self) -> int:
        return 1_767_225_600_000


@dataclass
class Host:
    broker_id: int
    rules: DataRules
    flush_messages: int
    logs: dict[PartitionKey, MemoryReplicaLog] = field(default_factory=dict)
    is_running: bool = True
    hosted: dict[PartitionKey, Partition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = MemoryReplicaLog(StillClock(), LogConfig(flush_messages=self.flush_messages))
        self.logs[KEY] = self.log
        self.rules.hosts[self.broker_id] = self
        self.broker_epoch = 10 + self.broker_id

    def is_alive(self, broker_id: int) -> bool:
        return True

    def eligible_epoch(self, broker_id: int) -> int | None:
        return 10 + broker_id

    def appended(self, partition: Partition) -> None: ...

    def high_watermark_moved(self, partition: Partition) -> None: ...

    def log_start_moved(self, partition: Partition) -> None: ...

    def isr_wanted(self, partition: Partition) -> None: ...

    def role_changed(self, partition: Partition) -> None: ...


class World:
    """Three brokers with one partition, which broker 1 leads; min.insync.replicas is 2."""

    def __init__(self, *, flushes: bool = False) -> None:
        self.rules = DataRules(flushes=flushes, has_elr=True)
        self.hosts = {each: Host(each, self.rules, 1 if flushes else 1 << 62) for each in (1, 2, 3)}
        self.image = self.image_of()

    def image_of(self, **fields: object) -> MetadataImage:
        given = {"replicas": (1, 2, 3), "isr": (1, 2), "leader": 1, "leader_epoch": 5, **fields}
        partition = r.PartitionRecord(partition_id=0, topic_id=TOPIC_ID, **given)  # type: ignore[arg-type]
        delta = MetadataDelta(EMPTY_IMAGE)
        for each in (1, 2, 3):
            delta.replay(r.RegisterBrokerRecord(each, Uuid(b"i" * 16), 10 + each, ()))
        delta.replay(r.TopicRecord("t", TOPIC_ID))
        delta.replay(partition)
        delta.replay(r.ConfigRecord(4, "", "min.insync.replicas", "2"))
        return delta.apply(Provenance(1, 1, 1))

    def write(self, broker_id: int, *values: bytes, leader_epoch: int = 5) -> None:
        for value in values:
            builder = BatchBuilder()
            builder.append(None, value, timestamp_ms=1)
            self.hosts[broker_id].log.append_as_leader(builder.build(), leader_epoch)

    def partition(self, broker_id: int, *, min_isr: int = 2) -> Partition:
        host = self.hosts[broker_id]
        made = Partition(
            ("t", 0),
            TOPIC_ID,
            broker_id,
            host.log,
            brokers=host,
            events=host,
            lag_time_max_ms=1000,
            min_insync_replicas=min_isr,
        )
        record = self.image_of(leader=broker_id).partition(*KEY)
        assert record is not None
        made.lead(record, 0)
        return made

    def commit(self, offset: int) -> None:
        """Broker 1 says that everything below is committed."""
        partition = self.partition(1)
        partition.log.update_high_watermark(offset)
        self.rules.high_watermark_moved(partition, self.image)


def test_a_member_of_the_isr_has_what_is_committed() -> None:
    """Invariants 10 and 16"""
    world = World()
    world.write(1, b"a", b"b")
    world.write(2, b"a")
    world.commit(1)
    with pytest.raises(InvariantViolated, match="candidate-behind"):
        world.commit(2)


@pytest.mark.parametrize("elr", [(), (3,)])
def test_a_member_of_the_elr_has_it_too(elr: tuple[int, ...]) -> None:
    world = World()
    for each in (1, 2):
        world.write(each, b"a")
    world.commit(1)
    after = world.image_of(isr=(1,), eligible_leader_replicas=elr, partition_epoch=1)
    world.rules.committed(ImageChanges(world.image, after))
    if elr:
        with pytest.raises(InvariantViolated, match="candidate-behind"):
            world.rules.check_due(after)
    else:
        world.rules.check_due(after)


@pytest.mark.parametrize(("isr", "elr", "is_enough"), [((1, 2), (), True), ((1,), (3,), False)])
def test_a_leader_waits_for_everybody_who_may_be_elected(
    isr: tuple[int, ...], elr: tuple[int, ...], is_enough: bool
) -> None:
    """Invariant 11: broker 1 knows of an ISR of 1 and 2 only"""
    world = World()
    world.hosts[1].hosted[KEY] = world.partition(1)
    after = world.image_of(isr=isr, eligible_leader_replicas=elr, partition_epoch=1)
    world.rules.committed(ImageChanges(world.image, after))
    if is_enough:
        world.rules.check_due(after)
    else:
        with pytest.raises(InvariantViolated, match="quorum-too-small"):
            world.rules.check_due(after)


def test_what_is_committed_but_not_flushed_is_not_safe() -> None:
    """Invariant 16, in flush mode"""
    world = World(flushes=True)
    for each in (1, 2):
        world.write(each, b"a")
        world.hosts[each].log.flush()
    world.commit(1)
    for each in (1, 2):
        world.write(each, b"b")
    world.hosts[1].log.flush()
    with pytest.raises(InvariantViolated, match="candidate-behind"):
        world.commit(2)


def test_a_leader_takes_nothing_back() -> None:
    """Invariant 14"""
    world = World()
    for each in (1, 2):
        world.write(each, b"a", b"b")
    world.commit(2)
    with pytest.raises(InvariantViolated, match="high-watermark-falls"):
        world.commit(1)


def test_a_fetch_of_another_epoch_is_not_served() -> None:
    world = World()
    world.rules.served(world.partition(1), 5)
    world.rules.served(world.partition(1), -1)
    for epoch in (4, 6):
        with pytest.raises(InvariantViolated, match="epochs-mixed"):
            world.rules.served(world.partition(1), epoch)


def test_who_is_not_there_or_another_process_is_not_meant() -> None:
    world = World()
    world.write(1, b"a")
    world.hosts[2].is_running = False
    world.commit(1)
    world.hosts[2].is_running = True
    world.hosts[2].broker_epoch = 99
    world.commit(1)


def test_a_new_leader_has_what_was_acknowledged_and_shown() -> None:
    """Invariants 12 and 13"""
    world = World()
    world.write(1, b"a", b"b")
    world.write(2, b"a", b"b")
    world.write(3, b"a", b"other")
    world.rules.acked(world.partition(1), 0, 1, world.image)
    world.rules.shown(KEY, 1, (5, b"b"))
    for each in (1, 2):
        world.rules.leads(each, world.partition(each), world.image)
    with pytest.raises(InvariantViolated, match="record-lost"):
        world.rules.leads(3, world.partition(3), world.image)
    with pytest.raises(InvariantViolated, match="record-changed"):
        world.rules.shown(KEY, 1, (5, b"other"))


@pytest.mark.parametrize("flushes", [False, True])
def test_an_acknowledged_record_is_on_min_isr_replicas(*, flushes: bool) -> None:
    """Invariant 15"""
    world = World(flushes=flushes)
    world.write(1, b"a")
    with pytest.raises(InvariantViolated, match="acknowledged-too-early"):
        world.rules.acked(world.partition(1), 0, 1, world.image)
    world.write(2, b"a")
    if flushes:
        world.hosts[1].log.flush()
        with pytest.raises(InvariantViolated, match="acknowledged-too-early"):
            world.rules.acked(world.partition(1), 0, 1, world.image)
        world.hosts[2].log.flush()
    world.rules.acked(world.partition(1), 0, 1, world.image)


def test_another_record_in_the_same_place_does_not_count() -> None:
    """Invariant 15, of each record of a batch"""
    world = World()
    for broker_id, values in ((1, (b"a", b"b")), (2, (b"a", b"c"))):
        builder = BatchBuilder()
        for value in values:
            builder.append(None, value, timestamp_ms=1)
        world.hosts[broker_id].log.append_as_leader(builder.build(), 5)
    world.rules.acked(world.partition(1), 0, 1, world.image)
    with pytest.raises(InvariantViolated, match="acknowledged-too-early"):
        world.rules.acked(world.partition(1), 0, 2, world.image)


@pytest.mark.parametrize(("losses", "is_judged"), [(1, True), (2, False)])
def test_as_many_failed_machines_as_min_isr_may_lose_records(losses: int, is_judged: bool) -> None:
    """Invariant 12: while there are fewer, nothing is lost"""
    world = World()
    world.write(1, b"a")
    world.write(2, b"a")
    world.rules.shown(KEY, 0, (5, b"a"))
    world.commit(1)
    for _ in range(losses):
        world.rules.lost(KEY)
    if is_judged:
        with pytest.raises(InvariantViolated, match="record-lost"):
            world.rules.leads(3, world.partition(3), world.image)
    else:
        world.rules.leads(3, world.partition(3), world.image)


def test_an_unclean_leader_may_have_lost_anything() -> None:
    world = World()
    world.write(1, b"a")
    world.rules.shown(KEY, 0, (5, b"a"))
    recovering = world.image_of(
        leader=3, isr=(3,), leader_recovery_state=r.RECOVERING, partition_epoch=1
    )
    world.rules.committed(ImageChanges(world.image, recovering))
    world.rules.leads(3, world.partition(3), recovering)


def test_deleted_records_need_not_be_there() -> None:
    """Invariant 12: below the log start of a leader that was told to delete"""
    world = World()
    world.write(1, b"a", b"b")
    world.rules.acked(world.partition(1, min_isr=1), 0, 2, world.image)
    world.rules.deleted(KEY, 1)
    log = world.hosts[3].log
    log.truncate_fully_and_start_at(1)
    with pytest.raises(InvariantViolated, match="record-lost"):
        world.rules.leads(3, world.partition(3), world.image)
    world.write(3, b"b")
    world.rules.leads(3, world.partition(3), world.image)


def test_the_end_waits_for_a_follower_that_has_yet_to_truncate() -> None:
    """It ends where an unclean leader ends, by chance, and outside of the ISR"""
    world = World()
    for each in (1, 2, 3):
        world.write(each, b"a")
    world.write(2, b"lost")
    for each in (1, 3):
        world.write(each, b"new", leader_epoch=6)
    image = world.image_of(isr=(1, 3), leader_epoch=6, leader_recovery_state=r.RECOVERING)
    record = image.partition(*KEY)
    assert record is not None
    assert "end in epochs [6, 5, 6]" in (world.rules.disorder(KEY, record) or "")
    world.hosts[2].log.truncate_to(1)
    assert "end at [2, 1, 2]" in (world.rules.disorder(KEY, record) or "")
    world.write(2, b"new", leader_epoch=6)
    assert world.rules.disorder(KEY, record) is None
    world.rules.check_end(image)


@pytest.mark.parametrize(
    ("isr", "leader_epoch"),
    [
        # Whoever ends in the leader's epoch finds nothing to truncate.
        pytest.param((1, 3), 5, id="same epoch"),
        # Whoever is in sync, and told that all is committed, has what the leader has.
        pytest.param((1, 2, 3), 6, id="in sync"),
    ],
)
def test_what_no_truncation_mends_is_not_waited_for(
    isr: tuple[int, ...], leader_epoch: int
) -> None:
    world = World()
    for each, value in ((1, b"a"), (2, b"b"), (3, b"a")):
        world.write(each, value, leader_epoch=5 if each == 2 else leader_epoch)
        world.hosts[each].log.update_high_watermark(1)
    image = world.image_of(isr=isr, leader_epoch=leader_epoch)
    record = image.partition(*KEY)
    assert record is not None
    assert world.rules.disorder(KEY, record) is None
    with pytest.raises(InvariantViolated, match="replicas-differ"):
        world.rules.check_end(image)


@pytest.mark.parametrize(("found", "code"), [(b"a", None), (b"b", "answered-elsewhere")])
def test_a_producer_is_told_where_its_records_are(found: bytes, code: str | None) -> None:
    world = World()
    if code is None:
        world.rules.placed(KEY, b"a", found)
    else:
        with pytest.raises(InvariantViolated, match=code):
            world.rules.placed(KEY, b"a", found)


@pytest.mark.parametrize(("leader_epoch", "is_judged"), [(5, True), (6, False)])
def test_only_who_leads_by_the_truth_must_know_producers(
    leader_epoch: int, is_judged: bool
) -> None:
    world = World()
    image = world.image_of(leader_epoch=leader_epoch)
    assert world.rules.is_judged_leader(world.partition(1), image) is is_judged


# The checker of producers.


def written(*batches: bytes | bytearray) -> MemoryReplicaLog:
    """A log with these, as followers take them: whatever they say."""
    log = MemoryReplicaLog(StillClock(), LogConfig())
    for batch in batches:
        append(log, bytearray(batch))
    return log


def of(
    producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, is_open: bool = False
) -> bytearray:
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_open,
    )
    for _ in range(count):
        builder.append(None, b"v", timestamp_ms=1)
    return builder.build()


def end(producer_id: int, *, epoch: int = 0) -> bytearray:
    return build_end_transaction(
        EndTransactionMarker(True, 0),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp_ms=1,
    )


@pytest.mark.parametrize(
    ("batches", "wrong"),
    [
        ([of(1, 0, 2), of(2, 7), of(1, 2), of(1, 0, epoch=1)], None),
        ([of(1, 0, is_open=True), of(1, 1, is_open=True), end(1), of(1, 2)], None),
        ([of(1, 2**31 - 1), of(1, 0)], None),
        ([of(1, 0), of(1, 0)], "sequence 0, not 1"),
        ([of(1, 0), of(1, 2)], "sequence 2, not 1"),
        ([of(1, 0, epoch=1), of(1, 1)], "after 1"),
        ([of(1, 0, epoch=1), end(1)], "after 1"),
    ],
)
def test_producers_write_in_order(batches: list[bytearray], wrong: str | None) -> None:
    """Invariant 17"""
    found = ProducerFold(written(*batches)).wrong_sequence()
    assert found is None if wrong is None else wrong in (found or "")


def test_a_producer_writes_within_its_open_transaction() -> None:
    """Invariant 18: by a log that has forgotten its producer, or it would not take it"""
    log = written(of(1, 0, is_open=True))
    log.producers.truncate_fully(0)
    late = of(1, 1)
    late[:8] = (1).to_bytes(8)
    log.append_as_follower(late, 5)
    assert "outside its transaction" in (ProducerFold(log).wrong_sequence() or "")


@pytest.mark.parametrize(
    ("batches", "high_watermark", "stable"),
    [
        ([of(1, 0), of(2, 0)], 2, 2),
        ([of(1, 0), of(2, 0, is_open=True), of(1, 1)], 3, 1),
        ([of(2, 0, is_open=True), of(1, 1), end(2)], 3, 3),
        ([of(2, 0, is_open=True), of(1, 1), end(2)], 2, 0),
    ],
)
def test_what_is_stable(batches: list[bytearray], high_watermark: int, stable: int) -> None:
    """Invariant 14: by the product's reckoning, and one more or less is noticed"""
    log = written(*batches)
    log.update_high_watermark(high_watermark)
    assert log.last_stable_offset == stable
    assert wrong_last_stable(log, high_watermark) is None
    for wrong in (stable - 1, stable + 1):
        if 0 <= wrong <= high_watermark:
            assert wrong_last_stable(Claims(log, wrong), high_watermark) is not None


def test_what_was_folded_is_read_again_when_it_has_changed() -> None:
    """Invariant 17: cut off and written anew, just as long as it was"""
    log = written(of(1, 0), of(1, 1))
    fold = ProducerFold(log)
    assert fold.wrong_sequence() is None
    log.truncate_to(1)
    late = of(1, 5)
    late[:8] = (1).to_bytes(8)
    log.append_as_follower(late, 5)
    assert "sequence 5, not 1" in (fold.wrong_sequence() or "")


def test_what_was_deleted_is_forgotten() -> None:
    """Invariant 17: a log that begins later says less"""
    log = written(of(1, 0), of(2, 0))
    log.update_high_watermark(2)
    fold = ProducerFold(log)
    assert fold.wrong_sequence() is None
    log.raise_log_start(1)
    append(log, of(1, 5))
    assert fold.wrong_sequence() is None


def test_a_leader_may_know_that_more_is_committed_than_it_says() -> None:
    """Invariant 14: the end of a transaction is committed, and the high watermark below it"""
    log = written(of(2, 0, is_open=True), of(1, 0), end(2))
    log.update_high_watermark(2)
    for claimed in (0, 1, 2):
        assert wrong_last_stable(Claims(log, claimed), 3) is None
    assert wrong_last_stable(Claims(log, 1), 2) is not None


@pytest.mark.parametrize("seed", range(30))
def test_a_fold_says_what_a_fold_of_the_whole_log_says(seed: int) -> None:
    """Invariants 14, 17 and 18, whatever befalls the log while it is followed"""
    random = Random(seed)
    log = written()
    fold = ProducerFold(log)
    sequences: dict[int, int] = {}
    for _ in range(60):
        match random.choice(("append", "append", "append", "end", "cut", "begin", "commit")):
            case "append":
                producer = random.randint(1, 3)
                batch = of(producer, sequences.get(producer, 0), is_open=producer > 1)
                sequences[producer] = sequences.get(producer, 0) + 1
                append(log, batch)
            case "end":
                append(log, end(random.randint(2, 3)))
            case "cut" if random.random() < 0.2:
                log.truncate_to(random.randint(log.high_watermark, log.log_end_offset))
            case "begin" if random.random() < 0.2:
                log.raise_log_start(random.randint(log.log_start_offset, log.high_watermark))
            case "commit":
                offset = random.randint(log.high_watermark, log.log_end_offset)
                log.update_high_watermark(offset)
        anew = ProducerFold(log)
        wrong = fold.wrong_sequence()
        assert anew.wrong_sequence() == wrong
        if wrong is not None:
            # The run would end here; the next process counts anew.
            fold, sequences = ProducerFold(log := written()), {}
            continue
        for mark in (log.high_watermark, log.log_end_offset):
            assert anew.wrong_last_stable(mark) == fold.wrong_last_stable(mark)


def append(log: MemoryReplicaLog, batch: bytearray) -> None:
    batch[:8] = log.log_end_offset.to_bytes(8)
    log.append_as_follower(batch, 5)


def wrong_last_stable(log: MemoryReplicaLog, high_watermark: int) -> str | None:
    fold = ProducerFold(log)
    assert fold.wrong_sequence() is None
    return fold.wrong_last_stable(high_watermark)


class Claims(MemoryReplicaLog):
    """Another log, with another last stable offset."""

    __slots__ = ("_claimed",)

    def __init__(self, log: MemoryReplicaLog, claimed: int) -> None:
        super().__init__(StillClock(), LogConfig())
        self._claimed = claimed
        for name in ("_batches", "_file", "_watermarks", "producers"):
            setattr(self, name, getattr(log, name))

    @property
    def last_stable_offset(self) -> int:
        return self._claimed
