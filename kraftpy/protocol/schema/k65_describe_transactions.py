"""DescribeTransactions: transactions in detail."""

from __future__ import annotations

from kraftpy.protocol.tables import Request, Response, Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+"):
    """Ask for the state of transactional ids."""

    transactional_ids: list[str] = array(string)


class TopicData(Struct):
    topic: str = string(key=True)
    partitions: list[int] = array(int32)


class TransactionState(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    """State, producer and partitions of each."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
