"""A partition that has no leader for a while: its producer looks again, and goes on."""

from __future__ import annotations

from random import Random

import pytest

from kraftpy.client.producer_core import ProducerCore
from kraftpy.client.settings import ProducerSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k00_produce as k00
from kraftpy.protocol.schema import k03_metadata as k03

SETTINGS = ProducerSettings(enable_idempotence=False, linger_ms=0)


def metadata(leader_id: int, epoch: int) -> k03.MetadataResponse:
    error = ErrorCode.NONE if leader_id >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
    partition = k03.MetadataResponsePartition(
        error_code=error, leader_id=leader_id, leader_epoch=epoch, replica_nodes=[1, 2]
    )
    return k03.MetadataResponse(
        brokers=[k03.MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in (1, 2)],
        topics=[k03.MetadataResponseTopic(name="t", partitions=[partition])],
    )


def refusal(code: ErrorCode) -> k00.ProduceResponse:
    partition = k00.PartitionProduceResponse(index=0, error_code=code, base_offset=-1)
    topic = k00.TopicProduceResponse(name="t", partition_responses=[partition])
    return k00.ProduceResponse(responses=[topic])


@pytest.mark.parametrize("seed", range(10))
def test_a_record_in_its_pause_still_looks_for_a_leader(seed: int) -> None:
    """The old leader refuses; the picture that comes next has none, and the one after it another.

    Whether the record is in its pause when it learns that there is no leader is up to the seed.
    """
    core = ProducerCore([("b1", 9092)], SETTINGS, Random(seed))
    core.append("t", b"v", key=None, partition=0, timestamp_ms=0, headers=(), now_ms=0)
    pictures = [metadata(1, 5), metadata(-1, 5), metadata(2, 6)]
    now_ms = 0
    while True:
        calls = core.calls(now_ms)
        for call in calls:
            if isinstance(call.message, k03.MetadataRequest):
                call.answered(pictures.pop(0) if len(pictures) > 1 else pictures[0], now_ms)
            elif call.address == ("b1", 9092):
                call.answered(refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER), now_ms)
            else:
                assert call.address == ("b2", 9092)
                return
        if calls:
            # Something has happened, so that the core is asked again at once.
            continue
        wake_ms = core.wake_at_ms()
        assert wake_ms is not None
        assert wake_ms < now_ms + 5_000, "it has forgotten the record"
        now_ms = max(now_ms, wake_ms)
