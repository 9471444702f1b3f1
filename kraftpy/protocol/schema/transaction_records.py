"""What the transaction coordinator writes into `__transaction_state`."""

from __future__ import annotations

from kraftpy.protocol.tables import (
    ALL,
    RecordKey,
    RecordValue,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
)


class TransactionLogKey(RecordKey, key=0, versions="0", flexible="none"):
    """A transactional id."""

    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(RecordValue, key=0, versions="0-1", flexible="1+"):
    """Its producer, and the state of its transaction."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1)
    next_producer_id: int = int64("1+", tag=1, default=-1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", tag=3, default=-1)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable=ALL)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)
