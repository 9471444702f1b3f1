"""A group machine on a real shard, and members of classic groups who talk to it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from coordinator.shard_kit import ShardRig, Waiting

from kraftpy.coordinator.groups.classic_group import ClassicGroup
from kraftpy.coordinator.groups.classic_member import JoinCall
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.memory_shard_log import MemoryShardLog
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.coordinator_records import GROUP_RECORDS
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.consumer_protocol import ConsumerProtocolSubscription
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftpy.protocol.schema.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest
from kraftpy.protocol.schema.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3000
NEW_MEMBER_MS = 300_000


def subscription(*topics: str, version: int = 1) -> bytes:
    message = ConsumerProtocolSubscription(topics=list(topics))
    return struct.pack(">h", version) + encode_bytes(message, version)


class Watched(str):
    """A name that counts how often it is compared with another."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Watched.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class ClassicRig(ShardRig[GroupMachine]):
    """The shard; everything is committed at once unless a test says otherwise."""

    def __init__(
        self,
        settings: GroupSettings | None = None,
        *,
        commits_at_once: bool = True,
        log: MemoryShardLog | None = None,
        image: MetadataImage = EMPTY_IMAGE,
        seed: int = 1,
    ) -> None:
        random = Random(seed)
        self.group_settings = settings or GroupSettings()
        super().__init__(
            lambda context: GroupMachine(context, self.group_settings, random),
            GROUP_RECORDS,
            commits_at_once=commits_at_once,
            log=log,
            image=image,
        )

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.machine.directory.get(group_id)
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> str:
        return self.group().state_name

    def member(self, **fields: Any) -> Member:
        return Member(self, **fields)

    def stable(self, count: int = 1, **fields: Any) -> list[Member]:
        """That many members with an assignment each; the first one leads."""
        members = [self.member(**fields) for _ in range(count)]
        for member in members:
            member.enter()
        self.advance(self.group_settings.initial_rebalance_delay_ms * 2)
        rebalance(members)
        return members

    def commit_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        group_id: str = "g",
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        metadata: str | None = "",
        version: int = 9,
        retention_ms: int = -1,
    ) -> Waiting:
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
        )
        return self.write(lambda machine: machine.offsets.commit(request, version))


class Member:
    """A client in a group, as it sees itself."""

    def __init__(
        self,
        rig: ClassicRig,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocols: Iterable[tuple[str, bytes]] = (("range", subscription("t")),),
        protocol_type: str = "consumer",
        version: int = 9,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "c",
    ) -> None:
        self.rig = rig
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = list(protocols)
        self.protocol_type = protocol_type
        self.version = version
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.client_id = client_id
        self.member_id = ""
        self.generation = -1
        self.joining = Waiting()
        self.syncing = Waiting()

    def join(self) -> Waiting:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self.protocols
            ],
        )
        waiting = self.joining = Waiting()
        call = JoinCall(request, self.version, self.client_id, "/10.0.0.1", waiting)
        self.rig.shard.write(lambda machine: machine.classic.join(call), waiting)
        self.rig.settle()
        return waiting

    def enter(self) -> Waiting:
        """Join with an id that is asked for first, where that is needed."""
        waiting = self.join()
        answers = [each for each in waiting.replies if not isinstance(each, Exception)]
        if answers and answers[0].error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answers[0].member_id
            waiting = self.join()
        return waiting

    def joined(self) -> Any:
        """Take over what the group answered."""
        answer = self.joining.answer
        assert answer is not None, "still waiting"
        assert answer.error_code == 0, answer.error_code
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        return answer

    def sync(self, assignments: Mapping[str, bytes] | None = None, **fields: Any) -> Waiting:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        waiting = self.syncing = Waiting()
        self.rig.shard.write(lambda machine: machine.classic.sync(request, waiting), waiting)
        self.rig.settle()
        return waiting

    def heartbeat(self, **fields: Any) -> Waiting:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return self.rig.write(lambda machine: machine.classic.heartbeat(request))

    def leave(self, *others: MemberIdentity) -> Waiting:
        own = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=self.group_id, members=list(others) or [own])
        return self.rig.write(lambda machine: machine.classic.leave(request))

    def commit(self, offset: int = 1, **fields: Any) -> Waiting:
        return self.rig.commit_offset(
            "t",
            0,
            offset,
            group_id=self.group_id,
            generation=fields.pop("generation", self.generation),
            member_id=fields.pop("member_id", self.member_id),
            instance_id=fields.pop("instance_id", self.instance_id),
            **fields,
        )


def assignment_of(member: Member) -> bytes:
    return f"for {member.member_id} in {member.generation}".encode()


def rebalance(members: Iterable[Member]) -> None:
    """All have joined: let everybody sync, and check what it gets."""
    members = list(members)
    leaders = [member for member in members if member.joined().leader == member.member_id]
    (leader,) = leaders
    assignments = {member.member_id: assignment_of(member) for member in members}
    for member in members:
        member.sync(assignments if member is leader else None)
    for member in members:
        assert member.syncing.answer.assignment == assignment_of(member)
