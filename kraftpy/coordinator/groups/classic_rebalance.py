"""Rebalances of classic groups: when they begin, how long they wait, and how they end.

Two clocks run for a group. A session for each member, which heartbeats prolong; and a time for the
rebalance that is under way: for members to join, and then to sync. The second is what bounds a
rebalance. A member that we owe an answer is never dropped for its silence.

Timers name groups and members by their ids, and look for them when they ring: whoever is gone by
then is not harmed, and neither is somebody else.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from kraftpy.coordinator.groups.classic_group import ClassicGroup, ClassicState
from kraftpy.coordinator.groups.classic_member import ClassicMember
from kraftpy.coordinator.groups.classic_records import registration
from kraftpy.coordinator.groups.directory import GroupDirectory
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.protocol.errors import ErrorCode

__all__ = ["ClassicRebalances"]

log = logging.getLogger(__name__)

# A new member can't send heartbeats while its JoinGroup waits, and its client may have given up.
_NEW_MEMBER_TIMEOUT_MS: Final = 300_000
_NOTHING: Final[Outcome[None]] = Outcome()


class ClassicRebalances:
    """What these methods return is to be written, by the operation that called them."""

    __slots__ = ("_context", "_delay_ms", "_directory")

    def __init__(
        self, context: ShardContext, directory: GroupDirectory, settings: GroupSettings
    ) -> None:
        self._context = context
        self._directory = directory
        self._delay_ms = settings.initial_rebalance_delay_ms

    # Sessions.

    def prolong(self, group: ClassicGroup, member: ClassicMember) -> None:
        """The member is alive."""
        self._watch(group, member.member_id, member.session_timeout_ms)

    def watch_new(self, group: ClassicGroup, member: ClassicMember) -> None:
        self._watch(group, member.member_id, _NEW_MEMBER_TIMEOUT_MS)

    def watch_pending(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """An id was given out, and is kept for its owner for a while."""
        self._watch(group, member_id, timeout_ms)

    def dismiss(self, group: ClassicGroup, member_id: str) -> None:
        """Take a member out, or an id that was given out; the group has to be told by `advance`."""
        self._context.timers.cancel(_session_key(group.group_id, member_id))
        group.remove(member_id)

    def _watch(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        self._context.timers.schedule(
            _session_key(group.group_id, member_id),
            timeout_ms,
            partial(self._session_over, group.group_id, member_id),
        )

    def _session_over(self, group_id: str, member_id: str) -> Outcome[None]:
        group = self._find(group_id)
        if group is None:
            return _NOTHING
        member = group.members.get(member_id)
        if member is None and member_id not in group.pending_members:
            return _NOTHING
        if member is not None and member.is_waiting_for_us:
            return _NOTHING
        log.info("group %r loses member %r: its session is over", group_id, member_id)
        group.remove(member_id)
        if group.state is ClassicState.PREPARING:
            return self.advance(group)
        if member is None or group.state is ClassicState.EMPTY:
            return _NOTHING
        return self.begin(group, f"session of {member_id} is over")

    # Joining.

    def begin_or_advance(self, group: ClassicGroup, reason: str) -> Outcome[None]:
        """Something has changed that all have to agree on."""
        return self.begin(group, reason) if group.can_rebalance else self.advance(group)

    def begin(self, group: ClassicGroup, reason: str) -> Outcome[None]:
        """Ask all members to join again; to be called when no rebalance is waiting for that."""
        if group.state is ClassicState.COMPLETING:
            self.refuse_assignment(group, CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS))
        self._context.timers.cancel(_sync_key(group.group_id))
        group.begin_rebalance(self._context.clock.wall_ms())
        log.info(
            "group %r rebalances after generation %d: %r", group.group_id, group.generation, reason
        )
        if not group.is_first_rebalance:
            return self.complete_join(group) if group.has_all_joined() else self._await_joins(group)
        self._await_more(group.group_id, self._delay_ms, group.rebalance_timeout_ms)
        return _NOTHING

    def advance(self, group: ClassicGroup) -> Outcome[None]:
        """End the join phase if nobody is missing; the first one waits for its time."""
        is_over = (
            group.state is ClassicState.PREPARING
            and not group.is_first_rebalance
            and group.has_all_joined()
        )
        return self.complete_join(group) if is_over else _NOTHING

    def complete_join(self, group: ClassicGroup) -> Outcome[None]:
        """Go on with those who have joined. Others are out, unless they are static."""
        self._context.timers.cancel(_join_key(group.group_id))
        for member in list(group.members.values()):
            if not member.is_joining and not member.is_static:
                log.info("group %r goes on without %r", group.group_id, member.member_id)
                self.dismiss(group, member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Static members only, whose sessions will end if they don't come.
            return self._await_joins(group)
        group.begin_generation(self._context.clock.wall_ms())
        if group.is_empty:
            log.info("group %r is empty, generation %d", group.group_id, group.generation)
            return Outcome([registration(group, {})])
        self._begin_sync(group)
        return _NOTHING

    def _begin_sync(self, group: ClassicGroup) -> None:
        log.info(
            "group %r has generation %d: members=%d leader=%r protocol=%r",
            group.group_id,
            group.generation,
            len(group.members),
            group.leader_id,
            group.protocol_name,
        )
        self._await_syncs(group)
        group.pending_sync = dict.fromkeys(group.members)
        for member in list(group.members.values()):
            member.is_new = False
            self.prolong(group, member)
            is_leader = member.member_id == group.leader_id
            group.answer_join(member, group.join_answer(member.member_id, with_members=is_leader))

    def _await_joins(self, group: ClassicGroup) -> Outcome[None]:
        self._context.timers.schedule(
            _join_key(group.group_id),
            group.rebalance_timeout_ms,
            partial(self._joins_over, group.group_id),
        )
        return _NOTHING

    def _joins_over(self, group_id: str) -> Outcome[None]:
        group = self._find(group_id)
        if group is None or group.state is not ClassicState.PREPARING:
            return _NOTHING
        return self.complete_join(group)

    def _await_more(self, group_id: str, delay_ms: int, left_ms: int) -> None:
        """Wait `delay_ms`, and again as long as more members come, `left_ms` at most in all."""
        self._context.timers.schedule(
            _join_key(group_id),
            delay_ms,
            partial(self._more_over, group_id, max(left_ms - delay_ms, 0)),
        )

    def _more_over(self, group_id: str, left_ms: int) -> Outcome[None]:
        group = self._find(group_id)
        if group is not None and group.has_late_joiner and left_ms:
            group.has_late_joiner = False
            self._await_more(group_id, min(self._delay_ms, left_ms), left_ms)
            return _NOTHING
        return self._joins_over(group_id)

    # Syncing.

    def _await_syncs(self, group: ClassicGroup) -> None:
        self._context.timers.schedule(
            _sync_key(group.group_id),
            group.rebalance_timeout_ms,
            partial(self._sync_over, group.group_id, group.generation),
        )

    def synced(self, group: ClassicGroup, member: ClassicMember) -> None:
        """The member has sent SyncGroup."""
        group.pending_sync.pop(member.member_id, None)
        if not group.pending_sync:
            self._context.timers.cancel(_sync_key(group.group_id))

    def refuse_assignment(self, group: ClassicGroup, error: CoordinatorError) -> None:
        """There will be none for this generation."""
        for member in list(group.members.values()):
            member.assignment = b""
            if member.answer_sync(error):
                self.prolong(group, member)

    def _sync_over(self, group_id: str, generation: int) -> Outcome[None]:
        group = self._find(group_id)
        if group is None or group.generation != generation or not group.pending_sync:
            return _NOTHING
        if group.state not in (ClassicState.COMPLETING, ClassicState.STABLE):
            return _NOTHING
        missing = list(group.pending_sync)
        for member_id in missing:
            self.dismiss(group, member_id)
        return self.begin(group, f"members that did not sync: {len(missing)}")

    # Coming and going.

    def loaded(self, group: ClassicGroup, max_size: int) -> None:
        """The group comes from the log: all members have a new session."""
        for member in group.members.values():
            self.prolong(group, member)
        if len(group.members) > max_size:
            # The first ones to join again may stay.
            reason = f"loaded with {len(group.members)} members, too many"
            self._context.submit(partial(self._begin_late, group.group_id, reason))
        elif group.members and group.leader_id is None:
            # It was a consumer group, and nobody has assigned what was free then (migration.py).
            reason = "loaded without a leader"
            self._context.submit(partial(self._begin_late, group.group_id, reason))

    def resume(self, group: ClassicGroup, max_size: int) -> None:
        """The group is as it was, but for its timers and those who waited, which are gone."""
        self.loaded(group, max_size)
        if group.state is ClassicState.PREPARING:
            if group.is_first_rebalance:
                self._await_more(group.group_id, self._delay_ms, group.rebalance_timeout_ms)
            else:
                self._await_joins(group)
        elif group.pending_sync:
            self._await_syncs(group)

    def forget(self, group: ClassicGroup, error: CoordinatorError) -> None:
        """The group is no more, or no longer a classic one: nothing rings for it any more."""
        timers = self._context.timers
        timers.cancel(_join_key(group.group_id))
        timers.cancel(_sync_key(group.group_id))
        for member_id in (*group.members, *sorted(group.pending_members)):
            timers.cancel(_session_key(group.group_id, member_id))
        group.fail_waiting(error)

    def _begin_late(self, group_id: str, reason: str) -> Outcome[None]:
        group = self._find(group_id)
        if group is None or not group.can_rebalance:
            return _NOTHING
        return self.begin(group, reason)

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._directory.get(group_id)
        return group if isinstance(group, ClassicGroup) else None


def _session_key(group_id: str, member_id: str) -> str:
    # With the length, because both may have any characters.
    return f"classic-session-{len(group_id)}-{group_id}-{member_id}"


def _join_key(group_id: str) -> str:
    return f"classic-join-{group_id}"


def _sync_key(group_id: str) -> str:
    return f"classic-sync-{group_id}"
