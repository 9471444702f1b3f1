"""OffsetFetch (9): read how far groups have read.

Before version 8 a request is about one group, and its offsets stand in the response itself. Since
version 10 topics are named by their ids. Whoever wants stable offsets waits for those that are on
their way into the log, and gets an error for those that an open transaction may change; others get
what is committed, at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraftpy.api.access import Access
from kraftpy.api.group_requests import Gathering, GroupHandler, GroupRuntime
from kraftpy.api.handler import RequestContext
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["OffsetFetchHandler"]

_FIRST_VERSION_WITH_ERROR: Final = 2
_FIRST_VERSION_WITH_GROUPS: Final = 8
_FIRST_VERSION_WITH_IDS: Final = 10
_NO_OFFSET: Final = -1


class OffsetFetchHandler(GroupHandler):
    api_key = 9

    def __init__(
        self, runtime: GroupRuntime, lookup: CoordinatorLookup, cluster: BrokerMetadata
    ) -> None:
        super().__init__(runtime, lookup)
        self._cluster = cluster

    def handle(self, request: OffsetFetchRequest, context: RequestContext) -> None:
        version = context.api_version
        asked = _groups(request, version)
        answers = [OffsetFetchResponseGroup(group_id=each.group_id) for each in asked]
        gathering = Gathering(len(asked), lambda: context.respond(_response(answers, version)))
        for group, answer in zip(asked, answers, strict=True):
            fetch = _GroupFetch(group, answer, gathering, context.access)
            if not context.access.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
                fetch.done(CoordinatorError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
                continue
            if version >= _FIRST_VERSION_WITH_IDS:
                fetch.name_topics(self._cluster)
            fetch.refuse_topics()
            self._fetch(fetch, is_stable=request.require_stable)

    def _fetch(self, fetch: _GroupFetch, *, is_stable: bool) -> None:
        group = fetch.group
        if is_stable:
            # As an operation, whose answer comes after those of earlier ones.
            self.write(
                group.group_id,
                lambda machine: Outcome(answer=machine.offsets.fetch(group, is_stable=True)),
                fetch.done,
            )
            return
        answer: OffsetFetchResponseGroup | CoordinatorError
        try:
            answer = self.read(
                group.group_id, lambda machine: machine.offsets.fetch(group, is_stable=False)
            )
        except CoordinatorError as error:
            answer = error
        fetch.done(answer)

    def error_answer(
        self, request: OffsetFetchRequest, context: RequestContext, code: ErrorCode, message: str
    ) -> OffsetFetchResponse:
        version = context.api_version
        answers = []
        for group in _groups(request, version):
            answer = OffsetFetchResponseGroup(group_id=group.group_id)
            _fail(group, answer, code)
            answers.append(answer)
        return _response(answers, version)

    def error_codes(self, response: OffsetFetchResponse) -> Iterator[int]:
        yield response.error_code
        for topic in response.topics:
            for each in topic.partitions:
                yield each.error_code
        for group in response.groups:
            yield group.error_code
            for of_group in group.topics:
                for partition in of_group.partitions:
                    yield partition.error_code


class _GroupFetch:
    """One group of a request, and the place of its answer."""

    __slots__ = ("_access", "_answer", "_by_id", "_failed", "_gathering", "_wants_all", "group")

    def __init__(
        self,
        group: OffsetFetchRequestGroup,
        answer: OffsetFetchResponseGroup,
        gathering: Gathering,
        access: Access,
    ) -> None:
        self.group = group
        self._answer = answer
        self._gathering = gathering
        self._access = access
        self._wants_all = group.topics is None
        # With ids in the request: the cluster that knows their names.
        self._by_id: BrokerMetadata | None = None
        # Topics that the coordinator is not asked for.
        self._failed: list[OffsetFetchResponseTopics] = []

    def name_topics(self, cluster: BrokerMetadata) -> None:
        """The coordinator knows topics by their names. One that has none is not asked for."""
        self._by_id = cluster
        if self.group.topics is None:
            return
        named = []
        for topic in self.group.topics:
            found = cluster.image.topic_by_id(topic.topic_id)
            if found is None:
                self._failed.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                topic.name = found.name
                named.append(topic)
        self.group.topics = named

    def refuse_topics(self) -> None:
        """Take out what the asker may not know of. Of all topics, that is just not told."""
        if self.group.topics is None or not self._access.is_limited:
            return
        allowed = []
        for topic in self.group.topics:
            if self._may_describe(topic.name):
                allowed.append(topic)
            else:
                self._failed.append(_failed(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        self.group.topics = allowed

    def _may_describe(self, name: str, *, is_probe: bool = False) -> bool:
        return self._access.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name, is_probe=is_probe)

    def done(self, found: OffsetFetchResponseGroup | CoordinatorError) -> None:
        if isinstance(found, CoordinatorError):
            _fail(self.group, self._answer, _known_to_consumers(found.code))
        else:
            topics = found.topics
            if self._wants_all and self._access.is_limited:
                topics = [each for each in topics if self._may_describe(each.name, is_probe=True)]
            self._answer.topics = self._identified(topics) + self._failed
        self._gathering.one_is_there()

    def _identified(
        self, topics: list[OffsetFetchResponseTopics]
    ) -> list[OffsetFetchResponseTopics]:
        """With their ids. One whose id is not known can't be answered for, since it is gone."""
        if self._by_id is None:
            return topics
        image = self._by_id.image
        for topic in topics:
            known = image.topics.get(topic.name)
            if topic.topic_id == ZERO_UUID and known is not None:
                topic.topic_id = known.topic_id
        return [topic for topic in topics if topic.topic_id != ZERO_UUID]


def _groups(request: OffsetFetchRequest, api_version: int) -> list[OffsetFetchRequestGroup]:
    """The groups that a request of any version asks for."""
    if api_version >= _FIRST_VERSION_WITH_GROUPS:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _response(groups: list[OffsetFetchResponseGroup], api_version: int) -> OffsetFetchResponse:
    """The answer in the shape of a version."""
    if api_version >= _FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    response = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code or group.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ]
    )
    if api_version >= _FIRST_VERSION_WITH_ERROR:
        response.error_code = group.error_code
    return response


def _fail(
    group: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup, code: ErrorCode
) -> None:
    """The error is the group's; older versions can only say so for each partition."""
    answer.error_code = code
    answer.topics = [_failed(topic, code) for topic in group.topics or ()]


def _failed(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _known_to_consumers(code: ErrorCode) -> ErrorCode:
    """Consumers do not expect a coordinator that can't answer in time, but know one that moved."""
    if code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return ErrorCode.NOT_COORDINATOR
    return code
