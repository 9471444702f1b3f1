"""Transactions side by side with Apache Kafka: the same codes and identities, step by step.

One and the same story is told to both. After each end the story waits until the transaction is
complete, because what happens in between is a matter of time.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from compat.bad_requests import batch
from compat.test_bad_input import node
from support.kafka_jars import QUICK_JAVA, classpath

from kraftpy.client.blocking import BlockingConnection
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k00_produce as k00
from kraftpy.protocol.schema import k10_find_coordinator as k10
from kraftpy.protocol.schema import k22_init_producer_id as k22
from kraftpy.protocol.schema import k24_add_partitions_to_txn as k24
from kraftpy.protocol.schema import k25_add_offsets_to_txn as k25
from kraftpy.protocol.schema import k26_end_txn as k26
from kraftpy.protocol.schema import k27_write_txn_markers as k27
from kraftpy.protocol.schema import k28_txn_offset_commit as k28
from kraftpy.protocol.schema import k65_describe_transactions as k65
from kraftpy.protocol.schema import k66_list_transactions as k66

pytestmark = [pytest.mark.compat, pytest.mark.java]

SETTINGS = (
    "offsets.topic.replication.factor=1\n"
    "transaction.state.log.replication.factor=1\n"
    "transaction.state.log.min.isr=1\n"
    "transaction.state.log.num.partitions=3\n"
    "offsets.topic.num.partitions=3\n"
)
READY_SECONDS = 60
Pair = tuple[int, int]


class Story:
    """Asks one broker, and writes down what it answers."""

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection
        self._names: dict[int, str] = {-1: "nobody"}
        self.told: list[str] = []

    def _note(self, what: str, answer: str) -> None:
        self.told.append(f"{len(self.told)} {what}: {answer}")

    def _name(self, producer_id: int) -> str:
        return self._names.setdefault(producer_id, f"P{len(self._names)}")

    def _ask(self, request: Any, version: int) -> Any:
        return self._connection.request(request, max_version=version)

    def find(self, key: str, key_type: int) -> None:
        request = k10.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        deadline = time.monotonic() + READY_SECONDS
        while self._ask(request, 6).coordinators[0].error_code != ErrorCode.NONE:
            assert time.monotonic() < deadline, f"nobody coordinates {key}"
            time.sleep(0.1)

    def init(
        self,
        name: str | None = "t",
        *,
        given: Pair = (-1, -1),
        timeout_ms: int = 60_000,
        version: int = 5,
        until_done: bool = False,
    ) -> Pair:
        request = k22.InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=given[0] if version >= 3 else -1,
            producer_epoch=given[1] if version >= 3 else -1,
        )
        answer = self._ask(request, version)
        while answer.error_code in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        ) or (until_done and answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS):
            time.sleep(0.05)
            answer = self._ask(request, version)
        code = ErrorCode(answer.error_code).name
        # What comes with an error says nothing.
        pair = (answer.producer_id, answer.producer_epoch) if code == "NONE" else (-1, -1)
        self._note(
            f"init {name} v{version} {self._name(given[0])} {given[1]} {timeout_ms}",
            f"{code} {self._name(pair[0])} {pair[1]}",
        )
        return pair

    def add(
        self, pair: Pair, *partitions: tuple[str, int], name: str = "t", version: int = 3
    ) -> None:
        topics = [
            k24.AddPartitionsToTxnTopic(name=topic, partitions=[i]) for topic, i in partitions
        ]
        request = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=pair[0],
            v3_and_below_producer_epoch=pair[1],
            v3_and_below_topics=topics,
        )
        answer = self._ask(request, version)
        codes = sorted(
            (topic.name, each.partition_index, ErrorCode(each.partition_error_code).name)
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        )
        self._note(f"add v{version} {name} {partitions} {pair[1]}", str(codes))

    def verify(self, pair: Pair, *partitions: tuple[str, int], name: str = "t") -> None:
        self._of_broker(pair, partitions, name, verifies=True)

    def join(self, pair: Pair, *partitions: tuple[str, int], name: str = "t") -> None:
        self._of_broker(pair, partitions, name, verifies=False)

    def _of_broker(
        self, pair: Pair, partitions: tuple[tuple[str, int], ...], name: str, *, verifies: bool
    ) -> None:
        request = k24.AddPartitionsToTxnRequest(
            transactions=[
                k24.AddPartitionsToTxnTransaction(
                    transactional_id=name,
                    producer_id=pair[0],
                    producer_epoch=pair[1],
                    verify_only=verifies,
                    topics=[
                        k24.AddPartitionsToTxnTopic(name=topic, partitions=[index])
                        for topic, index in partitions
                    ],
                )
            ]
        )
        answer = self._ask(request, 5)
        codes = sorted(
            (topic.name, each.partition_index, ErrorCode(each.partition_error_code).name)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for each in topic.results_by_partition
        )
        what = "verify" if verifies else "join"
        self._note(f"{what} {name} {partitions} {pair[1]}", f"{answer.error_code} {codes}")

    def add_offsets(self, pair: Pair, group: str = "g", version: int = 4) -> None:
        answer = self._ask(
            k25.AddOffsetsToTxnRequest(
                transactional_id="t", producer_id=pair[0], producer_epoch=pair[1], group_id=group
            ),
            version,
        )
        self._note(f"offsets of {group} v{version}", ErrorCode(answer.error_code).name)

    def commit_offsets(
        self,
        pair: Pair,
        version: int,
        topic: str = "good",
        group: str = "g",
        partition: int = 0,
        **fields: Any,
    ) -> None:
        request = k28.TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=pair[0],
            producer_epoch=pair[1],
            topics=[
                k28.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        k28.TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=1
                        )
                    ],
                )
            ],
        )
        for field, value in fields.items():
            setattr(request, field, value)
        answer = self._ask(request, version)
        codes = [
            ErrorCode(each.error_code).name for name in answer.topics for each in name.partitions
        ]
        where = f"{topic}-{partition}"
        self._note(f"commit offsets v{version} {where} {group} {fields} {pair[1]}", str(codes))

    def end(
        self, pair: Pair, *, is_commit: bool, version: int = 5, name: str = "t", waits: bool = True
    ) -> Pair:
        answer = self._ask(
            k26.EndTxnRequest(
                transactional_id=name,
                producer_id=pair[0],
                producer_epoch=pair[1],
                committed=is_commit,
            ),
            version,
        )
        self._note(
            f"end v{version} {name} {is_commit} {self._name(pair[0])} {pair[1]}",
            f"{ErrorCode(answer.error_code).name} {self._name(answer.producer_id)}"
            f" {answer.producer_epoch}",
        )
        if waits:
            self._wait_for_completion(name)
        return answer.producer_id, answer.producer_epoch

    def _wait_for_completion(self, name: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while self._state(name).transaction_state.startswith("Prepare"):
            assert time.monotonic() < deadline, "it does not end"
            time.sleep(0.02)

    def _state(self, name: str) -> Any:
        answer = self._ask(k65.DescribeTransactionsRequest(transactional_ids=[name]), 0)
        return answer.transaction_states[0]

    def describe(self, name: str = "t") -> None:
        found = self._state(name)
        topics = sorted((each.topic, sorted(each.partitions)) for each in found.topics)
        self._note(
            f"describe {name}",
            f"{ErrorCode(found.error_code).name} {found.transaction_state}"
            f" {found.transaction_timeout_ms} {found.producer_epoch} {topics}"
            f" {found.transaction_start_time_ms > 0}",
        )

    def list_all(self, version: int = 2, **fields: Any) -> None:
        answer = self._ask(k66.ListTransactionsRequest(**fields), version)
        found = sorted(
            (each.transactional_id, each.transaction_state) for each in answer.transaction_states
        )
        code = ErrorCode(answer.error_code).name
        self._note(f"list v{version} {fields}", f"{code} {found} {answer.unknown_state_filters}")

    def produce(
        self, pair: Pair, index: int = 0, *, sequence: int = 0, version: int = 12, name: str = "t"
    ) -> None:
        records = batch(
            b"v",
            producer_id=pair[0],
            producer_epoch=pair[1],
            base_sequence=sequence,
            is_transactional=True,
        )
        request = k00.ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                k00.TopicProduceData(
                    name="good",
                    partition_data=[k00.PartitionProduceData(index=index, records=records)],
                )
            ],
        )
        answer = self._ask(request, version)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code).name
        self._note(f"produce v{version} {name} {index} {sequence} {pair[1]}", code)

    def mark(self, pair: Pair, topic: str, index: int, *, coordinator_epoch: int) -> None:
        request = k27.WriteTxnMarkersRequest(
            markers=[
                k27.WritableTxnMarker(
                    producer_id=pair[0],
                    producer_epoch=pair[1],
                    transaction_result=False,
                    coordinator_epoch=coordinator_epoch,
                    topics=[k27.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
                )
            ]
        )
        answer = self._ask(request, 1)
        code = ErrorCode(answer.markers[0].topics[0].partitions[0].error_code).name
        self._note(f"mark {topic} {index} {pair[1]} {coordinator_epoch}", code)


def tell_of_identities(story: Story) -> None:
    for name, timeout_ms in (("", 60_000), ("t", 0), ("t", -1), ("t", 900_001)):
        story.init(name, timeout_ms=timeout_ms)
    story.init("t", given=(5, -1))
    story.init(None)
    first = story.init("t", given=(77, 3))
    second = story.init("t")
    for version in (3, 5):
        story.init("t", given=first, version=version)
    third = story.init("t", given=second)
    story.init("t", given=second)
    story.init("t", given=(second[0] + 99, second[1]))
    story.init("t", given=(third[0], third[1] + 1))
    fourth = story.init("t")
    story.init("t", given=third)
    story.describe()
    for version in (0, 1, 2):
        story.init("t", version=version)
    story.add(fourth, ("good", 0))


def tell_of_partitions(story: Story) -> Pair:
    pair = story.init("t")
    old, foreign = (pair[0], pair[1] - 1), (pair[0] + 99, pair[1])
    for version in (0, 1, 2, 3):
        story.add(old, ("good", 0), version=version)
    story.add(foreign, ("good", 0))
    story.add(pair, ("good", 0), name="unknown")
    story.add(pair, ("good", 0), name="")
    story.add(pair, ("good", 0), ("good", 9), ("nowhere", 0))
    story.describe()
    for who in (pair, old, foreign):
        story.verify(who, ("good", 0))
        story.verify(who, ("good", 9))
    story.add(pair, ("good", 0))
    story.add(pair, ("good", 0), ("good", 1))
    story.verify(pair, ("good", 0), ("good", 2))
    story.verify(pair, ("good", 0), name="unknown")
    story.join(pair, ("good", 2))
    story.join(old, ("good", 2))
    story.join(pair, ("nowhere", 2))
    story.describe()
    story.list_all(state_filters=["Ongoing"])
    story.end(pair, is_commit=False, version=4)
    story.verify(pair, ("good", 0))
    return pair


def tell_of_ends(story: Story) -> None:
    pair = story.init("t")
    for version in (4, 5):
        for is_commit in (True, False):
            if version == 4 or is_commit:
                story.end(pair, is_commit=is_commit, version=version)
    story.end(pair, is_commit=True, name="unknown")
    story.end(pair, is_commit=True, name="")
    story.end((pair[0] + 99, pair[1]), is_commit=True)
    for version in (1, 2, 5):
        story.end((pair[0], pair[1] + 3), is_commit=True, version=version)
    # Nothing has begun, and is aborted all the same.
    pair = story.end(pair, is_commit=False)
    story.describe()
    for is_commit in (True, False):
        story.produce(pair)
        story.produce(pair, 1)
        after = story.end(pair, is_commit=is_commit)
        for repeated in (True, False):
            story.end(pair, is_commit=repeated)
        story.end(after, is_commit=True)
        story.end((pair[0], pair[1] - 1), is_commit=is_commit)
        story.produce(pair, sequence=1)
        story.produce(pair, 2)
        story.describe()
        pair = after
    # A client of version 1.
    pair = story.init("t")
    for is_commit in (True, False):
        story.add(pair, ("good", 0))
        story.produce(pair, version=11, sequence=0 if is_commit else 1)
        for version in (10, 11):
            story.produce(pair, 1, version=version)
        story.end(pair, is_commit=is_commit, version=4)
        for repeated in (True, False):
            story.end(pair, is_commit=repeated, version=4)
        story.produce(pair, version=11, sequence=2)


def tell_of_fencing(story: Story) -> None:
    pair = story.init("t")
    story.produce(pair)
    # Whoever comes has the open transaction aborted, and comes again.
    story.init("t", given=(pair[0] + 99, 5))
    newer = story.init("t", until_done=True)
    story.produce(pair, sequence=1)
    story.produce(pair, 1)
    story.end(pair, is_commit=True)
    story.end(pair, is_commit=True, version=4)
    story.produce(newer)
    story.end(newer, is_commit=True)


def tell_of_offsets(story: Story) -> None:
    pair = story.init("t")
    for version in (3, 4):
        story.commit_offsets(pair, version)
    story.add_offsets((pair[0], pair[1] - 1))
    story.add_offsets((pair[0], pair[1] - 1), version=1)
    story.add_offsets((pair[0] + 99, pair[1]))
    story.add_offsets(pair)
    for version in (0, 3, 4, 5):
        story.commit_offsets(pair, version)
    story.commit_offsets(pair, 5, group="")
    story.commit_offsets(pair, 5, topic="nowhere")
    story.commit_offsets(pair, 5, partition=99)
    story.commit_offsets(pair, 5, generation_id=3, member_id="gone")
    story.end(pair, is_commit=True, version=4)
    pair = story.init("t")
    story.commit_offsets(pair, 5, group="other")
    story.describe()
    story.end(pair, is_commit=False)
    story.commit_offsets(pair, 5, group="other")


def tell_of_markers(story: Story) -> None:
    pair = story.init("t")
    story.produce(pair)
    story.mark((pair[0], pair[1] - 1), "good", 0, coordinator_epoch=5)
    story.mark(pair, "good", 9, coordinator_epoch=5)
    story.mark(pair, "nowhere", 0, coordinator_epoch=5)
    story.mark(pair, "good", 0, coordinator_epoch=5)
    story.mark(pair, "good", 0, coordinator_epoch=4)
    story.produce(pair, sequence=1)


def tell_of_lists(story: Story) -> None:
    story.init("other")
    for version in (0, 1, 2):
        story.list_all(version)
    story.list_all(state_filters=["Ongoing"])
    story.list_all(state_filters=["Asleep"])
    story.list_all(state_filters=["Empty", "Asleep"])
    story.list_all(producer_id_filters=[123_456_789])
    story.list_all(duration_filter=3_600_000)
    story.list_all(transactional_id_pattern="o.*")
    story.list_all(transactional_id_pattern="o")
    story.list_all(transactional_id_pattern="")
    story.list_all(transactional_id_pattern="(")
    story.describe("unknown")


def tell(port: int) -> list[str]:
    with BlockingConnection(("127.0.0.1", port)) as connection:
        story = Story(connection)
        story.find("t", 1)
        story.find("g", 0)
        story.find("other", 0)
        tell_of_identities(story)
        tell_of_partitions(story)
        tell_of_ends(story)
        tell_of_fencing(story)
        tell_of_offsets(story)
        tell_of_markers(story)
        tell_of_lists(story)
        return story.told


def test_the_same_story(tmp_path: Path) -> None:
    """TV-2 to TV-5, TV-15 to TV-20, TV-30; TXN-12 to TXN-23."""
    java = [*QUICK_JAVA, "-Xmx512m", "-cp", classpath()]
    own = [sys.executable, "-m", "kraftpy.cli.main"]
    with (
        node(
            tmp_path / "kafka",
            [*java, "kafka.tools.StorageTool", "format"],
            [*java, "kafka.Kafka"],
            SETTINGS,
        ) as kafka,
        node(
            tmp_path / "kraftpy", [*own, "storage", "format"], [*own, "node"], SETTINGS
        ) as kraftpy,
        ThreadPoolExecutor() as pool,
    ):
        theirs, ours = pool.map(tell, (kafka, kraftpy))
    assert ours == theirs
    assert len(ours) > 140
