"""Errors of transactions in the words that a client's version knows."""

from __future__ import annotations

from typing import Final

from kraftpy.protocol.errors import ErrorCode

__all__ = ["for_version"]

# Of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn alike.
_FIRST_VERSION_WITH_FENCED: Final = 2


def for_version(code: ErrorCode, api_version: int) -> ErrorCode:
    """Before version 2 a producer that was shut out is told so in an older way."""
    if code is ErrorCode.PRODUCER_FENCED and api_version < _FIRST_VERSION_WITH_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
