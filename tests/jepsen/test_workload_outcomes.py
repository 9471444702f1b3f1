"""What an error means for a write, in every client's own words: the table of section 2.6."""

from __future__ import annotations

import warnings

import pytest
from confluent_kafka import KafkaError as LibrdkafkaError

from jepsen_tests.clients import java, librdkafka
from kraftpy.client.errors import ConnectionLost, Evidence, KafkaError, UnsupportedVersion
from kraftpy.client.transaction_errors import (
    ProducerFenced,
    TransactionAbortable,
    TransactionFatal,
    TransactionRetriable,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.verify.workloads import own_client
from kraftpy.verify.workloads.outcomes import AfterCommit, Effect, meaning_of

with warnings.catch_warnings():
    # Of the way in which it reads its own files.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import errors as kafka_python_errors

    from jepsen_tests.clients import kafka_python

# Written down a second time, from the specification, so that a slip in the product's table shows.
DEFINITE = {
    "UNKNOWN_TOPIC_OR_PARTITION",
    "INVALID_TOPIC_EXCEPTION",
    "MESSAGE_TOO_LARGE",
    "RECORD_LIST_TOO_LARGE",
    "INVALID_RECORD",
    "INVALID_TIMESTAMP",
    "INVALID_REQUIRED_ACKS",
    "UNSUPPORTED_COMPRESSION_TYPE",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "UNSUPPORTED_VERSION",
    "NOT_ENOUGH_REPLICAS",
    "NOT_CONTROLLER",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
}
FENCED = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER"}
# Clients that try again by themselves may have succeeded before they were told this.
AMBIGUOUS_AFTER_RETRIES = {"UNKNOWN_TOPIC_OR_PARTITION", "NOT_ENOUGH_REPLICAS", "NOT_CONTROLLER"}
CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]


def expected(code: ErrorCode, *, retries: bool) -> Effect:
    if code.name in FENCED:
        return Effect.FAIL_AND_END
    if code.name in DEFINITE and not (retries and code.name in AMBIGUOUS_AFTER_RETRIES):
        return Effect.FAIL
    return Effect.INFO


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_a_code_has_one_meaning(code: ErrorCode) -> None:
    """JEP-6: for one attempt, and for a client that makes several."""
    assert meaning_of(code, may_be_repeated=False).effect is expected(code, retries=False)
    assert meaning_of(code, may_be_repeated=True).effect is expected(code, retries=True)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_our_client_s_codes(code: ErrorCode) -> None:
    """JEP-6: the library `own`."""
    error = own_client.client_error(KafkaError(code))
    assert (error.name, error.meaning.effect) == (code.name, expected(code, retries=True))
    once = own_client.client_error(KafkaError(code), may_be_repeated=False)
    assert once.meaning.effect is expected(code, retries=False)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_librdkafka_s_codes(code: ErrorCode) -> None:
    """JEP-6: the library librdkafka."""
    error = librdkafka.client_error(LibrdkafkaError(int(code)))
    assert (error.name, error.meaning.effect) == (code.name, expected(code, retries=True))


THEIRS = {
    each.errno: each
    for each in vars(kafka_python_errors).values()
    if isinstance(each, type) and isinstance(getattr(each, "errno", None), int) and each.errno
}


@pytest.mark.parametrize("number", sorted(THEIRS))
def test_kafka_python_s_codes(number: int) -> None:
    """JEP-6: the library kafka-python."""
    code = ErrorCode(number)
    error = kafka_python.client_error(THEIRS[number]())
    assert (error.name, error.meaning.effect) == (code.name, expected(code, retries=True))


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_java_s_codes(code: ErrorCode) -> None:
    """JEP-6: the Java clients, by the code that their exception stands for."""
    error = java.client_error({"error": "AnException", "code": int(code), "text": ""})
    assert error.meaning.effect is expected(code, retries=True)


@pytest.mark.parametrize(
    ("name", "code", "effect", "after"),
    [
        ("TimeoutException", 7, Effect.INFO, AfterCommit.UNANSWERED),
        ("InterruptException", -1, Effect.INFO, AfterCommit.UNANSWERED),
        ("DisconnectException", 13, Effect.INFO, AfterCommit.UNANSWERED),
        ("KafkaException", -1, Effect.INFO, AfterCommit.ABORT),
        ("IllegalStateException", -1, Effect.FAIL_AND_END, AfterCommit.NO_ABORT),
        ("SerializationException", -1, Effect.FAIL, AfterCommit.ABORT),
        ("CommitFailedException", -1, Effect.FAIL, AfterCommit.ABORT),
        ("SomethingNew", -1, Effect.INFO, AfterCommit.UNANSWERED),
        ("ProducerFencedException", 90, Effect.FAIL_AND_END, AfterCommit.NO_ABORT),
    ],
)
def test_java_s_own_errors(name: str, code: int, effect: Effect, after: AfterCommit) -> None:
    """JEP-6, JEP-7."""
    meaning = java.client_error({"error": name, "code": code, "text": ""}).meaning
    assert (meaning.effect, meaning.after_commit) == (effect, after)


def test_not_leader_or_follower_is_never_definite() -> None:
    """JEP-6, F3 (KAFKA-13574): the record may have been appended, and may survive."""
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for repeated in (False, True):
        assert meaning_of(code, may_be_repeated=repeated).effect is Effect.INFO
    assert librdkafka.client_error(LibrdkafkaError(6)).meaning.effect is Effect.INFO
    theirs = kafka_python.client_error(kafka_python_errors.NotLeaderForPartitionError())
    assert theirs.meaning.effect is Effect.INFO


@pytest.mark.parametrize(
    ("failure", "name", "effect"),
    [
        (ConnectionLost(Evidence.REFUSED, ""), "CONNECTION_REFUSED", Effect.FAIL),
        (ConnectionLost(Evidence.BROKEN, ""), "CONNECTION_BROKEN", Effect.INFO),
        (ConnectionLost(Evidence.TIMED_OUT, ""), "CONNECTION_TIMED_OUT", Effect.INFO),
        (ConnectionLost(Evidence.UNREACHABLE, ""), "CONNECTION_UNREACHABLE", Effect.INFO),
        (ConnectionLost(Evidence.GARBLED, ""), "CONNECTION_GARBLED", Effect.INFO),
        (UnsupportedVersion(""), "UNSUPPORTED_VERSION", Effect.FAIL),
        (ValueError(""), "ILLEGAL_STATE", Effect.FAIL_AND_END),
        (OSError(""), "OSError", Effect.INFO),
    ],
)
def test_our_client_s_other_failures(failure: Exception, name: str, effect: Effect) -> None:
    """JEP-6: of a single attempt; refused after several, it may have been carried out before."""
    error = own_client.client_error(failure, may_be_repeated=False)
    assert (error.name, error.meaning.effect) == (name, effect)
    if isinstance(failure, ConnectionLost):
        assert own_client.client_error(failure).meaning.effect is Effect.INFO


@pytest.mark.parametrize(
    ("failure", "after"),
    [
        (TransactionRetriable(ErrorCode.REQUEST_TIMED_OUT), AfterCommit.UNANSWERED),
        (TransactionAbortable(ErrorCode.REQUEST_TIMED_OUT), AfterCommit.ABORT),
        (TransactionAbortable(ErrorCode.TRANSACTION_ABORTABLE), AfterCommit.ABORT),
        (ProducerFenced(ErrorCode.PRODUCER_FENCED), AfterCommit.NO_ABORT),
        (ProducerFenced(ErrorCode.INVALID_PRODUCER_EPOCH), AfterCommit.NO_ABORT),
        (TransactionFatal(ErrorCode.INVALID_TXN_STATE), AfterCommit.WRONG_STATE),
        (
            TransactionFatal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            AfterCommit.NO_ABORT,
        ),
    ],
)
def test_what_may_follow_a_failed_commit(failure: KafkaError, after: AfterCommit) -> None:
    """JEP-7."""
    assert own_client.client_error(failure).meaning.after_commit is after


@pytest.mark.parametrize(
    "name",
    sorted(each for each in dir(LibrdkafkaError) if each.startswith("_") and each[1:2].isupper()),
)
def test_librdkafka_s_own_errors(name: str) -> None:
    """JEP-6: only what was never accepted is definite."""
    error = librdkafka.client_error(LibrdkafkaError(getattr(LibrdkafkaError, name)))
    refused = {
        "_QUEUE_FULL",
        "_INVALID_ARG",
        "_BAD_MSG",
        "_KEY_SERIALIZATION",
        "_VALUE_SERIALIZATION",
    }
    over = {"_FENCED", "_FATAL", "_STATE"}
    effect = Effect.INFO
    if error.name in refused:
        effect = Effect.FAIL
    elif error.name in over:
        effect = Effect.FAIL_AND_END
    assert error.meaning.effect is effect


def test_librdkafka_says_what_may_follow_a_failed_commit() -> None:
    """JEP-7: its flags, and without them a time-out is no answer."""
    timed_out = librdkafka.client_error(LibrdkafkaError(LibrdkafkaError._TIMED_OUT))
    assert timed_out.meaning.after_commit is AfterCommit.UNANSWERED
    abortable = LibrdkafkaError(LibrdkafkaError._TIMED_OUT, txn_requires_abort=True)
    assert librdkafka.client_error(abortable).meaning.after_commit is AfterCommit.ABORT
    fatal = LibrdkafkaError(LibrdkafkaError._FENCED, fatal=True)
    assert librdkafka.client_error(fatal).meaning.after_commit is AfterCommit.NO_ABORT


@pytest.mark.parametrize(
    ("failure", "effect"),
    [
        (kafka_python_errors.KafkaTimeoutError(), Effect.INFO),
        (kafka_python_errors.KafkaConnectionError(), Effect.INFO),
        (kafka_python_errors.NodeNotReadyError(), Effect.INFO),
        (kafka_python_errors.TransactionAbortedError(), Effect.INFO),
        (kafka_python_errors.KafkaError(), Effect.INFO),
        (kafka_python_errors.IllegalStateError(), Effect.FAIL_AND_END),
        (kafka_python_errors.KafkaConfigurationError(), Effect.FAIL),
        (kafka_python_errors.CommitFailedError(), Effect.FAIL),
        (TypeError(), Effect.FAIL),
        (AssertionError(), Effect.FAIL),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_kafka_python_s_own_errors(failure: Exception, effect: Effect) -> None:
    """JEP-6."""
    assert kafka_python.client_error(failure).meaning.effect is effect


class CommittedByLibrdkafka:
    """What the library makes of a commit whose metadata are followed by something in memory."""

    def __init__(self, memory: bytes) -> None:
        self._memory = memory

    @property
    def metadata(self) -> str:
        return self._memory.decode()


@pytest.mark.parametrize(
    ("memory", "text"), [(b"4.1;", "4.1;"), (b"4.1;abc", "4.1;abc"), (b"4.1;\xb8a", "4.1;")]
)
def test_librdkafka_reads_on_behind_metadata(memory: bytes, text: str) -> None:
    """W7 under hijack, seed 1860070196: it need not be text."""
    assert librdkafka.metadata_of(CommittedByLibrdkafka(memory)) == text
