"""The rules for whole nodes can fail: each is held against a state in which it is broken (JEP-144).

Invariants 5 to 7, 19 to 21 and 23 to 25 of the specification's section 7.8. For each there is a
sound state, which nothing is said about, and one that differs from it in what the rule is about.
That they are asked at all, on real nodes, is for tests/bugs/test_whole_bugs.py.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from kraftpy.coordinator.groups.offsets_state import OffsetState, StoredOffset
from kraftpy.coordinator.timeline import Timeline
from kraftpy.log.epochs import EpochEntry, LeaderEpochCache
from kraftpy.log.transactions import AbortedTransaction
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.memory import RequestMemory
from kraftpy.net.quotas import ConnectionQuotas
from kraftpy.protocol.coordinator_records import encode_key, encode_value
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema.group_records import OffsetCommitKey, OffsetCommitValue
from kraftpy.protocol.schema.transaction_records import TransactionLogKey, TransactionLogValue
from kraftpy.raft.log_state import OffsetAndEpoch, SnapshotId
from kraftpy.raft.roles import Leader
from kraftpy.raft.voters import History, ReplicaKey, Voter, VoterSet
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import EndTransactionMarker, build_end_transaction
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.whole.health_rules import (
    HealthRules,
    Needs,
    check_server,
    count_tasks,
    log_directories,
    open_files,
)
from kraftpy.sim.whole.hosts import WholeHost
from kraftpy.sim.whole.offset_rules import OffsetTruth
from kraftpy.sim.whole.quorum_rules import WholeQuorumRules
from kraftpy.sim.whole.transaction_rules import Marker, WholeTransactionRules, wrong_aborted_index
from kraftpy.sim.whole.watch import WholeData
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk

KEY = (ZERO_UUID, 0)
ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(1, 6)


def batch(
    offset: int,
    *records: tuple[bytes, bytes | None],
    epoch: int = 1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> RecordBatch:
    builder = BatchBuilder(
        base_offset=offset,
        leader_epoch=epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=is_transactional,
    )
    for key, value in records or [(b"", b"x")]:
        builder.append(timestamp_ms=1, key=key, value=value)
    return RecordBatch(memoryview(builder.build()))


def marker(offset: int, producer_id: int, epoch: int, *, is_commit: bool) -> RecordBatch:
    data = build_end_transaction(
        EndTransactionMarker(is_commit, 0),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp_ms=1,
        base_offset=offset,
    )
    return RecordBatch(memoryview(data))


# 5 to 7: the quorum.


def quorum_of(
    node_id: int, epoch: int, held: list[RecordBatch], *, log_epoch: int | None = None
) -> Any:
    """What a driver shows whose node leads an epoch with these batches."""
    by_base = {each.base_offset: each for each in held}
    end = held[-1].next_offset if held else 0
    log = SimpleNamespace(
        start_offset=0,
        end_offset=end,
        last_epoch=epoch if log_epoch is None else log_epoch,
        end=OffsetAndEpoch(end, epoch),
        starts_batch=lambda offset: offset in by_base,
    )
    quorum = SimpleNamespace(
        role=Leader(0, (), 0, 0), epoch=epoch, local=ReplicaKey(node_id, ZERO_UUID), log=log
    )
    reader = SimpleNamespace(batches=lambda start, end: iter([by_base[start]]))
    return SimpleNamespace(quorum=quorum, log=reader)


def committed(*batches: RecordBatch) -> WholeQuorumRules:
    rules = WholeQuorumRules()
    for each in batches:
        rules.check_batch(1, each)
    return rules


def test_a_new_leader_has_what_is_committed() -> None:
    first, second, other = batch(0), batch(1), batch(1, (b"", b"other"))
    rules = committed(first, second)
    rules.check_leader(quorum_of(1, 2, [first, second, batch(2, epoch=2)]))
    with pytest.raises(InvariantViolated, match="leader-completeness"):
        rules.check_leader(quorum_of(2, 3, [first]))
    with pytest.raises(InvariantViolated, match="leader-completeness"):
        rules.check_leader(quorum_of(2, 4, [first, other, batch(2, epoch=4)]))


def test_an_old_leader_need_not_have_it() -> None:
    first, second = batch(0), batch(1)
    rules = committed(first, second)
    rules.note_epoch(cast("Any", SimpleNamespace(epoch=9)))
    rules.check_leader(quorum_of(2, 8, [first]))


def test_a_leader_loads_no_snapshot() -> None:
    with pytest.raises(InvariantViolated, match="leader-loads-snapshot"):
        committed().check_leader(quorum_of(1, 5, [batch(0)], log_epoch=4))


@pytest.mark.parametrize(
    ("snapshot", "code"),
    [
        (SnapshotId(2, 1), None),
        (SnapshotId(1, 1), "snapshot-at-start"),
        (None, "snapshot-at-start"),
        (SnapshotId(2, 3), "snapshot-epoch"),
    ],
)
def test_a_log_begins_where_its_snapshot_ends(snapshot: SnapshotId | None, code: str) -> None:
    rules = committed(batch(0), batch(1), batch(2, epoch=4))
    log: Any = SimpleNamespace(
        start_offset=2,
        earliest_snapshot=snapshot,
        epochs=LeaderEpochCache([EpochEntry(4, 2)]),
    )
    if code is None:
        rules.check_log_begins(1, log)
    else:
        with pytest.raises(InvariantViolated, match=code):
            rules.check_log_begins(1, log)


def test_one_change_of_voters_is_open() -> None:
    def voters(*ids: int) -> VoterSet:
        return VoterSet(Voter(ReplicaKey(each, ZERO_UUID), ()) for each in ids)

    history = History(voters(1, 2, 3))
    quorum: Any = SimpleNamespace(voters=history, local=ReplicaKey(1, ZERO_UUID))
    rules = WholeQuorumRules()
    history.add(5, voters(1, 2, 3, 4))
    rules.check_voters(quorum)
    history.add(6, voters(1, 2, 3, 4, 5))
    with pytest.raises(InvariantViolated, match="one-voter-change"):
        rules.check_voters(quorum)
    rules.committed_end = 6
    rules.check_voters(quorum)


# 19 to 21: transactions.


def state(offset: int, status: int, *, epoch: int = 1, version: int = 2) -> RecordBatch:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=epoch,
        transaction_timeout_ms=1,
        transaction_status=status,
        transaction_partitions=[],
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=1,
        client_transaction_version=version,
    )
    key = TransactionLogKey(transactional_id="x")
    return batch(offset, (encode_key(key), encode_value(value, 1)))


def test_states_of_a_transaction_follow_one_another() -> None:
    rules = WholeTransactionRules()
    for offset, status in enumerate((ONGOING, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT, ONGOING)):
        rules.state_committed(state(offset, status))
    rules.state_committed(state(5, PREPARE_ABORT, epoch=2))
    with pytest.raises(InvariantViolated, match="illegal-transition"):
        rules.state_committed(state(6, COMPLETE_COMMIT, epoch=2))


def test_an_epoch_has_one_decision() -> None:
    rules = WholeTransactionRules()
    for offset, status in enumerate((ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT, ONGOING)):
        rules.state_committed(state(offset, status))
    with pytest.raises(InvariantViolated, match="decided-twice"):
        rules.state_committed(state(4, PREPARE_ABORT))


def test_a_marker_follows_its_decision() -> None:
    rules = WholeTransactionRules()
    for offset, status in enumerate((ONGOING, PREPARE_COMMIT)):
        rules.state_committed(state(offset, status))
    rules.marker_committed(KEY, Marker(7, 1, True))
    for wrong in (Marker(7, 1, False), Marker(7, 2, True)):
        with pytest.raises(InvariantViolated, match="marker-before-decision"):
            rules.marker_committed(KEY, wrong)
    rules.has_lost_records()
    rules.marker_committed(KEY, Marker(7, 2, True))


def test_a_fenced_producer_writes_nothing() -> None:
    rules = WholeTransactionRules()
    rules.begun(7, 2, {KEY: 10})
    rules.data_committed(KEY, batch(9, producer_id=7, producer_epoch=1))
    rules.data_committed(KEY, batch(10, producer_id=7, producer_epoch=2))
    with pytest.raises(InvariantViolated, match="fenced-and-written"):
        rules.data_committed(KEY, batch(10, producer_id=7, producer_epoch=1))


def test_the_aborted_index_is_what_the_markers_say() -> None:
    log = [
        batch(0, producer_id=7, producer_epoch=1, is_transactional=True),
        batch(1, producer_id=8, producer_epoch=1, is_transactional=True),
        marker(2, 7, 1, is_commit=False),
        marker(3, 8, 1, is_commit=True),
    ]
    right = AbortedTransaction(7, 0, 2, 0)
    assert wrong_aborted_index(log, [right], 0) is None
    wrong_ones = ([], [right, right._replace(producer_id=8)], [right._replace(first_offset=1)])
    for wrong in wrong_ones:
        assert wrong_aborted_index(log, wrong, 0) is not None
    # Whose beginning was deleted is told by the index alone.
    assert wrong_aborted_index(log[1:], [right], 1) is None
    assert wrong_aborted_index(log[1:], [], 1) is None


# 10 and 15: what counts as flushed.


def test_what_a_process_has_flushed_is_durable_for_the_next_one() -> None:
    """L3, seed 7117000: the last member of an ISR came back with a checkpoint that was behind what
    it had flushed, and was taken for a candidate that lacks a committed record.
    """
    host = WholeHost(4, MemoryDisk(), MemoryClock())
    rules = WholeData({4: host}, flushes=True, has_elr=False)

    def log(end: int, recovery_point: int) -> Any:
        return SimpleNamespace(log_end_offset=end, recovery_point=recovery_point)

    host.note_durable(KEY, log(26, 26))
    assert rules._durable_end(4, KEY, log(26, 25)) == 26
    # A shorter log has lost it, and an end that was never flushed is no more than that.
    assert rules._durable_end(4, KEY, log(24, 20)) == 24
    host.note_durable(KEY, log(24, 20))
    assert rules._durable_end(4, KEY, log(30, 22)) == 24


# 23: offsets.


def offset_record(offset: int) -> tuple[bytes, bytes]:
    key = OffsetCommitKey(group="g", topic="t", partition=0)
    value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1)
    return encode_key(key), encode_value(value, 3)


def machine_with(position: int, offset: int) -> Any:
    timeline = Timeline()
    state = OffsetState(timeline)
    stored = StoredOffset(position, offset, -1, "", 1, -1, ZERO_UUID)
    state.put("g", ("t", 0), stored)
    timeline.written(position + 1)
    timeline.committed(position + 1)
    return SimpleNamespace(offsets=SimpleNamespace(state=state))


def test_the_files_of_a_replica_are_read_again_when_they_have_changed() -> None:
    """Of a node that starts, for one: its disk does not stand still"""
    disk = MemoryDisk()
    trio.run(disk.make_directory, "/data/t-0")
    file = disk.open("/data/t-0/00000000000000000000.log", write=True, create=True)
    host = WholeHost(1, disk, MemoryClock())
    key = (ZERO_UUID, 0)
    host.directories[key] = "/data/t-0"
    batch = BatchBuilder()
    batch.append(None, b"v", timestamp_ms=1)
    data = batch.build()
    size = file.pwrite([data], 0)
    first = host.resting(key)
    assert first.log_end_offset == 1
    assert host.resting(key) is first
    data[:8] = (1).to_bytes(8)
    file.pwrite([data], size)
    assert host.resting(key).log_end_offset == 2
    file.truncate(size)
    assert host.resting(key).log_end_offset == 1
    host.directories[key] = "/data/elsewhere"
    assert host.resting(key).log_end_offset == 0


def test_offsets_are_those_of_the_last_records() -> None:
    truth = OffsetTruth()
    truth.committed(batch(0, offset_record(5)))
    truth.committed(
        batch(1, offset_record(6), producer_id=7, producer_epoch=0, is_transactional=True)
    )
    truth.check(machine_with(0, 5))
    truth.committed(marker(2, 7, 0, is_commit=True))
    truth.check(machine_with(1, 6))
    for wrong in (machine_with(0, 5), machine_with(1, 7)):
        with pytest.raises(InvariantViolated, match="offset-differs"):
            truth.check(wrong)
    truth.committed(batch(3, (offset_record(0)[0], None)))
    with pytest.raises(InvariantViolated, match="offset-too-many"):
        truth.check(machine_with(1, 6))


def test_offsets_of_an_aborted_transaction_are_none() -> None:
    truth = OffsetTruth()
    truth.committed(
        batch(0, offset_record(6), producer_id=7, producer_epoch=0, is_transactional=True)
    )
    truth.committed(marker(1, 7, 0, is_commit=False))
    with pytest.raises(InvariantViolated, match="offset-too-many"):
        truth.check(machine_with(0, 6))


# 24 and 25: health.


def test_a_timer_that_is_overdue_twice() -> None:
    health = HealthRules()
    late = [("Fetch", "a timer is 12 ms overdue")]
    health.judge(1, late, 100)
    health.judge(1, late, 100)
    health.judge(1, [], 110)
    health.judge(1, late, 120)
    health.was_away()
    health.judge(1, late, 130)
    with pytest.raises(InvariantViolated, match="timer-overdue"):
        health.judge(1, late, 140)


def test_a_purgatory_that_counts_wrong() -> None:
    with pytest.raises(InvariantViolated, match="purgatory-miscounted"):
        HealthRules().judge(1, [("Produce", "PurgatorySize 3, but 2 places")], 100)


def server_with(memory: RequestMemory, connections: int, counted: int) -> Any:
    quotas = ConnectionQuotas(NetworkLimits(), ["A"], (), 0.0)
    for _ in range(counted):
        quotas.add("A", "host")
    return SimpleNamespace(memory=memory, quotas=quotas, connections=[None] * connections)


def test_memory_and_connections_of_a_server() -> None:
    memory = RequestMemory(100)
    check_server(1, server_with(memory, 2, 2), 50)
    with pytest.raises(InvariantViolated, match="connections-miscounted"):
        check_server(1, server_with(memory, 2, 3), 50)
    memory.used_bytes = 101
    check_server(1, server_with(memory, 2, 2), 101)
    with pytest.raises(InvariantViolated, match="memory-exceeded"):
        check_server(1, server_with(memory, 2, 2), 50)
    memory.reserve(60, lambda: None)
    memory.used_bytes = 0
    with pytest.raises(InvariantViolated, match="memory-withheld"):
        check_server(1, server_with(memory, 2, 2), 50)


def test_tasks_and_files_have_a_bound() -> None:
    Needs(tasks=60, files=50, connections=10, replicas=3).check(1)
    with pytest.raises(InvariantViolated, match="tasks-leaked"):
        Needs(tasks=170, files=50, connections=10, replicas=3).check(1)
    with pytest.raises(InvariantViolated, match="files-leaked"):
        Needs(tasks=60, files=250, connections=10, replicas=3).check(1)


def test_tasks_and_files_are_counted() -> None:
    async def main() -> None:
        async with trio.open_nursery() as outer:
            for _ in range(3):
                outer.start_soon(trio.sleep_forever)
            assert count_tasks(trio.lowlevel.current_task()) == 4
            outer.cancel_scope.cancel()

    trio.run(main)
    disk = MemoryDisk()
    file = disk.open("/a", write=True, create=True)
    assert open_files(disk) == 1
    file.close()
    assert open_files(disk) == 0


def test_the_logs_of_a_node_that_starts_are_counted() -> None:
    """Invariant 25: it has them open before it knows which of them it hosts"""
    disk = MemoryDisk()
    for name in ("t-0", "t-1", f"u-0.{'0' * 32}-delete", "no log"):
        trio.run(disk.make_directory, f"/data/{name}")
    disk.open("/data/t-2", write=True, create=True)
    assert log_directories(disk) == 2

    async def main() -> None:
        host = WholeHost(1, disk, MemoryClock())
        node = SimpleNamespace(server=SimpleNamespace(connections={}), broker=None)
        host.lives(cast("Any", node))
        assert host.needs == Needs(tasks=1, files=1, connections=0, replicas=2)

    trio.run(main)
