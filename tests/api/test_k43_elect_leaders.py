"""ElectLeaders on a broker: answered when the broker's own metadata shows what was elected."""

from __future__ import annotations

from typing import Any

import pytest
from api.image_cluster import bench_of, broker, image_of, topic, topic_id, view_of
from api.recording import RecordingAnswer, payload
from purgatory.waiting import Place

from kraftpy.api.k43_elect_leaders import ElectLeadersHandler
from kraftpy.broker.envelope import Sender, joined
from kraftpy.broker.forwarder import ForwardingReply
from kraftpy.metadata import records as r
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_request_header, decode_response, encode_response
from kraftpy.protocol.schema import k43_elect_leaders as k43
from kraftpy.world import Buffer

PREFERRED, UNCLEAN = 0, 1
TIMEOUT_MS = 5_000


class ElectingController:
    """Says of each partition what it was told to say."""

    def __init__(self, codes: dict[int, ErrorCode]) -> None:
        self.codes = codes

    def forward(
        self, frame: Buffer, sender: Sender, reply: ForwardingReply, *, timeout_ms: int
    ) -> None:
        header, _ = decode_request_header(frame)
        results = [
            k43.PartitionResult(partition_id=index, error_code=code)
            for index, code in self.codes.items()
        ]
        response = k43.ElectLeadersResponse(
            replica_election_results=[
                k43.ReplicaElectionResult(topic="t", partition_result=results)
            ]
        )
        version = header.request_api_version
        reply(joined(encode_response(response, version, header.correlation_id)))


class Scene:
    """A broker that follows behind: partitions 0 and 1 of `t` are led by 2, preferred is 1."""

    def __init__(self, codes: dict[int, ErrorCode], election_type: int = PREFERRED) -> None:
        self.view = view_of(broker(1), broker(2), *topic("t", (1, 2), (1, 2)))
        self.elect(0, 2)
        self.elect(1, 2)
        self.place = Place()
        controller: Any = ElectingController(codes)
        purgatory: Any = self.place.purgatory
        self.bench = bench_of(ElectLeadersHandler(controller, self.view, purgatory))
        request = k43.ElectLeadersRequest(
            election_type=election_type, topic_partitions=None, timeout_ms=TIMEOUT_MS
        )
        self.answer: RecordingAnswer = self.bench.serve(payload(request, 2))

    def elect(self, partition: int, leader: int) -> None:
        change = r.PartitionChangeRecord(partition, topic_id("t"), leader=leader)
        self.view.image = image_of(change, base=self.view.image)

    def show(self, partition: int, leader: int) -> None:
        self.elect(partition, leader)
        self.place.purgatory.check_and_complete(("t", partition))

    def codes(self) -> dict[int, str]:
        assert self.answer.outcome == "sent"
        _, response = decode_response(k43.ElectLeadersResponse, 2, self.answer.sent[4:])
        [found] = response.replica_election_results
        return {
            each.partition_id: ErrorCode(each.error_code).name for each in found.partition_result
        }


def test_the_answer_waits_for_the_metadata() -> None:
    """PUR-58: of every partition that was elected; errors are known before."""
    scene = Scene({0: ErrorCode.NONE, 1: ErrorCode.NONE, 7: ErrorCode.ELECTION_NOT_NEEDED})
    assert scene.answer.outcome == ""
    scene.show(0, 1)
    assert scene.answer.outcome == ""
    scene.show(1, 1)
    assert scene.codes() == {0: "NONE", 1: "NONE", 7: "ELECTION_NOT_NEEDED"}


def test_what_is_not_shown_in_time() -> None:
    """PUR-58: REQUEST_TIMED_OUT for that one alone."""
    scene = Scene({0: ErrorCode.NONE, 1: ErrorCode.NONE})
    scene.show(1, 1)
    scene.place.pass_time(TIMEOUT_MS)
    assert scene.codes() == {0: "REQUEST_TIMED_OUT", 1: "NONE"}


@pytest.mark.parametrize(
    "code", [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.NOT_CONTROLLER]
)
def test_where_nothing_was_elected_nothing_is_waited_for(code: ErrorCode) -> None:
    assert Scene({0: code}).codes() == {0: code.name}


def test_any_leader_will_do_after_an_unclean_election() -> None:
    assert Scene({0: ErrorCode.NONE}, UNCLEAN).codes() == {0: "NONE"}


def test_a_topic_that_was_removed_since() -> None:
    scene = Scene({0: ErrorCode.NONE})
    scene.view.image = image_of(r.RemoveTopicRecord(topic_id("t")), base=scene.view.image)
    scene.place.purgatory.check_and_complete(("t", 0))
    assert scene.codes() == {0: "NONE"}
