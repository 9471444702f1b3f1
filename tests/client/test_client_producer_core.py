"""The producer's core against a cluster with faults: nothing lost, doubled or out of order."""

from __future__ import annotations

from random import Random

import pytest
from client.fake_cluster import FakeCluster
from client.sim_shell import Fault, SimShell
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import ClientClosed, KafkaError
from kraftpy.client.producer_batch import Delivery, Identity
from kraftpy.client.producer_core import ProducerCore
from kraftpy.client.producer_partition import PartitionQueue
from kraftpy.client.settings import ClientSettings, ProducerSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k00_produce import ProduceRequest
from kraftpy.records.batch import RecordBatch

BOOTSTRAP = [("node1", 9092)]
# Small batches, so that many are in flight.
SMALL = ProducerSettings(batch_size=150, linger_ms=0)
FOREVER = ProducerSettings(batch_size=150, linger_ms=0, delivery_timeout_ms=10**9)


def producer(settings: ProducerSettings = SMALL) -> ProducerCore:
    return ProducerCore(BOOTSTRAP, settings, Random(7))


def send(core: ProducerCore, shell: SimShell, value: bytes, partition: int) -> Delivery:
    return core.append(
        "t", value, partition=partition, timestamp_ms=shell.now_ms, now_ms=shell.now_ms
    )


def is_over(deliveries: list[Delivery]) -> bool:
    return all(delivery.is_done for delivery in deliveries)


def failure_of(delivery: Delivery) -> Exception | None:
    try:
        delivery.result()
    except (KafkaError, ClientClosed) as failure:
        return failure
    return None


TRANSIENT = [fault for fault in Fault if fault is not Fault.INVALID]
# Mostly one partition, so that several of its batches are in flight.
records = st.lists(st.sampled_from([0, 0, 0, 1]), min_size=12, max_size=40)


@settings(max_examples=300)
@given(
    records,
    st.lists(st.sampled_from(TRANSIENT), min_size=5, max_size=60),
    st.integers(0, 2**16),
    st.booleans(),
)
def test_an_idempotent_producer_keeps_every_record_once_and_in_order(
    partitions: list[int], faults: list[Fault], seed: int, forgets: bool
) -> None:
    """TXN-5: whatever is lost, late, refused or led elsewhere, as long as time is left."""
    cluster = FakeCluster()
    for each in cluster.partitions.values():
        each.forgets_offsets = forgets
    core = producer(FOREVER)
    shell = SimShell(core, cluster, faults, seed)
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    deliveries = []
    for number, partition in enumerate(partitions):
        value = b"%d" % number
        sent[partition].append(value)
        deliveries.append(send(core, shell, value, partition))
        if number % 3 == 0:
            shell.step()
    shell.run(lambda: is_over(deliveries))
    for partition, values in sent.items():
        where = TopicPartition("t", partition)
        assert cluster.values(where) == values
        offsets = [
            delivery.result().offset
            for delivery in deliveries
            if delivery.result().partition == partition
        ]
        for offset, right in zip(offsets, range(len(values)), strict=True):
            assert offset in ((right, -1) if forgets else (right,))
    assert core.buffered_bytes == 0


EXPIRING = ProducerSettings(
    batch_size=150,
    linger_ms=0,
    delivery_timeout_ms=500,
    client=ClientSettings(request_timeout_ms=400),
)


@settings(max_examples=300)
@given(
    records,
    st.lists(
        st.sampled_from([each for each in Fault if each is not Fault.LATE]),
        min_size=5,
        max_size=60,
    ),
    st.integers(0, 2**16),
)
def test_records_given_up_leave_the_others_unharmed(
    partitions: list[int], faults: list[Fault], seed: int
) -> None:
    """With time-outs and refusals: what was acknowledged is there, nothing is there twice, and what
    is there is in order.
    """
    cluster = FakeCluster()
    core = producer(EXPIRING)
    shell = SimShell(core, cluster, faults, seed)
    deliveries: list[tuple[int, bytes, Delivery]] = []
    for number, partition in enumerate(partitions):
        value = b"%d" % number
        deliveries.append((partition, value, send(core, shell, value, partition)))
        if number % 3 == 0:
            shell.step()
    shell.run(lambda: is_over([delivery for *_, delivery in deliveries]))
    for partition in (0, 1):
        mine = [(value, each) for which, value, each in deliveries if which == partition]
        written = cluster.values(TopicPartition("t", partition))
        assert len(set(written)) == len(written)
        assert written == [value for value, _ in mine if value in written]
        for value, delivery in mine:
            failure = failure_of(delivery)
            if failure is None:
                assert value in written
            else:
                assert isinstance(failure, KafkaError)
    assert core.buffered_bytes == 0


def run_one(
    faults: list[Fault], settings: ProducerSettings = SMALL, count: int = 4
) -> tuple[FakeCluster, list[Delivery]]:
    cluster = FakeCluster(topics={"t": 1})
    core = producer(settings)
    shell = SimShell(core, cluster, faults, seed=3)
    deliveries = [send(core, shell, b"%d" % number, 0) for number in range(count)]
    shell.run(lambda: is_over(deliveries))
    return cluster, deliveries


def test_a_refusal_for_good_reaches_its_records_only() -> None:
    cluster, deliveries = run_one([Fault.INVALID], count=8)
    failures = [failure_of(delivery) for delivery in deliveries]
    assert failures[0] is not None
    assert isinstance(failures[0], KafkaError)
    assert failures[0].code == ErrorCode.INVALID_RECORD
    assert failures[-1] is None
    written = cluster.values(TopicPartition("t", 0))
    assert written == [b"%d" % n for n, failure in enumerate(failures) if failure is None]
    # The numbers after the hole begin anew, in an epoch of their own.
    assert [
        batch.producer_epoch for batch in cluster.partitions[TopicPartition("t", 0)].batches
    ] == [1] * len(cluster.partitions[TopicPartition("t", 0)].batches)


def test_a_batch_is_given_up_when_its_time_is_over() -> None:
    settings = EXPIRING
    cluster = FakeCluster(topics={"t": 1})
    core = producer(settings)
    shell = SimShell(core, cluster)
    first = send(core, shell, b"first", 0)
    shell.run(lambda: first.is_done)
    shell.faults.extend([Fault.REQUEST_LOST] * 100)
    began_ms = shell.now_ms
    delivery = send(core, shell, b"second", 0)
    ended_ms: list[int] = []
    delivery.when_done(lambda: ended_ms.append(shell.now_ms))
    shell.run(lambda: delivery.is_done)
    failure = failure_of(delivery)
    assert isinstance(failure, KafkaError)
    assert failure.code == ErrorCode.REQUEST_TIMED_OUT
    assert [moment - began_ms for moment in ended_ms] == [500]


def test_records_lost_by_the_brokers_do_not_block_the_next_ones() -> None:
    """A broker that came back without its last batch finds the next one out of order."""
    cluster = FakeCluster(topics={"t": 1})
    core = producer()
    shell = SimShell(core, cluster)
    for number in range(3):
        delivery = send(core, shell, b"%d" % number, 0)
        shell.run(lambda delivery=delivery: delivery.is_done)  # type: ignore[misc]
    partition = cluster.partitions[TopicPartition("t", 0)]
    partition.cut(2)
    partition.producers[1].batches.pop()
    rest = [send(core, shell, b"%d" % number, 0) for number in range(3, 8)]
    shell.run(lambda: is_over(rest))
    assert cluster.values(TopicPartition("t", 0)) == [b"%d" % n for n in (0, 1, 3, 4, 5, 6, 7)]
    assert {batch.producer_epoch for batch in partition.batches} == {0, 1}


def test_without_retries_the_first_refusal_is_the_last() -> None:
    settings = ProducerSettings(batch_size=150, linger_ms=0, retries=0)
    _, deliveries = run_one([Fault.REFUSED], settings, count=1)
    failure = failure_of(deliveries[0])
    assert isinstance(failure, KafkaError)
    assert failure.code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_without_idempotence_there_is_no_producer_id() -> None:
    settings = ProducerSettings(batch_size=150, linger_ms=0, acks=1)
    cluster, _ = run_one([], settings)
    assert all(
        batch.producer_id == -1 for batch in cluster.partitions[TopicPartition("t", 0)].batches
    )


def test_a_batch_too_large_for_the_broker_is_split() -> None:
    cluster = FakeCluster(topics={"t": 1})
    cluster.max_message_bytes = 400
    core = producer(ProducerSettings(batch_size=10_000, linger_ms=0))
    shell = SimShell(core, cluster)
    values = [b"%02d" % number * 20 for number in range(30)]
    deliveries = [send(core, shell, value, 0) for value in values]
    woken: list[int] = []
    deliveries[0].when_done(lambda: woken.append(0))
    shell.run(lambda: is_over(deliveries))
    assert cluster.values(TopicPartition("t", 0)) == values
    assert [delivery.result().offset for delivery in deliveries] == list(range(30))
    assert woken == [0]
    assert core.buffered_bytes == 0


def test_one_record_too_large_for_the_broker_fails() -> None:
    cluster = FakeCluster(topics={"t": 1})
    cluster.max_message_bytes = 400
    core = producer()
    shell = SimShell(core, cluster)
    delivery = send(core, shell, b"x" * 500, 0)
    shell.run(lambda: delivery.is_done)
    failure = failure_of(delivery)
    assert isinstance(failure, KafkaError)
    assert failure.code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_record_beyond_max_request_size_is_refused_at_once() -> None:
    core = producer(ProducerSettings(max_request_size=1_000))
    assert core.size_of(None, b"x" * 904) == 1_000
    with pytest.raises(KafkaError, match="max_request_size"):
        core.append("t", b"x" * 905, timestamp_ms=0, now_ms=0)


def test_the_buffer_has_a_limit() -> None:
    core = producer(ProducerSettings(buffer_memory=1_000))
    assert core.has_room(5_000)
    core.append("t", b"x" * 500, timestamp_ms=0, now_ms=0)
    used = core.buffered_bytes
    assert core.has_room(1_000 - used)
    assert not core.has_room(1_001 - used)


def test_no_more_than_five_requests_wait_at_a_node() -> None:
    cluster = FakeCluster(topics={"t": 1})
    core = producer()
    shell = SimShell(core, cluster)
    first = send(core, shell, b"first", 0)
    shell.run(lambda: first.is_done)
    for number in range(20):
        send(core, shell, b"%d" % number * 60, 0)
    calls = []
    for _ in range(20):
        calls += core.calls(shell.now_ms)
    assert len(calls) == 5
    sequences = []
    for call in calls:
        assert isinstance(call.message, ProduceRequest)
        records = call.message.topic_data[0].partition_data[0].records
        sequences.append(RecordBatch(records).base_sequence)  # type: ignore[arg-type]
    assert sequences == sorted(sequences)


def test_an_unknown_topic_fails_when_the_time_is_over() -> None:
    cluster = FakeCluster()
    core = producer(ProducerSettings(max_block_ms=3_000))
    shell = SimShell(core, cluster)
    delivery = core.append("u", b"x", timestamp_ms=0, now_ms=shell.now_ms)
    began_ms = shell.now_ms
    shell.run(lambda: delivery.is_done)
    assert 3_000 <= shell.now_ms - began_ms < 3_200
    failure = failure_of(delivery)
    assert isinstance(failure, KafkaError)
    assert failure.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_of_a_topic_that_comes_late_keep_their_order() -> None:
    cluster = FakeCluster()
    core = producer()
    shell = SimShell(core, cluster)
    deliveries = [
        core.append("u", b"%d" % n, key=b"k", timestamp_ms=0, now_ms=shell.now_ms)
        for n in range(10)
    ]
    for _ in range(50):
        shell.step()
    cluster.create("u", 1)
    deliveries += [
        core.append("u", b"%d" % n, key=b"k", timestamp_ms=0, now_ms=shell.now_ms)
        for n in range(10, 20)
    ]
    shell.run(lambda: is_over(deliveries))
    assert cluster.values(TopicPartition("u", 0)) == [b"%d" % n for n in range(20)]


def test_closing_settles_everything() -> None:
    core = producer()
    shell = SimShell(core, FakeCluster())
    known = send(core, shell, b"a", 0)
    for _ in range(4):
        shell.step()
    unknown = core.append("u", b"b", timestamp_ms=0, now_ms=shell.now_ms)
    flushed = core.flush()
    core.close()
    assert isinstance(failure_of(unknown), ClientClosed)
    assert known.is_done
    assert flushed()
    assert core.buffered_bytes == 0
    with pytest.raises(ClientClosed):
        core.append("t", b"c", timestamp_ms=0, now_ms=0)


def test_records_linger_for_company() -> None:
    cluster = FakeCluster(topics={"t": 1})
    core = producer(ProducerSettings(linger_ms=50))
    shell = SimShell(core, cluster)
    first = send(core, shell, b"1", 0)
    shell.run(lambda: bool(cluster.producer_ids))
    second = send(core, shell, b"2", 0)
    shell.run(lambda: first.is_done and second.is_done)
    assert len(cluster.partitions[TopicPartition("t", 0)].batches) == 1


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"acks": 2}, "acks"),
        ({"acks": 1, "enable_idempotence": True}, "acks=-1"),
        ({"max_in_flight_requests_per_connection": 6, "enable_idempotence": True}, "at most 5"),
        ({"max_in_flight_requests_per_connection": 0}, "at least 1"),
        ({"retries": 0, "enable_idempotence": True}, "retries"),
        ({"transactional_id": "t", "enable_idempotence": False}, "transactional_id"),
        ({"delivery_timeout_ms": 30_004}, "delivery_timeout_ms"),
    ],
)
def test_settings_that_contradict(wrong: dict[str, int], complaint: str) -> None:
    """TXN-9."""
    with pytest.raises(ValueError, match=complaint):
        ProducerSettings(**wrong)  # type: ignore[arg-type]


def test_a_new_epoch_waits_for_the_batches_of_the_old_one() -> None:
    """The epoch is the producer's: another partition's trouble must not mix two in this one."""
    queue = PartitionQueue(TopicPartition("t", 0), SMALL)
    old, new = Identity(1, 0), Identity(1, 1)
    batches = []
    for number in range(3):
        queue.room_for(100, 0).append(None, b"%d" % number, 0, ())
        queue.close_open()
        batch = queue.take(0, old if number < 2 else new)
        batches.append(batch)
        if number == 0:
            assert batch is not None
            batch.finish(0, -1)
            queue.settle(batch)
    assert batches[1] is not None
    assert batches[2] is None
    assert queue.due_ms(new) is None
    batches[1].finish(1, -1)
    queue.settle(batches[1])
    last = queue.take(0, new)
    assert last is not None
    assert (last.identity, last.base_sequence) == (new, 0)
