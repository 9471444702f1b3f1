"""One partition of a Produce: what is appended where, and its place in the answer."""

from __future__ import annotations

from kraftpy.broker.partition import Partition, ReplicaError
from kraftpy.log.errors import LogError
from kraftpy.log.verifications import NO_GUARD, VerificationGuard
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k00_produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import RecordDataError
from kraftpy.world import Buffer

__all__ = ["ProduceAppend", "fail", "fail_by"]


class ProduceAppend:
    """`batch` is a view of the request's frame; only its header's fields outlive that."""

    __slots__ = ("batch", "guard", "partition", "records", "result")

    def __init__(
        self, partition: Partition, batch: RecordBatch, result: PartitionProduceResponse
    ) -> None:
        self.partition = partition
        self.batch = batch
        self.records: Buffer = batch.data
        self.guard: VerificationGuard = NO_GUARD
        self.result = result

    @property
    def has_failed(self) -> bool:
        return self.result.error_code != ErrorCode.NONE


def fail(result: PartitionProduceResponse, code: ErrorCode, message: str | None = None) -> None:
    result.error_code = code
    result.error_message = code.message if message is None else message


def fail_by(
    result: PartitionProduceResponse, error: ReplicaError | LogError | RecordDataError
) -> None:
    fail(result, error.error_code, str(error))
    if isinstance(error, RecordDataError):
        result.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=fault.batch_index, batch_index_error_message=fault.message
            )
            for fault in error.record_faults
        ]
