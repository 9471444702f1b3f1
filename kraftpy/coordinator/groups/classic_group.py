"""A classic group: members that meet in generations, one of which assigns partitions to all.

A generation begins when every member has sent JoinGroup (PreparingRebalance), or when the time for
that is over. The coordinator chooses a way of assigning that all know and tells the leader who is
there. All then send SyncGroup; the leader's has the assignment of everybody (CompletingRebalance).
When it is in the log, everybody gets its own, and the group is Stable. Whoever comes, leaves, falls
silent or changes its mind starts the next round.

The log knows of a group what it was at the end of its last rebalance. What is here beyond that is
soft state: operations change it in place, and members bring it about again by themselves.

Invariants:
- Only `_move_to` changes the state, and only along the paths of _PATHS.
- `_joining_count` is the number of members with a JoinGroup that waits; `_supporters` says for each
  protocol how many members know it.
- The leader is a member; a group without members has none.
- A reply that is taken in is given exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from kraftpy.coordinator.groups.classic_member import ClassicMember, JoinProtocol, JoinReply
from kraftpy.coordinator.groups.classic_subscription import subscribed_topics
from kraftpy.coordinator.groups.group import CommitCheck, Group, GroupType
from kraftpy.coordinator.outcome import CoordinatorError, CoordinatorRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.group_records import GroupMetadataKey
from kraftpy.protocol.schema.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from kraftpy.world import InternalInvariant

__all__ = ["CONSUMER_PROTOCOL", "ClassicGroup", "ClassicState"]

# The protocol type whose metadata the coordinator can read.
CONSUMER_PROTOCOL: Final = "consumer"


class ClassicState(StrEnum):
    """By the names that Kafka's tools print. A group that is Dead is not here any more."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


_PATHS: Final[Mapping[ClassicState, tuple[ClassicState, ...]]] = {
    ClassicState.EMPTY: (ClassicState.PREPARING,),
    ClassicState.PREPARING: (ClassicState.EMPTY, ClassicState.COMPLETING),
    ClassicState.COMPLETING: (ClassicState.PREPARING, ClassicState.STABLE),
    ClassicState.STABLE: (ClassicState.PREPARING,),
}


class ClassicGroup(Group):
    __slots__ = (
        "_joining_count",
        "_protocol_type",
        "_supporters",
        "generation",
        "has_late_joiner",
        "is_first_rebalance",
        "is_storing_assignment",
        "leader_id",
        "members",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    group_type = GroupType.CLASSIC

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id)
        self.state = ClassicState.EMPTY
        # When it came into its state, by the wall clock; -1 if an old record does not say.
        self.state_timestamp_ms = now_ms
        self.generation = 0
        self._protocol_type = ""
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        # By their ids, in the order in which they came.
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        # Ids that were given out and have not been used yet.
        self.pending_members: set[str] = set()
        # Members that know the generation and have not sent SyncGroup yet.
        self.pending_sync: dict[str, None] = {}
        # What members of a consumer protocol want; None if that can't be known.
        self.subscribed_topics: frozenset[str] | None = None
        # The rebalance of a group that was empty waits for more members.
        self.is_first_rebalance = False
        self.has_late_joiner = False
        # Whether the leader's assignment is on its way into the log.
        self.is_storing_assignment = False
        self._joining_count = 0
        self._supporters: dict[str, int] = {}

    # What others want to know of any group.

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def committed_state_name(self) -> str:
        """The present one: it is soft state, and not in the log."""
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return self._protocol_type

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is None:
            return self.is_of_consumers
        return topic in self.subscribed_topics

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
    ) -> CommitCheck | None:
        if epoch < 0 and self.is_empty:
            # Somebody who takes no part in the group, which stands in nobody's way.
            return None
        if epoch >= 0 or member_id or instance_id is not None:
            self.validate_member(member_id, instance_id)
            if epoch != self.generation:
                raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional and not self.is_empty:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.state is ClassicState.COMPLETING:
            raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def validate_committed_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Anybody may, always."""

    def validate_offset_delete(self) -> None:
        if not self.is_empty and not self.is_of_consumers:
            raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
        if not self.is_empty:
            raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        return (CoordinatorRecord(GroupMetadataKey(group=self.group_id)),)

    def offset_retention_base_ms(self, commit_timestamp_ms: int) -> int | None:
        if not self.protocol_type:
            return commit_timestamp_ms
        if self.is_empty:
            return commit_timestamp_ms if self.state_timestamp_ms < 0 else self.state_timestamp_ms
        if self.state is ClassicState.STABLE and self.subscribed_topics is not None:
            return commit_timestamp_ms
        return None

    # Membership.

    @property
    def joining_count(self) -> int:
        """How many members wait for the next generation."""
        return self._joining_count

    @property
    def rebalance_timeout_ms(self) -> int:
        """That of the slowest member."""
        return max((0, *(each.rebalance_timeout_ms for each in self.members.values())))

    def has_all_joined(self) -> bool:
        return self._joining_count == len(self.members) and not self.pending_members

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Raises UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another one took the place."""
        if instance_id is not None:
            known_id = self.static_members.get(instance_id)
            if known_id is not None and known_id != member_id:
                raise CoordinatorError(ErrorCode.FENCED_INSTANCE_ID)
            if known_id is None:
                raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_id not in self.members:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """The first one decides what the group is about, and leads it."""
        if not self.members:
            self._protocol_type = protocol_type
        suits = self._suits(protocol_type, member.protocols)
        if member.instance_id in self.static_members or not suits:
            raise InternalInvariant("classic-group.member-does-not-fit")
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_supporter(member, 1)
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Let a member go, or an id that was given out; its requests that wait fail."""
        self.pending_members.discard(member_id)
        self.pending_sync.pop(member_id, None)
        member = self.members.get(member_id)
        if member is None:
            return
        unknown = CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.answer_join(member, unknown)
        member.answer_sync(unknown)
        del self.members[member_id]
        self._count_supporter(member, -1)
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """Give a static member's place to another process of the same instance id.

        The old one's requests that wait are fenced.
        """
        member = self.members[old_id]
        if member.instance_id is None:
            raise InternalInvariant("classic-group.not-static")
        fenced = CoordinatorError(ErrorCode.FENCED_INSTANCE_ID)
        self.answer_join(member, fenced)
        member.answer_sync(fenced)
        # The place in the order stays the same: it decides about leaders and votes.
        self.members = {
            new_id if each_id == old_id else each_id: each for each_id, each in self.members.items()
        }
        member.member_id = new_id
        member.is_new = False
        self.static_members[member.instance_id] = new_id
        self.pending_sync.pop(old_id, None)
        if self.leader_id == old_id:
            self.leader_id = new_id
        return member

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[JoinProtocol, ...],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        self._count_supporter(member, -1)
        member.protocols = protocols
        self._count_supporter(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: ClassicMember, reply: JoinReply) -> None:
        """Keep a JoinGroup until the group is complete. One from before is not waited for."""
        if member.join_reply is not None:
            self.answer_join(member, CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS))
        member.join_reply = reply
        self._joining_count += 1

    def answer_join(
        self, member: ClassicMember, answer: JoinGroupResponse | CoordinatorError
    ) -> None:
        """Answer a JoinGroup that waits, if there is one."""
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            self._joining_count -= 1
            reply(answer)

    def fail_waiting(self, error: CoordinatorError) -> None:
        """Tell everybody who waits that nothing will come of it."""
        for member in list(self.members.values()):
            self.answer_join(member, error)
            member.answer_sync(error)

    def elect_joined_leader(self) -> bool:
        """See to it that the leader is one of those who came; False if nobody did."""
        if self.leader_id is not None and self.members[self.leader_id].is_joining:
            return True
        for member in self.members.values():
            if member.is_joining:
                self.leader_id = member.member_id
                return True
        return False

    # Protocols.

    def supports(self, protocol_type: str, protocols: Sequence[JoinProtocol]) -> bool:
        """Whether somebody who knows these could be a member."""
        if self.is_empty:
            return bool(protocol_type and protocols)
        return self._suits(protocol_type, protocols)

    def select_protocol(self) -> str:
        """The one that most members prefer, of those that all know.

        If several are preferred by as many, the one that the earliest member among them prefers.
        """
        candidates = {
            name for name, count in self._supporters.items() if count == len(self.members)
        }
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        if not votes:
            raise InternalInvariant("classic-group.no-votes")
        return max(votes, key=votes.__getitem__)

    def _suits(self, protocol_type: str, protocols: Sequence[JoinProtocol]) -> bool:
        if protocol_type != self._protocol_type:
            return False
        count = len(self.members)
        supporters = self._supporters
        for name, _ in protocols:  # noqa: SIM110 (a generator takes twice the time, each time)
            if supporters.get(name, 0) == count:
                return True
        return False

    def _count_supporter(self, member: ClassicMember, step: int) -> None:
        for name, _ in member.protocols:
            count = self._supporters.get(name, 0) + step
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    # Generations.

    @property
    def can_rebalance(self) -> bool:
        return self.state is not ClassicState.PREPARING

    def begin_rebalance(self, now_ms: int) -> None:
        self.is_first_rebalance = self.is_empty
        self.has_late_joiner = False
        self.is_storing_assignment = False
        self.pending_sync.clear()
        self._move_to(ClassicState.PREPARING, now_ms)

    def begin_generation(self, now_ms: int) -> None:
        """Those who are members now are the next generation; without members it is Empty."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.learn_subscription()
        self._move_to(ClassicState.COMPLETING if self.members else ClassicState.EMPTY, now_ms)

    def assigned(self, now_ms: int) -> None:
        """Everybody's assignment is known and in the log."""
        self.is_storing_assignment = False
        self._move_to(ClassicState.STABLE, now_ms)

    def learn_subscription(self) -> None:
        """Read from the members' metadata which topics they want."""
        self.subscribed_topics = None
        if self.is_of_consumers:
            self.subscribed_topics = subscribed_topics(
                [each.metadata(self.protocol_name) for each in self.members.values()]
            )

    def restore(self, protocol_type: str, state_timestamp_ms: int) -> None:
        """The group is at rest, with the members that it has; on no path, but by its record."""
        self._protocol_type = protocol_type
        self.state = ClassicState.STABLE if self.members else ClassicState.EMPTY
        self.state_timestamp_ms = state_timestamp_ms
        self.learn_subscription()

    def _move_to(self, state: ClassicState, now_ms: int) -> None:
        if state not in _PATHS[self.state]:
            raise InternalInvariant(f"classic-group.{self.state.value}-to-{state.value}")
        self.state = state
        self.state_timestamp_ms = now_ms

    # Answers.

    def join_answer(
        self, member_id: str, *, with_members: bool, skips_assignment: bool = False
    ) -> JoinGroupResponse:
        """What the member needs to know of the present generation."""
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or "",
            skip_assignment=skips_assignment,
            member_id=member_id,
            members=self._for_the_leader() if with_members else [],
        )

    def _for_the_leader(self) -> list[JoinGroupResponseMember]:
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol_name),
            )
            for member in self.members.values()
        ]
