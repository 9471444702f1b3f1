"""What a failed write means: `fail`, `info`, or `fail` and the end of the process.

A wrong answer here makes every verdict worthless, so whatever is not listed is `info`. Three
questions have different answers for one error:

- May a write have taken effect? (`effect`)
- And if a library may have sent it more than once? Then an answer like NOT_ENOUGH_REPLICAS speaks
  of the last attempt only: the first may have been appended. Codes after which a client tries again
  are definite for a client that tries once, and for no other.
- May a transaction be aborted, after its commit has failed with this? (`after_commit`)

NOT_LEADER_OR_FOLLOWER is `info`: a leader that is deposed between its append and its answer says
just that (KAFKA-13574).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kraftpy.protocol.errors import ErrorCode

__all__ = ["AfterCommit", "ClientError", "Effect", "Meaning", "meaning_of"]


class Effect(Enum):
    FAIL = "fail"
    FAIL_AND_END = "fail, end process"
    INFO = "info"


class AfterCommit(Enum):
    """What to do about a commit that has failed."""

    NO_ABORT = "the producer is done for: no abort is allowed"
    UNANSWERED = "nobody knows: never abort"
    WRONG_STATE = "the coordinator had nothing to commit"
    ABORT = "abort it"


@dataclass(frozen=True, slots=True)
class Meaning:
    effect: Effect
    after_commit: AfterCommit


class ClientError(Exception):
    """A call of a client has failed; `name` is Kafka's word, or the library's own."""

    def __init__(self, name: str, meaning: Meaning, detail: str = "") -> None:
        super().__init__(f"{name}: {detail}" if detail else name)
        self.name = name
        self.meaning = meaning


UNKNOWN: Final = Meaning(Effect.INFO, AfterCommit.UNANSWERED)

_NOTHING_WAS_DONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)
_PRODUCER_IS_OVER: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
_NO_ABORT: Final = frozenset(
    {
        *_PRODUCER_IS_OVER,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


def meaning_of(code: ErrorCode, *, may_be_repeated: bool) -> Meaning:
    """What this code, as the last word on a write, says about it."""
    if code in _PRODUCER_IS_OVER:
        effect = Effect.FAIL_AND_END
    elif code in _NOTHING_WAS_DONE and not (may_be_repeated and code.retriable):
        effect = Effect.FAIL
    else:
        effect = Effect.INFO
    if code in _NO_ABORT:
        return Meaning(effect, AfterCommit.NO_ABORT)
    if code == ErrorCode.INVALID_TXN_STATE:
        return Meaning(effect, AfterCommit.WRONG_STATE)
    if code.retriable or code == ErrorCode.UNKNOWN_SERVER_ERROR:
        return Meaning(effect, AfterCommit.UNANSWERED)
    return Meaning(effect, AfterCommit.ABORT)
