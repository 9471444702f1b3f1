"""The transactions of one producer, without I/O: its identity, its state, the coordinator's calls.

    NEW -> INITIALIZING -> READY -> OPEN -> COMMITTING -> READY
                                     |  \\-> ABORTING ---> READY
                                     v        ^
                                   FAILED ----+            (BROKEN can follow from every state)

Which of two protocols is spoken follows from the cluster's finalized feature `transaction.version`,
asked for once, in `init`:

- 2 (KIP-890): a partition becomes part of the transaction by the first Produce to it, a group by
  the first TxnOffsetCommit; the end of each transaction raises the producer's epoch, so that what
  is still on its way belongs to nothing any more.
- below: partitions and groups are announced to the coordinator first. The epoch stays, unless
  something failed: then it is raised after the abort, since nobody knows the sequences any more.

A transaction is ended only when no batch of it waits or is in flight: a batch that came behind the
end would belong to the next one, or to none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from kraftpy import __version__
from kraftpy.client.backoff import Backoff
from kraftpy.client.calls import Call, TopicPartition, earliest
from kraftpy.client.coordinator_finder import GROUP, TRANSACTION, CoordinatorFinder
from kraftpy.client.errors import KafkaError, error_code
from kraftpy.client.group_member import GroupMetadata, is_lost
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.producer_batch import Identity
from kraftpy.client.transaction_errors import (
    TransactionAbortable,
    TransactionFatal,
    TransactionRetriable,
    classified,
    classified_fatal,
)
from kraftpy.client.transaction_requests import (
    LAST_ADD_PARTITIONS_OF_CLIENTS,
    add_offsets,
    add_partitions,
    codes_of_offsets,
    codes_of_partitions,
    commit_offsets,
    end_transaction,
    init_producer,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from kraftpy.client.cluster import Cluster
    from kraftpy.client.settings import ProducerSettings
    from kraftpy.protocol.tables import Request
    from kraftpy.world import Random

__all__ = ["Step", "TransactionManager"]

_FEATURE = "transaction.version"
_EPOCH_RISES = 2
# The versions before the epoch rises with each transaction.
_LAST_PRODUCE_1 = 11
_LAST_END_1 = 4
_LAST_OFFSETS_1 = 4
# The next one is for transactions in two phases, which this producer has not.
_LAST_INIT = 5
# The end of the last transaction takes a moment, which isn't worth the usual pause.
_CONCURRENT_PAUSE_MS = 20


class State(Enum):
    NEW = "not initialized"
    INITIALIZING = "being initialized"
    READY = "ready"
    OPEN = "in a transaction"
    FAILED = "in a transaction that must be aborted"
    COMMITTING = "committing"
    ABORTING = "aborting"
    BROKEN = "beyond repair"


class Step:
    """What a user waits for."""

    __slots__ = ("failure", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self.failure: Exception | None = None

    def finish(self, failure: Exception | None = None) -> None:
        if not self.is_done:
            self.is_done = True
            self.failure = failure

    def result(self) -> None:
        if not self.is_done:
            why = "not done in max_block_ms, and still being tried"
            raise TransactionRetriable(ErrorCode.REQUEST_TIMED_OUT, why)
        if self.failure is not None:
            raise self.failure


class _Offsets:
    """Offsets of a group on their way into the transaction."""

    __slots__ = ("group", "offsets", "step")

    def __init__(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, step: Step
    ) -> None:
        self.offsets = dict(offsets)
        self.group = group
        self.step = step


class TransactionManager:
    def __init__(self, cluster: Cluster, settings: ProducerSettings, random: Random) -> None:
        self._cluster = cluster
        self._settings = settings
        self._random = random
        self._client = settings.client
        self.transactional_id = settings.transactional_id or ""
        self._finder = CoordinatorFinder(
            self.transactional_id, TRANSACTION, cluster, settings.client, random
        )
        self._group_finders: dict[str, CoordinatorFinder] = {}
        self._backoff = Backoff(
            initial_ms=settings.client.retry_backoff_ms,
            max_ms=settings.client.retry_backoff_max_ms,
            random=random,
        )
        self._state = State.NEW
        self._is_version_2: bool | None = None
        self._step = Step()
        self._failure: KafkaError | None = None
        self._is_asking = False
        self._not_before_ms = 0
        self._looked_ms = 0
        self._added: dict[TopicPartition, None] = {}
        self._wanted: dict[TopicPartition, None] = {}
        self._added_groups: dict[str, None] = {}
        self._offsets: list[_Offsets] = []
        # Does the coordinator know of the transaction? With version 2 the first batch or offset on
        # its way tells it, and to end what it doesn't know is no error there.
        self._is_begun = False
        self._must_raise_epoch = False
        self.identity: Identity | None = None

    # What users do.

    def init(self) -> Step:
        """Get an identity; whatever an earlier producer of the same name left open is aborted."""
        self._check_not_broken()
        if self._state is State.NEW:
            self._begin_step(State.INITIALIZING)
            self._finder.is_wanted = True
        elif self._state is not State.INITIALIZING:
            raise ValueError("init_transactions was called before")
        return self._step

    def begin(self) -> None:
        self._check_not_broken()
        if self._state is not State.READY:
            raise ValueError(f"the producer is {self._state.value}")
        self._state = State.OPEN

    def commit(self) -> Step:
        """End the transaction once all that was sent is acknowledged."""
        return self._end(State.COMMITTING, (State.OPEN,))

    def abort(self) -> Step:
        """End the transaction; what was sent and isn't acknowledged fails."""
        return self._end(State.ABORTING, (State.OPEN, State.FAILED))

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> Step:
        self.check_open()
        step = Step()
        if not offsets:
            step.finish()
            return step
        self._offsets.append(_Offsets(offsets, group, step))
        if group.group_id not in self._group_finders:
            self._group_finders[group.group_id] = CoordinatorFinder(
                group.group_id, GROUP, self._cluster, self._client, self._random
            )
        self._group_finders[group.group_id].is_wanted = True
        return step

    def check_open(self) -> None:
        """Raises why records or offsets can't be part of a transaction now."""
        self._check_not_broken()
        if self._state is State.FAILED and self._failure is not None:
            raise self._failure
        if self._state is not State.OPEN:
            raise ValueError(f"the producer is {self._state.value}, not in a transaction")

    # What the producer's core does.

    @property
    def is_open(self) -> bool:
        """Is there a transaction that the user has not ended?"""
        return self._state in (State.OPEN, State.FAILED)

    @property
    def is_aborting(self) -> bool:
        return self._state in (State.ABORTING, State.FAILED, State.BROKEN)

    @property
    def failure(self) -> KafkaError:
        why = "the transaction is being aborted"
        return self._failure or TransactionAbortable(ErrorCode.TRANSACTION_ABORTABLE, why)

    @property
    def can_send(self) -> bool:
        return self.identity is not None and self._state in (State.OPEN, State.COMMITTING)

    @property
    def max_produce_version(self) -> int | None:
        return None if self._is_version_2 else _LAST_PRODUCE_1

    def admits(self, where: TopicPartition) -> bool:
        """May a batch for this partition leave? If not yet, the coordinator is told of it."""
        if self._is_version_2 or where in self._added:
            self._is_begun = True
            return True
        self._wanted[where] = None
        return False

    def batch_failed(self, failure: Exception) -> None:
        if self._state in (State.OPEN, State.COMMITTING):
            self._fail(classified(failure, is_of_coordinator=False))
        elif self._state is State.ABORTING:
            # Perhaps it was written before it was given up: its number is not free any more.
            self._must_raise_epoch = True

    def calls(self, now_ms: int, *, is_settled: bool) -> list[Call]:
        """`is_settled`: no batch waits or is in flight."""
        self._looked_ms = now_ms
        calls = self._finder.calls(now_ms)
        for finder in self._group_finders.values():
            calls += finder.calls(now_ms)
            if finder.failure is not None:
                self._fail(classified(finder.failure, is_of_coordinator=False))
                finder.failure = None
        if self._finder.failure is not None:
            self._fail(classified_fatal(self._finder.failure))
        if not self._is_asking and self._not_before_ms <= now_ms:
            calls += self._next_call(is_settled)
        return calls

    def wake_at_ms(self) -> int | None:
        finders = [self._finder, *self._group_finders.values()]
        moment = earliest(*(finder.wake_at_ms() for finder in finders))
        is_idle = self._state in (State.NEW, State.READY, State.BROKEN)
        if self._is_asking or is_idle or self._finder.address is None:
            return moment
        # What was due and could not be done waits for a batch, which is news by itself.
        is_ahead = self._not_before_ms > self._looked_ms
        return earliest(moment, self._not_before_ms if is_ahead else None)

    # States.

    def _check_not_broken(self) -> None:
        if self._state is State.BROKEN and self._failure is not None:
            raise self._failure

    def _begin_step(self, state: State) -> None:
        self._state = state
        self._step = Step()

    def _end(self, target: State, allowed: tuple[State, ...]) -> Step:
        self._check_not_broken()
        if self._state is State.FAILED and State.FAILED not in allowed:
            raise self.failure
        if self._state in allowed:
            self._begin_step(target)
            if target is State.ABORTING:
                self._drop_offsets()
        elif self._state is not target:
            raise ValueError(f"the producer is {self._state.value}")
        return self._step

    def _drop_offsets(self) -> None:
        offsets, self._offsets = self._offsets, []
        for each in offsets:
            each.step.finish(self.failure)

    def _fail(self, failure: KafkaError) -> None:
        if self._state is State.BROKEN:
            return
        if self._state in (State.INITIALIZING, State.ABORTING):
            # There is nothing to go back to.
            failure = classified_fatal(failure)
        self._failure = failure
        is_fatal = isinstance(failure, TransactionFatal)
        if is_fatal:
            self._state = State.BROKEN
            self.identity = None
        elif self._state in (State.OPEN, State.COMMITTING):
            self._state = State.FAILED
            self._must_raise_epoch = True
        self._wanted.clear()
        self._drop_offsets()
        if is_fatal or self._state is State.FAILED:
            self._step.finish(failure)

    def _is_over(self) -> None:
        self._state = State.READY
        self._failure = None
        self._added.clear()
        self._wanted.clear()
        self._added_groups.clear()
        self._is_begun = False
        self._must_raise_epoch = False
        self._step.finish()

    # The coordinator.

    def _next_call(self, is_settled: bool) -> list[Call]:
        """The one thing that is to be asked next, if any."""
        if self._finder.address is None or self._state in (State.NEW, State.READY, State.BROKEN):
            return []
        if self._state is State.INITIALIZING:
            return [self._ask_version() if self._is_version_2 is None else self._init_producer()]
        if self._state in (State.OPEN, State.COMMITTING):
            if self._wanted:
                return [self._add_partitions()]
            if self._offsets:
                return self._send_offsets(self._offsets[0])
        if self._state in (State.COMMITTING, State.ABORTING) and is_settled:
            is_known = self._is_begun or bool(self._is_version_2 and self._must_raise_epoch)
            if is_known:
                return [self._end_transaction()]
            if self._must_raise_epoch and self._state is State.ABORTING:
                return [self._init_producer()]
            self._is_over()
        return []

    def _call(
        self,
        request: Request,
        codes: Callable[[Any], list[ErrorCode]],
        done: Callable[[Any], None],
        *,
        finder: CoordinatorFinder | None = None,
        max_version: int | None = None,
        is_announcement: bool = False,
    ) -> Call:
        """Ask, again and again while that can help; then `done`, or the failure's consequences.

        An announcement (version 1) begins the transaction. If its answer is lost, nobody knows
        whether it has: an abort then takes a new epoch, which ends whatever there may be.
        """
        coordinator = finder or self._finder
        self._is_asking = True

        def answered(answer: Any, now_ms: int) -> None:
            self._is_asking = False
            failures = [code for code in codes(answer) if code != ErrorCode.NONE]
            final = [code for code in failures if not code.retriable]
            # Those that were left out because of others say nothing by themselves.
            final = [code for code in final if code != ErrorCode.OPERATION_NOT_ATTEMPTED] or final
            if final:
                self._fail(classified(KafkaError(final[0]), is_of_coordinator=True))
            elif failures:
                for code in dict.fromkeys(failures):
                    coordinator.has_moved(code, now_ms)
                is_concurrent = failures[0] == ErrorCode.CONCURRENT_TRANSACTIONS
                # Any other coordinator may have written it before it had to say so.
                self._must_raise_epoch |= is_announcement and not is_concurrent
                pause_ms = _CONCURRENT_PAUSE_MS if is_concurrent else self._backoff.failed()
                self._not_before_ms = now_ms + pause_ms
            else:
                self._backoff.succeeded()
                self._not_before_ms = 0
                self._is_begun |= is_announcement
                done(answer)

        def failed(failure: Exception, now_ms: int) -> None:
            self._is_asking = False
            self._not_before_ms = now_ms + self._backoff.failed()
            self._must_raise_epoch |= is_announcement
            if not is_lost(failure):
                self._fail(classified(failure, is_of_coordinator=True))

        return coordinator.call(request, answered, failed, max_version=max_version)

    def _ask_version(self) -> Call:
        def done(answer: ApiVersionsResponse) -> None:
            levels = {each.name: each.max_version_level for each in answer.finalized_features}
            self._is_version_2 = levels.get(_FEATURE, 0) >= _EPOCH_RISES

        request = ApiVersionsRequest(
            client_software_name="kraftpy", client_software_version=__version__
        )
        return self._call(request, _code, done)

    def _init_producer(self) -> Call:
        """A first identity; or with one, the same id in the next epoch."""
        timeout_ms = self._settings.transaction_timeout_ms
        request = init_producer(self.transactional_id, timeout_ms, self.identity)

        def done(answer: Any) -> None:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)
            self._is_over()

        return self._call(request, _code, done, max_version=_LAST_INIT)

    def _add_partitions(self) -> Call:
        wheres = dict(self._wanted)
        request = add_partitions(self.transactional_id, self._known_identity, wheres)

        def done(answer: Any) -> None:
            self._added |= wheres
            self._wanted = {where: None for where in self._wanted if where not in wheres}

        return self._call(
            request,
            codes_of_partitions,
            done,
            max_version=LAST_ADD_PARTITIONS_OF_CLIENTS,
            is_announcement=True,
        )

    def _send_offsets(self, offsets: _Offsets) -> list[Call]:
        group_id = offsets.group.group_id
        if not self._is_version_2 and group_id not in self._added_groups:
            announcement = add_offsets(self.transactional_id, self._known_identity, group_id)

            def added(answer: Any) -> None:
                self._added_groups[group_id] = None

            return [self._call(announcement, _code, added, is_announcement=True)]
        finder = self._group_finders[group_id]
        if finder.address is None:
            return []
        self._is_begun = True
        identity = self._known_identity
        request = commit_offsets(self.transactional_id, identity, offsets.offsets, offsets.group)

        def done(answer: Any) -> None:
            if offsets in self._offsets:
                self._offsets.remove(offsets)
            offsets.step.finish()

        max_version = None if self._is_version_2 else _LAST_OFFSETS_1
        return [self._call(request, codes_of_offsets, done, finder=finder, max_version=max_version)]

    def _end_transaction(self) -> Call:
        is_commit = self._state is State.COMMITTING
        request = end_transaction(self.transactional_id, self._known_identity, is_commit=is_commit)

        def done(answer: Any) -> None:
            self._is_begun = False
            if self._is_version_2:
                self.identity = Identity(answer.producer_id, answer.producer_epoch)
                self._is_over()
            elif not self._must_raise_epoch:
                self._is_over()

        max_version = None if self._is_version_2 else _LAST_END_1
        return self._call(request, _code, done, max_version=max_version)

    @property
    def _known_identity(self) -> Identity:
        if self.identity is None:
            raise RuntimeError("there is no producer id")
        return self.identity


def _code(answer: Any) -> list[ErrorCode]:
    return [error_code(answer.error_code)]
