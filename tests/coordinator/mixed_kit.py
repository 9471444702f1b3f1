"""Consumers of the classic protocol, as clients are: they join, lead, assign, sync, give up.

Eager ones give everything up before they join again; cooperative ones keep what they have until
they see that it is no longer theirs, and then join again at once.
"""

from __future__ import annotations

from typing import Any

from coordinator.consumer_kit import ConsumerRig, Owned, topic_id
from coordinator.shard_kit import Waiting

from kraftpy.coordinator.assignors.assignor import Subscriber
from kraftpy.coordinator.assignors.uniform import assign_uniformly
from kraftpy.coordinator.groups.classic_member import JoinCall
from kraftpy.coordinator.groups.consumer_embedded import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from kraftpy.protocol.schema.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest
from kraftpy.protocol.schema.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

CLASSIC_SESSION_MS = 30_000
REBALANCE_MS = 60_000
JOIN_VERSION = 9


class ClassicClient:
    def __init__(
        self,
        rig: ConsumerRig,
        client_id: str,
        topics: list[str],
        *,
        instance: str | None = None,
        is_cooperative: bool = False,
        version: int = 1,
        protocol: str = "range",
    ) -> None:
        self.rig = rig
        self.client_id = client_id
        self.topics = topics
        self.instance = instance
        self.is_cooperative = is_cooperative
        self.version = version
        self.protocol = protocol
        self.member_id = ""
        self.generation = -1
        self.owned: Owned = {}
        self.joining: Waiting | None = None
        self.syncing: Waiting | None = None
        self.is_member = False

    # Requests.

    def subscription(self) -> bytes:
        message = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[
                TopicPartition(topic=topic, partitions=sorted(partitions))
                for topic, partitions in sorted(self.owned.items())
                if partitions
            ],
        )
        return self.version.to_bytes(2, "big") + encode_bytes(message, self.version)

    def join(self, **fields: Any) -> Waiting:
        if not self.is_cooperative:
            self.owned = {}
        self.syncing = None
        self.is_member = False
        request = JoinGroupRequest(
            **{
                "group_id": "g",
                "member_id": self.member_id,
                "group_instance_id": self.instance,
                "session_timeout_ms": CLASSIC_SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "protocol_type": "consumer",
                "protocols": [
                    JoinGroupRequestProtocol(name=self.protocol, metadata=self.subscription())
                ],
                **fields,
            }
        )
        waiting = Waiting()
        call = JoinCall(request, JOIN_VERSION, self.client_id, "/classic", waiting)
        self.rig.shard.write(lambda machine: machine.classic.join(call), waiting)
        self.rig.settle()
        self.joining = waiting
        return waiting

    def sync(self, assignments: list[SyncGroupRequestAssignment] | None = None) -> Waiting:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=assignments or [],
        )
        waiting = Waiting()
        self.rig.shard.write(lambda machine: machine.classic.sync(request, waiting), waiting)
        self.rig.settle()
        self.syncing = waiting
        return waiting

    def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        waiting = self.rig.write(lambda machine: machine.classic.heartbeat(request))
        self.rig.commit()
        reply = waiting.replies[0]
        return reply.code if isinstance(reply, CoordinatorError) else ErrorCode(reply.error_code)

    def leave(self) -> ErrorCode:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id="g", members=[identity])
        waiting = self.rig.write(lambda machine: machine.classic.leave(request))
        self.rig.commit()
        self.forget()
        reply = waiting.replies[0]
        if isinstance(reply, CoordinatorError):
            return reply.code
        return ErrorCode(reply.members[0].error_code)

    def forget(self) -> None:
        self.member_id, self.generation, self.owned = "", -1, {}
        self.joining = self.syncing = None
        self.is_member = False

    # A client's life.

    def tick(self) -> None:
        """Whatever is next: take an answer that is there, or say that one is alive."""
        if self.joining is not None:
            self._take_join()
        elif self.syncing is not None:
            self._take_sync()
        elif not self.is_member:
            self.join()
        else:
            self._react(self.heartbeat())

    def _react(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            return
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.forget()
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self.owned, self.generation = {}, -1
        else:
            assert code in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ), code
        self.join()

    def _take_join(self) -> None:
        assert self.joining is not None
        if not self.joining.is_answered:
            return
        reply, self.joining = self.joining.replies[0], None
        code = reply.code if isinstance(reply, CoordinatorError) else ErrorCode(reply.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            self.join()
        elif code is not ErrorCode.NONE:
            self._react(code)
        else:
            self.member_id, self.generation = reply.member_id, reply.generation_id
            is_leader = reply.leader == self.member_id
            self.sync(self._assign(reply) if is_leader else None)

    def _take_sync(self) -> None:
        assert self.syncing is not None
        if not self.syncing.is_answered:
            return
        reply, self.syncing = self.syncing.replies[0], None
        if isinstance(reply, CoordinatorError):
            self._react(reply.code)
            return
        self.is_member = True
        assigned = {
            each.topic: set(each.partitions)
            for each in decode_assignment(reply.assignment).assigned_partitions
        }
        lost = any(
            partitions - assigned.get(topic, set()) for topic, partitions in self.owned.items()
        )
        self.owned = assigned
        if lost and self.is_cooperative:
            self.join()

    def _assign(self, answer: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Even loads; a cooperative leader leaves out what others still have to give up."""
        subscriptions = {
            each.member_id: decode_subscription(each.metadata) for each in answer.members
        }
        owned = {
            member_id: {
                topic_id(each.topic): frozenset(each.partitions)
                for each in subscription.owned_partitions
            }
            for member_id, subscription in subscriptions.items()
        }
        counts = {topic_id(name): count for name, count in self.rig.topics.items()}
        even = assign_uniformly(
            [
                Subscriber(
                    member_id,
                    tuple(sorted(topic_id(t) for t in subscription.topics if t in self.rig.topics)),
                    held=owned[member_id],
                )
                for member_id, subscription in subscriptions.items()
            ],
            counts,
        )
        owners = {
            (topic, partition): member_id
            for member_id, topics in owned.items()
            for topic, partitions in topics.items()
            for partition in partitions
        }
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_assignment(
                    {
                        self.rig.name(topic): [
                            partition
                            for partition in partitions
                            if owners.get((topic, partition), member_id) == member_id
                        ]
                        for topic, partitions in topics.items()
                    },
                    1,
                ),
            )
            for member_id, topics in even.items()
        ]
