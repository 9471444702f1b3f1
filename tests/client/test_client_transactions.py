"""A transactional producer, without I/O, whose coordinators and leaders are the test."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from client.fake_cluster import FakeCluster
from client.group_script import Script

from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import ConnectionLost, Evidence
from kraftpy.client.group_member import GroupMetadata
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.producer_batch import Delivery, Identity
from kraftpy.client.producer_core import ProducerCore
from kraftpy.client.settings import ProducerSettings
from kraftpy.client.transaction_errors import (
    ProducerFenced,
    TransactionAbortable,
    TransactionFatal,
    TransactionRetriable,
)
from kraftpy.client.transaction_manager import Step, TransactionManager
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k00_produce import ProduceRequest
from kraftpy.protocol.schema.k18_api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from kraftpy.protocol.schema.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kraftpy.protocol.schema.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kraftpy.protocol.schema.k25_add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from kraftpy.protocol.schema.k26_end_txn import EndTxnRequest, EndTxnResponse
from kraftpy.protocol.schema.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kraftpy.protocol.tables import Request
from kraftpy.records.batch import RecordBatch

T0 = TopicPartition("t", 0)
GROUP = GroupMetadata("g", 3, "me", None)
both_versions = pytest.mark.parametrize("version", [1, 2])


class Kit:
    def __init__(self, version: int, *, is_ready: bool = True) -> None:
        self.version = version
        # One node: whoever is asked is the leader and the coordinator.
        self.cluster = FakeCluster(nodes=1)
        self.settings = ProducerSettings(transactional_id="x", linger_ms=0)
        self.core = ProducerCore(list(self.cluster.addresses.values()), self.settings, Random(1))
        self.script = Script(self.core, self.cluster)
        self.epoch = 0
        if is_ready:
            step = self.transaction.init()
            self.tell_version()
            self.init()
            step.result()

    @property
    def transaction(self) -> TransactionManager:
        assert self.core.transaction is not None
        return self.core.transaction

    def tell_version(self) -> None:
        level = FinalizedFeatureKey(name="transaction.version", max_version_level=self.version)
        self.script.answer(ApiVersionsRequest, ApiVersionsResponse(finalized_features=[level]))

    def init(self, error: ErrorCode = ErrorCode.NONE) -> InitProducerIdRequest:
        answer = InitProducerIdResponse(error_code=error, producer_id=9, producer_epoch=self.epoch)
        return self.script.answer(InitProducerIdRequest, answer)

    def begin_and_send(self) -> Delivery:
        self.transaction.begin()
        return self.send()

    def send(self) -> Delivery:
        return self.core.append(
            "t", b"value", partition=0, timestamp_ms=1, now_ms=self.script.now_ms
        )

    def add(self, error: ErrorCode = ErrorCode.NONE) -> AddPartitionsToTxnRequest:
        each = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=error)
        topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[each])
        answer = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
        return self.script.answer(AddPartitionsToTxnRequest, answer)

    def add_if_needed(self) -> None:
        if self.version == 1:
            self.add()

    def produce(self, error: ErrorCode | None = None) -> RecordBatch:
        """Let the leader take a batch, or refuse it."""
        call, message = self.script.expect(ProduceRequest)
        call.answered(self.cluster.handle(1, message, error), self.script.now_ms)
        [topic] = message.topic_data
        [data] = topic.partition_data
        assert message.transactional_id == "x"
        return RecordBatch(bytearray(data.records))  # type: ignore[arg-type]

    def end(self, error: ErrorCode = ErrorCode.NONE) -> EndTxnRequest:
        answer = EndTxnResponse(error_code=error)
        if self.version == 2 and error == ErrorCode.NONE:
            self.epoch += 1
            answer.producer_id, answer.producer_epoch = 9, self.epoch
        return self.script.answer(EndTxnRequest, answer)

    def flush_and_commit(self) -> Step:
        step = self.transaction.commit()
        self.core.flush()
        return step

    def whole(self) -> RecordBatch:
        """A transaction from its begin to its commit; its batch."""
        self.begin_and_send()
        self.add_if_needed()
        batch = self.produce()
        step = self.flush_and_commit()
        self.end()
        step.result()
        return batch


def test_version_2_adds_implicitly_and_raises_the_epoch_each_time() -> None:
    """TV: sequences begin anew in each epoch."""
    kit = Kit(2)
    found = [kit.whole() for _ in range(3)]
    assert [(each.producer_id, each.producer_epoch, each.base_sequence) for each in found] == [
        (9, 0, 0),
        (9, 1, 0),
        (9, 2, 0),
    ]
    assert all(each.is_transactional for each in found)
    assert kit.transaction.max_produce_version is None


def test_version_1_announces_first_and_keeps_the_epoch() -> None:
    kit = Kit(1)
    delivery = kit.begin_and_send()
    assert not kit.script.asks(ProduceRequest)
    call, request = kit.script.expect(AddPartitionsToTxnRequest)
    assert call.max_version == 3
    assert request.v3_and_below_topics[0].partitions == [0]
    kit.script.waiting.append(call)
    kit.add()
    call, _ = kit.script.expect(ProduceRequest)
    assert call.max_version == 11
    kit.script.waiting.append(call)
    assert kit.produce().base_sequence == 0
    assert delivery.is_done
    # A partition is announced once in a transaction, and in each.
    kit.send()
    assert kit.produce().base_sequence == 1
    step = kit.flush_and_commit()
    call, _ = kit.script.expect(EndTxnRequest)
    assert call.max_version == 4
    kit.script.waiting.append(call)
    kit.end()
    step.result()
    batch = kit.whole()
    assert (batch.producer_epoch, batch.base_sequence) == (0, 2)


@both_versions
def test_a_commit_waits_for_every_batch(version: int) -> None:
    kit = Kit(version)
    kit.begin_and_send()
    step = kit.flush_and_commit()
    kit.add_if_needed()
    kit.script.wait(1_000)
    assert not kit.script.asks(EndTxnRequest)
    kit.produce()
    assert kit.end().committed is True
    step.result()


@both_versions
def test_an_abort_waits_for_what_is_in_flight_and_drops_the_rest(version: int) -> None:
    kit = Kit(version)
    first = kit.begin_and_send()
    kit.add_if_needed()
    assert kit.script.asks(ProduceRequest)
    second = kit.send()
    step = kit.transaction.abort()
    kit.script.wait(1_000)
    assert not kit.script.asks(EndTxnRequest)
    with pytest.raises(TransactionAbortable):
        second.result()
    kit.produce()
    assert first.is_done
    assert kit.end().committed is False
    if version == 1:
        # The second one had been dropped; whether its number is free, nobody should guess.
        again = kit.init()
        assert (again.producer_id, again.producer_epoch) == (9, 0)
    step.result()


@pytest.mark.parametrize("is_lost", [True, False])
@pytest.mark.parametrize("is_of_offsets", [True, False])
def test_an_abort_before_the_coordinator_knows_of_the_transaction(
    is_of_offsets: bool, is_lost: bool
) -> None:
    """With version 1. To end a transaction that is not begun is an error, and a fatal one."""
    kit = Kit(1)
    kind: type[Request]
    if is_of_offsets:
        kit.transaction.begin()
        kit.transaction.send_offsets({T0: OffsetAndMetadata(7)}, GROUP)
        kind = AddOffsetsToTxnRequest
    else:
        kit.begin_and_send()
        kind = AddPartitionsToTxnRequest
    call, _ = kit.script.expect(kind)
    step = kit.transaction.abort()
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    if is_lost:
        call.failed(ConnectionLost(Evidence.BROKEN, "by the test"), kit.script.now_ms)
    elif is_of_offsets:
        call.answered(AddOffsetsToTxnResponse(error_code=concurrent), kit.script.now_ms)
    else:
        kit.script.waiting.append(call)
        kit.add(concurrent)
    kit.script.wait(1_000)
    assert not kit.script.asks(EndTxnRequest)
    if is_lost or not is_of_offsets:
        # Aborts what there may be, and shuts out what may still be on its way.
        kit.epoch = 1
        assert kit.init().producer_epoch == 0
    step.result()
    assert kit.whole().base_sequence == 0


def test_an_announcement_may_be_written_though_it_was_refused() -> None:
    """A coordinator that lost its place, or waited too long for replicas, has perhaps written."""
    kit = Kit(1)
    kit.transaction.begin()
    kit.transaction.send_offsets({T0: OffsetAndMetadata(7)}, GROUP)
    call, _ = kit.script.expect(AddOffsetsToTxnRequest)
    step = kit.transaction.abort()
    refusal = AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    call.answered(refusal, kit.script.now_ms)
    kit.script.wait(2_000)
    assert not kit.script.asks(EndTxnRequest)
    kit.epoch = 1
    assert kit.init().producer_epoch == 0
    step.result()


@both_versions
def test_an_empty_transaction_is_nobodys_business(version: int) -> None:
    kit = Kit(version)
    for end in (kit.transaction.commit, kit.transaction.abort):
        kit.transaction.begin()
        step = end()
        kit.script.turn()
        step.result()
        assert kit.script.waiting == []


@both_versions
def test_a_batch_that_fails_makes_the_transaction_abortable(version: int) -> None:
    kit = Kit(version)
    kit.begin_and_send()
    kit.add_if_needed()
    kit.produce(ErrorCode.INVALID_RECORD)
    with pytest.raises(TransactionAbortable):
        kit.send()
    with pytest.raises(TransactionAbortable, match="INVALID_RECORD"):
        kit.transaction.commit()
    step = kit.transaction.abort()
    assert kit.end().committed is False
    if version == 1:
        kit.epoch = 1
        assert kit.init().producer_epoch == 0
    step.result()
    assert kit.transaction.identity == Identity(9, 1)
    batch = kit.whole()
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)


def test_a_batch_that_fails_while_committing_is_not_committed() -> None:
    kit = Kit(2)
    kit.begin_and_send()
    step = kit.flush_and_commit()
    kit.produce(ErrorCode.INVALID_RECORD)
    kit.script.turn()
    with pytest.raises(TransactionAbortable):
        step.result()
    assert not kit.script.asks(EndTxnRequest)


@both_versions
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_is_repeated_until_it_is_known(version: int, is_commit: bool) -> None:
    kit = Kit(version)
    kit.begin_and_send()
    kit.add_if_needed()
    kit.produce()
    step = kit.transaction.commit() if is_commit else kit.transaction.abort()
    first = kit.script.lose(EndTxnRequest)
    kit.script.wait(1_000)
    for error in (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ):
        again = kit.end(error)
        assert (again.producer_epoch, again.committed) == (first.producer_epoch, is_commit)
        assert not step.is_done
        with pytest.raises(TransactionRetriable):
            step.result()
        kit.script.wait(2_000)
    kit.end()
    step.result()


@pytest.mark.parametrize("error", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_fenced_producer_stops_for_good(error: ErrorCode) -> None:
    kit = Kit(2)
    kit.begin_and_send()
    kit.produce()
    step = kit.flush_and_commit()
    kit.end(error)
    for attempt in (step.result, kit.transaction.begin, kit.send, kit.transaction.abort):
        with pytest.raises(ProducerFenced):
            attempt()
    kit.script.wait(100_000)
    assert kit.script.waiting == []


def test_an_old_epoch_at_a_leader_is_judged_by_the_coordinator() -> None:
    kit = Kit(2)
    kit.begin_and_send()
    kit.produce(ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(TransactionAbortable):
        kit.transaction.commit()
    step = kit.transaction.abort()
    kit.end(ErrorCode.PRODUCER_FENCED)
    with pytest.raises(ProducerFenced):
        step.result()


def test_init_waits_for_the_transaction_of_a_predecessor() -> None:
    kit = Kit(2, is_ready=False)
    step = kit.transaction.init()
    kit.tell_version()
    for _ in range(3):
        kit.init(ErrorCode.CONCURRENT_TRANSACTIONS)
        kit.script.wait(100)
    assert not step.is_done
    kit.init()
    step.result()


def test_init_that_is_refused_is_fatal() -> None:
    kit = Kit(2, is_ready=False)
    step = kit.transaction.init()
    kit.tell_version()
    kit.init(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    with pytest.raises(TransactionFatal):
        step.result()


def offsets_answer(error: ErrorCode) -> TxnOffsetCommitResponse:
    each = TxnOffsetCommitResponsePartition(partition_index=0, error_code=error)
    return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(partitions=[each])])


@both_versions
def test_offsets_are_part_of_the_transaction(version: int) -> None:
    kit = Kit(version)
    kit.transaction.begin()
    step = kit.transaction.send_offsets({T0: OffsetAndMetadata(5)}, GROUP)
    if version == 1:
        assert not kit.script.asks(TxnOffsetCommitRequest)
        announced = kit.script.answer(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse())
        assert announced.group_id == "g"
    call, request = kit.script.expect(TxnOffsetCommitRequest)
    assert call.max_version == (4 if version == 1 else None)
    assert (request.generation_id, request.member_id) == (3, "me")
    call.answered(offsets_answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), kit.script.now_ms)
    # They are waited for, also by an impatient commit.
    end = kit.flush_and_commit()
    kit.script.wait(1_000)
    assert not kit.script.asks(EndTxnRequest)
    kit.script.answer(TxnOffsetCommitRequest, offsets_answer(ErrorCode.NONE))
    step.result()
    kit.end()
    end.result()


@pytest.mark.parametrize(
    "error",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.TRANSACTION_ABORTABLE],
)
def test_offsets_of_a_member_that_is_none_any_more(error: ErrorCode) -> None:
    kit = Kit(2)
    kit.transaction.begin()
    step = kit.transaction.send_offsets({T0: OffsetAndMetadata(5)}, GROUP)
    kit.script.answer(TxnOffsetCommitRequest, offsets_answer(error))
    with pytest.raises(TransactionAbortable):
        step.result()
    end = kit.transaction.abort()
    kit.end()
    end.result()


def test_what_is_out_of_turn_is_refused() -> None:
    kit = Kit(2, is_ready=False)
    attempts: list[Any] = [kit.transaction.begin, kit.transaction.commit, kit.send]
    for attempt in attempts:
        with pytest.raises(ValueError, match="not initialized"):
            attempt()
    with pytest.raises(ValueError, match="transactional_id needs idempotence"):
        ProducerSettings(transactional_id="x", acks=1)
