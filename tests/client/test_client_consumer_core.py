"""The consumer's core against a cluster with faults: every record once, in order, or a failure."""

from __future__ import annotations

from random import Random

import pytest
from client.fake_cluster import FakeCluster
from client.sim_shell import SimShell
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.client.calls import Call, TopicPartition
from kraftpy.client.consumer_core import ConsumerCore
from kraftpy.client.errors import KafkaError, LogTruncated, OffsetOutOfRange
from kraftpy.client.settings import ConsumerSettings, IsolationLevel
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k01_fetch import AbortedTransaction, FetchRequest
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import EndTransactionMarker, build_end_transaction

BOOTSTRAP = [("node1", 9092)]
FIRST = TopicPartition("t", 0)
SECOND = TopicPartition("t", 1)
EARLIEST = ConsumerSettings(auto_offset_reset="earliest")
NONE = ConsumerSettings(auto_offset_reset="none")


def fill(cluster: FakeCluster, where: TopicPartition, *values: bytes, size: int = 2) -> None:
    for at in range(0, len(values), size):
        builder = BatchBuilder()
        for value in values[at : at + size]:
            builder.append(None, value, timestamp_ms=cluster.partitions[where].end + at)
        assert cluster.partitions[where].append(builder.build())[0] == ErrorCode.NONE


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


class Reader:
    """A consumer, its shell, and what has been read."""

    def __init__(self, cluster: FakeCluster, options: ConsumerSettings = EARLIEST) -> None:
        self.cluster = cluster
        self.core = ConsumerCore(BOOTSTRAP, options, Random(5))
        self.shell = SimShell(self.core, cluster)
        self.read: dict[TopicPartition, list[bytes | None]] = {}
        self.max_records = 3

    def take(self) -> None:
        for topic, partition, records in self.core.take(self.max_records):
            where = TopicPartition(topic, partition)
            self.read.setdefault(where, []).extend(record.value for record in records)

    def until(self, where: TopicPartition, count: int) -> None:
        def is_over() -> bool:
            self.take()
            return len(self.read.get(where, ())) >= count

        self.shell.run(is_over)

    def fetches(self) -> list[FetchRequest]:
        return [each for _, each in self.cluster.seen if isinstance(each, FetchRequest)]


@settings(max_examples=100)
@given(
    st.integers(1, 30),
    st.lists(st.sampled_from(["take", "step", "move", "lose", "session"]), max_size=80),
    st.integers(0, 2**16),
)
def test_every_record_comes_once_and_in_order(count: int, events: list[str], seed: int) -> None:
    """Whatever leaders and connections do in between."""
    cluster = FakeCluster()
    reader = Reader(cluster)
    reader.shell = SimShell(reader.core, cluster, seed=seed)
    for where in (FIRST, SECOND):
        fill(cluster, where, *numbers(count))
    reader.core.assign([FIRST, SECOND])
    for event in events:
        match event:
            case "take":
                reader.take()
            case "move":
                cluster.move(FIRST)
            case "lose":
                reader.shell.lose(seed % 2 + 1)
            case "session":
                cluster.sessions.clear()
        reader.shell.step()
    for where in (FIRST, SECOND):
        reader.until(where, count)
        assert reader.read[where] == numbers(count)
        assert reader.core.position(where) == count


def test_later_fetches_name_only_what_has_changed() -> None:
    cluster = FakeCluster(nodes=1)
    reader = Reader(cluster)
    fill(cluster, FIRST, b"a")
    reader.core.assign([FIRST, SECOND])
    reader.until(FIRST, 1)
    fill(cluster, SECOND, b"b")
    reader.until(SECOND, 1)
    reader.core.assign([SECOND])
    fill(cluster, SECOND, b"c")
    reader.until(SECOND, 2)
    fetches = reader.fetches()
    first = fetches[0]
    assert first.session_epoch == 0
    assert sum(len(topic.partitions) for topic in first.topics) == 2
    assert [each.session_epoch for each in fetches] == list(range(len(fetches)))
    assert len({each.session_id for each in fetches[1:]}) == 1
    moved = [each for each in fetches[1:] if each.topics]
    assert all(len(topic.partitions) == 1 for each in moved for topic in each.topics)
    forgotten = [each for fetch in fetches for each in fetch.forgotten_topics_data]
    assert [each.partitions for each in forgotten] == [[0]]


def test_beginning_end_time_and_offset() -> None:
    cluster = FakeCluster(topics={"t": 1})
    fill(cluster, FIRST, *numbers(10), size=1)
    reader = Reader(cluster, NONE)
    reader.core.assign([FIRST])
    for move, first in [
        (lambda: reader.core.seek_to_timestamp(FIRST, -2), b"0"),
        (lambda: reader.core.seek(FIRST, 7), b"7"),
        (lambda: reader.core.seek_to_timestamp(FIRST, 4), b"2"),
    ]:
        reader.read.clear()
        move()
        reader.until(FIRST, 1)
        assert reader.read[FIRST][0] == first
    reader.core.seek_to_timestamp(FIRST, 10**9)
    reader.shell.run(lambda: reader.core.position(FIRST) is not None)
    assert reader.core.position(FIRST) == 10
    lookup = reader.core.look_up({FIRST: -1}, reader.shell.now_ms)
    reader.shell.run(lambda: lookup.is_done)
    assert lookup.result()[FIRST].offset == 10


def test_no_position_and_no_policy_is_a_failure_until_a_seek() -> None:
    cluster = FakeCluster()
    fill(cluster, FIRST, b"a")
    reader = Reader(cluster, NONE)
    reader.core.assign([FIRST])
    with pytest.raises(KafkaError, match="no position"):
        reader.until(FIRST, 1)
    reader.core.seek(FIRST, 0)
    reader.until(FIRST, 1)


def test_a_seek_forgets_a_failure_that_nobody_has_heard_of() -> None:
    cluster = FakeCluster()
    fill(cluster, FIRST, b"a")
    reader = Reader(cluster, NONE)
    reader.core.assign([FIRST])
    for _ in range(20):
        reader.shell.step()
    assert reader.core.has_output
    reader.core.seek(FIRST, 0)
    reader.until(FIRST, 1)


@pytest.mark.parametrize("move", ["seek", "pause"])
def test_an_answer_to_an_earlier_position_is_dropped(move: str) -> None:
    cluster = FakeCluster(topics={"t": 1})
    fill(cluster, FIRST, *numbers(10), size=1)
    reader = Reader(cluster)
    reader.core.assign([FIRST])
    held: list[Call] = []
    reader.shell.run(lambda: reader.core.position(FIRST) is not None)
    while not held:
        for call in reader.core.calls(reader.shell.now_ms):
            if isinstance(call.message, FetchRequest):
                held.append(call)
            else:
                call.answered(cluster.handle(1, call.message), reader.shell.now_ms)
    if move == "seek":
        reader.core.seek(FIRST, 7)
    else:
        reader.core.pause(FIRST)
    for call in held:
        call.answered(cluster.handle(1, call.message), reader.shell.now_ms)
    assert not reader.core.has_output
    reader.core.resume(FIRST)
    reader.until(FIRST, 3)
    assert reader.read[FIRST][0] == (b"7" if move == "seek" else b"0")


def test_an_answer_to_an_earlier_assignment_is_dropped() -> None:
    """A partition goes with a rebalance and comes back, and was read ahead before: the answer to a
    fetch from there is not what follows the group's offset.
    """
    cluster = FakeCluster(topics={"t": 1})
    fill(cluster, FIRST, *numbers(5), size=1)
    reader = Reader(cluster)

    def begin() -> None:
        reader.core.assign([FIRST], holds_new=True)
        reader.core.release(FIRST, 0, -1)

    begin()
    held: list[Call] = []
    while not held:
        for call in reader.core.calls(reader.shell.now_ms):
            if isinstance(call.message, FetchRequest) and reader.core.has_output:
                held.append(call)
            else:
                call.answered(cluster.handle(1, call.message), reader.shell.now_ms)
    reader.core.assign([])
    begin()
    fill(cluster, FIRST, *numbers(5), size=1)
    for call in held:
        call.answered(cluster.handle(1, call.message), reader.shell.now_ms)
    assert not reader.core.has_output
    reader.until(FIRST, 3)
    assert reader.read[FIRST] == numbers(3)


@pytest.mark.parametrize("offset", [2, 11])
def test_an_offset_out_of_range_is_told_or_mended(offset: int) -> None:
    cluster = FakeCluster()
    fill(cluster, FIRST, *numbers(10))
    partition = cluster.partitions[FIRST]
    partition.start = 4
    partition.batches = partition.batches[2:]
    strict = Reader(cluster, NONE)
    strict.core.assign([FIRST])
    strict.core.seek(FIRST, offset)
    with pytest.raises(OffsetOutOfRange) as raised:
        strict.until(FIRST, 1)
    assert raised.value.offset == offset
    mild = Reader(cluster)
    mild.core.assign([FIRST])
    mild.core.seek(FIRST, offset)
    mild.until(FIRST, 1)
    assert mild.read[FIRST][0] == b"4"


def cut_log(reader: Reader) -> None:
    """The leader of epoch 0 loses what was read last; another leads with other records."""
    cluster = reader.cluster
    fill(cluster, FIRST, *numbers(6))
    reader.core.assign([FIRST])
    if reader.core.position(FIRST) is None:
        reader.core.seek(FIRST, 0)
    reader.until(FIRST, 6)
    cluster.move(FIRST)
    cluster.partitions[FIRST].cut(4)
    fill(cluster, FIRST, b"x", b"y", b"z")


@pytest.mark.parametrize("tells_divergence", [False, True])
def test_a_cut_log_is_told(*, tells_divergence: bool) -> None:
    """Without a word in the answers to fetches, the question to the new leader has to find it."""
    reader = Reader(FakeCluster(), NONE)
    reader.cluster.tells_divergence = tells_divergence
    cut_log(reader)
    with pytest.raises(LogTruncated) as raised:
        reader.until(FIRST, 7)
    assert (raised.value.offset, raised.value.divergent_offset) == (6, 4)
    reader.core.seek(FIRST, raised.value.divergent_offset)
    reader.until(FIRST, 9)
    assert reader.read[FIRST][6:] == [b"x", b"y", b"z"]


def test_a_cut_log_is_read_on_from_where_it_was_cut() -> None:
    reader = Reader(FakeCluster())
    cut_log(reader)
    reader.until(FIRST, 9)
    assert reader.read[FIRST][6:] == [b"x", b"y", b"z"]


def test_the_answer_to_a_fetch_tells_of_a_cut_log_too() -> None:
    """Without a new leader there is nothing to ask before; the fetch itself is refused."""
    reader = Reader(FakeCluster(), NONE)
    fill(reader.cluster, FIRST, *numbers(6))
    reader.core.assign([FIRST])
    reader.core.seek(FIRST, 0)
    reader.until(FIRST, 6)
    reader.cluster.partitions[FIRST].cut(4)
    with pytest.raises(LogTruncated):
        reader.until(FIRST, 7)


def test_cut_records_that_nobody_saw_are_nobodys_business() -> None:
    cluster = FakeCluster()
    fill(cluster, FIRST, *numbers(6))
    reader = Reader(cluster, NONE)
    reader.core.assign([FIRST])
    reader.core.seek(FIRST, 0)
    reader.shell.run(lambda: reader.core.has_output)
    reader.max_records = 2
    reader.take()
    cluster.move(FIRST)
    cluster.partitions[FIRST].cut(4)
    fill(cluster, FIRST, b"x")
    for _ in range(200):
        reader.shell.step()
    reader.until(FIRST, 5)
    assert reader.read[FIRST] == [b"0", b"1", b"2", b"3", b"x"]


def transactions(cluster: FakeCluster) -> None:
    """Producer 7 aborts, producer 8 commits, in turns."""
    partition = cluster.partitions[FIRST]

    def batch(producer_id: int, sequence: int, value: bytes) -> None:
        builder = BatchBuilder(
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        builder.append(None, value, timestamp_ms=0)
        partition.append(builder.build())

    def end(producer_id: int, *, is_commit: bool) -> None:
        marker = build_end_transaction(
            EndTransactionMarker(is_commit, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=partition.end,
            leader_epoch=0,
        )
        partition.batches.append(type(partition.batches[0])(bytearray(marker)))

    batch(7, 0, b"aborted 1")
    batch(8, 0, b"kept 1")
    batch(7, 1, b"aborted 2")
    end(7, is_commit=False)
    batch(7, 2, b"kept 2")
    end(8, is_commit=True)
    end(7, is_commit=True)
    partition.aborted = [AbortedTransaction(producer_id=7, first_offset=0)]


@pytest.mark.parametrize("level", list(IsolationLevel))
def test_aborted_transactions_are_passed_over_if_asked_for(level: IsolationLevel) -> None:
    """TXN-28, TXN-29, F5: writers are not isolated, so they lie between each other."""
    cluster = FakeCluster()
    transactions(cluster)
    fill(cluster, FIRST, b"plain")
    reader = Reader(cluster, ConsumerSettings(auto_offset_reset="earliest", isolation_level=level))
    reader.core.assign([FIRST])
    kept = [b"kept 1", b"kept 2", b"plain"]
    if level is IsolationLevel.READ_UNCOMMITTED:
        kept = [b"aborted 1", b"kept 1", b"aborted 2", b"kept 2", b"plain"]
    reader.until(FIRST, len(kept))
    assert reader.read[FIRST] == kept
    reader.shell.run(lambda: reader.core.position(FIRST) == 8)


def test_a_damaged_batch_is_told_after_what_is_good() -> None:
    cluster = FakeCluster()
    fill(cluster, FIRST, *numbers(6))
    cluster.partitions[FIRST].batches[1].body[-1] ^= 1
    reader = Reader(cluster)
    reader.max_records = 100
    reader.core.assign([FIRST])
    with pytest.raises(KafkaError) as raised:
        reader.until(FIRST, 6)
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
    assert reader.read[FIRST] == numbers(2)
    assert reader.core.position(FIRST) == 2


def test_nothing_is_fetched_while_the_buffer_is_full() -> None:
    cluster = FakeCluster(topics={"t": 1})
    reader = Reader(cluster, ConsumerSettings(auto_offset_reset="earliest", fetch_max_bytes=1))
    fill(cluster, FIRST, *numbers(4))
    reader.core.assign([FIRST])
    reader.shell.run(lambda: reader.core.has_output)
    fill(cluster, FIRST, *numbers(4))
    count = len(reader.fetches())
    for _ in range(100):
        reader.shell.step()
    assert len(reader.fetches()) == count
    reader.until(FIRST, 8)
    assert reader.core.buffered_bytes == 0


def test_a_paused_partition_waits_and_loses_nothing() -> None:
    cluster = FakeCluster()
    fill(cluster, FIRST, *numbers(6))
    reader = Reader(cluster)
    reader.core.assign([FIRST])
    reader.until(FIRST, 2)
    reader.core.pause(FIRST)
    seen = len(reader.read[FIRST])
    for _ in range(100):
        reader.shell.step()
        reader.take()
    assert len(reader.read[FIRST]) == seen
    reader.core.resume(FIRST)
    reader.until(FIRST, 6)
    assert reader.read[FIRST] == numbers(6)
