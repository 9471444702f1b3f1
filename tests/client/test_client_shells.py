"""Producer and consumer through both shells, over real sockets, to nodes that misbehave."""

from __future__ import annotations

import pytest
from client.fake_cluster import FakeCluster
from client.fake_nodes import fake_nodes
from client.kits import KITS, Kit, Message
from client.sim_shell import Fault

from kraftpy.client.admin_operations import describe_topics, list_topics
from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError
from kraftpy.client.producer_batch import RecordMetadata
from kraftpy.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from kraftpy.protocol.errors import ErrorCode

QUICK = ClientSettings(retry_backoff_ms=5, retry_backoff_max_ms=20, reconnect_backoff_ms=5)
PRODUCER = ProducerSettings(client=QUICK, batch_size=300, linger_ms=1)
EARLIEST = ConsumerSettings(client=QUICK, auto_offset_reset="earliest", fetch_max_wait_ms=20)

pytestmark = pytest.mark.parametrize("kit", KITS, ids=lambda kit: type(kit).__name__)


def messages(count: int) -> list[Message]:
    return [Message("t", b"%d" % number, partition=number % 2) for number in range(count)]


@pytest.mark.parametrize(
    "faults",
    [
        [],
        [Fault.REQUEST_LOST, Fault.NONE, Fault.REQUEST_LOST],
        [Fault.ANSWER_LOST, Fault.ANSWER_LOST, Fault.NONE, Fault.ANSWER_LOST],
        [Fault.NONE, Fault.LEADER_MOVES, Fault.NONE, Fault.LEADER_MOVES],
        [Fault.REFUSED, Fault.NONE, Fault.TIMED_OUT_AFTER_APPEND, Fault.REFUSED_AFTER_APPEND],
    ],
    ids=["none", "requests", "answers", "leaders", "refusals"],
)
def test_every_record_arrives_once_and_in_order(kit: Kit, faults: list[Fault]) -> None:
    cluster = FakeCluster()
    sent = messages(200)
    with fake_nodes(cluster, faults) as servers:
        outcomes = kit.produce(servers, sent, PRODUCER)
        read = kit.consume(servers, "t", len(sent), EARLIEST)
    for partition in (0, 1):
        values = [message.value for message in sent if message.partition == partition]
        assert cluster.values(TopicPartition("t", partition)) == values
        assert [record.value for where, record in read if where.partition == partition] == values
    assert all(isinstance(outcome, RecordMetadata) for outcome in outcomes)


def test_without_acks_nothing_is_awaited(kit: Kit) -> None:
    cluster = FakeCluster()
    settings = ProducerSettings(client=QUICK, acks=0, batch_size=300, linger_ms=1)
    with fake_nodes(cluster) as servers:
        outcomes = kit.produce(servers, messages(20), settings)
        assert all(isinstance(each, RecordMetadata) and each.offset == -1 for each in outcomes)
        kit.consume(servers, "t", 20, EARLIEST)


def test_the_first_bootstrap_server_may_be_dead(kit: Kit) -> None:
    with fake_nodes(FakeCluster()) as servers:
        outcomes = kit.produce([("127.0.0.1", 1), *servers], messages(2), PRODUCER)
    assert all(isinstance(each, RecordMetadata) for each in outcomes)


def test_nobody_there(kit: Kit) -> None:
    settings = ProducerSettings(client=QUICK, max_block_ms=200)
    (outcome,) = kit.produce([("127.0.0.1", 1)], messages(1), settings)
    assert isinstance(outcome, KafkaError)
    assert outcome.code == ErrorCode.REQUEST_TIMED_OUT
    assert "refused" in str(outcome)


def test_a_small_buffer_holds_the_sender_back(kit: Kit) -> None:
    cluster = FakeCluster()
    settings = ProducerSettings(client=QUICK, batch_size=300, linger_ms=1, buffer_memory=1_000)
    with fake_nodes(cluster) as servers:
        outcomes = kit.produce(servers, messages(300), settings)
    assert [type(each) for each in outcomes] == [RecordMetadata] * 300


def test_topics_are_described(kit: Kit) -> None:
    with fake_nodes(FakeCluster(topics={"a": 1, "b": 2})) as servers:
        assert list(kit.run(servers, list_topics())) == ["a", "b"]
        described = kit.run(servers, describe_topics(["b"]))
        assert list(described["b"].partitions) == [0, 1]
        with pytest.raises(KafkaError, match="no topic c"):
            kit.run(servers, describe_topics(["c"]))
