"""Large Metadata answers: the same bytes, put together while others run."""

from __future__ import annotations

import pytest
import trio
from api.image_cluster import broker, topic, topic_id, view_of
from api.recording import Bench, RecordingAnswer, payload
from api.test_api_dispatch import error_count
from api.test_metadata_image import ALL_VERSIONS

from kraftpy.api.k03_metadata import MetadataHandler
from kraftpy.api.metadata_slices import SlicedTopics
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k03_metadata as k03


def large_cluster() -> BrokerMetadata:
    """Small topics, one that is larger than a slice, and one on a broker that is away."""
    small = [record for number in range(300) for record in topic(f"small-{number}", (1, 2))]
    return view_of(
        broker(1, rack="r"),
        broker(2),
        broker(3, fenced=True),
        *small,
        *topic("large", *[(1, 2)] * 600),
        *topic("lost", (3,), (1, 3)),
    )


async def serve(view: BrokerMetadata, frame: bytes) -> tuple[RecordingAnswer, int]:
    """The answer, and how often somebody else had the loop before it came."""
    turns = 0
    async with trio.open_nursery() as nursery:
        answer = Bench([MetadataHandler(view, spawn=nursery.start_soon)]).serve(frame)
        while not answer.outcome:
            turns += 1
            await trio.lowlevel.checkpoint()
    return answer, turns


def everything(version: int) -> k03.MetadataRequest:
    request = k03.MetadataRequest(topics=[] if version == 0 else None)
    request.include_topic_authorized_operations = version >= 8
    request.include_cluster_authorized_operations = 8 <= version <= 10
    return request


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_the_answer_is_the_same_byte_for_byte(version: int) -> None:
    view = large_cluster()
    frame = payload(everything(version), version)
    answer, turns = await serve(view, frame)
    assert answer.sent == Bench([MetadataHandler(view)]).serve(frame).sent
    # 902 partitions in slices of 250.
    assert turns >= 3


@pytest.mark.parametrize("version", [1, 9, 13])
async def test_topics_by_name_come_with_those_that_are_not_there(version: int) -> None:
    view = large_cluster()
    topics = [k03.MetadataRequestTopic(name=name) for name in ("gone", "large", "a b", "lost")]
    frame = payload(k03.MetadataRequest(topics=topics), version)
    answer, turns = await serve(view, frame)
    assert answer.sent == Bench([MetadataHandler(view)]).serve(frame).sent
    assert turns >= 2


async def test_topics_by_id_come_with_those_that_are_not_there() -> None:
    view = large_cluster()
    ids = [topic_id("gone"), topic_id("large")]
    topics = [k03.MetadataRequestTopic(topic_id=each, name=None) for each in ids]
    frame = payload(k03.MetadataRequest(topics=topics), 12)
    answer, _ = await serve(view, frame)
    assert answer.sent == Bench([MetadataHandler(view)]).serve(frame).sent


@pytest.mark.parametrize(("count", "is_at_once"), [(250, True), (251, False)])
async def test_only_large_answers_take_a_task(count: int, is_at_once: bool) -> None:
    view = view_of(broker(1), *topic("a", *[(1,)] * count))
    answer, turns = await serve(view, payload(everything(13), 13))
    assert (turns == 0) is is_at_once
    assert answer.outcome == "sent"


async def test_topics_are_written_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    write = SlicedTopics.append

    def append(self: SlicedTopics, topics: list[k03.MetadataResponseTopic]) -> None:
        sizes.append(sum(len(topic.partitions) for topic in topics))
        write(self, topics)

    monkeypatch.setattr(SlicedTopics, "append", append)
    records = [record for number in range(450) for record in topic(f"t{number}", (1,), (1,))]
    _, turns = await serve(view_of(broker(1), *records), payload(everything(13), 13))
    assert sizes == [250, 250, 250, 150]
    assert turns >= 3


async def test_errors_of_topics_are_counted() -> None:
    """As those of small answers are: one for each topic, and that of the answer."""
    view = large_cluster()
    topics = [k03.MetadataRequestTopic(name=name) for name in ("gone", "large")]
    frame = payload(k03.MetadataRequest(topics=topics), 13)
    counted: list[list[float]] = []
    for is_sliced in (False, True):
        async with trio.open_nursery() as nursery:
            spawn = nursery.start_soon if is_sliced else None
            bench = Bench([MetadataHandler(view, spawn=spawn)])
            bench.serve(frame)
        counted.append(
            [
                error_count(bench, "Metadata", code.name)
                for code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
            ]
        )
    assert counted == [[1, 2], [1, 2]]
