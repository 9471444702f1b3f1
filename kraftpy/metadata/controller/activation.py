"""What a controller writes when its leadership begins, before it serves anybody.

On an empty log these are the records that a cluster starts with, as one transaction in one batch.
A transaction that an earlier controller left open is aborted first; what it held never happened.

Then every replica on a broker that isn't there is taken out of leadership and ISR, and partitions
without a leader get one if they can, whatever the controllers before have left undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.leader_and_isr import leader_and_isr_changes
from kraftpy.metadata.controller.result import ControllerResult, Outcome, Part, in_parts
from kraftpy.metadata.features import ELIGIBLE_LEADER_REPLICAS, TRANSACTIONS_LEVEL
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import (
    METADATA_VERSION,
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    ConfigResourceType,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
)

__all__ = ["activation_records", "take_absent_offline"]

_MIN_ISR: Final = "min.insync.replicas"


def activation_records(
    image: MetadataImage,
    bootstrap: tuple[MetadataRecord, ...],
    static_configs: Mapping[str, str],
    *,
    has_open_transaction: bool,
) -> tuple[MetadataRecord, ...]:
    """One atomic batch; none if the log is in order as it is.

    An image without a metadata.version is that of an empty log.
    """
    records: list[MetadataRecord] = []
    if has_open_transaction:
        records.append(AbortTransactionRecord("the controller that began it is gone"))
    if image.metadata_version == 0 and bootstrap:
        levels = {
            record.name: record.feature_level
            for record in bootstrap
            if isinstance(record, FeatureLevelRecord)
        }
        first = list(bootstrap)
        if levels.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0:
            # With eligible leader replicas every controller must judge by the same minimum,
            # whatever its own file says.
            value = static_configs.get(_MIN_ISR, "1")
            first.append(ConfigRecord(ConfigResourceType.BROKER, "", _MIN_ISR, value))
        if levels.get(METADATA_VERSION, 0) >= TRANSACTIONS_LEVEL:
            first = [BeginTransactionRecord("Bootstrap records"), *first, EndTransactionRecord()]
        records += first
    return tuple(records)


def take_absent_offline(context: ControllerContext) -> Outcome[None]:
    """Take every fenced broker out of what it leads and is in sync with."""
    fenced = [broker.broker_id for broker in context.image.brokers.values() if broker.fenced]
    return _take_offline(context, fenced)


def _take_offline(context: ControllerContext, broker_ids: list[int]) -> Outcome[None]:
    if not broker_ids:
        return ControllerResult((), None)
    first, *others = broker_ids

    def go_on(records: tuple[PartitionChangeRecord, ...], _: int) -> Outcome[None]:
        # The next one's changes are made out of what this one's have left.
        return Part(records, lambda _: _take_offline(context, others))

    partitions = context.partitions.with_isr_member(first)
    changes = leader_and_isr_changes(context, removing=first, partitions=partitions)
    return in_parts(changes, context.settings.partitions_at_once, go_on, 0)
