"""What clients are told when a shard can't do its work.

A coordinator's clients know nothing of its log. They can wait, or look for the coordinator again;
errors of the log and of replication are translated into one of the two.
"""

from __future__ import annotations

import logging
from typing import Final, TypeVar

from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode

__all__ = ["for_clients", "for_leaders", "not_coordinator", "unexpected"]

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

_TRANSLATIONS: Final = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

_NOT_THERE: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


def for_clients(error: Exception) -> CoordinatorError:
    """The error to answer with; what nobody expected is logged, and not told."""
    if not isinstance(error, CoordinatorError):
        return unexpected(error)
    code = _TRANSLATIONS.get(error.code)
    return error if code is None else CoordinatorError(code)


def for_leaders(answer: _Answer | CoordinatorError) -> _Answer | CoordinatorError:
    """A marker is sent to a partition's leader, who is not there if the shard isn't (CRT-26)."""
    if isinstance(answer, CoordinatorError) and answer.code in _NOT_THERE:
        return CoordinatorError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return answer


def unexpected(error: Exception) -> CoordinatorError:
    log.error("coordinator failed", exc_info=error)
    return CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR)


def not_coordinator() -> CoordinatorError:
    return CoordinatorError(ErrorCode.NOT_COORDINATOR)
