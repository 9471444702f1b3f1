"""What the controller serves, on a controller that answers by script: every API, every failure."""

from __future__ import annotations

from typing import Any

import pytest
from api.image_cluster import view_of
from api.recording import Bench, RecordingAnswer, RecordingChannel, payload
from api.scripted_controller import ScriptedController

from kraftpy.api.api_keys import CONTROLLER_APIS
from kraftpy.api.controller_handler import ControllerHandler
from kraftpy.api.handler import Handler
from kraftpy.api.k63_broker_heartbeat import BrokerHeartbeatHandler
from kraftpy.observe.metrics import Meter, MetricName
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_response
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k30_create_acls as k30
from kraftpy.protocol.schema import k31_delete_acls as k31
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k37_create_partitions as k37
from kraftpy.protocol.schema import k43_elect_leaders as k43
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.protocol.schema import k45_alter_partition_reassignments as k45
from kraftpy.protocol.schema import k49_alter_client_quotas as k49
from kraftpy.protocol.schema import k51_alter_user_scram_credentials as k51
from kraftpy.protocol.schema import k63_broker_heartbeat as k63
from kraftpy.protocol.tables import Request
from kraftpy.security.authorizer import StandardAuthorizer
from kraftpy.world.real_clock import RealClock

# ACLs are nothing to ask for without an authorizer.
SUPER = StandardAuthorizer(["User:ANONYMOUS"])


def handlers(controller: ScriptedController) -> list[Handler]:
    clock = RealClock()
    view = view_of()
    others = [ControllerHandler(key, controller, clock, view) for key in CONTROLLER_APIS]
    return [*others, BrokerHeartbeatHandler(controller, clock, view)]


def versions(*keys: int) -> list[tuple[int, int]]:
    return [
        (key, version)
        for key in keys
        for version in range(API[key].min_version, API[key].max_version + 1)
    ]


ID = Uuid(b"t" * 16)
# Each has two items, so that a failure must be reported twice.
REQUESTS: dict[int, Request] = {
    19: k19.CreateTopicsRequest(
        topics=[k19.CreatableTopic(name="a"), k19.CreatableTopic(name="b")], timeout_ms=777
    ),
    20: k20.DeleteTopicsRequest(
        topics=[k20.DeleteTopicState(name="a"), k20.DeleteTopicState(topic_id=ID)]
    ),
    30: k30.CreateAclsRequest(creations=[k30.AclCreation(), k30.AclCreation()]),
    31: k31.DeleteAclsRequest(filters=[k31.DeleteAclsFilter(), k31.DeleteAclsFilter()]),
    33: k33.AlterConfigsRequest(
        resources=[
            k33.AlterConfigsResource(resource_type=2, resource_name="a"),
            k33.AlterConfigsResource(resource_type=4, resource_name=""),
        ]
    ),
    37: k37.CreatePartitionsRequest(
        topics=[k37.CreatePartitionsTopic(name="a"), k37.CreatePartitionsTopic(name="b")]
    ),
    43: k43.ElectLeadersRequest(
        topic_partitions=[k43.TopicPartitions(topic="a", partitions=[0, 7])]
    ),
    44: k44.IncrementalAlterConfigsRequest(
        resources=[
            k44.AlterConfigsResource(resource_type=2, resource_name="a"),
            k44.AlterConfigsResource(resource_type=4, resource_name=""),
        ]
    ),
    45: k45.AlterPartitionReassignmentsRequest(
        topics=[
            k45.ReassignableTopic(
                name="a",
                partitions=[k45.ReassignablePartition(), k45.ReassignablePartition()],
            )
        ]
    ),
    49: k49.AlterClientQuotasRequest(
        entries=[
            k49.RequestEntryData(entity=[k49.EntityData(entity_type="user", entity_name=None)]),
            k49.RequestEntryData(entity=[k49.EntityData(entity_type="ip", entity_name="::1")]),
        ]
    ),
    51: k51.AlterUserScramCredentialsRequest(
        deletions=[k51.ScramCredentialDeletion(name="ann", mechanism=1)],
        upsertions=[
            k51.ScramCredentialUpsertion(name="ann", mechanism=2),
            k51.ScramCredentialUpsertion(name="bob", mechanism=1),
        ],
    ),
}


def request_for(key: int, version: int) -> Request:
    if key == 20 and version < 6:
        return k20.DeleteTopicsRequest(topic_names=["a", "b"])
    return REQUESTS.get(key) or API[key].request_class()


@pytest.mark.parametrize(("key", "version"), versions(*CONTROLLER_APIS, 63))
def test_a_refusal_is_told_in_the_api_s_own_way(key: int, version: int) -> None:
    """NET-66, NET-67: every item says it, and an answer with an error code of its own says it."""
    controller = ScriptedController(ErrorCode.NOT_CONTROLLER)
    table = handlers(controller)
    bench = Bench(table, authorizer=SUPER)
    response = bench.ask(request_for(key, version), version)
    (handler,) = [each for each in table if each.api_key == key]
    codes = list(handler.error_codes(response))
    if key == 43 and version == 0:
        codes.remove(ErrorCode.NONE)
    item_count = 2 if key in REQUESTS else 0
    assert set(codes) == {ErrorCode.NOT_CONTROLLER}
    assert len(codes) == item_count + (
        hasattr(response, "error_code") and (key, version) != (43, 0)
    )
    assert marked(bench, key) >= 1


def marked(bench: Bench, key: int) -> float:
    tags = (("request", API[key].name), ("error", "NOT_CONTROLLER"))
    meter = bench.registry.get(MetricName("kafka.network", "RequestMetrics", "ErrorsPerSec", tags))
    assert isinstance(meter, Meter)
    return meter.count


def test_items_are_named_in_a_failure() -> None:
    bench = Bench(handlers(ScriptedController(ErrorCode.REQUEST_TIMED_OUT)), authorizer=SUPER)
    created: Any = bench.ask(REQUESTS[19], 7)
    assert [(topic.name, topic.error_message) for topic in created.topics] == [
        ("a", "by script"),
        ("b", "by script"),
    ]
    deleted: Any = bench.ask(REQUESTS[20], 6)
    assert [(topic.name, topic.topic_id) for topic in deleted.responses] == [
        ("a", Uuid(bytes(16))),
        (None, ID),
    ]
    altered: Any = bench.ask(REQUESTS[44], 1)
    assert [(each.resource_type, each.resource_name) for each in altered.responses] == [
        (2, "a"),
        (4, ""),
    ]
    elected: Any = bench.ask(REQUESTS[43], 2)
    (topic,) = elected.replica_election_results
    assert [each.partition_id for each in topic.partition_result] == [0, 7]
    everywhere: Any = bench.ask(k43.ElectLeadersRequest(topic_partitions=None), 2)
    assert everywhere.error_code == ErrorCode.REQUEST_TIMED_OUT
    quotas: Any = bench.ask(REQUESTS[49], 1)
    assert [entry.entity[0].entity_name for entry in quotas.entries] == [None, "::1"]
    users: Any = bench.ask(REQUESTS[51], 0)
    assert [each.user for each in users.results] == ["ann", "bob"]


def test_the_controller_learns_who_asks_and_until_when() -> None:
    controller = ScriptedController()
    channel = RecordingChannel(principal="User:ann", client_host="10.1.2.3")
    bench = Bench(
        handlers(controller), channel=channel, authorizer=StandardAuthorizer(["User:ann"])
    )
    before_ms = RealClock().monotonic_ms()
    bench.ask(REQUESTS[19], 5)
    bench.ask(REQUESTS[30], 3)
    (_, creator), (_, other) = controller.asked
    assert (creator.api_version, creator.principal) == (5, "User:ann")
    assert (creator.client_id, creator.client_host) == ("test", "10.1.2.3")
    assert creator.deadline_ms is not None
    assert before_ms + 777 <= creator.deadline_ms <= RealClock().monotonic_ms() + 777
    assert other.deadline_ms is None


def test_an_answer_that_comes_later() -> None:
    answer = k19.CreateTopicsResponse(topics=[k19.CreatableTopicResult(name="a", topic_id=ID)])
    controller = ScriptedController(answer=answer, is_slow=True)
    sent = Bench(handlers(controller)).serve(payload(REQUESTS[19], 7))
    assert sent.outcome == ""
    controller.reply()
    _, response = decode_response(k19.CreateTopicsResponse, 7, sent.sent[4:])
    assert [topic.topic_id for topic in response.topics] == [ID]


class Heartbeats:
    """Brokers that send heartbeats, over as many connections as they like."""

    def __init__(self, controller: ScriptedController) -> None:
        self.controller = controller
        self.handler = BrokerHeartbeatHandler(controller, RealClock(), view_of())

    def beat(self, channel: RecordingChannel, broker_id: int) -> RecordingAnswer:
        bench = Bench([self.handler], channel=channel)
        request = k63.BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=5)
        return bench.serve(payload(request, 2))

    @property
    def ends(self) -> list[int]:
        return [number for event, number in self.controller.events if event == "disconnected"]


def accepting() -> ScriptedController:
    return ScriptedController(answer=k63.BrokerHeartbeatResponse())


def test_a_heartbeat_is_a_contact_before_it_is_a_request() -> None:
    """However long the queue is, the broker was alive when it came."""
    heartbeats = Heartbeats(accepting())
    heartbeats.beat(RecordingChannel(), 4)
    assert heartbeats.controller.events == [("contact", 4), ("submit", 4)]


def test_the_end_of_the_heartbeats_connection_is_reported() -> None:
    """Decision 14: once for each broker, and only if it has not come by another one since."""
    heartbeats = Heartbeats(accepting())
    old, new, stranger = RecordingChannel(), RecordingChannel(), RecordingChannel()
    for _ in range(3):
        heartbeats.beat(old, 4)
    heartbeats.beat(old, 5)
    heartbeats.beat(stranger, 6)
    assert len(old.on_end_callbacks) == 1
    heartbeats.beat(new, 4)
    old.end()
    assert heartbeats.ends == [5]
    new.end()
    assert heartbeats.ends == [5, 4]
    stranger.end()
    assert heartbeats.ends == [5, 4, 6]


def test_connections_in_turns_leave_one_callback_each() -> None:
    heartbeats = Heartbeats(accepting())
    first, second = RecordingChannel(), RecordingChannel()
    for _ in range(10):
        heartbeats.beat(first, 4)
        heartbeats.beat(second, 4)
    assert (len(first.on_end_callbacks), len(second.on_end_callbacks)) == (1, 1)
    first.end()
    assert heartbeats.ends == []
    second.end()
    assert heartbeats.ends == [4]


@pytest.mark.parametrize(
    "controller",
    [
        ScriptedController(ErrorCode.NOT_CONTROLLER),
        ScriptedController(
            answer=k63.BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        ),
    ],
)
def test_refused_heartbeats_say_nothing_about_a_broker(controller: ScriptedController) -> None:
    """Anybody could have sent them, for any number of brokers."""
    heartbeats = Heartbeats(controller)
    channel = RecordingChannel()
    for broker_id in range(100):
        heartbeats.beat(channel, broker_id)
    assert channel.on_end_callbacks == []


def test_a_connection_that_ends_while_its_heartbeat_waits() -> None:
    """A network that has closed the channel calls back at once; the broker is reported."""

    class ClosedChannel(RecordingChannel):
        def on_end(self, callback: Any) -> None:
            callback()

    controller = accepting()
    controller.is_slow = True
    heartbeats = Heartbeats(controller)
    heartbeats.beat(ClosedChannel(), 4)
    controller.reply()
    assert heartbeats.ends == [4]
