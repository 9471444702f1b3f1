"""Replicas that copy from each other: the ways in which logs part, and how they become alike."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from random import Random

import pytest
from core_rig import batch, batches_in, values_in
from fetch_rig import Cluster
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.broker.fetcher_core import Phase
from kraftpy.broker.partition import ReplicaError

A, B = 1, 2


def two() -> Cluster:
    cluster = Cluster(2)
    cluster.elect(B)
    return cluster


def fetch(cluster: Cluster, broker_id: int, times: int) -> None:
    for _ in range(times):
        assert cluster.turn(broker_id)


def values(cluster: Cluster, broker_id: int) -> list[bytes]:
    return [value for _, value in values_in(cluster.members[broker_id].log).values()]


def watermarks(cluster: Cluster) -> list[tuple[int, int]]:
    return [(each.log.log_end_offset, each.log.high_watermark) for each in cluster.members.values()]


def test_a_restart_between_the_two_high_watermarks_loses_nothing() -> None:
    """REP-93 (13.1, 13.3): A has m2 but not the high watermark that covers it."""
    cluster = two()
    cluster.produce(b"m1")
    fetch(cluster, A, 2)
    cluster.produce(b"m2")
    fetch(cluster, A, 1)
    # The fetch at 2 commits m2; its answer does not reach A.
    assert cluster.turn(A, is_lost=True)
    assert watermarks(cluster) == [(2, 1), (2, 2)]
    cluster.members[A].log.checkpoint_high_watermark()
    cluster.members[A].crash(2)
    cluster.members[A].is_up = True
    cluster.tell(A)
    fetch(cluster, A, 1)
    assert values(cluster, A) == [b"m1", b"m2"]
    cluster.members[B].is_up = False
    cluster.elect(A, (A,))
    cluster.produce(b"m3")
    cluster.members[B].is_up = True
    cluster.tell(B)
    cluster.settle()
    assert values(cluster, A) == values(cluster, B) == [b"m1", b"m2", b"m3"]
    assert cluster.isr == (A, B)


def test_logs_do_not_diverge() -> None:
    """REP-94 (13.2, 13.4): offset 1 is m2 on A and m3 on B, and both take it for committed."""
    cluster = Cluster(2)
    cluster.elect(A)
    cluster.produce(b"m1")
    cluster.turn(B)
    cluster.turn(B)
    cluster.isr = (A,)
    cluster.partition_epoch += 1
    cluster.tell(A)
    cluster.produce(b"m2")
    cluster.now_ms = 100_000
    cluster.produce(b"-")
    cluster.members[A].log.truncate_to(2)
    for each in (A, B):
        cluster.members[each].crash(2)
    cluster.members[B].is_up = True
    cluster.elect(B, (B,))
    cluster.produce(b"m3")
    assert (values(cluster, A), values(cluster, B)) == ([b"m1", b"m2"], [b"m1", b"m3"])
    cluster.members[A].is_up = True
    cluster.tell(A)
    cluster.settle()
    assert values(cluster, A) == [b"m1", b"m3"]
    assert watermarks(cluster) == [(2, 2), (2, 2)]
    entries = [each.log.epochs.entries for each in cluster.members.values()]
    assert entries == [((1, 0), (2, 1))] * 2


def test_what_a_deposed_leader_has_accepted_is_cut_off() -> None:
    """REP-95."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.produce(b"m1")
    cluster.settle()
    deposed = cluster.members[1].partition
    cluster.members[1].is_up = False
    cluster.elect(2, (2, 3))
    cluster.members[1].is_up = True
    cluster.leader_id = 1
    cluster.produce(b"lost", b"too")
    cluster.leader_id = 2
    assert deposed.is_leader
    cluster.produce(b"m2")
    cluster.tell(1)
    with pytest.raises(ReplicaError):
        deposed.check_leader()
    cluster.settle()
    assert [values(cluster, each) for each in (1, 2, 3)] == [[b"m1", b"m2"]] * 3


def test_epochs_that_the_leader_does_not_know_are_cut_one_by_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """REP-85, REP-87: the log has tails of several leaderships that nobody has heard of."""
    cluster = two()
    cluster.produce(b"m1")
    cluster.settle()
    for epoch in (2, 4, 6):
        cluster.leader_epoch = epoch - 1
        cluster.members[B].is_up = False
        cluster.elect(A, (A,))
        cluster.produce(b"of epoch %d" % epoch)
    cluster.members[B].is_up = True
    for epoch in (3, 5, 7):
        cluster.leader_epoch = epoch - 1
        cluster.members[A].is_up = False
        cluster.elect(B, (B,))
        cluster.produce(b"of epoch %d" % epoch)
    cluster.members[A].is_up = True
    with caplog.at_level(logging.INFO):
        cluster.tell(A)
        cluster.settle()
    expected = [b"m1", b"of epoch 3", b"of epoch 5", b"of epoch 7"]
    assert values(cluster, A) == values(cluster, B) == expected


def test_a_leadership_without_records_is_no_obstacle() -> None:
    """REP-86, REP-96: the epoch that it noted at its log's end is known to nobody else."""
    cluster = two()
    cluster.produce(b"m1")
    cluster.settle()
    cluster.members[B].is_up = False
    cluster.elect(A)
    cluster.members[B].is_up = True
    cluster.members[A].is_up = False
    cluster.leader_epoch += 1
    cluster.elect(B)
    cluster.produce(b"m2")
    cluster.members[A].is_up = True
    cluster.tell(A)
    cluster.settle()
    assert values(cluster, A) == [b"m1", b"m2"]
    assert cluster.members[A].log.epochs.entries == cluster.members[B].log.epochs.entries


def test_a_follower_that_was_away_for_too_long_begins_anew() -> None:
    """REP-92: what it lacks has been deleted."""
    cluster = two()
    cluster.produce(b"old")
    cluster.settle()
    cluster.members[A].is_up = False
    cluster.isr = (B,)
    cluster.partition_epoch += 1
    cluster.tell(B)
    cluster.now_ms = 1_000_000
    for _ in range(5):
        cluster.produce(b"m")
    cluster.members[B].partition.raise_log_start(4)
    cluster.members[A].is_up = True
    cluster.settle()
    assert batches_in(cluster.members[A].log)[0].base_offset == 4
    assert values_in(cluster.members[A].log) == values_in(cluster.members[B].log)
    assert cluster.isr == (B, A)


def test_an_unclean_leader_is_followed() -> None:
    """REP-91, REP-125: whatever is lost with it."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.produce(b"m1")
    cluster.settle()
    for each in (b"m2", b"m3"):
        cluster.produce(each)
        for _ in range(3):
            cluster.now_ms += 1100
            cluster.turn(2)
    cluster.elect(3, (3,))
    cluster.produce(b"new")
    cluster.settle()
    assert [values(cluster, each) for each in (1, 2, 3)] == [[b"m1", b"new"]] * 3
    core = cluster.members[1].core
    assert core is not None
    assert core.phase_of(("t", 0)) is Phase.FETCHING


# Anything may happen, in any order.


class Storm:
    """A cluster in which brokers die and hear late; what was ever committed is written down."""

    def __init__(self, *, is_power_lost: bool) -> None:
        """Either processes die, and the system keeps what they wrote, or the power fails, and
        flush.messages=1 has to help.
        """
        self.is_power_lost = is_power_lost
        self.cluster = Cluster(3, flush_messages=1 if is_power_lost else 1 << 62)
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.count = 0
        self.cluster.elect(1)

    def do(self, operation: tuple[str, int, int]) -> None:
        what, broker_id, number = operation
        cluster, member = self.cluster, self.cluster.members[broker_id]
        cluster.now_ms += 10
        match what:
            case "produce" if member.partition.is_leader and member.is_up:
                self.count += 1
                believed, cluster.leader_id = cluster.leader_id, broker_id
                self._produce(broker_id, b"%d" % self.count)
                cluster.leader_id = believed
            case "flush":
                self._flush(broker_id)
            case "turn":
                cluster.turn(broker_id, is_lost=number == 0)
            case "late":
                cluster.turn_late(broker_id)
            case "arrive":
                cluster.arrive()
            case "alter" if member.is_up:
                cluster.alter(broker_id, is_lost=number == 0)
            case "hear":
                cluster.tell(broker_id)
            case "wait" if member.is_up:
                cluster.now_ms += number * 10_000
                member.partition.shrink_isr(cluster.now_ms)
            case "die" if member.is_up:
                self._die(broker_id, number)
            case "start" if not member.is_up:
                self._start(broker_id)
            case "elect" if broker_id in cluster.isr and member.is_up:
                self._elect(broker_id)
        self.check()

    def _produce(self, broker_id: int, value: bytes) -> None:
        partition = self.cluster.members[broker_id].partition
        partition.append(batch(value), required_acks=1, now_ms=self.cluster.now_ms)

    def _flush(self, broker_id: int) -> None:
        member = self.cluster.members[broker_id]
        member.log.flush()
        member.partition.flushed(member.log.recovery_point, self.cluster.now_ms)

    def _die(self, broker_id: int, kept: int) -> None:
        cluster, member = self.cluster, self.cluster.members[broker_id]
        end = member.log.log_end_offset
        member.crash(max(end - kept, 0) if self.is_power_lost else end)
        cluster.brokers.dead.append(broker_id)
        if len(cluster.isr) > 1 and broker_id in cluster.isr:
            cluster.isr = tuple([each for each in cluster.isr if each != broker_id])
            cluster.partition_epoch += 1
        if cluster.leader_id == broker_id:
            able = [each for each in cluster.isr if cluster.members[each].is_up]
            self._elect(able[0] if able else -1)

    def _elect(self, leader_id: int) -> None:
        """Known to nobody for the time being."""
        self.cluster.leader_id = leader_id
        self.cluster.leader_epoch += 1
        self.cluster.partition_epoch += 1

    def _start(self, broker_id: int) -> None:
        self.cluster.members[broker_id].is_up = True
        self.cluster.brokers.dead.remove(broker_id)
        if self.cluster.leader_id == -1 and broker_id in self.cluster.isr:
            self._elect(broker_id)
        self.cluster.tell(broker_id)

    def check(self) -> None:
        """Whatever anybody may read is committed, for ever, and on everybody who may lead."""
        cluster = self.cluster
        for member in cluster.members.values():
            member.log.check()
            if member.is_up and member.partition.is_leader:
                high_watermark = member.log.high_watermark
                for offset, value in values_in(member.log).items():
                    if offset < high_watermark:
                        assert self.committed.setdefault(offset, value) == value
        for broker_id in cluster.isr:
            held = values_in(cluster.members[broker_id].log)
            for offset, value in self.committed.items():
                assert held.get(offset) == value, (broker_id, offset)

    def heal(self) -> None:
        for broker_id, member in self.cluster.members.items():
            if not member.is_up:
                self._start(broker_id)
        if self.cluster.leader_id == -1:
            self._elect(self.cluster.isr[0])
        for broker_id in self.cluster.members:
            self.cluster.tell(broker_id)
        self.cluster.now_ms += 100_000
        for _ in range(3):
            self.cluster.settle()
            for broker_id in self.cluster.members:
                self._flush(broker_id)
            self.check()


_KINDS = {
    "turn": 30,
    "late": 1,
    "arrive": 1,
    "produce": 15,
    "flush": 5,
    "alter": 5,
    "hear": 12,
    "wait": 4,
    "elect": 1,
    "die": 1,
    "start": 4,
}
_OPERATIONS = st.tuples(st.sampled_from(list(_KINDS)), st.integers(1, 3), st.integers(0, 4))


def _run(operations: Iterable[tuple[str, int, int]], *, is_power_lost: bool) -> int:
    """How much was committed."""
    storm = Storm(is_power_lost=is_power_lost)
    for operation in operations:
        storm.do(operation)
    storm.heal()
    logs = [values_in(each.log) for each in storm.cluster.members.values()]
    assert logs[0] == logs[1] == logs[2]
    ends = watermarks(storm.cluster)
    assert ends == [(len(logs[0]), len(logs[0]))] * 3
    assert sorted(storm.cluster.isr) == [1, 2, 3]
    return len(logs[0])


@settings(max_examples=150, deadline=None)
@given(st.lists(_OPERATIONS, min_size=10, max_size=100), st.booleans())
def test_what_is_committed_stays(
    operations: list[tuple[str, int, int]], is_power_lost: bool
) -> None:
    """REP-41, REP-47, REP-48, REP-116, REP-123: and in the end all logs are alike."""
    _run(operations, is_power_lost=is_power_lost)


@pytest.mark.parametrize("seed", range(16))
def test_what_is_committed_stays_for_long(seed: int) -> None:
    """REP-123: with the odds of a bad week."""
    random = Random(seed)
    kinds = random.choices(list(_KINDS), list(_KINDS.values()), k=600)
    operations = [(kind, random.randint(1, 3), random.randint(0, 4)) for kind in kinds]
    assert _run(operations, is_power_lost=seed % 2 == 1) > 10
