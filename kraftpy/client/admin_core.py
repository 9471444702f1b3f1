"""Administration without I/O: operations as generators, run one request at a time.

An operation yields what it wants to ask, gets the answer sent in, and returns its result; so the
trio client and the blocking one run the same operations (admin_operations.py). What concerns all
of them is done here: finding a node that answers, asking again after a loss or a refusal that may
pass, giving up when the time is over.

A request whose answer was lost may have been carried out. Asked again it then fails, with
TOPIC_ALREADY_EXISTS for instance; the user is told as much as the cluster tells.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from kraftpy.client.backoff import Backoff
from kraftpy.client.calls import Call, earliest
from kraftpy.client.cluster import Cluster
from kraftpy.client.errors import ConnectionLost, KafkaError, error_code
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.tables import Request

if TYPE_CHECKING:
    from kraftpy.client.settings import AdminSettings
    from kraftpy.world import Address, Random

__all__ = ["AdminCore", "Ask", "Operation", "Run"]

T = TypeVar("T")

# A producer may wait for a topic to come; who administers one wants to hear that it is not there.
_STAYS = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Ask(NamedTuple):
    """A request of an operation.

    It goes to `node_id`, or to any node. `codes` reads the error codes out of an answer: if all
    that failed may pass, the request is made again.
    """

    message: Request
    codes: Callable[[Any], Sequence[int]]
    node_id: int | None = None


Operation: TypeAlias = Generator[Ask, Any, T]


class Run(Generic[T]):
    """An operation under way."""

    __slots__ = (
        "_outcome",
        "ask",
        "expires_ms",
        "failure",
        "is_done",
        "is_in_flight",
        "last_failure",
        "not_before_ms",
        "operation",
    )

    def __init__(self, operation: Operation[T], expires_ms: int) -> None:
        self.operation = operation
        self.expires_ms = expires_ms
        self.not_before_ms = 0
        self.is_in_flight = False
        self.is_done = False
        self.ask: Ask | None = None
        self.failure: Exception | None = None
        # Why the present request had to be made again.
        self.last_failure: Exception | None = None
        self._outcome: T | None = None

    def go_on(self, answer: Any) -> None:
        """Hand in an answer (None to begin), and learn what is asked next."""
        try:
            self.ask = self.operation.send(answer)
            self.last_failure = None
        except StopIteration as end:
            self._outcome = end.value
            self.is_done = True
        except KafkaError as failure:
            self.fail(failure)

    def fail(self, failure: Exception) -> None:
        self.failure = failure
        self.is_done = True
        self.operation.close()

    def result(self) -> T:
        if self.failure is not None:
            raise self.failure
        return self._outcome  # type: ignore[return-value]  # None only where T allows it.


class AdminCore:
    __slots__ = ("_backoff", "_runs", "_settings", "cluster")

    def __init__(
        self, bootstrap: Sequence[Address], settings: AdminSettings, random: Random
    ) -> None:
        client = settings.client
        self._settings = settings
        self._backoff = Backoff(
            initial_ms=client.retry_backoff_ms, max_ms=client.retry_backoff_max_ms, random=random
        )
        self._runs: list[Run[Any]] = []
        self.cluster = Cluster(bootstrap, client, random, allow_auto_create=False)

    def start(self, operation: Operation[T], now_ms: int) -> Run[T]:
        run = Run(operation, now_ms + self._settings.default_api_timeout_ms)
        run.go_on(None)
        self._runs.append(run)
        return run

    def calls(self, now_ms: int) -> list[Call]:
        calls = self.cluster.calls(now_ms)
        for run in self._runs:
            if not run.is_done and run.expires_ms <= now_ms:
                why = run.last_failure or self.cluster.failure or "no answer"
                timeout_ms = self._settings.default_api_timeout_ms
                detail = f"not done in {timeout_ms} ms: {why}"
                run.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail))
            elif not (run.is_done or run.is_in_flight or run.not_before_ms > now_ms):
                calls += self._call(run, now_ms)
        self._runs = [run for run in self._runs if not run.is_done]
        return calls

    def wake_at_ms(self) -> int | None:
        waiting = [run for run in self._runs if not run.is_in_flight and not run.is_done]
        return earliest(
            self.cluster.wake_at_ms(),
            *(run.expires_ms for run in self._runs),
            *(run.not_before_ms for run in waiting if run.not_before_ms),
        )

    def _call(self, run: Run[Any], now_ms: int) -> list[Call]:
        ask = run.ask
        if ask is None or not self.cluster.updates:
            # The first picture of the cluster is on its way; its arrival is looked at.
            return []
        address = self.cluster.any_address()
        if ask.node_id is not None:
            broker = self.cluster.brokers.get(ask.node_id)
            if broker is None:
                self.cluster.refresh()
                run.last_failure = KafkaError(
                    ErrorCode.BROKER_NOT_AVAILABLE, f"node {ask.node_id} is not there"
                )
                run.not_before_ms = now_ms + self._backoff.failed()
                return []
            address = broker.address
        run.is_in_flight = True

        def answered(answer: Any, at_ms: int) -> None:
            run.is_in_flight = False
            if run.is_done:
                return
            codes = [error_code(number) for number in ask.codes(answer)]
            failures = [code for code in codes if code != ErrorCode.NONE]
            passing = [code for code in failures if code.retriable and code not in _STAYS]
            if passing and len(passing) == len(failures):
                run.last_failure = KafkaError(passing[0])
                self._again(run, at_ms)
                return
            self._backoff.succeeded()
            run.not_before_ms = 0
            run.go_on(answer)

        def failed(failure: Exception, at_ms: int) -> None:
            run.is_in_flight = False
            if run.is_done:
                return
            if isinstance(failure, ConnectionLost):
                run.last_failure = failure
                self.cluster.disappoint(address, at_ms)
                self._again(run, at_ms)
            else:
                run.fail(failure)

        timeout_ms = self._settings.client.request_timeout_ms
        return [Call(address, ask.message, answered=answered, failed=failed, timeout_ms=timeout_ms)]

    def _again(self, run: Run[Any], now_ms: int) -> None:
        self.cluster.refresh()
        run.not_before_ms = now_ms + self._backoff.failed()
