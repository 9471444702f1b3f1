"""How long members of consumer groups may be silent, and how long they may take.

- Session: every heartbeat starts it anew. When it is over, the member is gone.
- Rebalance: runs while the member is to give partitions up, from the epoch in which it was told to.
  Heartbeats do not extend it, or a member could keep what others wait for.
- Join and sync, for members that speak the classic protocol: how long they may take to come back
  when they were told to rejoin, or to fetch what they were assigned.

Timers know members by their ids and epochs only, and look when they ring whether it is still so.
They are soft state: a new coordinator starts them from the records (`start_all`), and so does a
coordinator whose write failed after it had moved them (`restore`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_member import ConsumerMember, MemberState
from kraftpy.coordinator.outcome import Outcome
from kraftpy.coordinator.ports import Timers

__all__ = ["ConsumerTimers"]

# Removes a member from a group, if it is still in the epoch given; in any with None.
Expel: TypeAlias = Callable[[str, str, int | None, str], Outcome[None]]

_SESSION: Final = "session"
_REBALANCE: Final = "rebalance"
_JOIN: Final = "join"
_SYNC: Final = "sync"


class ConsumerTimers:
    __slots__ = ("_expel", "_session_timeout_ms", "_timers")

    def __init__(
        self, timers: Timers, session_timeout_ms: Callable[[str], int], expel: Expel
    ) -> None:
        """`session_timeout_ms` is that of a group's members of the consumer protocol."""
        self._timers = timers
        self._session_timeout_ms = session_timeout_ms
        self._expel = expel

    def heard_of(self, group_id: str, member: ConsumerMember) -> None:
        """Start the session anew."""
        classic = member.profile.classic
        timeout_ms = (
            self._session_timeout_ms(group_id) if classic is None else classic.session_timeout_ms
        )
        self._start(_SESSION, group_id, member.member_id, timeout_ms, epoch=None)

    def moved(self, group_id: str, before: ConsumerMember | None, after: ConsumerMember) -> None:
        """The member's assignment has changed: it has to give something up, or has done so."""
        current = after.current
        if current.state is not MemberState.UNREVOKED_PARTITIONS:
            self._timers.cancel(_key(_REBALANCE, group_id, after.member_id))
            return
        if (
            before is not None
            and before.current.state is current.state
            and before.current.member_epoch == current.member_epoch
        ):
            return
        self._await_revocation(group_id, after)

    def _await_revocation(self, group_id: str, member: ConsumerMember) -> None:
        self._start(
            _REBALANCE,
            group_id,
            member.member_id,
            member.profile.rebalance_timeout_ms,
            epoch=member.current.member_epoch,
        )

    def expect_join(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member was told to rejoin; being told again gives it no more time."""
        if not self._timers.is_scheduled(_key(_JOIN, group_id, member.member_id)):
            timeout_ms = member.profile.rebalance_timeout_ms
            self._start(_JOIN, group_id, member.member_id, timeout_ms, epoch=None)

    def expect_sync(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member has joined."""
        self._timers.cancel(_key(_JOIN, group_id, member.member_id))
        timeout_ms = member.profile.rebalance_timeout_ms
        self._start(_SYNC, group_id, member.member_id, timeout_ms, epoch=None)

    def synced(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(_key(_SYNC, group_id, member_id))

    def forget(self, group_id: str, member_id: str) -> None:
        for kind in (_SESSION, _REBALANCE, _JOIN, _SYNC):
            self._timers.cancel(_key(kind, group_id, member_id))

    def start_all(self, group: ConsumerGroup) -> None:
        """What is not running, of all members."""
        for member in group.members.values():
            self.restore(group.group_id, member)

    def restore(self, group_id: str, member: ConsumerMember) -> None:
        if not self._timers.is_scheduled(_key(_SESSION, group_id, member.member_id)):
            self.heard_of(group_id, member)
        is_revoking = member.current.state is MemberState.UNREVOKED_PARTITIONS
        key = _key(_REBALANCE, group_id, member.member_id)
        if is_revoking and not self._timers.is_scheduled(key):
            self._await_revocation(group_id, member)

    def _start(
        self, kind: str, group_id: str, member_id: str, delay_ms: int, *, epoch: int | None
    ) -> None:
        self._timers.schedule(
            _key(kind, group_id, member_id),
            delay_ms,
            lambda: self._expel(group_id, member_id, epoch, kind),
        )


def _key(kind: str, group_id: str, member_id: str) -> str:
    """Both ids are the client's to choose; with the length no two pairs are written alike."""
    return f"consumer-{kind}:{len(group_id)}:{group_id}:{member_id}"
