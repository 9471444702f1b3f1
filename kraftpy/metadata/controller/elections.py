"""Elections that somebody asks for: an operator, a timer, a new controller, a changed setting.

What a broker's coming and going makes necessary is in leader_and_isr.py; the rules of elections are
in partition_change.py. Here is who may stand, and how many in one go: the controller's own runs
stop after 1,000 changes and say that there is more to do, so that others get their turn in between.
All of them come in parts, so that the loop has its turn within a run.

Balancing. A broker's imbalance is the share of the partitions it is the preferred leader of that
others lead. If it is above leader.imbalance.per.broker.percentage, all that can be led by the
broker is given back to it, in as many runs as that takes. (Kafka without ZooKeeper ignores the
percentage.) Partitions under reassignment are left alone: their leader is chosen when that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.leader_and_isr import (
    ChangeBuilders,
    initialised,
    leader_and_isr_changes,
)
from kraftpy.metadata.controller.partition_change import Election
from kraftpy.metadata.controller.partition_index import IndexedPartition
from kraftpy.metadata.controller.partition_states import PartitionState, partition_state
from kraftpy.metadata.controller.placement import is_active
from kraftpy.metadata.controller.result import (
    MAX_RECORDS_PER_REQUEST,
    Caller,
    ControllerError,
    ControllerResult,
    Outcome,
    in_parts,
)
from kraftpy.metadata.image import TopicImage
from kraftpy.metadata.records import (
    NO_LEADER,
    ConfigRecord,
    ConfigResourceType,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

__all__ = ["MAX_ELECTIONS_PER_RUN", "Affected", "ElectionControl", "to_elect_after"]

MAX_ELECTIONS_PER_RUN: Final = 1_000

_ELECTIONS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


class ElectionControl:
    """The answer of a run is whether there is more to do."""

    __slots__ = ("_being_balanced", "_context")

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        # Brokers that an unfinished run of balancing has found above the percentage. Forgetting
        # them, or keeping them too long, moves a few leaders later or earlier.
        self._being_balanced: frozenset[int] = frozenset()

    # On request.

    def elect_leaders(
        self, request: ElectLeadersRequest, caller: Caller
    ) -> Outcome[ElectLeadersResponse]:
        """Elect preferred leaders, or any; a request that names no topics is for all of them."""
        del caller
        context = self._context
        election = _ELECTIONS.get(request.election_type)
        if election is None:
            message = f"There is no election type {request.election_type}."
            raise ControllerError(ErrorCode.INVALID_REQUEST, message)
        asked: Iterable[tuple[str, Iterable[int]]]
        # Those with the right leader are no news to somebody who didn't ask for them.
        is_brief = request.topic_partitions is None
        if request.topic_partitions is None:
            topics = context.image.topics.values()
            asked = ((topic.name, range(len(topic.partitions))) for topic in topics)
        else:
            asked = ((each.topic, each.partitions) for each in request.topic_partitions)
        run = _RequestedElections(context, election, is_brief=is_brief)

        def finish(
            records: tuple[PartitionChangeRecord, ...], _: int
        ) -> ControllerResult[ElectLeadersResponse]:
            response = ElectLeadersResponse(replica_election_results=run.results)
            return ControllerResult(records, response, is_atomic=False)

        return in_parts(run.changes(asked), context.settings.partitions_at_once, finish, 0)

    # By timer.

    def balance_leaders(self) -> Outcome[bool]:
        """Give leadership back to preferred replicas, where too much of it has moved."""
        strayed = [
            (topic, partition)
            for topic, partition in self._context.partitions.not_preferred()
            if not partition.adding_replicas and not partition.removing_replicas
        ]
        unbalanced = self._unbalanced_brokers(strayed)
        builders = ChangeBuilders(self._context)

        def note(has_more: bool) -> None:
            self._being_balanced = unbalanced if has_more else frozenset()

        changes = (
            _elected(builders, topic, partition, Election.PREFERRED)
            for topic, partition in strayed
            if partition.replicas[0] in unbalanced
        )
        return _run_of(self._context, changes, note)

    def elect_unclean(self) -> Outcome[bool]:
        """Find leaders, whatever they have, for topics that want one at any price."""
        context = self._context
        builders = ChangeBuilders(context)
        changes = (
            _elected(builders, topic, partition, Election.UNCLEAN)
            if builders.allows_unclean(topic)
            else None
            for topic, partition in context.partition_states.to_bring_online()
        )
        return _run_of(context, changes)

    # After something has changed.

    def bring_online(self, topic_name: str | None = None) -> Outcome[bool]:
        """Find leaders for partitions without one, of a topic or of all, as far as is allowed.

        For a controller that has just become active, and for settings that allow more than before.
        """
        waiting = self._context.partition_states.to_bring_online(topic_name)
        return _run_of(self._context, leader_and_isr_changes(self._context, partitions=waiting))

    # Inside.

    def _unbalanced_brokers(self, strayed: Iterable[IndexedPartition]) -> frozenset[int]:
        """The preferred leaders of `strayed` partitions that miss too many, and could lead them."""
        missing: dict[int, int] = {}
        for _, partition in strayed:
            preferred = partition.replicas[0]
            missing[preferred] = missing.get(preferred, 0) + 1
        context = self._context
        percentage = context.settings.leader_imbalance_per_broker_percentage
        partitions_on = context.partitions.partitions_on
        unbalanced = []
        for broker_id, count in missing.items():
            if not is_active(context.image.brokers.get(broker_id)):
                continue
            if broker_id in self._being_balanced or percentage == 0:
                unbalanced.append(broker_id)
                continue
            preferred_count = sum(
                1 for _, partition in partitions_on(broker_id) if partition.replicas[0] == broker_id
            )
            if count * 100 > percentage * preferred_count:
                unbalanced.append(broker_id)
        return frozenset(unbalanced)


class Affected(NamedTuple):
    """What to bring online: the partitions of a topic, or, without a name, all."""

    topic_name: str | None


def to_elect_after(records: Iterable[MetadataRecord]) -> Affected | None:
    """What to bring online when these records have happened; None for nothing.

    Partitions may have waited for a leader of a topic that now takes an unclean one. Taking a
    topic's own setting away counts: what is beneath it may permit what it forbade. More than one
    topic is all of them: whoever has no leader is known, and is asked at no great cost.
    """
    found: set[str | None] = set()
    for record in records:
        if not isinstance(record, ConfigRecord) or record.name != _UNCLEAN_ELECTION:
            continue
        if record.value is None or record.value.lower() == "true":
            is_topic = record.resource_type == ConfigResourceType.TOPIC
            found.add(record.resource_name if is_topic else None)
    if not found:
        return None
    return Affected(found.pop() if len(found) == 1 else None)


class _RequestedElections:
    """One request for elections: what it writes, and what it is told."""

    __slots__ = ("_builders", "_context", "_count", "_election", "_is_brief", "_seen", "results")

    def __init__(self, context: ControllerContext, election: Election, *, is_brief: bool) -> None:
        """With `is_brief`, partitions that need no election are passed over in silence."""
        self._context = context
        self._election = election
        self._is_brief = is_brief
        self._builders = ChangeBuilders(context)
        self._seen: set[tuple[str, int]] = set()
        self._count = 0
        self.results: list[ReplicaElectionResult] = []

    def changes(
        self, asked: Iterable[tuple[str, Iterable[int]]]
    ) -> Iterator[PartitionChangeRecord | None]:
        """The outcome of each election; the results grow on the way."""
        for topic_name, partition_ids in asked:
            topic = self._context.image.topics.get(topic_name)
            partition_results: list[PartitionResult] = []
            for partition_id in partition_ids:
                record = self._elect(topic_name, topic, partition_id)
                code = ErrorCode.NONE if isinstance(record, PartitionChangeRecord) else record
                if not (self._is_brief and code is ErrorCode.ELECTION_NOT_NEEDED):
                    message = None if code is ErrorCode.NONE else code.message
                    partition_results.append(
                        PartitionResult(
                            partition_id=partition_id, error_code=code, error_message=message
                        )
                    )
                yield record if isinstance(record, PartitionChangeRecord) else None
            if partition_results or not self._is_brief:
                self.results.append(
                    ReplicaElectionResult(topic=topic_name, partition_result=partition_results)
                )

    def _elect(
        self, topic_name: str, topic: TopicImage | None, partition_id: int
    ) -> PartitionChangeRecord | ErrorCode:
        """The change, or why there is none."""
        if topic is None or not 0 <= partition_id < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic_name, partition_id) in self._seen:
            return ErrorCode.INVALID_REQUEST
        self._seen.add((topic_name, partition_id))
        partition = topic.partitions[partition_id]
        is_preferred = self._election is Election.PREFERRED
        if partition.leader == partition.replicas[0] if is_preferred else partition.leader >= 0:
            return ErrorCode.ELECTION_NOT_NEEDED
        if self._count >= MAX_RECORDS_PER_REQUEST:
            return ErrorCode.POLICY_VIOLATION
        record = _elected(self._builders, topic, partition, self._election)
        if record is None:
            if is_preferred:
                return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        self._count += 1
        return record


def _elected(
    builders: ChangeBuilders, topic: TopicImage, partition: PartitionRecord, election: Election
) -> PartitionChangeRecord | None:
    """The change that gives the partition another leader; None if the election finds none."""
    if partition_state(partition) is PartitionState.NEW:
        return initialised(partition, builders.is_acceptable)
    builder = builders.builder(topic, partition)
    builder.election = election
    record = builder.build()
    return record if record is not None and record.leader > NO_LEADER else None


def _ignore(has_more: bool) -> None:
    """Nobody else wants to know."""


def _run_of(
    context: ControllerContext,
    changes: Iterator[PartitionChangeRecord | None],
    note: Callable[[bool], None] = _ignore,
) -> Outcome[bool]:
    """The first changes, in parts. `note` is told at the end whether there may be more."""

    def finish(records: tuple[PartitionChangeRecord, ...], _: int) -> ControllerResult[bool]:
        has_more = any(True for _ in changes)
        note(has_more)
        return ControllerResult(records, has_more, is_atomic=False)

    return in_parts(_capped(changes), context.settings.partitions_at_once, finish, 0)


def _capped(
    changes: Iterator[PartitionChangeRecord | None],
) -> Iterator[PartitionChangeRecord | None]:
    count = 0
    for change in changes:
        yield change
        count += change is not None
        if count == MAX_ELECTIONS_PER_RUN:
            return
