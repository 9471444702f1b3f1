"""DescribeQuorum: what the leader knows of everybody's progress (section 10)."""

from __future__ import annotations

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k55_describe_quorum as describe_quorum
from kraftpy.raft import rpc
from kraftpy.raft.quorum import Quorum
from kraftpy.raft.roles import Leader, Progress
from kraftpy.raft.voters import ReplicaKey

__all__ = ["OBSERVER_FORGOTTEN_MS", "answer_describe_quorum"]

OBSERVER_FORGOTTEN_MS = 300_000


def answer_describe_quorum(
    quorum: Quorum, request: describe_quorum.DescribeQuorumRequest
) -> describe_quorum.DescribeQuorumResponse:
    asked = rpc.single_partition([(each.topic_name, each.partitions) for each in request.topics])
    if asked is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return describe_quorum.DescribeQuorumResponse(error_code=error, error_message=error.message)
    role = quorum.role
    answer = describe_quorum.ResponsePartitionData(
        partition_index=rpc.METADATA_PARTITION, error_message=None
    )
    if not isinstance(role, Leader):
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer.error_message = ErrorCode.NOT_LEADER_OR_FOLLOWER.message
    else:
        answer.leader_id = quorum.local.node_id
        answer.leader_epoch = quorum.epoch
        answer.high_watermark = -1 if role.high_watermark is None else role.high_watermark
        voters = quorum.voters.latest
        answer.current_voters = [
            _state(quorum, voter.key, role.progress.get(voter.key)) for voter in voters.voters
        ]
        answer.observers = [
            _state(quorum, key, progress)
            for key, progress in sorted(role.progress.items())
            if not voters.contains(key)
            and quorum.now_ms - progress.last_fetch_ms < OBSERVER_FORGOTTEN_MS
        ]
    topic = describe_quorum.ResponseTopicData(topic_name=rpc.METADATA_TOPIC, partitions=[answer])
    return describe_quorum.DescribeQuorumResponse(
        error_message=None,
        topics=[topic],
        nodes=[
            describe_quorum.Node(
                node_id=voter.key.node_id,
                listeners=[
                    describe_quorum.Listener(name=each.name, host=each.host, port=each.port)
                    for each in voter.endpoints
                ],
            )
            for voter in quorum.voters.latest.voters
        ],
    )


def _state(
    quorum: Quorum, key: ReplicaKey, progress: Progress | None
) -> describe_quorum.ReplicaState:
    state = describe_quorum.ReplicaState(
        replica_id=key.node_id, replica_directory_id=key.directory_id, log_end_offset=-1
    )
    if key.node_id == quorum.local.node_id:
        state.log_end_offset = quorum.log.end_offset
        state.last_fetch_timestamp = state.last_caught_up_timestamp = quorum.wall_ms
    elif progress is not None:
        offset_ms = quorum.config.wall_offset_ms
        state.log_end_offset = progress.end_offset
        state.last_fetch_timestamp = progress.last_fetch_ms + offset_ms
        if progress.last_caught_up_ms >= 0:
            state.last_caught_up_timestamp = progress.last_caught_up_ms + offset_ms
    return state
