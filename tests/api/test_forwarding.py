"""Administrative requests to a broker: served by the controller, wherever it is, as if sent there.

The controller is the real one, on a quorum of one voter, behind our own network in memory; what
only a controller of another mind would do is scripted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from api.every_handler import on_controllers
from api.forwarding_rig import (
    Cluster,
    Leader,
    forwarding_cluster,
    register_broker,
    serving,
)
from api.scripted_controller import ScriptedController
from client.peers import Script, ScriptedConnection, scripted_server

from kraftpy.client.errors import ConnectionLost, Evidence
from kraftpy.net.listener import ListenerSettings
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k18_api_versions as k18
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k30_create_acls as k30
from kraftpy.protocol.schema import k46_list_partition_reassignments as k46
from kraftpy.protocol.schema import k55_describe_quorum as k55
from kraftpy.protocol.schema import k58_envelope as k58
from kraftpy.protocol.schema import k60_describe_cluster as k60
from kraftpy.protocol.schema import k63_broker_heartbeat as k63


def creation(*names: str, timeout_ms: int = 30_000) -> k19.CreateTopicsRequest:
    topics = [
        k19.CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names
    ]
    return k19.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)


@asynccontextmanager
async def ready_cluster() -> AsyncIterator[Cluster]:
    async with forwarding_cluster() as cluster:
        await trio.sleep(10)
        await register_broker(cluster, await cluster.at_controller())
        yield cluster


async def test_topics_are_created_and_deleted_through_any_broker(autojump_clock: object) -> None:
    """KRF-130: what the answer says is committed, and its item errors are the controller's."""
    async with ready_cluster() as cluster:
        client = await cluster.client()
        created = await client.request(creation("a", "bad name", "b"))
        assert [(each.name, each.error_code) for each in created.topics] == [
            ("a", ErrorCode.NONE),
            ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("b", ErrorCode.NONE),
        ]
        assert list(cluster.context.stable.topics) == ["a", "b"]
        again = await client.request(creation("a"))
        assert [each.error_code for each in again.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]
        deleted = await client.request(
            k20.DeleteTopicsRequest(topics=[k20.DeleteTopicState(name="a")], timeout_ms=30_000)
        )
        assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE]
        assert list(cluster.context.stable.topics) == ["b"]


async def test_reads_that_only_the_leader_can_answer(autojump_clock: object) -> None:
    async with ready_cluster() as cluster:
        client = await cluster.client()
        moves = await client.request(k46.ListPartitionReassignmentsRequest())
        assert (moves.error_code, moves.topics) == (ErrorCode.NONE, [])
        topic = k55.RequestTopicData(
            topic_name="__cluster_metadata", partitions=[k55.RequestPartitionData()]
        )
        quorum = await client.request(k55.DescribeQuorumRequest(topics=[topic]))
        assert quorum.error_code == ErrorCode.NONE
        assert quorum.topics[0].partitions[0].leader_id == 1


async def test_the_order_of_one_client_s_requests(autojump_clock: object) -> None:
    """Pipelined by the client, carried out and answered in order."""
    async with ready_cluster() as cluster:
        client = await cluster.client()
        codes: list[int] = []

        async def create(name: str) -> None:
            created = await client.request(creation(name))
            codes.append(created.topics[0].error_code)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(create, "a")
        assert sorted(codes) == [ErrorCode.NONE] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 4


@asynccontextmanager
async def standby(cluster: Cluster) -> AsyncIterator[tuple[Leader, ScriptedController]]:
    """Another controller's listener, on a node that isn't active."""
    controller = ScriptedController(ErrorCode.NOT_CONTROLLER)
    registry = MetricRegistry()
    async with serving(
        cluster.places.world("standby"),
        ListenerSettings("C", "standby", 0),
        on_controllers(controller, registry),
        cluster.metadata,
        RequestMetrics(registry),
    ) as port:
        yield (2, "standby", port), controller


async def test_a_request_finds_the_new_controller(autojump_clock: object) -> None:
    """KRF-130: during a failover clients wait, and never hear of it."""
    async with ready_cluster() as cluster, standby(cluster) as (elsewhere, controller):
        cluster.leader = elsewhere
        client = await cluster.client()

        async def elect() -> None:
            await trio.sleep(1)
            cluster.leader = None
            await trio.sleep(1)
            cluster.leader = cluster.controller

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(elect)
            created = await client.request(creation("a"))
        assert [each.error_code for each in created.topics] == [ErrorCode.NONE]
        assert trio.current_time() - began < 2.5
        assert len(controller.asked) >= 2


async def test_a_request_that_was_lost_is_sent_again(autojump_clock: object) -> None:
    """As in Kafka, also if it was carried out: the client may read that the topic exists."""
    async with ready_cluster() as cluster:
        seen: list[int] = []

        async def breaks_off(connection: ScriptedConnection) -> None:
            await connection.negotiate()
            seen.append((await connection.read_request())[0])
            cluster.leader = cluster.controller

        async with scripted_server(cluster.places.world("old"), "old", breaks_off) as (_, port):
            cluster.leader = (2, "old", port)
            client = await cluster.client()
            created = await client.request(creation("a"))
        assert seen == [58]
        assert [each.error_code for each in created.topics] == [ErrorCode.NONE]


@pytest.mark.parametrize(("timeout_ms", "seconds"), [(1_500, 1.5), (600_000, 60), (-1, 60)])
async def test_no_controller_in_time(
    autojump_clock: object, timeout_ms: int, seconds: float
) -> None:
    """As long as the client waits, and never longer than a minute; each item says it."""
    async with forwarding_cluster() as cluster:
        cluster.leader = None
        client = await cluster.client()
        began = trio.current_time()
        request = creation("a", "b", timeout_ms=timeout_ms)
        created = await client.request(request, timeout_ms=120_000)
        assert trio.current_time() - began == pytest.approx(seconds, abs=0.2)
        assert [(each.name, each.error_code) for each in created.topics] == [
            ("a", ErrorCode.REQUEST_TIMED_OUT),
            ("b", ErrorCode.REQUEST_TIMED_OUT),
        ]


def answers_envelopes(answer: k58.EnvelopeResponse) -> Script:
    async def script(connection: ScriptedConnection) -> None:
        await connection.negotiate()
        while True:
            _, version, correlation_id = await connection.read_request()
            await connection.answer(answer, version, correlation_id)

    return script


async def test_a_version_that_the_controller_doesn_t_know_ends_the_connection(
    autojump_clock: object,
) -> None:
    """KRF 18.2: so that the client negotiates again."""
    async with forwarding_cluster() as cluster:
        refusal = k58.EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        script = answers_envelopes(refusal)
        async with scripted_server(cluster.places.world("old"), "old", script) as (_, port):
            cluster.leader = (2, "old", port)
            client = await cluster.client()
            with pytest.raises(ConnectionLost) as lost:
                await client.request(creation("a"))
            assert lost.value.evidence is Evidence.BROKEN
            await (await cluster.client()).request(k60.DescribeClusterRequest())


@pytest.mark.parametrize(
    "answer",
    [
        k58.EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        k58.EnvelopeResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            response_data=b"\0\0\0\1\0\0\0\0\0\1\0",
        ),
        k58.EnvelopeResponse(error_code=ErrorCode.NONE, response_data=None),
        k58.EnvelopeResponse(error_code=ErrorCode.NONE, response_data=b"\0\0"),
        k58.EnvelopeResponse(error_code=ErrorCode.NONE, response_data=b"\0\0\0\1\0\xff\xff\xff"),
    ],
)
async def test_other_failures_are_the_server_s(
    autojump_clock: object, answer: k58.EnvelopeResponse
) -> None:
    async with forwarding_cluster() as cluster:
        script = answers_envelopes(answer)
        async with scripted_server(cluster.places.world("old"), "old", script) as (_, port):
            cluster.leader = (2, "old", port)
            client = await cluster.client()
            created = await client.request(creation("a"))
            assert [each.error_code for each in created.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]
            acls = await client.request(k30.CreateAclsRequest(creations=[k30.AclCreation()]))
            assert [each.error_code for each in acls.results] == [ErrorCode.UNKNOWN_SERVER_ERROR]


async def test_api_versions_show_what_both_sides_know(autojump_clock: object) -> None:
    """KRF 18.2: the broker's own range until it knows the controller's."""

    async def old_controller(connection: ScriptedConnection) -> None:
        _, version, correlation_id = await connection.read_request()
        offered = [(19, 0, 5), (20, 9, 12), (58, 0, 0)]
        keys = [
            k18.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in offered
        ]
        await connection.answer(k18.ApiVersionsResponse(api_keys=keys), version, correlation_id)
        while True:
            _, version, correlation_id = await connection.read_request()
            refusal = k58.EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
            await connection.answer(refusal, version, correlation_id)

    async with forwarding_cluster() as cluster:
        world = cluster.places.world("old")
        async with scripted_server(world, "old", old_controller) as (_, port):
            cluster.leader = (2, "old", port)
            client = await cluster.client()
            before = dict(client.core.versions)
            assert (before[19], before[20], before[37]) == ((2, 7), (1, 6), (0, 3))
            await client.request(creation("a"))
            after = (await cluster.client()).core.versions
            assert after[19] == (2, 5)
            assert 20 not in after
            assert 37 not in after
            assert after[60] == before[60]


async def test_the_end_of_a_heartbeat_s_connection_fences_a_dead_broker(
    autojump_clock: object,
) -> None:
    """Decision 14: broken connection and refused listener, long before the session is over."""
    async with forwarding_cluster() as cluster:
        await trio.sleep(10)
        connection = await cluster.at_controller("dying")
        await register_broker(cluster, connection)
        registered = cluster.context.stable.brokers
        assert not registered[1].fenced
        beat = k63.BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=registered[1].broker_epoch,
            current_metadata_offset=1 << 40,
        )
        await connection.request(beat)
        # Its listener is the broker's, which is up: a broken connection alone proves nothing.
        connection.close()
        await trio.sleep(1)
        assert not cluster.context.stable.brokers[1].fenced
        other = await cluster.at_controller("dying")
        await other.request(beat)
        cluster.places.fabric.kill("broker")
        other.close()
        await trio.sleep(1)
        assert cluster.context.stable.brokers[1].fenced
