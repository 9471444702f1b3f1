"""What a failure means for a transaction (KIP-1050): wait, abort, or make a new producer."""

from __future__ import annotations

from kraftpy.client.errors import KafkaError
from kraftpy.protocol.errors import ErrorCode

__all__ = [
    "ProducerFenced",
    "TransactionAbortable",
    "TransactionFatal",
    "TransactionRetriable",
    "classified",
    "classified_fatal",
]


class TransactionRetriable(KafkaError):  # noqa: N818 (it names what to do)
    """Not done in time, and still being tried: call the same method again."""


class TransactionAbortable(KafkaError):  # noqa: N818 (it names what to do)
    """The transaction has failed: abort it, and go on with another one."""


class TransactionFatal(KafkaError):  # noqa: N818 (it names what to do)
    """This producer can't go on; a new one with the same transactional id may."""


class ProducerFenced(TransactionFatal):
    """A newer producer with the same transactional id has taken over."""


_FATAL = (
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.INVALID_REQUEST,
)


def classified(failure: Exception, *, is_of_coordinator: bool) -> KafkaError:
    """The failure in the class that says what to do.

    An old epoch is final when the coordinator says so. A partition's leader may say it of a batch
    that came late; the abort then shows whether the producer was fenced.
    """
    if isinstance(failure, TransactionAbortable | TransactionFatal):
        return failure
    if not isinstance(failure, KafkaError):
        return TransactionFatal(ErrorCode.UNSUPPORTED_VERSION, str(failure))
    code, detail = failure.code, failure.detail
    is_old = code == ErrorCode.INVALID_PRODUCER_EPOCH and is_of_coordinator
    if code == ErrorCode.PRODUCER_FENCED or is_old:
        return ProducerFenced(code, detail)
    if code in _FATAL:
        return TransactionFatal(code, detail)
    return TransactionAbortable(code, detail)


def classified_fatal(failure: Exception) -> TransactionFatal:
    """The same where there is no transaction that could be aborted instead."""
    found = classified(failure, is_of_coordinator=True)
    if isinstance(found, TransactionFatal):
        return found
    return TransactionFatal(found.code, found.detail)
