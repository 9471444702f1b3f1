"""The requests of transactions, by frames, on one broker."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from api.transaction_broker import (
    ID,
    OFFSETS_TOPIC,
    TransactionBroker,
    transaction_broker,
    transactional,
)
from broker.replica_rig import topic

from kraftpy.coordinator.transactions.state import TransactionState
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kraftpy.protocol.schema.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kraftpy.protocol.schema.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from kraftpy.protocol.schema.k26_end_txn import EndTxnRequest
from kraftpy.protocol.schema.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kraftpy.protocol.schema.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kraftpy.protocol.schema.k61_describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from kraftpy.protocol.schema.k65_describe_transactions import DescribeTransactionsRequest
from kraftpy.protocol.schema.k66_list_transactions import ListTransactionsRequest


async def test_a_transaction_from_beginning_to_end(autojump_clock: object) -> None:
    """TV-3, TV-15: what is produced with version 12 is added by itself."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        assert await broker.send(producer, b"1") == 0
        assert await broker.send(producer, b"2", index=1) == 0
        assert broker.stable_values() == []
        ended = await broker.end(producer)
        assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (
            0,
            producer[0],
            producer[1] + 1,
        )
        await broker.settle()
        assert broker.stable_values() == [b"1"]
        assert broker.stable_values(index=1) == [b"2"]
        second = (ended.producer_id, ended.producer_epoch)
        assert await broker.send(second, b"3") == 0
        await broker.end(second, is_commit=False)
        await broker.settle()
        assert broker.stable_values() == [b"1"]
        # The next one follows without a word from its client about partitions.
        third = (second[0], second[1] + 1)
        assert await broker.send(third, b"4") == 0
        await broker.end(third)
        await broker.settle()
        assert broker.stable_values() == [b"1", b"4"]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_producer_does_not_wait_for_markers(
    is_commit: bool, autojump_clock: object
) -> None:
    """The end is appended within the request's own turn, and answered as soon as it is committed,
    which is at once with one replica. Only then are markers written."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        assert await broker.send(producer, b"1") == 0
        assert await broker.send(producer, b"2", index=1) == 0
        logs = [broker.rig.partition("a", index).log for index in (0, 1)]
        asked = broker.begin(
            EndTxnRequest(
                transactional_id=ID,
                producer_id=producer[0],
                producer_epoch=producer[1],
                committed=is_commit,
            ),
            5,
        )
        assert asked.response.error_code == 0
        assert [log.log_end_offset for log in logs] == [1, 1]
        await broker.settle()
        assert [log.log_end_offset for log in logs] == [2, 2]


async def test_a_client_of_version_1(autojump_clock: object) -> None:
    """TV-2, TV-3: it adds its partitions itself, and keeps its epoch."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        for value in (b"1", b"2"):
            assert await broker.add(producer, {"a": [0, 1], "b": [0]}) == {
                ("a", 0): 0,
                ("a", 1): 0,
                ("b", 0): 0,
            }
            assert await broker.send(producer, value, version=11, sequence=int(value) - 1) == 0
            ended = await broker.end(producer, version=4)
            assert (ended.error_code, ended.producer_id) == (0, -1)
            await broker.settle()
        assert broker.stable_values() == [b"1", b"2"]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (11, ErrorCode.TRANSACTION_ABORTABLE),
        (10, ErrorCode.INVALID_TXN_STATE),
        (3, ErrorCode.INVALID_TXN_STATE),
    ],
)
async def test_what_the_coordinator_does_not_know_is_not_written(
    version: int, expected: ErrorCode, autojump_clock: object
) -> None:
    """TV-5, TV-26."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        assert await broker.send(producer, b"1", version=version) == expected
        await broker.add(producer, {"a": [0]})
        assert await broker.send(producer, b"1", version=version, index=1) == expected
        assert await broker.send(producer, b"1", version=version) == 0
        assert broker.rig.partition("a", 1).log.log_end_offset == 0


async def test_a_late_write_of_an_ended_transaction(autojump_clock: object) -> None:
    """TV-26, TXN-12, F1: neither an old epoch nor an old transaction gets into the log."""
    async with transaction_broker() as broker:
        first = await broker.producer()
        await broker.send(first, b"1")
        await broker.end(first)
        await broker.settle()
        end = broker.rig.partition("a").log.log_end_offset
        assert await broker.send(first, b"late", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        # Where the marker has not come, the coordinator knows better.
        assert await broker.send(first, b"late", index=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert broker.rig.partition("a").log.log_end_offset == end
        assert broker.rig.partition("a", 1).log.log_end_offset == 0


async def test_without_verification_nobody_is_asked(autojump_clock: object) -> None:
    """TV-14."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        broker.switch["verifies"] = False
        partition = broker.rig.partition("a")
        partition.log.producers.configure(expiration_ms=86_400_000, verify_transactions=False)
        assert await broker.send(producer, b"1", version=11) == 0
        described = await describe(broker, ID)
        assert described.transaction_state == "Empty"


async def test_only_the_first_batch_is_verified(autojump_clock: object) -> None:
    """TV-6."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        first = broker.begin_send(producer, b"1")
        assert first.answer.keeps_order
        await broker.answered(first)
        second = broker.begin_send(producer, b"2", sequence=1)
        assert second.is_answered, "with one replica the append is all there is"
        assert not second.answer.keeps_order


async def test_batches_of_several_producers_in_one_request(autojump_clock: object) -> None:
    async with transaction_broker() as broker:
        one, other = await broker.producer(), await broker.producer("other")
        asked = broker.begin_produce(
            {
                ("a", 0): bytes(transactional(one)),
                ("a", 1): bytes(transactional(other)),
            },
            acks=-1,
            transactional_id=ID,
        )
        codes = [
            each.error_code
            for response in asked.response.responses
            for each in response.partition_responses
        ]
        assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2


async def test_partitions_fail_each_for_itself(autojump_clock: object) -> None:
    """A partition that is not known does not keep the others from being written."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        await broker.add(producer, {"a": [0]})
        asked = broker.begin_produce(
            {
                ("a", 0): bytes(transactional(producer)),
                ("a", 1): bytes(transactional(producer)),
                ("c", 0): bytes(transactional(producer)),
            },
            acks=-1,
            version=11,
            transactional_id=ID,
        )
        answer = await broker.answered(asked)
        codes = [
            each.error_code
            for response in answer.responses
            for each in response.partition_responses
        ]
        assert codes == [
            ErrorCode.NONE,
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


# InitProducerId.


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": ""}, ErrorCode.INVALID_REQUEST),
        ({"given": (5, -1)}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_000}, ErrorCode.NONE),
        ({"name": None}, ErrorCode.NONE),
    ],
)
async def test_init_producer_id(
    fields: dict[str, object], expected: ErrorCode, autojump_clock: object
) -> None:
    """TXN-15."""
    async with transaction_broker() as broker:
        answer = await broker.init(**fields)  # type: ignore[arg-type]
        assert answer.error_code == expected
        assert (answer.producer_epoch == 0) == (expected is ErrorCode.NONE)


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_old_producers_hear_of_fencing_in_old_words(
    version: int, autojump_clock: object
) -> None:
    async with transaction_broker() as broker:
        producer = await broker.producer()
        await broker.producer()
        answer = await broker.init(given=producer, version=version)
        assert answer.error_code == (
            ErrorCode.INVALID_PRODUCER_EPOCH if version < 4 else ErrorCode.PRODUCER_FENCED
        )
        for add_version, code in (
            (1, ErrorCode.INVALID_PRODUCER_EPOCH),
            (2, ErrorCode.PRODUCER_FENCED),
        ):
            assert await broker.add(producer, {"a": [0]}, add_version) == {("a", 0): code}
            ended = await broker.end(producer, version=add_version)
            assert ended.error_code == code


async def test_a_broker_that_leads_nothing_coordinates_nothing(autojump_clock: object) -> None:
    """TXN-36."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        broker.rig.metadata.change("__transaction_state", 0, leader=2)
        await broker.rig.settle()
        assert (await broker.init()).error_code == ErrorCode.NOT_COORDINATOR
        assert (await broker.end(producer)).error_code == ErrorCode.NOT_COORDINATOR
        assert await broker.add(producer, {"a": [0]}) == {("a", 0): ErrorCode.NOT_COORDINATOR}
        assert (await describe(broker, ID)).error_code == ErrorCode.NOT_COORDINATOR


# AddPartitionsToTxn.


async def test_an_unknown_partition_keeps_all_out(autojump_clock: object) -> None:
    """TXN-18."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        assert await broker.add(producer, {"a": [0, 7], "nowhere": [0]}) == {
            ("a", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("a", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (await describe(broker, ID)).transaction_state == "Empty"


async def test_clients_add_no_internal_topic(autojump_clock: object) -> None:
    async with transaction_broker() as broker:
        producer = await broker.producer()
        assert await broker.add(producer, {"a": [0], "__transaction_state": [0]}) == {
            ("a", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("__transaction_state", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
        assert (await describe(broker, ID)).transaction_state == "Empty"


async def test_a_request_of_brokers(autojump_clock: object) -> None:
    """Several transactions, some to be verified and some to be added to."""
    async with transaction_broker() as broker:
        one, other = await broker.producer("one"), await broker.producer("other")

        def part(
            name: str, producer: tuple[int, int], *, verifies: bool
        ) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verifies,
                topics=[AddPartitionsToTxnTopic(name="a", partitions=[0, 1])],
            )

        answer = await broker.request(
            AddPartitionsToTxnRequest(
                transactions=[
                    part("one", one, verifies=False),
                    part("other", other, verifies=True),
                    part("nobody", one, verifies=True),
                    part("", one, verifies=False),
                ]
            ),
            5,
        )
        codes = {
            each.transactional_id: [
                result.partition_error_code
                for name in each.topic_results
                for result in name.results_by_partition
            ]
            for each in answer.results_by_transaction
        }
        assert codes == {
            "one": [0, 0],
            "other": [ErrorCode.TRANSACTION_ABORTABLE] * 2,
            "nobody": [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2,
            "": [ErrorCode.INVALID_REQUEST] * 2,
        }
        assert (await broker.request(AddPartitionsToTxnRequest(), 5)).error_code == 0


# Offsets.


def offsets_of(
    producer: tuple[int, int], offset: int, *, name: str = "a", group: str = "g"
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
                ],
            )
        ],
    )


async def commit(
    broker: TransactionBroker, request: TxnOffsetCommitRequest, version: int = 5
) -> list[int]:
    answer = await broker.request(request, version)
    return [each.error_code for name in answer.topics for each in name.partitions]


def committed_offset(broker: TransactionBroker) -> int:
    answer = broker.groups.runtime.read(
        0,
        lambda machine: machine.offsets.fetch(
            OffsetFetchRequestGroup(
                group_id="g", topics=[OffsetFetchRequestTopics(name="a", partition_indexes=[0])]
            ),
            is_stable=False,
        ),
    )
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


@pytest.mark.parametrize("is_commit", [True, False])
async def test_offsets_count_with_the_transaction(is_commit: bool, autojump_clock: object) -> None:
    """TV-4, TXN-20, TXN-22."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        assert await commit(broker, offsets_of(producer, 42)) == [0]
        assert committed_offset(broker) == -1
        described = await describe(broker, ID)
        assert [(each.topic, each.partitions) for each in described.topics] == [
            (OFFSETS_TOPIC, [0])
        ]
        ended = await broker.end(producer, is_commit=is_commit)
        assert ended.error_code == 0
        await broker.settle()
        assert committed_offset(broker) == (42 if is_commit else -1)
        assert (await describe(broker, ID)).transaction_state == (
            "CompleteCommit" if is_commit else "CompleteAbort"
        )


async def test_offsets_of_a_client_of_version_1(autojump_clock: object) -> None:
    """TXN-19, TV-5: its group is added by AddOffsetsToTxn, and only verified then."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        assert await commit(broker, offsets_of(producer, 42), 4) == [
            ErrorCode.TRANSACTION_ABORTABLE
        ]
        assert await commit(broker, offsets_of(producer, 42), 3) == [ErrorCode.INVALID_TXN_STATE]
        adding = AddOffsetsToTxnRequest(
            transactional_id=ID,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id="g",
        )
        assert (await broker.request(adding, 4)).error_code == 0
        assert await commit(broker, offsets_of(producer, 42), 4) == [0]
        assert await commit(broker, offsets_of(producer, 43), 4) == [0]
        await broker.end(producer, version=4)
        await broker.settle()
        assert committed_offset(broker) == 43


async def test_offsets_that_are_refused(autojump_clock: object) -> None:
    """TXN-21, TXN-12."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        assert await commit(broker, offsets_of(producer, 1, group="")) == [
            ErrorCode.INVALID_GROUP_ID
        ]
        assert await commit(broker, offsets_of(producer, 1, name="nowhere")) == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ]
        both = offsets_of(producer, 1)
        both.topics += offsets_of(producer, 1, name="nowhere").topics
        assert await commit(broker, both) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        beyond = offsets_of(producer, 1)
        for index in (99, -1):
            beyond.topics[0].partitions.append(
                TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1)
            )
        answer = await broker.request(beyond, 5)
        [of_topic] = answer.topics
        assert {each.partition_index: each.error_code for each in of_topic.partitions} == {
            0: ErrorCode.NONE,
            99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            -1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        foreign = (producer[0] + 50, producer[1])
        assert await commit(broker, offsets_of(foreign, 1)) == [
            ErrorCode.INVALID_PRODUCER_ID_MAPPING
        ]
        stale = offsets_of(producer, 1)
        stale.generation_id = 5
        stale.member_id = "gone"
        assert await commit(broker, stale) != [0]
        old = producer
        await broker.end(producer)
        await broker.settle()
        assert await commit(broker, offsets_of(old, 9)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        broker.rig.metadata.change(OFFSETS_TOPIC, 0, leader=2)
        await broker.rig.settle()
        assert await commit(broker, offsets_of(producer, 1)) == [ErrorCode.NOT_COORDINATOR]


# WriteTxnMarkers.


async def open_directly(broker: TransactionBroker, producer: tuple[int, int]) -> None:
    """A transaction on the partition that no coordinator knows of."""
    broker.switch["verifies"] = False
    partition = broker.rig.partition("a")
    partition.log.producers.configure(expiration_ms=86_400_000, verify_transactions=False)
    assert await broker.send(producer, b"hangs", version=11) == 0


async def test_markers_must_bring_a_new_epoch_from_version_2_on(autojump_clock: object) -> None:
    """TV-23, TV-24."""
    async with transaction_broker() as broker:
        await open_directly(broker, (7, 3))
        refused = {("a", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
        assert await broker.mark((7, 2), is_commit=True, transaction_version=0) == refused
        assert await broker.mark((7, 2), is_commit=True) == refused
        assert await broker.mark((7, 3), is_commit=True) == refused
        assert await broker.mark((7, 4), is_commit=True) == {("a", 0): 0}
        # Its answer was lost.
        assert await broker.mark((7, 4), is_commit=True) == {("a", 0): 0}
        assert await broker.send((7, 4), b"next", version=11) == 0
        assert await broker.mark((7, 4), is_commit=False) == refused
        assert await broker.mark((7, 4), is_commit=False, transaction_version=1) == {("a", 0): 0}


async def test_an_older_coordinator_is_refused(autojump_clock: object) -> None:
    """TV-25, TXN-26."""
    async with transaction_broker() as broker:
        await open_directly(broker, (7, 3))
        assert await broker.mark((7, 4), is_commit=True, coordinator_epoch=9) == {("a", 0): 0}
        assert await broker.mark((7, 5), is_commit=False, coordinator_epoch=8) == {
            ("a", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED
        }


async def test_a_hanging_transaction_is_ended_by_a_tool(autojump_clock: object) -> None:
    """TV-31, TV-30."""
    async with transaction_broker() as broker:
        await open_directly(broker, (7, 3))
        partition = broker.rig.partition("a")
        assert partition.log.last_stable_offset == 0
        answer = await broker.request(
            DescribeProducersRequest(topics=[TopicRequest(name="a", partition_indexes=[0])]), 0
        )
        [found] = answer.topics[0].partitions[0].active_producers
        assert found.current_txn_start_offset == 0
        codes = await broker.mark(
            (found.producer_id, found.producer_epoch),
            is_commit=False,
            transaction_version=0,
            coordinator_epoch=found.coordinator_epoch,
            version=1,
        )
        assert codes == {("a", 0): 0}
        assert partition.log.last_stable_offset == partition.log.log_end_offset
        assert broker.stable_values() == []


async def test_markers_for_several_partitions(autojump_clock: object) -> None:
    """Each has its own answer, also those that are not here."""
    async with transaction_broker() as broker:
        await broker.rig.apply(*topic("elsewhere", 2, replicas=(2,)))
        codes = await broker.mark(
            (7, 1),
            is_commit=True,
            topics={"a": [0, 9], "elsewhere": [0], "nowhere": [0], OFFSETS_TOPIC: [0, 4]},
        )
        assert codes == {
            ("a", 0): 0,
            ("a", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("elsewhere", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (OFFSETS_TOPIC, 0): 0,
            (OFFSETS_TOPIC, 4): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }


async def test_a_marker_is_answered_when_everybody_has_it(autojump_clock: object) -> None:
    async with transaction_broker() as broker:
        await broker.rig.apply(*topic("shared", 1, replicas=(1, 2)))
        codes: list[object] = []

        async def mark() -> None:
            codes.append(await broker.mark((7, 1), is_commit=True, topics={"shared": [0]}))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(mark)
            await trio.sleep(1)
            assert codes == []
            partition = broker.rig.partition("shared")
            partition.follower_fetched(
                2,
                partition.log.log_end,
                log_start_offset=0,
                leader_end_offset=partition.log.log_end_offset,
                broker_epoch=102,
                now_ms=broker.rig.world.clock.monotonic_ms(),
            )
        assert codes == [{("shared", 0): 0}]


async def test_a_marker_that_is_not_replicated_in_time(autojump_clock: object) -> None:
    """After `request.timeout.ms`; the coordinator sends it again."""
    async with transaction_broker() as broker:
        await broker.rig.apply(*topic("shared", 1, replicas=(1, 2)))
        codes: list[object] = []
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=7,
                    producer_epoch=1,
                    topics=[WritableTxnMarkerTopic(name="shared", partition_indexes=[0])],
                )
            ]
        )
        broker.parts.writer.write(
            request,
            lambda answer: codes.append(answer.markers[0].topics[0].partitions[0].error_code),
        )
        await trio.sleep(29)
        assert codes == []
        await trio.sleep(2)
        assert codes == [ErrorCode.REQUEST_TIMED_OUT]


async def test_too_few_replicas_for_a_marker(autojump_clock: object) -> None:
    async with transaction_broker() as broker:
        broker.rig.min_isr = 2
        await broker.rig.apply(*topic("shared", 1, replicas=(1, 2)))
        broker.rig.metadata.change("shared", 0, isr=(1,))
        await broker.rig.settle()
        assert await broker.mark((7, 1), is_commit=True, topics={"shared": [0]}) == {
            ("shared", 0): ErrorCode.NOT_ENOUGH_REPLICAS
        }
        assert broker.rig.partition("shared").log.log_end_offset == 0


# Descriptions.


async def describe(broker: TransactionBroker, name: str) -> Any:
    answer = await broker.request(DescribeTransactionsRequest(transactional_ids=[name]), 0)
    [found] = answer.transaction_states
    return found


async def test_describing(autojump_clock: object) -> None:
    """TV-30."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        await broker.send(producer, b"1", index=1)
        found = await describe(broker, ID)
        assert found.error_code == 0
        assert found.transaction_state == TransactionState.ONGOING.title
        assert found.transaction_timeout_ms == 60_000
        assert found.transaction_start_time_ms > 0
        assert (found.producer_id, found.producer_epoch) == producer
        assert [(each.topic, each.partitions) for each in found.topics] == [("a", [1])]
        assert (await describe(broker, "x")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (await describe(broker, "")).error_code == ErrorCode.INVALID_REQUEST


async def test_listing(autojump_clock: object) -> None:
    """TV-30."""
    async with transaction_broker() as broker:
        producer = await broker.producer()
        await broker.producer("idle")
        await broker.send(producer, b"1")

        async def listed(version: int = 2, **fields: Any) -> list[str]:
            answer = await broker.request(ListTransactionsRequest(**fields), version)
            assert answer.error_code == 0
            return sorted(each.transactional_id for each in answer.transaction_states)

        assert await listed(0) == ["idle", ID]
        assert await listed(state_filters=["Ongoing"]) == [ID]
        assert await listed(producer_id_filters=[producer[0]]) == [ID]
        assert await listed(transactional_id_pattern="i.*") == ["idle"]
        assert await listed(transactional_id_pattern="") == ["idle", ID]
        assert await listed(state_filters=["Ongoing"], duration_filter=50_000) == []
        answer = await broker.request(ListTransactionsRequest(state_filters=["Asleep"]), 2)
        assert answer.unknown_state_filters == ["Asleep"]
        assert answer.transaction_states == []
        answer = await broker.request(ListTransactionsRequest(transactional_id_pattern="("), 2)
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_pattern_does_not_keep_the_node_busy(autojump_clock: object) -> None:
    """TV-30: others are served while ids are matched with it, which may be many and long."""
    async with transaction_broker() as broker:
        names = [f"{'ab' * 5_000}-{number}" for number in range(5)]
        for name in names:
            await broker.producer(name)
        request = ListTransactionsRequest(transactional_id_pattern="(.*a.{8}b){3}.*-[02]")
        asked = broker.begin(request, 2)
        assert not asked.answer.outcome
        answer = await broker.answered(asked)
        found = sorted(each.transactional_id for each in answer.transaction_states)
        assert found == [names[0], names[2]]
