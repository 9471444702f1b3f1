"""A bare member of a group: it says to the coordinator what it is told to, and keeps the answers.

Libraries hide when they learned what; here one call is one exchange, so that the history has
exactly when the coordinator handed out which generation and which partitions, and what the member
held when it asked.

- The consumer protocol: a heartbeat, with what the member owns. What the answer assigns it owns
  from then on, and what the answer takes away it has given up by the next heartbeat.
- The classic protocol: a heartbeat; if that says that the group rebalances, JoinGroup and
  SyncGroup. A leader gives keys to members in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError, error_code
from kraftpy.client.group_subscription import (
    read_assignment,
    write_assignment,
    write_subscription,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid, parse_uuid, random_uuid
from kraftpy.protocol.schema import k08_offset_commit as k08
from kraftpy.protocol.schema import k09_offset_fetch as k09
from kraftpy.protocol.schema import k68_consumer_group_heartbeat as k68
from kraftpy.protocol.schema.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest
from kraftpy.protocol.schema.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kraftpy.protocol.tables import Request
from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.outcomes import AfterCommit, ClientError, Effect, Meaning
from kraftpy.verify.workloads.own_client import client_error
from kraftpy.verify.workloads.port import ClientSpec, CommittedOffset, WorkloadAdmin
from kraftpy.verify.workloads.raw_client import RawClient
from kraftpy.world import Address, Random

__all__ = ["RawMember"]

_PROTOCOL = "range"
_LAST_WITH_NAMES = 9
_JOIN: Final = 0
_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2
# Said before anything is done. NOT_COORDINATOR is not among them: a coordinator that loses its
# partition while it writes says that too.
_REFUSED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)
_MEMBERSHIP_IS_OVER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)


class RawMember:
    def __init__(
        self,
        raw: RawClient,
        admin: WorkloadAdmin,
        keys: KeySpace,
        spec: ClientSpec,
        random: Random,
    ) -> None:
        self._raw = raw
        self._admin = admin
        self._keys = keys
        self._spec = spec
        self._group = spec.group_id or ""
        self._is_classic = spec.group_protocol == "classic"
        # A classic member gets its id from the coordinator.
        self._member = "" if self._is_classic else random_uuid(random).hex()
        self._generation = _JOIN
        self._owned: list[int] = []
        self._coordinator: Address | None = None
        self._topic_ids: dict[str, Uuid] = {}

    def told(self) -> dict[str, Any]:
        """What the next exchange says of this member."""
        return {**self.identity(), "group": self._group, "owned": list(self._owned)}

    def identity(self) -> dict[str, Any]:
        """A static member is the same one again when it comes back, with what it had."""
        name = self._spec.group_instance_id or self._member
        return {"member": name, "generation": self._generation}

    async def join(self, subscribed: Sequence[int]) -> dict[str, Any]:
        """Be a member, or stay one; what the coordinator says of this member now."""
        if self._is_classic:
            await self._classic(subscribed)
        else:
            await self._consumer(subscribed)
        told = {"group": self._group, **self.identity(), "assignment": list(self._owned)}
        if self._spec.group_instance_id is not None:
            told["instance"] = self._spec.group_instance_id
        if not self._is_classic:
            # A member that has taken over its part is on the epoch of the assignment.
            told["target"] = self._generation
        return told

    def leaving(self) -> dict[str, Any]:
        """Who leaves: this one, and not whoever takes its name later."""
        return {"group": self._group, "member": self._member}

    async def leave(self) -> None:
        if self._is_classic:
            identity = MemberIdentity(
                member_id=self._member, group_instance_id=self._spec.group_instance_id
            )
            request: Request = LeaveGroupRequest(group_id=self._group, members=[identity])
        else:
            is_static = self._spec.group_instance_id is not None
            request = self._heartbeat(_LEAVE_FOR_A_WHILE if is_static else _LEAVE, None)
        self._check((await self._ask(request)).error_code)
        self._forget()

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        topics: dict[str, k08.OffsetCommitRequestTopic] = {}
        for (name, partition), each in offsets.items():
            topic = topics.setdefault(name, k08.OffsetCommitRequestTopic(name=name))
            topic.partitions.append(
                k08.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=each.offset,
                    committed_metadata=each.metadata,
                )
            )
        request = k08.OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member,
            group_instance_id=self._spec.group_instance_id,
            topics=list(topics.values()),
        )
        answer = await self._ask(request, max_version=_LAST_WITH_NAMES)
        for topic in answer.topics:
            for each in topic.partitions:
                self._check(each.error_code)

    async def committed(
        self, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Anybody may ask; as a member one would have to be an up-to-date one."""
        asked: dict[str, list[int]] = {}
        found: dict[TopicPartition, CommittedOffset | None] = {}
        for where in wheres:
            asked.setdefault(where.topic, []).append(where.partition)
            found[where] = None
        group = k09.OffsetFetchRequestGroup(
            group_id=self._group,
            topics=[
                k09.OffsetFetchRequestTopics(name=name, partition_indexes=partitions)
                for name, partitions in asked.items()
            ],
        )
        request = k09.OffsetFetchRequest(groups=[group], require_stable=True)
        [answer] = (await self._ask(request, max_version=_LAST_WITH_NAMES)).groups
        self._check(answer.error_code)
        for topic in answer.topics:
            for each in topic.partitions:
                self._check(each.error_code)
                if each.committed_offset >= 0:
                    where = TopicPartition(topic.name, each.partition_index)
                    found[where] = CommittedOffset(each.committed_offset, each.metadata or "")
        return found

    # The consumer protocol.

    async def _consumer(self, subscribed: Sequence[int]) -> None:
        topics = self._keys.topics(subscribed)
        for name in topics:
            if name not in self._topic_ids:
                view = await self._admin.describe_topic(name)
                if view is not None:
                    self._topic_ids[name] = parse_uuid(view.topic_id)
        answer = await self._ask(self._heartbeat(self._generation, topics))
        self._check(answer.error_code)
        self._generation = answer.member_epoch
        if answer.assignment is not None:
            self._owned = self._keys_of(answer.assignment.topic_partitions)

    def _heartbeat(self, epoch: int, topics: list[str] | None) -> k68.ConsumerGroupHeartbeatRequest:
        owned: dict[str, list[int]] = {}
        for key in self._owned:
            where = self._keys.where(key)
            owned.setdefault(where.topic, []).append(where.partition)
        return k68.ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member,
            member_epoch=epoch,
            instance_id=self._spec.group_instance_id,
            rebalance_timeout_ms=self._spec.session_timeout_ms,
            subscribed_topic_names=topics,
            topic_partitions=[
                k68.TopicPartitions(topic_id=self._topic_ids[name], partitions=partitions)
                for name, partitions in owned.items()
            ],
        )

    def _keys_of(self, topics: list[k68.TopicPartitions]) -> list[int]:
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        found = [
            self._keys.key_of(names[topic.topic_id], partition)
            for topic in topics
            if topic.topic_id in names
            for partition in topic.partitions
        ]
        return sorted(key for key in found if key is not None)

    # The classic protocol.

    async def _classic(self, subscribed: Sequence[int]) -> None:
        if self._generation > 0:
            request = HeartbeatRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self._member,
                group_instance_id=self._spec.group_instance_id,
            )
            code = error_code((await self._ask(request)).error_code)
            if code != ErrorCode.REBALANCE_IN_PROGRESS:
                self._check(code)
                return
        answer = await self._join_group(subscribed)
        if error_code(answer.error_code) == ErrorCode.MEMBER_ID_REQUIRED:
            self._member = answer.member_id
            answer = await self._join_group(subscribed)
        self._check(answer.error_code)
        self._member = answer.member_id
        assignments: list[SyncGroupRequestAssignment] = []
        if answer.leader == answer.member_id and not answer.skip_assignment:
            members = sorted(each.member_id for each in answer.members)
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member,
                    assignment=write_assignment(
                        [self._keys.where(key) for key in subscribed[index :: len(members)]]
                    ),
                )
                for index, member in enumerate(members)
            ]
        synced = await self._ask(
            SyncGroupRequest(
                group_id=self._group,
                generation_id=answer.generation_id,
                member_id=self._member,
                group_instance_id=self._spec.group_instance_id,
                protocol_type="consumer",
                protocol_name=_PROTOCOL,
                assignments=assignments,
            )
        )
        self._check(synced.error_code)
        self._generation = answer.generation_id
        assigned = read_assignment(synced.assignment).partitions
        found = [self._keys.key_of(*where) for where in assigned]
        self._owned = sorted(key for key in found if key is not None)

    async def _join_group(self, subscribed: Sequence[int]) -> Any:
        metadata = write_subscription(
            self._keys.topics(subscribed),
            None,
            [self._keys.where(key) for key in self._owned],
            self._generation or -1,
            "",
        )
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._spec.session_timeout_ms,
            rebalance_timeout_ms=self._spec.session_timeout_ms,
            member_id=self._member,
            group_instance_id=self._spec.group_instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=metadata)],
        )
        return await self._ask(request)

    # Both.

    async def _ask(self, request: Request, *, max_version: int | None = None) -> Any:
        if self._coordinator is None:
            try:
                self._coordinator = await self._raw.coordinator(self._group)
            except ClientError as failure:
                # A question that changes nothing.
                raise ClientError(failure.name, _NOTHING_DONE, str(failure)) from failure
        try:
            return await self._raw.request(self._coordinator, request, max_version=max_version)
        except ClientError:
            self._coordinator = None
            raise

    def _check(self, number: int) -> None:
        code = error_code(number)
        if code == ErrorCode.NONE:
            return
        if code in _MEMBERSHIP_IS_OVER:
            self._forget()
        if code.retriable:
            self._coordinator = None
        if code in _REFUSED:
            raise ClientError(code.name, _NOTHING_DONE)
        raise client_error(KafkaError(code), may_be_repeated=False)

    def _forget(self) -> None:
        self._generation = _JOIN
        self._owned = []
        if self._is_classic:
            self._member = ""


_NOTHING_DONE: Final = Meaning(Effect.FAIL, AfterCommit.ABORT)
