"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

    UNJOINED -> JOINING -> (the leader: ASSIGNING) -> SYNCING -> JOINED
        ^                                                          |
        +---------------------- REVOKING <-------------------------+

Eager or cooperative follows from the assignors: cooperative if all of them are. An eager member
gives up everything in REVOKING, before it joins again. A cooperative one goes on with what it has;
after the answer to SyncGroup it gives up what isn't its own any more, and joins again at once so
that others can have that.

The leader assigns for all. It also watches the topics of the group: if one of them grows or comes
up, it joins again, which makes everybody join.

Answers to calls of an earlier attempt are told by `_attempt` and passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from kraftpy.client.assignors import (
    Assignor,
    GroupTopics,
    MemberAssignment,
    MemberSubscription,
    make_assignors,
)
from kraftpy.client.calls import Call, TopicPartition, earliest
from kraftpy.client.errors import KafkaError, error_code
from kraftpy.client.group_member import (
    GroupMember,
    GroupMetadata,
    Rebalance,
    RebalanceKind,
    is_lost,
)
from kraftpy.client.group_subscription import (
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k11_join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kraftpy.protocol.schema.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kraftpy.protocol.schema.k14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from kraftpy.client.cluster import Cluster
    from kraftpy.client.coordinator_finder import CoordinatorFinder
    from kraftpy.client.settings import ConsumerSettings
    from kraftpy.protocol.tables import Request
    from kraftpy.world import Random

__all__ = ["ClassicMember"]

_PROTOCOL_TYPE = "consumer"
# A coordinator answers a join when the rebalance is over, at the end of its time at the latest.
_JOIN_GRACE_MS = 5_000
_THROWN_OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class Phase(Enum):
    UNJOINED = "unjoined"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    JOINED = "joined"
    REVOKING = "revoking"
    LEAVING = "leaving"
    GONE = "gone"


class ClassicMember(GroupMember):
    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: Cluster,
        finder: CoordinatorFinder,
        random: Random,
    ) -> None:
        super().__init__(settings, cluster, finder, random)
        self._assignors = make_assignors(settings.partition_assignment_strategy)
        self._is_cooperative = all(each.is_cooperative for each in self._assignors.values())
        self._phase = Phase.UNJOINED
        self._must_rejoin = False
        self._member_id = ""
        self._generation = -1
        self._assignor: Assignor | None = None
        # The leader's: the members, whether it assigns for them (a static leader that came back
        # need not), what it assigned, the sizes of the topics then, and the picture they were in.
        self._members: Sequence[JoinGroupResponseMember] = ()
        self._must_assign = False
        self._assignments: list[SyncGroupRequestAssignment] = []
        self._counts: dict[str, int] | None = None
        self._seen_updates = 0
        self._is_beating = False

    @property
    def identity(self) -> GroupMetadata:
        if self._generation < 0:
            return GroupMetadata(self._group_id)
        instance_id = self._settings.group_instance_id
        return GroupMetadata(self._group_id, self._generation, self._member_id, instance_id)

    def may_commit(self, identity: GroupMetadata, wheres: Collection[TopicPartition]) -> bool:
        return identity == self.identity

    @property
    def is_gone(self) -> bool:
        return self._phase is Phase.GONE

    def leave(self, now_ms: int, *, forever: bool) -> None:
        is_known = bool(self._member_id) and self.failure is None
        is_static = self._settings.group_instance_id is not None
        self._give_up_asking()
        self._generation = -1
        if is_known and (forever or not is_static) and self._finder.address is not None:
            self._phase = Phase.LEAVING
        else:
            self._phase = Phase.GONE

    def calls(self, now_ms: int) -> list[Call]:
        if self.failure is None and self._finder.failure is not None:
            self._fail(self._finder.failure)
        if self.failure is not None or self._phase is Phase.GONE:
            return []
        self._check_user(now_ms)
        self._watch_topics()
        if self._phase is Phase.ASSIGNING:
            self._assign_if_known()
        if self._finder.address is None:
            if self._phase is Phase.LEAVING:
                self._phase = Phase.GONE
            return []
        calls = []
        if self._is_heartbeat_due(now_ms):
            calls.append(self._heartbeat())
        if not self._is_asking and self._not_before_ms <= now_ms:
            if self._phase is Phase.UNJOINED and self._topics and not self._events:
                calls += self._join()
            elif self._phase is Phase.SYNCING:
                calls.append(self._sync())
            elif self._phase is Phase.LEAVING:
                calls.append(self._leave_call())
        return calls

    def wake_at_ms(self) -> int | None:
        if self.failure is not None or self._phase is Phase.GONE:
            return None
        moment = self._poll_by_ms
        if self._finder.address is not None:
            if self._beats and not self._is_beating:
                moment = earliest(moment, self._heartbeat_at_ms)
            if not self._is_asking and self._phase in (
                Phase.UNJOINED,
                Phase.SYNCING,
                Phase.LEAVING,
            ):
                moment = earliest(moment, self._not_before_ms)
        return moment

    # Phases.

    def _subscription_changed(self) -> None:
        self.failure = None
        if self._phase in (Phase.JOINED, Phase.SYNCING, Phase.JOINING, Phase.ASSIGNING):
            self._rejoin()
        elif self._phase in (Phase.GONE, Phase.LEAVING):
            self._phase = Phase.UNJOINED

    def _rejoin(self) -> None:
        """A new generation is wanted: as soon as the user has heard of the last one."""
        self._must_rejoin = True
        if not self._events:
            self._events_are_over()

    def _events_are_over(self) -> None:
        if self._phase is Phase.REVOKING:
            self._phase = Phase.UNJOINED
        elif self._must_rejoin and self._phase is Phase.JOINED:
            self._must_rejoin = False
            given_up = tuple(
                where
                for where in self.owned
                if not (self._is_cooperative and where.topic in self._topics)
            )
            if given_up:
                self._phase = Phase.REVOKING
                self._events.append(Rebalance(RebalanceKind.REVOKED, given_up))
            else:
                self._phase = Phase.UNJOINED

    def _forget_membership(self) -> None:
        self._give_up_asking()
        self._must_rejoin = False
        self._generation = -1
        self._member_id = ""
        self._counts = None
        self._phase = Phase.REVOKING if self._events else Phase.UNJOINED

    def _call(
        self,
        request: Request,
        answered: Callable[[Any, ErrorCode, int], None],
        timeout_ms: int | None = None,
    ) -> Call:
        """A step towards an assignment; what belongs to all answers is done here."""

        def received(answer: Any, now_ms: int) -> None:
            code = error_code(answer.error_code)
            if code == ErrorCode.NONE:
                self._backoff.succeeded()
                answered(answer, code, now_ms)
            elif self._finder.has_moved(code, now_ms) or code.retriable:
                self._again(now_ms)
            elif code in _THROWN_OUT:
                self._lose_everything()
            else:
                answered(answer, code, now_ms)

        def failed(failure: Exception, now_ms: int) -> None:
            if is_lost(failure):
                self._again(now_ms)
            else:
                self._fail(failure)

        return self._ask(request, received, failed, timeout_ms=timeout_ms)

    def _again(self, now_ms: int) -> None:
        """Join again; a lost answer to SyncGroup is repeated by that, too."""
        self._retry_later(now_ms)
        if self._phase in (Phase.JOINING, Phase.ASSIGNING, Phase.SYNCING):
            self._phase = Phase.UNJOINED

    # Joining.

    def _join(self) -> list[Call]:
        if self.failure is not None:
            return []  # It has just failed, as the leader of the generation before.
        self._phase = Phase.JOINING
        try:
            protocols = [
                JoinGroupRequestProtocol(name=name, metadata=self._subscription(assignor))
                for name, assignor in self._assignors.items()
            ]
        except Exception as failure:
            self._fail(failure)
            return []
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=protocols,
        )
        timeout_ms = self._settings.max_poll_interval_ms + _JOIN_GRACE_MS
        least_ms = self._settings.client.request_timeout_ms
        return [self._call(request, self._joined, max(timeout_ms, least_ms))]

    def _subscription(self, assignor: Assignor) -> bytes:
        data = assignor.user_data()
        rack = self._settings.client_rack
        return write_subscription(self._topics, data, self.owned, self._generation, rack)

    def _joined(self, answer: JoinGroupResponse, code: ErrorCode, now_ms: int) -> None:
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            self._phase = Phase.UNJOINED
            return
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._again(now_ms)
            return
        if code != ErrorCode.NONE:
            self._fail(KafkaError(code, f"group {self._group_id}: {code.message}"))
            return
        self._member_id = answer.member_id
        self._generation = answer.generation_id
        self._assignor = self._assignors.get(answer.protocol_name or "")
        self._counts = None
        self._must_assign = False
        self._assignments = []
        self._heartbeat_at_ms = now_ms + self._settings.heartbeat_interval_ms
        self._phase = Phase.SYNCING
        if answer.leader == answer.member_id:
            self._members = answer.members
            self._must_assign = not answer.skip_assignment
            self._seen_updates = self._cluster.updates
            self._phase = Phase.ASSIGNING
            self._cluster.refresh()
            for topic in self._topics_of_group():
                self._cluster.want(topic)

    # The leader.

    def _topics_of_group(self) -> dict[str, None]:
        topics = dict.fromkeys(self._topics)
        for member in self._read_members():
            topics |= dict.fromkeys(sorted(member.topics))
        return topics

    def _read_members(self) -> list[MemberSubscription]:
        return [read_subscription(member) for member in self._members]

    def _sizes(self) -> dict[str, int]:
        found = {name: self._cluster.topic(name) for name in self._topics_of_group()}
        return {
            name: len(topic.partitions)
            for name, topic in found.items()
            if topic is not None and topic.partitions
        }

    def _assign_if_known(self) -> None:
        """With a picture of the topics that is younger than the members' wishes."""
        is_fresh = self._cluster.updates > self._seen_updates
        topics = self._topics_of_group()
        if is_fresh and all(self._cluster.topic(name) is not None for name in topics):
            self._seen_updates = self._cluster.updates
            self._counts = self._sizes()
            self._phase = Phase.SYNCING
            if self._must_assign and self._assignor is not None:
                self._assign(self._assignor, self._counts)

    def _assign(self, assignor: Assignor, counts: Mapping[str, int]) -> None:
        try:
            found = assignor.assign_group(self._group_topics(counts), self._read_members())
            self._assignments = [
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=write_assignment(*MemberAssignment(*each))
                )
                for member_id, each in found.items()
            ]
        except Exception as failure:
            # Perhaps one of the user's own: it fails, and nothing else does.
            self._fail(failure)

    def _group_topics(self, counts: Mapping[str, int]) -> GroupTopics:
        racks = {}
        for topic, count in counts.items():
            for where in (TopicPartition(topic, number) for number in range(count)):
                leader = self._cluster.leader(where)
                if leader is not None and leader.broker.rack:
                    racks[where] = leader.broker.rack
        return GroupTopics(counts, racks)

    def _watch_topics(self) -> None:
        if self._counts is None or self._phase is not Phase.JOINED or self._must_rejoin:
            return
        if self._cluster.updates != self._seen_updates:
            self._seen_updates = self._cluster.updates
            sizes = self._sizes()
            if sizes != self._counts:
                self._counts = sizes
                self._rejoin()

    # Syncing.

    def _sync(self) -> Call:
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=None if self._assignor is None else self._assignor.name,
            assignments=self._assignments,
        )
        timeout_ms = self._settings.max_poll_interval_ms + _JOIN_GRACE_MS
        return self._call(request, self._synced, timeout_ms)

    def _synced(self, answer: SyncGroupResponse, code: ErrorCode, now_ms: int) -> None:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._phase = Phase.UNJOINED
            return
        if code != ErrorCode.NONE:
            self._fail(KafkaError(code, f"group {self._group_id}: {code.message}"))
            return
        try:
            assigned, user_data = read_assignment(answer.assignment)
            if self._assignor is not None:
                self._assignor.assigned(assigned, self._generation, user_data)
        except Exception as failure:
            # Another library leads, and means something else by this assignor's name.
            self._fail(failure)
            return
        self._phase = Phase.JOINED
        gained = tuple(where for where in assigned if where not in self.owned)
        given_up = tuple(where for where in self.owned if where not in assigned)
        if given_up:
            self._events.append(Rebalance(RebalanceKind.REVOKED, given_up))
            self._must_rejoin = True
        self._events.append(Rebalance(RebalanceKind.ASSIGNED, gained))

    # Life signs.

    @property
    def _beats(self) -> bool:
        return self._generation >= 0 and self._phase in (
            Phase.JOINED,
            Phase.REVOKING,
            Phase.ASSIGNING,
        )

    def _is_heartbeat_due(self, now_ms: int) -> bool:
        return self._beats and not self._is_beating and self._heartbeat_at_ms <= now_ms

    def _heartbeat(self) -> Call:
        self._is_beating = True
        generation = self._generation
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=generation,
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
        )

        def answered(answer: HeartbeatResponse, now_ms: int) -> None:
            self._is_beating = False
            self._heartbeat_at_ms = now_ms + self._settings.heartbeat_interval_ms
            if generation != self._generation or not self._beats:
                return
            code = error_code(answer.error_code)
            if self._finder.has_moved(code, now_ms) or code.retriable:
                self._heartbeat_at_ms = now_ms + self._settings.client.retry_backoff_ms
            elif code == ErrorCode.REBALANCE_IN_PROGRESS:
                if self._phase is Phase.JOINED:
                    self._rejoin()
            elif code in _THROWN_OUT:
                self._lose_everything()
            elif code != ErrorCode.NONE:
                self._fail(KafkaError(code, f"group {self._group_id}: {code.message}"))

        def failed(failure: Exception, now_ms: int) -> None:
            self._is_beating = False
            self._heartbeat_at_ms = now_ms + self._settings.client.retry_backoff_ms
            if not is_lost(failure):
                self._fail(failure)

        settings = self._settings
        timeout_ms = min(settings.client.request_timeout_ms, settings.session_timeout_ms)
        return self._finder.call(request, answered, failed, timeout_ms=timeout_ms)

    def _leave_call(self) -> Call:
        member = MemberIdentity(
            member_id=self._member_id,
            group_instance_id=self._settings.group_instance_id,
            reason="the consumer is being closed",
        )
        request = LeaveGroupRequest(group_id=self._group_id, members=[member])

        def over(outcome: Any, now_ms: int) -> None:
            self._phase = Phase.GONE

        self._member_id = ""
        # A join of ours may still wait for others.
        return self._ask(request, over, over, lane="leave")
