"""A broker whose transactions, or whose coordinators, are on other brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from api.transaction_broker import ID, TransactionBroker, transaction_broker, transactional
from broker.replica_rig import topic

from kraftpy.broker.transaction_verifier import Question
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.config import NodeConfig, from_mapping
from kraftpy.coordinator.transactions.identities import Identity
from kraftpy.coordinator.transactions.state import TransactionState
from kraftpy.node.coordinators import transaction_settings
from kraftpy.observe.metrics import Gauge, MetricName
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kraftpy.protocol.schema.k27_write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

PRODUCER = (7, 3)
NODE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "2@n2:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://n1:9092",
    "log.dirs": "/data",
}


# Coordinators elsewhere.


def verdict(
    request: AddPartitionsToTxnRequest, code: Callable[[], ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=name.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=code()
                            )
                            for index in name.partitions
                        ],
                    )
                    for name in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


async def coordinated_elsewhere(broker: TransactionBroker, *codes: ErrorCode) -> None:
    """Broker 2 is the coordinator; its answers are these, and then always the last one."""
    broker.rig.metadata.change("__transaction_state", 0, leader=2)
    await broker.rig.settle()
    left = list(codes)

    async def answer(broker_id: int, message: Any) -> Any:
        assert broker_id == 2
        await trio.sleep(0.001)
        return verdict(message, lambda: left.pop(0) if len(left) > 1 else left[0])

    broker.peers.answer = answer


async def test_the_coordinator_elsewhere_is_asked(autojump_clock: object) -> None:
    """TV-3, TV-6."""
    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, ErrorCode.NONE)
        assert await broker.send(PRODUCER, b"1", version=12) == 0
        assert await broker.send(PRODUCER, b"2", version=12, sequence=1) == 0
        assert await broker.send(PRODUCER, b"1", version=11, index=1) == 0
        first, second = [message for _, message in broker.peers.asked]
        assert isinstance(first, AddPartitionsToTxnRequest)
        assert isinstance(second, AddPartitionsToTxnRequest)
        [adding], [verifying] = first.transactions, second.transactions
        assert not adding.verify_only
        assert verifying.verify_only
        assert (adding.transactional_id, adding.producer_id, adding.producer_epoch) == (ID, 7, 3)
        assert [(each.name, each.partitions) for each in adding.topics] == [("a", [0])]


CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
NOT_ENOUGH = ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 12, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 12, NOT_ENOUGH),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 12, NOT_ENOUGH),
        (ErrorCode.NOT_COORDINATOR, 11, NOT_ENOUGH),
        (CONCURRENT, 11, NOT_ENOUGH),
        (CONCURRENT, 12, CONCURRENT),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 12, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.INVALID_TXN_STATE, 12, ErrorCode.INVALID_TXN_STATE),
    ],
)
async def test_what_producers_are_told(
    code: ErrorCode, version: int, expected: ErrorCode, autojump_clock: object
) -> None:
    """TV-13, TV-5."""
    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, code)
        assert await broker.send(PRODUCER, b"1", version=version) == expected
        assert broker.rig.partition("a").log.log_end_offset == 0


async def test_the_leader_asks_again_while_the_transaction_before_is_completed(
    autojump_clock: object,
) -> None:
    """TV-13: every 20 ms for 100 ms, for clients of version 2 only."""
    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, CONCURRENT, CONCURRENT, CONCURRENT, ErrorCode.NONE)
        assert await broker.send(PRODUCER, b"1") == 0
        assert len(broker.peers.asked) == 4
        broker.peers.asked.clear()
        await coordinated_elsewhere(broker, CONCURRENT)
        started = broker.rig.world.clock.monotonic_ms()
        assert await broker.send(PRODUCER, b"1", index=1) == CONCURRENT
        assert 80 <= broker.rig.world.clock.monotonic_ms() - started <= 105
        assert 4 <= len(broker.peers.asked) <= 5
        broker.peers.asked.clear()
        assert await broker.send(PRODUCER, b"1", index=1, version=11) == NOT_ENOUGH
        assert len(broker.peers.asked) == 1


@pytest.mark.parametrize(
    ("key", "value", "times"),
    [
        ("add.partitions.to.txn.retry.backoff.ms", "60", 2),
        ("add.partitions.to.txn.retry.backoff.max.ms", "19", 1),
        ("add.partitions.to.txn.retry.backoff.max.ms", "500", 24),
    ],
)
async def test_how_often_a_busy_coordinator_is_asked(
    key: str, value: str, times: int, autojump_clock: object
) -> None:
    """By a leader that waits add.partitions.to.txn.retry.backoff.ms between two questions, and
    add.partitions.to.txn.retry.backoff.max.ms in all.
    """
    config = NodeConfig(from_mapping({**NODE, key: value}, "the test"))
    async with transaction_broker(verifier=transaction_settings(config).verifier) as broker:
        await coordinated_elsewhere(broker, CONCURRENT)
        assert await broker.send(PRODUCER, b"1") == CONCURRENT
        assert len(broker.peers.asked) == times


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ConnectionResetError(), NOT_ENOUGH),
        (UnsupportedVersion("AddPartitionsToTxn"), ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_a_coordinator_that_can_not_be_asked(
    failure: Any, expected: ErrorCode, autojump_clock: object
) -> None:
    """TV-13."""
    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, ErrorCode.NONE)

        async def fail(broker_id: int, message: Any) -> Any:
            if isinstance(failure, ErrorCode):
                return AddPartitionsToTxnResponse(error_code=failure)
            raise failure

        broker.peers.answer = fail
        assert await broker.send(PRODUCER, b"1") == expected


async def test_nobody_coordinates(autojump_clock: object) -> None:
    async with transaction_broker() as broker:
        broker.rig.metadata.change("__transaction_state", 0, leader=-1)
        await broker.rig.settle()
        assert await broker.send(PRODUCER, b"1") == NOT_ENOUGH


async def test_questions_for_the_same_id(autojump_clock: object) -> None:
    """TV-12."""
    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, ErrorCode.NONE)
        verdicts: dict[str, ErrorCode] = {}

        def ask(name: str, epoch: int, transactional_id: str = ID) -> None:
            question = Question(transactional_id, Identity(7, epoch), [("a", 0)], False)
            broker.parts.verifier.ask(
                question, 1_000, lambda found: verdicts.update({name: found["a", 0]})
            )

        ask("under way", 3, "other")
        await trio.sleep(0.0005)
        ask("first", 3)
        ask("another id", 1, "third")
        ask("same epoch", 3)
        assert verdicts == {"first": ErrorCode.NETWORK_EXCEPTION}
        ask("lower", 2)
        assert verdicts.pop("lower") is ErrorCode.INVALID_PRODUCER_EPOCH
        ask("higher", 4)
        assert verdicts.pop("same epoch") is ErrorCode.INVALID_PRODUCER_EPOCH
        await broker.settle()
        verdicts.pop("first")
        assert verdicts == dict.fromkeys(("under way", "another id", "higher"), ErrorCode.NONE)
        assert [len(message.transactions) for _, message in broker.peers.asked] == [1, 2]  # type: ignore[attr-defined]


async def test_one_that_has_to_wait_does_not_hold_up_others(autojump_clock: object) -> None:
    """Eight requests at once; what comes then goes together."""
    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, ErrorCode.NONE)

        async def answer(broker_id: int, message: Any) -> Any:
            names = [each.transactional_id for each in message.transactions]
            await trio.sleep(10 if "slow" in names[0] else 0.001)
            return verdict(message, lambda: ErrorCode.NONE)

        broker.peers.answer = answer
        done: list[str] = []

        async def ask(name: str) -> None:
            question = Question(name, Identity(7, 1), [("a", 0)], False)
            broker.parts.verifier.ask(question, 1_000, lambda found: done.append(name))
            await trio.sleep(0.01)

        for number in range(7):
            await ask(f"slow {number}")
        await ask("quick")
        assert done == ["quick"]
        for name in ("slow 7", "later", "last"):
            await ask(name)
        assert done == ["quick"]
        await trio.sleep(11)
        assert len(done) == 11
        assert len(broker.peers.asked) == 10
        assert set(broker.parts.verifier._under_way.values()) == {0}


async def test_metrics(autojump_clock: object) -> None:
    """Kafka's names."""

    def value(kind: str, name: str) -> float:
        package = "kafka.server" if kind.startswith("Add") else "kafka.coordinator.transaction"
        found: Any = broker.rig.registry.get(MetricName(package, kind, name))
        return float(found.read() if isinstance(found, Gauge) else found.count)

    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
        await broker.send(PRODUCER, b"1")
        await broker.send(PRODUCER, b"1", index=1)
        assert value("AddPartitionsToTxnManager", "VerificationFailureRate") == 1
        assert value("AddPartitionsToTxnManager", "VerificationTimeMs") == 2
        broker.rig.metadata.change("__transaction_state", 0, leader=1)
        await broker.rig.settle()
        await broker.settle()
        producer = await broker.producer()
        await broker.send(producer, b"1", index=1)
        broker.rig.metadata.change("a", 1, leader=-1)
        await broker.rig.settle()
        await broker.end(producer)
        await trio.sleep(0.01)
        queue = ("TransactionMarkerChannelManager", "UnknownDestinationQueueSize")
        assert value(*queue) == 1
        broker.rig.metadata.change("a", 1, leader=1)
        await broker.settle()
        assert value(*queue) == 0


async def test_a_marker_between_question_and_answer(autojump_clock: object) -> None:
    """TV-7: what was verified is over then."""
    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, ErrorCode.NONE)
        asked = broker.begin_send(PRODUCER, b"1", version=11)
        await broker.mark((7, 3), is_commit=False, transaction_version=0)
        answer = await broker.answered(asked)
        [result] = answer.responses[0].partition_responses
        assert result.error_code == ErrorCode.INVALID_TXN_STATE
        # With version 2 it brings the epoch that the write has: that is the next transaction's.
        asked = broker.begin_send((7, 4), b"1", version=12)
        await broker.mark((7, 4), is_commit=False)
        answer = await broker.answered(asked)
        [result] = answer.responses[0].partition_responses
        assert result.error_code == 0


async def test_leadership_lost_between_question_and_answer(autojump_clock: object) -> None:
    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, ErrorCode.NONE)
        asked = broker.begin_send(PRODUCER, b"1")
        broker.rig.metadata.change("a", 0, leader=2)
        answer = await broker.answered(asked)
        [result] = answer.responses[0].partition_responses
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_producer_that_does_not_wait_for_answers(autojump_clock: object) -> None:
    """acks=0: written all the same, or the connection is closed."""
    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
        asked = broker.begin_send(PRODUCER, b"1", acks=0)
        await broker.settle()
        assert asked.answer.outcome == "nothing"
        assert broker.rig.partition("a").log.log_end_offset == 1
        asked = broker.begin_send(PRODUCER, b"1", acks=0, index=1)
        await broker.settle()
        assert asked.answer.outcome == "disconnected"


async def test_a_write_that_does_not_verify_is_copied(autojump_clock: object) -> None:
    """Part of a request waits: the frame is gone by then, for all parts of it."""
    async with transaction_broker() as broker:
        await coordinated_elsewhere(broker, ErrorCode.NONE)
        await broker.send(PRODUCER, b"first")
        asked = broker.begin_produce(
            {
                ("a", 0): bytes(transactional(PRODUCER, b"open", sequence=1)),
                ("a", 1): bytes(transactional(PRODUCER, b"new")),
                ("b", 0): bytes(
                    transactional((-1, -1), b"plain", sequence=-1, is_transactional=False)
                ),
            },
            acks=-1,
            transactional_id=ID,
        )
        answer = await broker.answered(asked)
        codes = [each.error_code for name in answer.responses for each in name.partition_responses]
        assert codes == [0, 0, 0]
        await broker.mark((7, 4), is_commit=True, topics={"a": [0, 1]})
        assert broker.stable_values() == [b"first", b"open"]
        assert broker.stable_values(index=1) == [b"new"]
        assert broker.stable_values("b") == [b"plain"]


# Leaders elsewhere.


def written(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in name.partition_indexes
                        ],
                    )
                    for name in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def state(broker: TransactionBroker) -> TransactionState:
    return broker.parts.host.runtime.read(0, lambda machine: machine.transactions[ID].state)


async def remote_transaction(broker: TransactionBroker) -> tuple[int, int]:
    """Open on `a`, which is here, and on `far`, which is led by broker 2."""
    await broker.rig.apply(*topic("far", 2, replicas=(2, 3)))
    producer = await broker.producer()
    await broker.send(producer, b"1")
    added = await broker.add(producer, {"far": [0]})
    assert list(added.values()) == [0]
    return producer


async def test_markers_are_sent_until_they_are_written(autojump_clock: object) -> None:
    """TXN-22, TXN-25: a lost connection, a refusal, and then the new leader."""
    async with transaction_broker() as broker:
        producer = await remote_transaction(broker)
        attempts: list[int] = []

        async def answer(broker_id: int, message: Any) -> Any:
            attempts.append(broker_id)
            if len(attempts) == 1:
                raise ConnectionResetError
            if broker_id == 2:
                return written(message, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return written(message, ErrorCode.NONE)

        broker.peers.answer = answer
        assert (await broker.end(producer)).error_code == 0
        await trio.sleep(0.35)
        assert attempts[:3] == [2, 2, 2]
        assert state(broker) is TransactionState.PREPARE_COMMIT
        assert broker.stable_values() == [b"1"], "its own marker does not wait for the others"
        broker.rig.metadata.change("far", 0, leader=3)
        await trio.sleep(0.01)
        assert attempts[-1] == 3
        await broker.settle()
        assert state(broker) is TransactionState.COMPLETE_COMMIT


async def test_a_leader_that_is_silent_is_left_for_the_next_one(autojump_clock: object) -> None:
    async with transaction_broker() as broker:
        producer = await remote_transaction(broker)

        async def answer(broker_id: int, message: Any) -> Any:
            if broker_id == 2:
                await trio.sleep_forever()
            return written(message, ErrorCode.NONE)

        broker.peers.answer = answer
        assert (await broker.end(producer)).error_code == 0
        await trio.sleep(5)
        assert state(broker) is TransactionState.PREPARE_COMMIT
        broker.rig.metadata.change("far", 0, leader=3)
        await broker.settle()
        assert state(broker) is TransactionState.COMPLETE_COMMIT


async def test_a_coordinator_that_has_moved_sends_no_more(autojump_clock: object) -> None:
    """TXN-36: its markers are the next one's."""
    async with transaction_broker() as broker:
        producer = await remote_transaction(broker)

        async def answer(broker_id: int, message: Any) -> Any:
            return written(message, ErrorCode.NOT_ENOUGH_REPLICAS)

        broker.peers.answer = answer
        await broker.end(producer)
        await broker.settle()
        broker.rig.metadata.change("__transaction_state", 0, leader=2)
        await broker.settle()
        count = len(broker.peers.asked)
        await trio.sleep(5)
        assert len(broker.peers.asked) == count
        # And here it comes back, and goes on, as a newer coordinator.
        broker.rig.metadata.change("__transaction_state", 0, leader=1)
        await broker.settle()
        request = broker.peers.asked[-1][1]
        assert isinstance(request, WriteTxnMarkersRequest)
        assert request.markers[0].coordinator_epoch == 2


async def test_the_next_transaction_begins_when_the_one_before_is_complete(
    autojump_clock: object,
) -> None:
    """Without an error in between, if that does not take long."""
    async with transaction_broker() as broker:
        producer = await remote_transaction(broker)
        delay = [0.05]

        async def answer(broker_id: int, message: Any) -> Any:
            await trio.sleep(delay[0])
            return written(message, ErrorCode.NONE)

        broker.peers.answer = answer
        await broker.end(producer, version=4)
        assert await broker.add(producer, {"far": [0]}) == {("far", 0): 0}
        assert state(broker) is TransactionState.ONGOING
        delay[0] = 5
        await broker.end(producer, version=4)
        started = broker.rig.world.clock.monotonic_ms()
        assert await broker.add(producer, {"far": [0]}) == {("far", 0): CONCURRENT}
        assert 100 <= broker.rig.world.clock.monotonic_ms() - started < 150


async def test_a_transaction_over_many_partitions(autojump_clock: object) -> None:
    async with transaction_broker() as broker:
        await broker.rig.apply(*topic("wide", *[1] * 150, replicas=(1,)))
        producer = await broker.producer()
        added = await broker.add(producer, {"wide": list(range(150))})
        assert list(added.values()) == [0] * 150
        await broker.send(producer, b"1", name="wide", index=149)
        await broker.end(producer)
        await broker.settle()
        assert state(broker) is TransactionState.COMPLETE_COMMIT
        ends = [broker.rig.partition("wide", index).log.log_end_offset for index in range(150)]
        assert ends == [1] * 149 + [2]


async def test_a_deleted_topic_does_not_hold_a_transaction_up(autojump_clock: object) -> None:
    """TXN-25."""
    async with transaction_broker() as broker:
        producer = await remote_transaction(broker)
        await broker.end(producer)
        await broker.settle()
        assert state(broker) is TransactionState.PREPARE_COMMIT
        broker.rig.metadata.remove("far")
        await broker.settle()
        assert state(broker) is TransactionState.COMPLETE_COMMIT


async def test_a_producer_of_a_transaction_that_timed_out(autojump_clock: object) -> None:
    """TXN-34, TV-28: its data is aborted, and it can't write any more."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        await broker.send(producer, b"1")
        await trio.sleep(75)
        assert state(broker) is TransactionState.COMPLETE_ABORT
        assert broker.stable_values() == []
        partition = broker.rig.partition("a")
        assert partition.log.last_stable_offset == partition.log.log_end_offset
        code = await broker.send(producer, b"2", sequence=1)
        assert code == ErrorCode.INVALID_PRODUCER_EPOCH
