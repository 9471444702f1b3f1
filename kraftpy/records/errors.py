"""What can be wrong with record data, each kind with the Kafka error that answers it.

Two kinds of damage are kept apart because clients treat their errors differently:

- CorruptRecord: the envelope is damaged (length, magic, CRC). Kafka's CORRUPT_MESSAGE is retriable,
  and rightly: the sender's copy may be whole.
- InvalidRecord: the CRC is right but the content lies or breaks a rule. Sending it again can't
  help, and Kafka's INVALID_RECORD isn't retriable.

Everything in kraftpy.records that reads foreign bytes raises a RecordDataError and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kraftpy.protocol.errors import ErrorCode

__all__ = [
    "CorruptRecord",
    "InvalidRecord",
    "InvalidTimestamp",
    "RecordDataError",
    "RecordFault",
    "RecordTooLarge",
    "UnsupportedCompression",
]


@dataclass(frozen=True, slots=True)
class RecordFault:
    """One refused record of a refused batch, as Produce answers it from version 8 on."""

    batch_index: int
    message: str


class RecordDataError(Exception):
    """Record data that can't be read or may not be appended."""

    error_code: ClassVar[ErrorCode]

    def __init__(self, message: str, record_faults: Sequence[RecordFault] = ()) -> None:
        super().__init__(message)
        self.record_faults = tuple(record_faults)


class CorruptRecord(RecordDataError):  # noqa: N818 (Kafka's name)
    """The bytes are damaged: length, magic or CRC."""

    error_code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(RecordDataError):  # noqa: N818 (Kafka's name)
    """The bytes arrived as they were sent, and what they say is wrong."""

    error_code = ErrorCode.INVALID_RECORD


class RecordTooLarge(RecordDataError):  # noqa: N818 (Kafka's name)
    """A batch is larger than allowed, or would be once inflated.

    A Java producer answers this error by splitting the batch, which helps in both cases.
    """

    error_code = ErrorCode.MESSAGE_TOO_LARGE


class InvalidTimestamp(RecordDataError):  # noqa: N818 (Kafka's name)
    """A timestamp lies outside of what the topic accepts."""

    error_code = ErrorCode.INVALID_TIMESTAMP


class UnsupportedCompression(RecordDataError):  # noqa: N818 (Kafka's name)
    """The codec bits name no codec, or one that the request's version doesn't know."""

    error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
