"""What can go wrong in the log, each with the error code that a client is answered with.

Record data that is refused or damaged raises a RecordDataError of kraftpy.records instead; both
families have `error_code`. Wrong use by our own code is neither: that is an InternalInvariant, or a
ValueError for an argument out of range. An OSError from the Disk port rises as it is out of the
leaf modules; PartitionLog turns it into a StorageError and tells its owner.
"""

from __future__ import annotations

from typing import ClassVar

from kraftpy.protocol.errors import ErrorCode

__all__ = [
    "CorruptIndexError",
    "CorruptSnapshotError",
    "InconsistentTopicIdError",
    "IndexFullError",
    "IndexOffsetOverflowError",
    "IndexTimestampError",
    "IndexUnderRepairError",
    "InvalidIndexOffsetError",
    "InvalidProducerEpochError",
    "InvalidTransactionStateError",
    "LogClosedError",
    "LogError",
    "MalformedFileError",
    "OffsetOutOfRangeError",
    "OffsetsOutOfOrderError",
    "OutOfOrderSequenceError",
    "RecordBatchTooLargeError",
    "SegmentOffsetOverflowError",
    "StorageError",
    "TransactionCoordinatorFencedError",
    "UnexpectedAppendOffsetError",
    "UnknownDirectoryError",
]


class LogError(Exception):
    """Base of the family. `error_code` is what goes on the wire."""

    error_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


# Appending and reading.


class OffsetOutOfRangeError(LogError):
    """A read outside the log, or a log start above the high watermark."""

    error_code = ErrorCode.OFFSET_OUT_OF_RANGE


class RecordBatchTooLargeError(LogError):
    """A set of batches larger than segment.bytes."""

    error_code = ErrorCode.RECORD_LIST_TOO_LARGE


class OffsetsOutOfOrderError(LogError):
    """A replicated set whose offsets do not grow."""


class UnexpectedAppendOffsetError(LogError):
    """A replicated set that begins below the log end."""

    def __init__(self, message: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class SegmentOffsetOverflowError(LogError):
    """An offset too far from the segment's base for 31 bits."""


# Producers and transactions.


class OutOfOrderSequenceError(LogError):
    """A gap between the sequence numbers of a producer."""

    error_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(LogError):
    """A write or marker of a producer that has been fenced by a newer epoch."""

    error_code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionStateError(LogError):
    """A transactional write outside a transaction, or a plain one inside."""

    error_code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFencedError(LogError):
    """A marker of a coordinator that has been replaced."""

    error_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


# Files.


class StorageError(LogError):
    """The files can't be used as they are."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR


class InconsistentTopicIdError(LogError):
    """The partition's directory holds the data of another topic of that name."""

    error_code = ErrorCode.INCONSISTENT_TOPIC_ID


class UnknownDirectoryError(LogError):
    """No data directory of this node."""

    error_code = ErrorCode.LOG_DIR_NOT_FOUND


class LogClosedError(StorageError):
    """The log was closed, or its directory went offline."""


class CorruptIndexError(StorageError):
    """An index file that can't be right; it is rebuilt from the segment."""


class IndexUnderRepairError(StorageError):
    """What is asked for would take long to find until a damaged index is rebuilt; try again."""


class CorruptSnapshotError(StorageError):
    """A producer snapshot that can't be right; an older one, or the log, replaces it."""


class MalformedFileError(StorageError):
    """A checkpoint or properties file that can't be understood."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


class IndexFullError(StorageError):
    """An append to an index without a free slot; the caller should have rolled the segment."""


class InvalidIndexOffsetError(StorageError):
    """An index entry whose offset is not above the last one's."""


class IndexTimestampError(StorageError):
    """A time index entry older than the last one."""


class IndexOffsetOverflowError(StorageError):
    """An offset that can't be written relative to the index's base."""
