"""Batches as they came, for those who look into many records at once: as `poll`, but unopened."""

from __future__ import annotations

import pytest
from client.fake_cluster import FakeCluster
from client.fake_nodes import fake_nodes

from kraftpy.client.blocking_clients import BlockingConsumer, BlockingProducer
from kraftpy.client.calls import TopicPartition
from kraftpy.client.fetched import Fetched
from kraftpy.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from kraftpy.protocol.schema.k01_fetch import AbortedTransaction
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import EndTransactionMarker, build_end_transaction
from kraftpy.records.errors import CorruptRecord

WHERE = TopicPartition("t", 0)
QUICK = ClientSettings(retry_backoff_ms=5, retry_backoff_max_ms=20, reconnect_backoff_ms=5)


def batch(base_offset: int, count: int, producer_id: int = -1) -> bytes:
    builder = BatchBuilder(
        base_offset=base_offset, producer_id=producer_id, is_transactional=producer_id >= 0
    )
    for number in range(count):
        builder.append(None, b"%d" % (base_offset + number), timestamp_ms=0)
    return bytes(builder.build())


def marker(offset: int, producer_id: int) -> bytes:
    end = EndTransactionMarker(is_commit=False, coordinator_epoch=0)
    data = build_end_transaction(end, producer_id=producer_id, producer_epoch=0, timestamp_ms=0)
    RecordBatch(data).stamp(offset, 0)
    return bytes(data)


def fetched(data: bytes, position: int, aborted: list[AbortedTransaction] | None = None) -> Fetched:
    return Fetched(
        WHERE,
        data,
        position=position,
        position_epoch=-1,
        aborted=aborted or [],
        check_crcs=True,
        max_batch_bytes=1_000_000,
    )


def test_whole_batches_from_the_position_on() -> None:
    """The one with the position is whole; those before it are left out."""
    part = fetched(batch(0, 5) + batch(5, 5) + batch(10, 5), position=7)
    assert [each.next_offset for each in part.take_batches()] == [10, 15]
    assert (part.position, part.is_empty) == (15, True)
    assert part.take_batches() == []


def test_hidden_batches_only_move_the_position() -> None:
    aborted = [AbortedTransaction(producer_id=7, first_offset=2)]
    data = batch(0, 2) + batch(2, 3, producer_id=7) + marker(5, 7)
    part = fetched(data, position=0, aborted=aborted)
    assert [each.next_offset for each in part.take_batches()] == [2]
    assert (part.position, part.is_empty) == (6, True)


def test_damage_is_told_after_what_is_good() -> None:
    data = bytearray(batch(0, 2) + batch(2, 2))
    data[-1] ^= 1
    part = fetched(bytes(data), position=0)
    assert [each.next_offset for each in part.take_batches()] == [2]
    for _ in range(2):
        with pytest.raises(CorruptRecord):
            part.take_batches()
    assert (part.position, part.is_empty) == (2, False)


def test_a_blocking_consumer_has_every_batch_once() -> None:
    cluster = FakeCluster()
    settings = ConsumerSettings(client=QUICK, auto_offset_reset="none", fetch_max_wait_ms=20)
    with fake_nodes(cluster) as servers:
        with BlockingProducer(servers, ProducerSettings(client=QUICK, batch_size=200)) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number, partition=0)
        with BlockingConsumer(servers, settings) as consumer:
            consumer.assign([WHERE])
            consumer.seek(WHERE, 30)
            offsets: list[int] = []
            while consumer.position(WHERE) < 100:
                for part in consumer.poll_batches(1_000):
                    assert (part.topic, part.partition) == WHERE
                    for each in part.batches:
                        assert isinstance(each, RecordBatch)
                        offsets += range(each.base_offset, each.next_offset)
    assert [offset for offset in offsets if offset >= 30] == list(range(30, 100))


def test_a_producer_knows_partitions() -> None:
    with fake_nodes(FakeCluster()) as servers, BlockingProducer(servers) as producer:
        assert WHERE in producer.partitions_of("t")
