"""Brokers as members of the cluster: registration, heartbeats, fencing, leaving.

Whatever a broker's going or coming means for partitions is written in the same operation as what it
means for the broker. Going, the partitions come first: should the controller die in between, the
broker is still there for its successor, and goes once more. Coming, the broker comes first, so that
nobody leads who isn't there.

A broker epoch is the offset in the metadata log at which the registration was decided, so that it
grows from one incarnation to the next, whoever is the controller.

Operations write nothing themselves; they note in the heartbeat table what was heard. That is soft
state: if their records are not committed, this controller is one no longer, and its table is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from kraftpy.metadata.controller.broker_states import (
    BrokerState,
    Wishes,
    next_state,
    present_state,
)
from kraftpy.metadata.controller.leader_and_isr import leader_and_isr_changes
from kraftpy.metadata.controller.registration_checks import (
    check_directories,
    check_features,
    check_text,
    end_points,
    feature_ranges,
    invalid,
)
from kraftpy.metadata.controller.result import (
    Caller,
    ControllerError,
    ControllerResult,
    Outcome,
    in_parts,
)
from kraftpy.metadata.features import CORDONED_DIRECTORIES_LEVEL, DIRECTORIES_LEVEL
from kraftpy.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from kraftpy.protocol.schema.k63_broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from kraftpy.protocol.schema.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from kraftpy.metadata.controller.context import ControllerContext
    from kraftpy.metadata.controller.heartbeat_table import HeartbeatTable
    from kraftpy.metadata.controller.partition_index import IndexedPartition

__all__ = ["BrokerControl"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_FENCE: Final = 1
_UNFENCE: Final = -1


def _has_taken_over(request: BrokerRegistrationRequest, known: RegisterBrokerRecord | None) -> bool:
    """Whether the registered process is certainly gone, although its session lasts.

    A process locks its directories before it registers, and the system frees them when it dies. So
    whoever has one of the registered process' directories is its successor. After a crash of all
    nodes every session is a fresh one, and nobody could come back before its end otherwise.
    """
    return known is not None and any(each in known.log_dirs for each in request.log_dirs)


class BrokerControl:
    """The operations on brokers. All of them need an active controller."""

    __slots__ = ("_context",)

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    @property
    def _table(self) -> HeartbeatTable:
        table = self._context.heartbeats
        if table is None:
            raise ControllerError(ErrorCode.NOT_CONTROLLER)
        return table

    @property
    def _part_size(self) -> int:
        return self._context.settings.partitions_at_once

    # Registration.

    def register_broker(
        self, request: BrokerRegistrationRequest, caller: Caller, now_ms: int, next_offset: int
    ) -> Outcome[BrokerRegistrationResponse]:
        """`next_offset` is the one that the first record of the result will get."""
        table = self._table
        broker_id = request.broker_id
        known = self._context.image.brokers.get(broker_id)
        wanted = self._checked(request, known, now_ms, next_offset)
        if known is not None and known.incarnation_id == request.incarnation_id:
            dropped = [each for each in known.log_dirs if each not in wanted.log_dirs]
            changes = self._changes_on_directories(known, dropped)
        else:
            changes = self._changes_by_restart(broker_id, known, request.previous_broker_epoch)

        def finish(
            partitions: tuple[PartitionChangeRecord, ...], next_offset: int
        ) -> ControllerResult[BrokerRegistrationResponse]:
            records: list[MetadataRecord] = [*partitions]
            if wanted != known:
                # Behind the others: a controller that dies before this record leaves a broker
                # that isn't registered yet, and tries again.
                records.append(wanted)
                last_offset = next_offset + len(records) - 1
                table.register(broker_id, wanted.broker_epoch, last_offset, now_ms)
                _log.info("broker %d registers with epoch %d", broker_id, wanted.broker_epoch)
            table.touch(broker_id, wanted.broker_epoch, now_ms)
            answer = BrokerRegistrationResponse(broker_epoch=wanted.broker_epoch)
            return ControllerResult(tuple(records), answer, is_atomic=False)

        return in_parts(changes, self._part_size, finish, next_offset)

    def _checked(
        self,
        request: BrokerRegistrationRequest,
        known: RegisterBrokerRecord | None,
        now_ms: int,
        next_offset: int,
    ) -> RegisterBrokerRecord:
        """The registration that the request asks for; ControllerError if it may not have it."""
        context = self._context
        image = context.image
        broker_id = request.broker_id
        is_same_process = known is not None and known.incarnation_id == request.incarnation_id
        if request.cluster_id != context.settings.cluster_id:
            raise ControllerError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {context.settings.cluster_id}",
            )
        is_free = is_same_process or _has_taken_over(request, known)
        if not is_free and self._table.has_session(broker_id, now_ms):
            raise ControllerError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"another process is registered as broker {broker_id} and was heard just now",
            )
        if request.is_migrating_zk_broker:
            raise ControllerError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, "there is nothing here to migrate to"
            )
        if broker_id < 0:
            raise invalid(f"the broker id is {broker_id}")
        check_text(request.rack or "")
        log_dirs = tuple(request.log_dirs)
        if image.metadata_version >= DIRECTORIES_LEVEL:
            check_directories(image, broker_id, log_dirs)
        else:
            log_dirs = ()
        features = feature_ranges(request.features)
        check_features(image, features)
        wanted = RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=next_offset,
            end_points=end_points(request.listeners),
            features=features,
            rack=request.rack,
            log_dirs=log_dirs,
        )
        if known is None or not is_same_process:
            return wanted
        return replace(
            wanted,
            broker_epoch=known.broker_epoch,
            fenced=known.fenced,
            in_controlled_shutdown=known.in_controlled_shutdown,
            cordoned_log_dirs=known.cordoned_log_dirs,
        )

    def _changes_by_restart(
        self, broker_id: int, known: RegisterBrokerRecord | None, previous_epoch: int
    ) -> Iterator[PartitionChangeRecord | None]:
        """A new process comes: the one before it is gone, if it was not fenced already.

        Only a process that stopped in order has left its epoch behind. Whatever else happened,
        the end of its logs may be lost, which matters with eligible leader replicas.
        """
        if known is not None and known.broker_epoch == previous_epoch:
            return self._changes_by_leaving(broker_id)
        return self._changes_by_loss(broker_id)

    # Heartbeats.

    def heartbeat(
        self, request: BrokerHeartbeatRequest, caller: Caller, now_ms: int, next_offset: int
    ) -> Outcome[BrokerHeartbeatResponse]:
        """`next_offset` is the one that the first record of the result will get."""
        table = self._table
        broker_id = request.broker_id
        broker = self._context.image.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            raise ControllerError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker_id} isn't registered"
                if broker is None
                else f"broker {broker_id} has epoch {broker.broker_epoch}",
            )
        self._hear(request, now_ms, next_offset)
        lost = self._newly_lost(broker, request)
        present = present_state(broker)
        if present is BrokerState.CONTROLLED_SHUTDOWN and table.shutdown_offset(broker_id) is None:
            # A controller before this one began it: all that is written by now may belong to it.
            table.set_shutdown_offset(broker_id, next_offset - 1)
        state = next_state(present, self._wishes(request, broker, lost))
        if state is not present:
            _log.info("broker %d: %s, was %s", broker_id, state.value, present.value)
        change = self._registration_change(request, broker, present, state, lost)
        steps: Iterator[MetadataRecord | None]
        steps = self._partition_changes(broker, present, state, lost)
        is_coming = state is BrokerState.UNFENCED and present is not state
        if is_coming:
            steps = chain((change,), steps)

        def finish(
            last: tuple[MetadataRecord, ...], offset: int
        ) -> ControllerResult[BrokerHeartbeatResponse]:
            records = [*last]
            if change is not None and not is_coming:
                is_stopping = state is BrokerState.CONTROLLED_SHUTDOWN
                records.insert(0 if is_stopping else len(records), change)
            records += self._context.deletions.reported(broker_id, request.deleted_topic_ids)
            if state is BrokerState.CONTROLLED_SHUTDOWN:
                has_moved = bool(last) or offset > next_offset
                if has_moved or table.shutdown_offset(broker_id) is None:
                    table.set_shutdown_offset(broker_id, offset + len(records) - 1)
            elif state is BrokerState.SHUTDOWN_NOW:
                # It stops and will not be heard again: its next process needn't wait for that.
                table.end_session(broker_id)
            answer = BrokerHeartbeatResponse(
                is_caught_up=table.is_caught_up(broker_id),
                is_fenced=state.is_fenced,
                should_shut_down=state is BrokerState.SHUTDOWN_NOW,
            )
            return ControllerResult(tuple(records), answer, is_atomic=False)

        return in_parts(steps, self._part_size, finish, next_offset)

    def late_heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int, next_offset: int
    ) -> None:
        """A heartbeat that waited too long for its turn: it is noted, and nothing else."""
        broker = self._context.image.brokers.get(request.broker_id)
        if broker is not None and broker.broker_epoch == request.broker_epoch:
            self._hear(request, now_ms, next_offset)

    def _hear(self, request: BrokerHeartbeatRequest, now_ms: int, next_offset: int) -> None:
        """What the registered broker tells about itself."""
        table = self._table
        broker_id = request.broker_id
        if not table.has_session(broker_id, now_ms):
            # It was heard when this arrived, and its session has ended while this waited. Other
            # contacts stay as they are: what came to light since arrival must count.
            table.touch(broker_id, request.broker_epoch, now_ms)
        # Nobody can have replayed what isn't written.
        offset = min(request.current_metadata_offset, next_offset - 1)
        table.acknowledge(broker_id, offset)
        self._context.replica_states.acknowledge(broker_id, offset)

    def _wishes(
        self,
        request: BrokerHeartbeatRequest,
        broker: RegisterBrokerRecord,
        lost: Collection[Uuid],
    ) -> Wishes:
        broker_id = broker.broker_id
        return Wishes(
            # A broker without any directory can't serve, whatever it says.
            fence=request.want_fence or (bool(lost) and len(lost) == len(broker.log_dirs)),
            shut_down=request.want_shut_down,
            is_caught_up=self._table.is_caught_up(broker_id),
            leads=self._context.partitions.led_count(broker_id) > 0,
            is_shutdown_known=self._is_shutdown_known(broker),
        )

    def _is_shutdown_known(self, broker: RegisterBrokerRecord) -> bool:
        """Whether nobody takes this broker for the leader of anything any more."""
        table = self._table
        shutdown_offset = table.shutdown_offset(broker.broker_id)
        return shutdown_offset is not None and all(
            table.metadata_offset(other_id) >= shutdown_offset
            for other_id in self._context.live_broker_ids
        )

    def _newly_lost(
        self, broker: RegisterBrokerRecord, request: BrokerHeartbeatRequest
    ) -> tuple[Uuid, ...]:
        """Directories that have failed since the broker last said so."""
        if self._context.image.metadata_version < DIRECTORIES_LEVEL:
            return ()
        offline = set(request.offline_log_dirs)
        return tuple(each for each in broker.log_dirs if each in offline)

    def _registration_change(
        self,
        request: BrokerHeartbeatRequest,
        broker: RegisterBrokerRecord,
        present: BrokerState,
        state: BrokerState,
        lost: Collection[Uuid],
    ) -> BrokerRegistrationChangeRecord | None:
        cordoned: tuple[Uuid, ...] | None = None
        level = self._context.image.metadata_version
        if level >= CORDONED_DIRECTORIES_LEVEL and request.cordoned_log_dirs is not None:
            named = set(request.cordoned_log_dirs)
            cordoned = tuple(each for each in broker.log_dirs if each in named)
            if cordoned == (broker.cordoned_log_dirs or ()):
                cordoned = None
        fenced = 0
        if state.is_fenced is not broker.fenced:
            fenced = _FENCE if state.is_fenced else _UNFENCE
        change = BrokerRegistrationChangeRecord(
            broker.broker_id,
            broker.broker_epoch,
            fenced,
            state is BrokerState.CONTROLLED_SHUTDOWN and present is not state,
            # Empty means unchanged, so that the loss of all can't be said: that broker is fenced.
            tuple(each for each in broker.log_dirs if each not in lost) if lost else (),
            cordoned,
        )
        unchanged = BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch)
        return None if change == unchanged else change

    def _partition_changes(
        self,
        broker: RegisterBrokerRecord,
        present: BrokerState,
        state: BrokerState,
        lost: Collection[Uuid],
    ) -> Iterator[PartitionChangeRecord | None]:
        if state is BrokerState.CONTROLLED_SHUTDOWN or (state.is_fenced and state is not present):
            return self._changes_by_leaving(broker.broker_id)
        if state is BrokerState.UNFENCED and present is BrokerState.FENCED:
            return self._changes_by_coming(broker, lost)
        return self._changes_on_directories(broker, lost)

    # Fencing and leaving.

    def fence_stale(self, now_ms: int) -> Outcome[bool]:
        """Fence the one broker that has been silent for longest, if that is too long.

        One at a time, so that the next one's partitions don't go to a broker that has just been
        fenced. The answer is whether there are more.
        """
        table = self._table
        brokers = self._context.image.brokers
        while (broker_id := table.oldest_expired(now_ms)) is not None:
            table.end_session(broker_id)
            if not brokers[broker_id].fenced:
                return self._fencing(
                    broker_id,
                    "its session has expired",
                    lambda: table.oldest_expired(now_ms) is not None,
                )
        return ControllerResult((), False)

    def next_expiry_ms(self) -> int | None:
        """When to look for stale brokers again."""
        return self._table.next_expiry_ms()

    def fence_dead(self, broker_id: int) -> Outcome[None]:
        """Fence a broker that evidence has found dead, unless it was heard of since.

        Its session is over: the next process may register at once.
        """
        table = self._table
        if not table.is_dead(broker_id):
            return ControllerResult((), None)
        table.end_session(broker_id)
        if self._context.image.brokers[broker_id].fenced:
            return ControllerResult((), None)
        return self._fencing(
            broker_id, "its connection broke, and its listeners refuse", lambda: None
        )

    def unregister_broker(
        self, request: UnregisterBrokerRequest, caller: Caller
    ) -> Outcome[UnregisterBrokerResponse]:
        """Forget a broker, dead or alive; what it had counts as lost."""
        table = self._table
        broker_id = request.broker_id
        broker = self._context.image.brokers.get(broker_id)
        if broker is None:
            raise ControllerError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} isn't registered"
            )
        removal = UnregisterBrokerRecord(broker_id, broker.broker_epoch)

        def finish(
            partitions: tuple[PartitionChangeRecord, ...], _: int
        ) -> ControllerResult[UnregisterBrokerResponse]:
            table.remove(broker_id)
            _log.info("broker %d is unregistered", broker_id)
            answer = UnregisterBrokerResponse()
            return ControllerResult((*partitions, removal), answer, is_atomic=False)

        return in_parts(self._changes_by_loss(broker_id), self._part_size, finish, 0)

    def _fencing(self, broker_id: int, reason: str, answer: Callable[[], T]) -> Outcome[T]:
        broker = self._context.image.brokers[broker_id]
        _log.info("broker %d is fenced: %s", broker_id, reason)
        change = BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, _FENCE)

        def finish(partitions: tuple[PartitionChangeRecord, ...], _: int) -> ControllerResult[T]:
            return ControllerResult((*partitions, change), answer(), is_atomic=False)

        return in_parts(self._changes_by_leaving(broker_id), self._part_size, finish, 0)

    # What becomes of partitions. Each of these judges the broker as already gone, or there.

    def _changes_by_leaving(self, broker_id: int) -> Iterator[PartitionChangeRecord | None]:
        return leader_and_isr_changes(
            self._context,
            removing=broker_id,
            partitions=self._context.partitions.with_isr_member(broker_id),
        )

    def _changes_by_loss(self, broker_id: int) -> Iterator[PartitionChangeRecord | None]:
        """The broker left, and nothing that it had can be counted on."""
        return leader_and_isr_changes(
            self._context,
            removing=broker_id,
            uncleanly_stopped=broker_id,
            partitions=(
                item
                for item in self._context.partitions.partitions_on(broker_id)
                if broker_id in chain(item[1].isr, item[1].eligible_leader_replicas)
            ),
        )

    def _changes_by_coming(
        self, broker: RegisterBrokerRecord, lost: Collection[Uuid]
    ) -> Iterator[PartitionChangeRecord | None]:
        broker_id = broker.broker_id
        if broker.in_controlled_shutdown:
            # It may not lead until it has registered again.
            return iter(())
        return leader_and_isr_changes(
            self._context,
            adding=broker_id,
            partitions=(
                item
                for item in self._context.partition_states.to_bring_online()
                if item[1].directory_of(broker_id) not in lost
            ),
        )

    def _changes_on_directories(
        self, broker: RegisterBrokerRecord, lost: Collection[Uuid]
    ) -> Iterator[PartitionChangeRecord | None]:
        """What was on these directories is gone; the rest of the broker isn't."""
        broker_id = broker.broker_id
        on_lost: Iterator[IndexedPartition] = (
            item
            for item in self._context.partitions.partitions_on(broker_id)
            if item[1].directory_of(broker_id) in lost
        )
        return leader_and_isr_changes(
            self._context, removing=broker_id, partitions=on_lost if lost else ()
        )
