"""A core whose coordinator is the test: it sees each request, and says what comes of it.

What is not about groups or transactions is answered by a FakeCluster at once.
"""

from __future__ import annotations

from typing import Any, TypeVar

from client.fake_cluster import FakeCluster

from kraftpy.client.calls import Call, ClientCore, TopicPartition
from kraftpy.client.errors import ConnectionLost, Evidence
from kraftpy.client.group_core import GroupCore
from kraftpy.client.group_member import Rebalance
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema import k01_fetch as k01
from kraftpy.protocol.schema import k02_list_offsets as k02
from kraftpy.protocol.schema import k03_metadata as k03
from kraftpy.protocol.schema import k09_offset_fetch as k09
from kraftpy.protocol.schema import k10_find_coordinator as k10
from kraftpy.protocol.tables import Request, Response

R = TypeVar("R", bound=Request)

OF_CLUSTER = (k01.FetchRequest, k02.ListOffsetsRequest, k03.MetadataRequest)
MAX_TURNS = 200


class Script:
    def __init__(self, core: ClientCore, cluster: FakeCluster) -> None:
        self.core = core
        self.cluster = cluster
        self.now_ms = 10_000
        self.waiting: list[Call] = []
        self.coordinator = 1
        self.committed: dict[TopicPartition, int] = {}
        self.seen: list[Request] = []
        self.answers_fetches = True

    def turn(self) -> None:
        """Until the core has nothing more to ask of anybody but the test."""
        for _ in range(MAX_TURNS):
            calls = self.core.calls(self.now_ms)
            if not calls:
                return
            for call in calls:
                self._take(call)
        raise AssertionError("the core never stops asking")

    def _take(self, call: Call) -> None:
        self.seen.append(call.message)
        addresses = {address: node_id for node_id, address in self.cluster.addresses.items()}
        node_id = addresses[call.address]
        match call.message:
            case k10.FindCoordinatorRequest(coordinator_keys=[key]):
                host, port = self.cluster.addresses[self.coordinator]
                found = k10.Coordinator(key=key, node_id=self.coordinator, host=host, port=port)
                call.answered(k10.FindCoordinatorResponse(coordinators=[found]), self.now_ms)
            case k09.OffsetFetchRequest() if self.answers_fetches:
                call.answered(self._fetch_offsets(call.message), self.now_ms)
            case k01.FetchRequest() as request:
                answer = self.cluster.handle(node_id, request)
                if any(each.records for topic in answer.responses for each in topic.partitions):
                    call.answered(answer, self.now_ms)
            case message if isinstance(message, OF_CLUSTER):
                call.answered(self.cluster.handle(node_id, message), self.now_ms)
            case _:
                assert node_id == self.coordinator or call.lane == "", "not the coordinator"
                self.waiting.append(call)

    def _fetch_offsets(self, request: k09.OffsetFetchRequest) -> Response:
        [group] = request.groups
        names = {topic_id: name for name, topic_id in self.cluster.topic_ids.items()}
        topics = []
        for topic in group.topics or ():
            assert topic.topic_id != ZERO_UUID
            name = names[topic.topic_id]
            partitions = [
                k09.OffsetFetchResponsePartitions(
                    partition_index=number,
                    committed_offset=self.committed.get(TopicPartition(name, number), -1),
                )
                for number in topic.partition_indexes
            ]
            topics.append(
                k09.OffsetFetchResponseTopics(topic_id=topic.topic_id, partitions=partitions)
            )
        answer = k09.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
        return k09.OffsetFetchResponse(groups=[answer])

    def asks(self, kind: type[Request]) -> bool:
        self.turn()
        return any(isinstance(call.message, kind) for call in self.waiting)

    def expect(self, kind: type[R]) -> tuple[Call, R]:
        """The one request of this kind that waits."""
        self.turn()
        found = [call for call in self.waiting if isinstance(call.message, kind)]
        assert len(found) == 1, f"{kind.__name__}: {[call.message for call in self.waiting]}"
        self.waiting.remove(found[0])
        return found[0], found[0].message  # type: ignore[return-value]

    def answer(self, kind: type[R], response: Any) -> R:
        """Answer it; what it said."""
        call, message = self.expect(kind)
        call.answered(response, self.now_ms)
        self.turn()
        return message

    def lose(self, kind: type[R]) -> R:
        """Its answer never comes."""
        call, message = self.expect(kind)
        call.failed(ConnectionLost(Evidence.BROKEN, "by the test"), self.now_ms)
        return message

    def wait(self, milliseconds: int) -> None:
        """Time passes, in the steps in which the core wants to be woken."""
        end_ms = self.now_ms + milliseconds
        for _ in range(MAX_TURNS):
            self.turn()
            wake_at_ms = self.core.wake_at_ms()
            if wake_at_ms is None or wake_at_ms > end_ms:
                break
            assert wake_at_ms > self.now_ms, "a shell would spin"
            self.now_ms = wake_at_ms
        else:
            raise AssertionError("woken too often")
        self.now_ms = end_ms
        self.turn()


def poll(script: Script, group: GroupCore) -> list[Rebalance]:
    """A poll that hears of everything and comes back at once."""
    group.poll_begins(script.now_ms)
    heard = []
    script.turn()
    while (event := group.next_event(script.now_ms)) is not None:
        group.begin(event, script.now_ms)
        group.acknowledge(event)
        heard.append(event)
        script.turn()
    group.poll_ends(script.now_ms)
    script.turn()
    return heard
