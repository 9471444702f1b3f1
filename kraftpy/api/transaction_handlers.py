"""The handlers of transactions, put together: a broker's listeners serve them beside the others."""

from __future__ import annotations

from kraftpy.api.handler import Handler
from kraftpy.api.k22_init_producer_id import InitProducerIdHandler
from kraftpy.api.k24_add_partitions_to_txn import AddPartitionsToTxnHandler
from kraftpy.api.k25_add_offsets_to_txn import AddOffsetsToTxnHandler
from kraftpy.api.k26_end_txn import EndTxnHandler
from kraftpy.api.k27_write_txn_markers import WriteTxnMarkersHandler
from kraftpy.api.k28_txn_offset_commit import TxnOffsetCommitHandler
from kraftpy.api.k65_describe_transactions import DescribeTransactionsHandler
from kraftpy.api.k66_list_transactions import ListTransactionsHandler
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.broker.producer_ids import ProducerIds
from kraftpy.broker.transaction_parts import TransactionParts
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.runtime import CoordinatorRuntime

__all__ = ["transaction_handlers"]


def transaction_handlers(
    parts: TransactionParts,
    *,
    producer_ids: ProducerIds,
    cluster: BrokerMetadata,
    replicas: HostedReplicas,
    groups: CoordinatorRuntime[GroupMachine],
    group_lookup: CoordinatorLookup,
) -> list[Handler]:
    service = parts.service
    return [
        InitProducerIdHandler(producer_ids, service),
        AddPartitionsToTxnHandler(service, cluster),
        AddOffsetsToTxnHandler(service, group_lookup),
        EndTxnHandler(service),
        WriteTxnMarkersHandler(parts.writer),
        TxnOffsetCommitHandler(
            groups, group_lookup, replicas=replicas, cluster=cluster, verifier=parts.verifier
        ),
        DescribeTransactionsHandler(service),
        ListTransactionsHandler(service, parts.host.defer),
    ]
