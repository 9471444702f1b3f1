"""What a transactional producer says to coordinators, and how their answers are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import error_code
from kraftpy.client.group_member import GroupMetadata
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.producer_batch import Identity
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k22_init_producer_id import InitProducerIdRequest
from kraftpy.protocol.schema.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kraftpy.protocol.schema.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from kraftpy.protocol.schema.k26_end_txn import EndTxnRequest
from kraftpy.protocol.schema.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

__all__ = [
    "LAST_ADD_PARTITIONS_OF_CLIENTS",
    "add_offsets",
    "add_partitions",
    "codes_of_offsets",
    "codes_of_partitions",
    "commit_offsets",
    "end_transaction",
    "init_producer",
]

# Later versions are for brokers, which ask for several producers at once.
LAST_ADD_PARTITIONS_OF_CLIENTS: Final = 3


def init_producer(
    transactional_id: str, timeout_ms: int, identity: Identity | None
) -> InitProducerIdRequest:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    if identity is not None:
        request.producer_id, request.producer_epoch = identity
    return request


def add_partitions(
    transactional_id: str, identity: Identity, wheres: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, partition in wheres:
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=list(topics.values()),
    )


def codes_of_partitions(answer: AddPartitionsToTxnResponse) -> list[ErrorCode]:
    return [
        error_code(each.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]


def add_offsets(transactional_id: str, identity: Identity, group_id: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )


def commit_offsets(
    transactional_id: str,
    identity: Identity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: GroupMetadata,
) -> TxnOffsetCommitRequest:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (name, partition), offset in offsets.items():
        topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name)).partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=list(topics.values()),
    )


def codes_of_offsets(answer: TxnOffsetCommitResponse) -> list[ErrorCode]:
    return [error_code(each.error_code) for topic in answer.topics for each in topic.partitions]


def end_transaction(transactional_id: str, identity: Identity, *, is_commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=is_commit,
    )
