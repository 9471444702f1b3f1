"""Creating, growing and deleting topics.

All topics of a request become one batch: its records are seen together or not at all. What to write
is decided in steps, with a rest after so many partitions or topics. A topic that is refused takes
nothing from the others. A new partition is online from its first record on: its ISR is whoever of
its replicas is active, in their order, and the first of them leads. Where nobody is active the
topic is not created.

Deleting is one record. The topic is gone from the metadata at once, with its settings and with a
reassignment that may be under way, and its name is free; what remains is to unlink files, which
topic_deletion.py follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from kraftpy.metadata.controller.configs import ConfigControl
from kraftpy.metadata.controller.partition_change import default_directory
from kraftpy.metadata.controller.placement import (
    PlacementError,
    ReplicaPlacer,
    is_active,
    usable_brokers,
)
from kraftpy.metadata.controller.result import (
    MAX_RECORDS_PER_REQUEST,
    Caller,
    ControllerError,
    ControllerResult,
    Outcome,
    Refusal,
    in_steps,
)
from kraftpy.metadata.controller.topic_names import (
    CLUSTER_METADATA_TOPIC,
    TopicNames,
    unified_name,
    wrong_name,
)
from kraftpy.metadata.controller.view import MetadataView
from kraftpy.metadata.features import DIRECTORIES_LEVEL
from kraftpy.metadata.image import TopicImage
from kraftpy.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid, random_uuid
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k37_create_partitions as k37
from kraftpy.world import Random

__all__ = ["TopicControl"]

T = TypeVar("T")

# What comes of something that is done with a rest now and then.
_Steps: TypeAlias = Generator[None, None, T]

# What small topics of a request come to before there is a rest; a topic is as much work as so many
# partitions more than it has.
_PARTITIONS_BETWEEN_RESTS: Final = 150
_PARTITIONS_WORTH_A_TOPIC: Final = 5

# Until this version of DeleteTopics, clients don't know the error of disabled deletion.
_FIRST_VERSION_WITH_DELETION_DISABLED = 3

_TOO_MANY_CHANGES = Refusal(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED.message
)
_DUPLICATE_NAME = Refusal(ErrorCode.INVALID_REQUEST, "the request names the topic twice")


@dataclass(frozen=True, slots=True)
class _NewTopic:
    topic_id: Uuid
    configs: tuple[ConfigRecord, ...]
    partitions: tuple[PartitionRecord, ...]

    def records(self, name: str) -> Iterable[MetadataRecord]:
        yield TopicRecord(name, self.topic_id)
        yield from self.configs
        yield from self.partitions


@dataclass(slots=True)
class _Deletions:
    """What a request to delete topics asks for, as far as it has been read."""

    results: list[k20.DeletableTopicResult] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)
    ids: Counter[Uuid] = field(default_factory=Counter)

    def answer(self, name: str | None, topic_id: Uuid, refusal: Refusal | None) -> None:
        self.results.append(
            k20.DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=refusal.code if refusal else ErrorCode.NONE,
                error_message=refusal.message if refusal else None,
            )
        )


class TopicControl:
    def __init__(
        self, context: MetadataView, names: TopicNames, configs: ConfigControl, random: Random
    ) -> None:
        self._context = context
        self._names = names
        self._configs = configs
        self._random = random

    def _is_time_to_rest(self, count: int) -> bool:
        """After so many partitions, or topics."""
        return count % self._context.settings.partitions_at_once == 0

    # Creating.

    def create_topics(
        self, request: k19.CreateTopicsRequest, caller: Caller
    ) -> Outcome[k19.CreateTopicsResponse]:
        return in_steps(self._create_topics(request, caller))

    def _create_topics(
        self, request: k19.CreateTopicsRequest, caller: Caller
    ) -> _Steps[Outcome[k19.CreateTopicsResponse]]:
        default_count = self._context.settings.num_partitions
        _limit_partitions(_wanted_partitions(topic, default_count) for topic in request.topics)
        times_named = Counter(topic.name for topic in request.topics)
        created: dict[str, _NewTopic] = {}
        # Topics of this request that others may collide with, by their unified names.
        newcomers: dict[str | None, str] = {}
        results: dict[str, k19.CreatableTopicResult] = {}
        done = 0
        for number, topic in enumerate(request.topics, 1):
            if self._is_time_to_rest(number) or done >= _PARTITIONS_BETWEEN_RESTS:
                done = 0
                yield
            outcome: _NewTopic | Refusal
            if times_named[topic.name] > 1:
                outcome = _DUPLICATE_NAME
            else:
                outcome = yield from self._create(topic, newcomers)
                if isinstance(outcome, _NewTopic) and not caller.may_change(
                    len(outcome.partitions)
                ):
                    outcome = _TOO_MANY_CHANGES
            if isinstance(outcome, Refusal):
                results[topic.name] = k19.CreatableTopicResult(
                    name=topic.name, error_code=outcome.code, error_message=outcome.message
                )
                continue
            done += _PARTITIONS_WORTH_A_TOPIC + len(outcome.partitions)
            created[topic.name] = outcome
            newcomers[unified_name(topic.name)] = topic.name
            results[topic.name] = self._created_answer(topic.name, outcome)
        answer = k19.CreateTopicsResponse(topics=list(results.values()))
        if request.validate_only:
            return ControllerResult((), answer)
        records = [record for name, topic in created.items() for record in topic.records(name)]
        return ControllerResult(tuple(records), answer)

    def _created_answer(self, name: str, topic: _NewTopic) -> k19.CreatableTopicResult:
        settings = {each.name: each.value for each in topic.configs if each.value is not None}
        return k19.CreatableTopicResult(
            name=name,
            topic_id=topic.topic_id,
            num_partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
            configs=self._configs.describe_new_topic(settings),
        )

    def _create(
        self, topic: k19.CreatableTopic, newcomers: Mapping[str | None, str]
    ) -> _Steps[_NewTopic | Refusal]:
        """The new topic, or the first of the reasons why there can't be one."""
        refusal = self._refuse_name(topic.name, newcomers)
        if refusal is not None:
            return refusal
        settings = {each.name: each.value for each in topic.configs if each.value is not None}
        without_value = [each.name for each in topic.configs if each.value is None]
        if without_value:
            message = f"these can't be set to null: {', '.join(without_value)}"
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        configs = self._configs.new_topic_records(topic.name, settings)
        if isinstance(configs, Refusal):
            return configs
        assignments = yield from self._assign(topic)
        if isinstance(assignments, Refusal):
            return assignments
        topic_id = random_uuid(self._random)
        partitions = yield from self._new_partitions(topic_id, 0, assignments)
        return _NewTopic(topic_id, configs, partitions)

    def _refuse_name(self, name: str, newcomers: Mapping[str | None, str]) -> Refusal | None:
        if name == CLUSTER_METADATA_TOPIC:
            message = f"{name} is the cluster's own and can't be created"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        reason = wrong_name(name)
        if reason is not None:
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        if name in self._context.image.topics:
            return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {name} already")
        unified = unified_name(name)
        other = self._names.colliding(name)
        if other is None and unified is not None:
            other = newcomers.get(unified)
        if other is not None:
            message = f"{name} differs from the topic {other} only in dots and underscores"
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
        return None

    def _assign(self, topic: k19.CreatableTopic) -> _Steps[list[tuple[int, ...]] | Refusal]:
        """The replicas of each partition of a new topic."""
        if topic.assignments:
            return (yield from self._assign_by_hand(topic))
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            message = "the replication factor must be above 0, or -1 for the default"
            return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            message = "the number of partitions must be above 0, or -1 for the default"
            return Refusal(ErrorCode.INVALID_PARTITIONS, message)
        settings = self._context.settings
        replication_factor = topic.replication_factor
        if replication_factor == -1:
            replication_factor = settings.default_replication_factor
        count = settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        return (yield from self._place(count, replication_factor))

    def _assign_by_hand(self, topic: k19.CreatableTopic) -> _Steps[list[tuple[int, ...]] | Refusal]:
        if topic.replication_factor != -1 or topic.num_partitions != -1:
            message = "with replicas assigned by hand, both counts must be -1"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        assigned: dict[int, tuple[int, ...]] = {}
        replication_factor: int | None = None
        for assignment in topic.assignments:
            if assignment.partition_index in assigned:
                message = f"partition {assignment.partition_index} is assigned twice"
                return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            replicas = tuple(assignment.broker_ids)
            refusal = self._refuse_replicas(replicas, replication_factor)
            if refusal is not None:
                return refusal
            replication_factor = len(replicas)
            assigned[assignment.partition_index] = replicas
            if self._is_time_to_rest(len(assigned)):
                yield
        if sorted(assigned) != list(range(len(assigned))):
            message = "the partitions must be numbered from 0 without gaps"
            return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        return [assigned[number] for number in range(len(assigned))]

    def _refuse_replicas(
        self, replicas: Sequence[int], replication_factor: int | None
    ) -> Refusal | None:
        """Why a new partition can't have these replicas; None if it can."""
        brokers = self._context.image.brokers
        message = None
        unknown = [broker for broker in replicas if broker not in brokers]
        if not replicas:
            message = "a partition is assigned to no broker"
        elif unknown:
            message = f"no broker with the id {min(unknown)} is registered"
        elif len(set(replicas)) != len(replicas):
            message = f"the replicas {list(replicas)} name a broker twice"
        elif replication_factor is not None and len(replicas) != replication_factor:
            message = (
                f"a partition has {len(replicas)} replicas where others have {replication_factor}"
            )
        elif not self._active(replicas):
            message = f"all of the brokers {list(replicas)} are fenced or shutting down"
        if message is None:
            return None
        return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)

    def _place(
        self, partition_count: int, replication_factor: int
    ) -> _Steps[list[tuple[int, ...]] | Refusal]:
        placer = ReplicaPlacer(usable_brokers(self._context.image), self._random)
        try:
            places = placer.place(partition_count, replication_factor)
        except PlacementError as error:
            message = f"a partition can't have {replication_factor} replicas: {error}"
            return Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        placed: list[tuple[int, ...]] = []
        for replicas in places:
            placed.append(replicas)
            if self._is_time_to_rest(len(placed)):
                yield
        return placed

    def _active(self, replicas: Sequence[int]) -> tuple[int, ...]:
        brokers = self._context.image.brokers
        return tuple(broker for broker in replicas if is_active(brokers.get(broker)))

    def _new_partitions(
        self, topic_id: Uuid, first_number: int, assignments: Sequence[tuple[int, ...]]
    ) -> _Steps[tuple[PartitionRecord, ...]]:
        image = self._context.image
        has_directories = image.metadata_version >= DIRECTORIES_LEVEL
        partitions = []
        for number, replicas in enumerate(assignments, first_number):
            isr = self._active(replicas)
            directories = (default_directory(image, broker) for broker in replicas)
            partitions.append(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=isr,
                    leader=isr[0],
                    directories=tuple(directories) if has_directories else (),
                )
            )
            if self._is_time_to_rest(len(partitions)):
                yield
        return tuple(partitions)

    # Growing.

    def create_partitions(
        self, request: k37.CreatePartitionsRequest, caller: Caller
    ) -> Outcome[k37.CreatePartitionsResponse]:
        return in_steps(self._create_partitions(request, caller))

    def _create_partitions(
        self, request: k37.CreatePartitionsRequest, caller: Caller
    ) -> _Steps[Outcome[k37.CreatePartitionsResponse]]:
        topics = self._context.image.topics
        _limit_partitions(
            topic.count - len(present.partitions)
            for topic in request.topics
            if (present := topics.get(topic.name)) is not None
        )
        times_named = Counter(topic.name for topic in request.topics)
        records: list[MetadataRecord] = []
        results: dict[str, k37.CreatePartitionsTopicResult] = {}
        done = 0
        for number, topic in enumerate(request.topics, 1):
            if self._is_time_to_rest(number) or done >= _PARTITIONS_BETWEEN_RESTS:
                done = 0
                yield
            present = topics.get(topic.name)
            grown: tuple[PartitionRecord, ...] | Refusal
            if times_named[topic.name] > 1:
                grown = _DUPLICATE_NAME
            elif present is None:
                message = f"there is no topic {topic.name}"
                grown = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
            else:
                grown = yield from self._grow(present, topic)
                if not isinstance(grown, Refusal) and not caller.may_change(len(grown)):
                    grown = _TOO_MANY_CHANGES
            refusal = grown if isinstance(grown, Refusal) else None
            results[topic.name] = k37.CreatePartitionsTopicResult(
                name=topic.name,
                error_code=refusal.code if refusal else ErrorCode.NONE,
                error_message=refusal.message if refusal else None,
            )
            if not isinstance(grown, Refusal):
                done += _PARTITIONS_WORTH_A_TOPIC + len(grown)
                records += grown
        answer = k37.CreatePartitionsResponse(results=list(results.values()))
        return ControllerResult(() if request.validate_only else tuple(records), answer)

    def _grow(
        self, topic: TopicImage, wanted: k37.CreatePartitionsTopic
    ) -> _Steps[tuple[PartitionRecord, ...] | Refusal]:
        present = len(topic.partitions)
        if wanted.count <= present:
            message = f"the topic has {present} partitions, so that {wanted.count} are no growth"
            return Refusal(ErrorCode.INVALID_PARTITIONS, message)
        replication_factor = len(topic.partitions[0].replicas)
        assignments: list[tuple[int, ...]] | Refusal
        if wanted.assignments is None:
            assignments = yield from self._place(wanted.count - present, replication_factor)
        else:
            assignments = [tuple(each.broker_ids) for each in wanted.assignments]
            if len(assignments) != wanted.count - present:
                message = (
                    f"{len(assignments)} assignments were given "
                    f"for {wanted.count - present} new partitions"
                )
                return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            for number, replicas in enumerate(assignments, 1):
                refusal = self._refuse_replicas(replicas, replication_factor)
                if refusal is not None:
                    return refusal
                if self._is_time_to_rest(number):
                    yield
        if isinstance(assignments, Refusal):
            return assignments
        return (yield from self._new_partitions(topic.topic_id, present, assignments))

    # Deleting.

    def delete_topics(
        self, request: k20.DeleteTopicsRequest, caller: Caller
    ) -> Outcome[k20.DeleteTopicsResponse]:
        return in_steps(self._delete_topics(request, caller))

    def _delete_topics(
        self, request: k20.DeleteTopicsRequest, caller: Caller
    ) -> _Steps[Outcome[k20.DeleteTopicsResponse]]:
        if not self._context.settings.delete_topic_enable:
            if caller.api_version < _FIRST_VERSION_WITH_DELETION_DISABLED:
                raise ControllerError(ErrorCode.INVALID_REQUEST, "deleting topics is disabled")
            raise ControllerError(ErrorCode.TOPIC_DELETION_DISABLED)
        wanted = _read_deletions(request)
        records = []
        doomed = yield from self._find_doomed(wanted)
        for number, topic in enumerate(doomed, 1):
            if self._is_time_to_rest(number):
                yield
            is_allowed = caller.may_change(len(topic.partitions))
            refusal = None if is_allowed else _TOO_MANY_CHANGES
            wanted.answer(topic.name, topic.topic_id, refusal)
            if is_allowed:
                records.append(RemoveTopicRecord(topic.topic_id))
        answer = k20.DeleteTopicsResponse(responses=wanted.results)
        return ControllerResult(tuple(records), answer)

    def _find_doomed(self, wanted: _Deletions) -> _Steps[list[TopicImage]]:
        """The topics to delete; the others that were asked for get their answers."""
        image = self._context.image
        doomed: dict[Uuid, TopicImage] = {}
        for number, (topic_id, times) in enumerate(wanted.ids.items(), 1):
            if self._is_time_to_rest(number):
                yield
            topic = image.topic_by_id(topic_id)
            if times > 1:
                refusal = Refusal(ErrorCode.INVALID_REQUEST, "the request names the id twice")
                wanted.answer(None, topic_id, refusal)
            elif topic is None:
                wanted.answer(None, topic_id, _plain(ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                doomed[topic_id] = topic
        for number, (name, times) in enumerate(wanted.names.items(), 1):
            if self._is_time_to_rest(number):
                yield
            topic = image.topics.get(name)
            if times > 1:
                wanted.answer(name, ZERO_UUID, _DUPLICATE_NAME)
            elif topic is None:
                wanted.answer(name, ZERO_UUID, _plain(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif topic.topic_id in wanted.ids:
                # Deleting it for the sake of one of the two would hide that they are one topic.
                doomed.pop(topic.topic_id, None)
                message = "the request names the topic by its name and by its id"
                wanted.answer(name, topic.topic_id, Refusal(ErrorCode.INVALID_REQUEST, message))
            else:
                doomed[topic.topic_id] = topic
        return list(doomed.values())


def _read_deletions(request: k20.DeleteTopicsRequest) -> _Deletions:
    wanted = _Deletions()
    wanted.names.update(request.topic_names)
    for topic in request.topics:
        has_id = topic.topic_id != ZERO_UUID
        if topic.name is None and not has_id:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, "neither a name nor an id was given")
            wanted.answer(None, ZERO_UUID, refusal)
        elif topic.name is not None and has_id:
            refusal = Refusal(ErrorCode.INVALID_REQUEST, "both a name and an id were given")
            wanted.answer(topic.name, topic.topic_id, refusal)
        elif topic.name is None:
            wanted.ids[topic.topic_id] += 1
        else:
            wanted.names[topic.name] += 1
    return wanted


def _plain(code: ErrorCode) -> Refusal:
    return Refusal(code, code.message)


def _wanted_partitions(topic: k19.CreatableTopic, default_count: int) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return default_count if topic.num_partitions == -1 else topic.num_partitions


def _limit_partitions(counts: Iterable[int]) -> None:
    """Refuse a request for more partitions than one batch holds, before any is made."""
    if sum(max(count, 0) for count in counts) > MAX_RECORDS_PER_REQUEST:
        message = f"one request may make at most {MAX_RECORDS_PER_REQUEST} partitions"
        raise ControllerError(ErrorCode.POLICY_VIOLATION, message)
