"""The core of the marker sender: what is sent where, again, and no more."""

from __future__ import annotations

import pytest

from kraftpy.broker.marker_queues import MarkerBatch, MarkerQueues
from kraftpy.coordinator.transactions.ports import MarkerJob
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k27_write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)


def job(
    name: str = "t",
    *,
    producer_id: int = 7,
    shard: int = 0,
    partitions: dict[str, tuple[int, ...]] | None = None,
) -> MarkerJob:
    return MarkerJob(
        shard=shard,
        coordinator_epoch=3,
        transactional_id=name,
        producer_id=producer_id,
        producer_epoch=5,
        is_commit=True,
        transaction_version=2,
        partitions=partitions or {"a": (0, 1), "b": (0,)},
    )


class Rig:
    def __init__(self) -> None:
        self.leaders: dict[tuple[str, int], int] = {("a", 0): 1, ("a", 1): 2, ("b", 0): 1}
        self.queues = MarkerQueues(self.leaders.get)
        self.done: list[str] = []
        self.now_ms = 0

    def add(self, each: MarkerJob) -> None:
        self.queues.add(each, lambda: self.done.append(each.transactional_id), self.now_ms)

    def take(self) -> dict[int, MarkerBatch]:
        batches = self.queues.take()
        found = {batch.broker_id: batch for batch in batches}
        assert len(found) == len(batches)
        return found

    def answer(
        self, batch: MarkerBatch, codes: dict[tuple[str, int], ErrorCode] | None = None
    ) -> None:
        response = WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=(codes or {}).get(
                                        (topic.name, index), ErrorCode.NONE
                                    ),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in batch.request.markers
            ]
        )
        self.queues.answered(batch, response, self.now_ms)


def names(batch: MarkerBatch) -> list[tuple[int, str, int]]:
    return [
        (marker.producer_id, topic.name, index)
        for marker in batch.request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


def test_each_leader_gets_its_own() -> None:
    """TXN-22."""
    rig = Rig()
    rig.add(job())
    batches = rig.take()
    assert names(batches[1]) == [(7, "a", 0), (7, "b", 0)]
    assert names(batches[2]) == [(7, "a", 1)]
    [marker] = batches[1].request.markers
    assert (marker.producer_epoch, marker.coordinator_epoch, marker.transaction_version) == (
        5,
        3,
        2,
    )
    assert marker.transaction_result
    rig.answer(batches[1])
    assert rig.done == []
    rig.answer(batches[2])
    assert rig.done == ["t"]
    assert rig.queues.job_count == 0
    assert rig.take() == {}


def test_markers_to_one_broker_share_a_request_while_others_are_under_way() -> None:
    rig = Rig()
    partitions = {"a": (0,)}
    batches = []
    for number in range(4):
        rig.add(job(f"first-{number}", producer_id=number, partitions=partitions))
        batches.append(rig.take()[1])
    for number in range(10, 13):
        rig.add(job(f"t{number}", producer_id=number, partitions=partitions))
    assert rig.take() == {}
    rig.answer(batches[0])
    together = rig.take()[1]
    assert names(together) == [(10, "a", 0), (11, "a", 0), (12, "a", 0)]
    rig.answer(together)
    assert rig.done == ["first-0", "t10", "t11", "t12"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_fails_is_sent_again(code: ErrorCode) -> None:
    """TXN-25, section 24."""
    rig = Rig()
    rig.add(job())
    batches = rig.take()
    rig.answer(batches[2])
    rig.answer(batches[1], {("b", 0): code})
    assert rig.done == []
    rig.queues.retry_due(99)
    assert rig.take() == {}
    assert rig.queues.next_retry_ms() == 100
    rig.leaders["b", 0] = 3
    rig.queues.retry_due(100)
    batches = rig.take()
    assert names(batches[3]) == [(7, "b", 0)]
    rig.answer(batches[3])
    assert rig.done == ["t"]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
)
def test_partitions_that_need_no_marker(code: ErrorCode) -> None:
    rig = Rig()
    rig.add(job(partitions={"a": (0,)}))
    rig.answer(rig.take()[1], {("a", 0): code})
    assert rig.done == ["t"]


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
def test_a_job_that_was_overtaken_is_given_up(code: ErrorCode) -> None:
    """Section 24: nobody is told that it is done, since it is not."""
    rig = Rig()
    rig.add(job())
    batches = rig.take()
    rig.answer(batches[1], {("a", 0): code})
    rig.answer(batches[2])
    assert rig.done == []
    assert rig.queues.job_count == 0
    assert rig.queues.next_retry_ms() is None


def test_an_answer_without_the_partition_is_none() -> None:
    rig = Rig()
    rig.add(job(partitions={"a": (0,)}))
    rig.queues.answered(rig.take()[1], WriteTxnMarkersResponse(), 0)
    assert rig.queues.next_retry_ms() == 100


def test_a_lost_connection() -> None:
    rig = Rig()
    rig.add(job())
    batches = rig.take()
    rig.answer(batches[2])
    rig.queues.failed(batches[1], 0)
    rig.queues.retry_due(100)
    rig.answer(rig.take()[1])
    assert rig.done == ["t"]


def test_a_partition_without_a_leader_waits_for_one() -> None:
    """TXN-25."""
    rig = Rig()
    rig.leaders["a", 0] = -1
    rig.add(job(partitions={"a": (0,)}))
    assert rig.take() == {}
    assert rig.queues.waiting_count == 1
    rig.leaders["a", 0] = 2
    assert rig.queues.metadata_changed(5) == []
    assert list(rig.take()) == [2]


def test_a_deleted_partition_needs_no_marker() -> None:
    """TXN-25."""
    rig = Rig()
    del rig.leaders["a", 1]
    rig.add(job())
    batches = rig.take()
    del rig.leaders["b", 0]
    rig.answer(batches[1], {("b", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert rig.done == []
    rig.queues.metadata_changed(0)
    assert rig.done == ["t"]
    rig.leaders.clear()
    rig.add(job("gone"))
    assert rig.done == ["t", "gone"]


def test_what_waits_for_a_leader_that_is_none_any_more_is_told() -> None:
    rig = Rig()
    rig.add(job())
    batches = rig.take()
    rig.leaders["a", 1] = 3
    assert rig.queues.metadata_changed(0) == [batches[2]]
    rig.queues.failed(batches[2], 0)
    assert rig.queues.metadata_changed(0) == []
    again = rig.take()
    assert names(again[3]) == [(7, "a", 1)]


def test_what_is_queued_follows_the_leader() -> None:
    rig = Rig()
    rig.add(job())
    rig.leaders["a", 1] = 1
    rig.queues.metadata_changed(0)
    batches = rig.take()
    assert list(batches) == [1]
    assert len(names(batches[1])) == 3


def test_a_shard_that_is_gone_waits_for_nothing() -> None:
    rig = Rig()
    rig.add(job("mine", shard=4))
    rig.add(job("other", shard=5, producer_id=8))
    batches = rig.take()
    rig.queues.cancel(4)
    rig.answer(batches[1])
    rig.queues.failed(batches[2], 0)
    rig.queues.retry_due(100)
    assert names(rig.take()[2]) == [(8, "a", 1)]
    assert rig.done == []


def test_the_same_transaction_of_the_next_coordinator_replaces_it() -> None:
    """A shard that left and came back; answers to the first time do not count for the second."""
    rig = Rig()
    rig.add(job(partitions={"a": (0, 1)}))
    old = rig.take()
    rig.queues.cancel(0)
    rig.add(job(partitions={"a": (0, 1)}))
    rig.answer(old[1])
    rig.answer(old[2])
    assert rig.done == []
    new = rig.take()
    rig.answer(new[1])
    rig.answer(new[2])
    assert rig.done == ["t"]
    rig.add(job())
    rig.add(job(partitions={"a": (0,)}))
    assert rig.queues.job_count == 1
    rig.answer(rig.take()[1])
    assert rig.done == ["t", "t"]
    assert rig.queues.job_count == 0


def test_a_request_has_a_bound() -> None:
    rig = Rig()
    indexes = tuple(range(100))
    rig.leaders.update({("wide", index): 1 for index in indexes})
    for number in range(2):
        rig.add(job(f"t{number}", producer_id=number, partitions={"wide": indexes}))
    seen = []
    for size in (64, 64, 64, 8):
        assert rig.queues.has_more
        batch = rig.take()[1]
        assert len(names(batch)) == size
        seen += names(batch)
        rig.answer(batch)
    assert not rig.queues.has_more
    assert sorted(seen) == [(number, "wide", index) for number in range(2) for index in indexes]
    assert rig.done == ["t0", "t1"]
