"""A member of a consumer group (KIP-848): one request, ConsumerGroupHeartbeat, tells everything.

The member names what it subscribes to and what it has; the coordinator answers with an epoch and,
when it has changed, with what the member should have. The member then gives up what is too much,
takes what is new, and says so with the next heartbeat, which leaves at once. Fields that have not
changed are left out; after a lost answer all of them are sent, since nobody knows what arrived.

What the member does not list as its own, the coordinator may give to others. So once it has sent a
list, it takes nothing more of an assignment that came before: it asks for a new one, which is in
the answer to a request with all fields. And while the user has yet to hear of what is given or
taken, the member lists nothing.

Topics are named by their ids here. One that the cluster's picture doesn't have yet is taken when it
has.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import TYPE_CHECKING, Final

from kraftpy.client.calls import Call, TopicPartition, earliest
from kraftpy.client.errors import KafkaError, error_code
from kraftpy.client.group_member import (
    GroupMember,
    GroupMetadata,
    Rebalance,
    RebalanceKind,
    is_lost,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid, format_uuid, random_uuid
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from kraftpy.client.cluster import Cluster
    from kraftpy.client.coordinator_finder import CoordinatorFinder
    from kraftpy.client.settings import ConsumerSettings
    from kraftpy.world import Random

__all__ = ["ConsumerMember"]

_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_LEAVE_FOR_A_WHILE_EPOCH: Final = -2
_THROWN_OUT = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Phase(Enum):
    JOINING = "joining"
    JOINED = "joined"
    LEAVING = "leaving"
    GONE = "gone"


class ConsumerMember(GroupMember):
    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: Cluster,
        finder: CoordinatorFinder,
        random: Random,
    ) -> None:
        super().__init__(settings, cluster, finder, random)
        # For the life of the process; the epoch tells one membership from the next.
        self._member_id = format_uuid(random_uuid(random))
        self._epoch = _JOIN_EPOCH
        self._leave_epoch = _LEAVE_EPOCH
        self._phase = Phase.JOINING
        self._interval_ms = settings.heartbeat_interval_ms
        # None: the coordinator hasn't said yet.
        self._target: dict[tuple[Uuid, int], None] | None = None
        self._ids: dict[str, Uuid] = {}
        self._has_been_assigned = False
        # What the coordinator has heard; None: perhaps nothing.
        self._sent_topics: tuple[str, ...] | None = None
        self._sent_owned: dict[TopicPartition, None] | None = None

    @property
    def identity(self) -> GroupMetadata:
        if self._phase is not Phase.JOINED:
            return GroupMetadata(self._group_id)
        instance_id = self._settings.group_instance_id
        return GroupMetadata(self._group_id, self._epoch, self._member_id, instance_id)

    def may_commit(self, identity: GroupMetadata, wheres: Collection[TopicPartition]) -> bool:
        """The epoch moves on while the partitions stay; only the newest one is accepted."""
        if identity.member_id != self.identity.member_id:
            return False
        return all(where in self.owned for where in wheres)

    @property
    def is_gone(self) -> bool:
        return self._phase is Phase.GONE

    def leave(self, now_ms: int, *, forever: bool) -> None:
        was_in = self._phase is Phase.JOINED or self._is_asking
        self._give_up_asking()
        is_static = self._settings.group_instance_id is not None
        self._leave_epoch = _LEAVE_EPOCH
        if is_static and not forever:
            self._leave_epoch = _LEAVE_FOR_A_WHILE_EPOCH
        can_tell = was_in and self.failure is None and self._finder.address is not None
        self._phase = Phase.LEAVING if can_tell else Phase.GONE

    def calls(self, now_ms: int) -> list[Call]:
        if self.failure is None and self._finder.failure is not None:
            self._fail(self._finder.failure)
        if self.failure is not None or self._phase is Phase.GONE:
            return []
        self._check_user(now_ms)
        if self._phase is Phase.JOINED and not self._events:
            self._reconcile()
        if self._finder.address is None:
            if self._phase is Phase.LEAVING:
                self._phase = Phase.GONE
            return []
        if self._is_asking or max(self._not_before_ms, self._due_ms()) > now_ms:
            return []
        if self._phase is Phase.JOINING and (self._events or not self._topics):
            return []
        return [self._leave_call() if self._phase is Phase.LEAVING else self._heartbeat()]

    def wake_at_ms(self) -> int | None:
        if self.failure is not None or self._phase is Phase.GONE:
            return None
        moment = self._poll_by_ms
        is_waiting = self._phase is Phase.JOINING and (self._events or not self._topics)
        if self._finder.address is not None and not self._is_asking and not is_waiting:
            moment = earliest(moment, max(self._not_before_ms, self._due_ms()))
        return moment

    def _due_ms(self) -> int:
        """At once if there is something to tell, otherwise when the interval is over."""
        if self._phase is not Phase.JOINED or self._topics != self._sent_topics:
            return 0
        is_told = self.owned == self._sent_owned or bool(self._events)
        return self._heartbeat_at_ms if is_told else 0

    def _subscription_changed(self) -> None:
        self.failure = None
        if self._phase in (Phase.LEAVING, Phase.GONE):
            self._forget_membership()

    def _events_are_over(self) -> None:
        """What the member has now is told with the next heartbeat."""

    def _forget_membership(self) -> None:
        self._give_up_asking()
        self._epoch = _JOIN_EPOCH
        self._phase = Phase.JOINING
        self._target = None
        self._has_been_assigned = False
        self._sent_topics = None
        self._sent_owned = None

    def _reconcile(self) -> None:
        """From what the member has to what it should have, as far as the topics are known."""
        if self._target is None:
            return
        wanted: dict[TopicPartition, None] = {}
        for topic_id, partition in self._target:
            name = self._cluster.name_of(topic_id)
            if name is None:
                self._cluster.refresh()
                continue
            self._ids[name] = topic_id
            wanted[TopicPartition(name, partition)] = None
        given_up = tuple(where for where in self.owned if where not in wanted)
        gained = tuple(where for where in wanted if where not in self.owned)
        if given_up:
            self._events.append(Rebalance(RebalanceKind.REVOKED, given_up))
        if gained or not self._has_been_assigned:
            self._has_been_assigned = True
            self._events.append(Rebalance(RebalanceKind.ASSIGNED, gained))

    # Heartbeats.

    def _heartbeat(self) -> Call:
        settings = self._settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=settings.group_instance_id,
        )
        topics, owned = self._topics, dict(self.owned)
        is_known = owned == self._sent_owned
        tells_owned = not is_known and not self._events
        is_whole = self._sent_topics is None or self._sent_owned is None
        if tells_owned and self._has_more_to_take():
            is_whole = True
            self._target = None
        if is_whole:
            request.rack_id = settings.client_rack or None
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.group_remote_assignor
        if tells_owned:
            request.topic_partitions = self._by_id(owned)
        if is_whole or topics != self._sent_topics:
            request.subscribed_topic_names = list(topics)
        self._sent_topics = self._sent_owned = None

        def answered(answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
            if answer.error_code == ErrorCode.NONE:
                self._sent_topics = topics
                self._sent_owned = owned if is_known or tells_owned else None
            self._answered(answer, now_ms)

        def failed(failure: Exception, now_ms: int) -> None:
            self._retry_later(now_ms)
            if not is_lost(failure):
                self._fail(failure)

        timeout_ms = min(settings.client.request_timeout_ms, settings.session_timeout_ms)
        return self._ask(request, answered, failed, timeout_ms=timeout_ms)

    def _has_more_to_take(self) -> bool:
        """Whether the last assignment has partitions that the member does not have."""
        owned = {(self._ids[name], partition) for name, partition in self.owned}
        return any(each not in owned for each in self._target or ())

    def _answered(self, answer: ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        code = error_code(answer.error_code)
        if code == ErrorCode.NONE:
            self._backoff.succeeded()
            self._phase = Phase.JOINED
            self._epoch = answer.member_epoch
            if answer.member_id:
                self._member_id = answer.member_id
            self._interval_ms = answer.heartbeat_interval_ms or self._interval_ms
            self._heartbeat_at_ms = now_ms + self._interval_ms
            if answer.assignment is not None:
                self._target = {
                    (topic.topic_id, partition): None
                    for topic in answer.assignment.topic_partitions
                    for partition in topic.partitions
                }
        elif self._finder.has_moved(code, now_ms) or code.retriable:
            self._retry_later(now_ms)
        elif code in _THROWN_OUT:
            self._retry_later(now_ms)
            self._lose_everything()
        else:
            self._fail(KafkaError(code, answer.error_message))

    def _by_id(self, owned: Collection[TopicPartition]) -> list[TopicPartitions]:
        topics: dict[str, TopicPartitions] = {}
        for name, partition in owned:
            topic = topics.setdefault(name, TopicPartitions(topic_id=self._ids[name]))
            topic.partitions.append(partition)
        return list(topics.values())

    def _leave_call(self) -> Call:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._leave_epoch,
            instance_id=self._settings.group_instance_id,
        )

        def over(outcome: object, now_ms: int) -> None:
            self._phase = Phase.GONE

        return self._ask(request, over, over)
