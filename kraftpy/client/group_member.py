"""What both protocols of groups have in common: a member, and what its user hears of rebalances.

A member finds out by itself, while its user works, that the group rebalances. But partitions
change hands only with the user's consent: a Rebalance waits in `event` until the user's next poll
takes it (`begin`), tells the user, and acknowledges it. Life signs go on meanwhile.

A user who does not come back for `max_poll_interval_ms` is taken for stuck: the member leaves the
group, so that others get its partitions, and joins again when the user polls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kraftpy.client.backoff import Backoff
from kraftpy.client.calls import Call, TopicPartition
from kraftpy.client.coordinator_finder import LANE
from kraftpy.client.errors import ConnectionLost

if TYPE_CHECKING:
    from kraftpy.client.cluster import Cluster
    from kraftpy.client.coordinator_finder import CoordinatorFinder
    from kraftpy.client.settings import ConsumerSettings
    from kraftpy.protocol.tables import Request
    from kraftpy.world import Random

__all__ = ["NOBODY", "GroupMember", "GroupMetadata", "Rebalance", "RebalanceKind", "is_lost"]


class GroupMetadata(NamedTuple):
    """Who a member is to its group's coordinator. Generation -1: not a member."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


NOBODY = GroupMetadata("")


class RebalanceKind(Enum):
    REVOKED = "revoked"  # Still this member's until its user has agreed.
    LOST = "lost"  # Somebody else's already, perhaps.
    ASSIGNED = "assigned"


class Rebalance(NamedTuple):
    kind: RebalanceKind
    partitions: tuple[TopicPartition, ...]


def is_lost(failure: Exception) -> bool:
    """Was the node not reached? Everything else would fail again."""
    return isinstance(failure, ConnectionLost | OSError)


class GroupMember(ABC):
    """`failure` is for good: only another subscription helps."""

    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: Cluster,
        finder: CoordinatorFinder,
        random: Random,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._finder = finder
        self._backoff = Backoff(
            initial_ms=settings.client.retry_backoff_ms,
            max_ms=settings.client.retry_backoff_max_ms,
            random=random,
        )
        self._group_id = settings.group_id or ""
        self._topics: tuple[str, ...] = ()
        self._events: deque[Rebalance] = deque()
        # The number of the request whose answer counts, and whether there is one under way.
        self._attempt = 0
        self._is_asking = False
        self._heartbeat_at_ms = 0
        self._not_before_ms = 0
        # None while the user is inside of poll.
        self._poll_by_ms: int | None = None
        self._is_away = False
        self.owned: dict[TopicPartition, None] = {}
        self.failure: Exception | None = None

    # What the user does.

    def subscribe(self, topics: Iterable[str]) -> None:
        self._topics = tuple(sorted(dict.fromkeys(topics)))
        for topic in self._topics:
            self._cluster.want(topic)
        self._finder.is_wanted = True
        self._subscription_changed()

    def poll_begins(self) -> None:
        self._poll_by_ms = None
        if self._is_away:
            self._is_away = False
            self._lose_everything()

    def poll_ends(self, now_ms: int) -> None:
        self._poll_by_ms = now_ms + self._settings.max_poll_interval_ms

    @property
    def event(self) -> Rebalance | None:
        """What the user must hear of next."""
        return self._events[0] if self._events else None

    def begin(self, event: Rebalance) -> None:
        """The user is about to hear of it."""
        if event.kind is RebalanceKind.ASSIGNED:
            self.owned |= dict.fromkeys(event.partitions)

    def acknowledge(self, event: Rebalance) -> None:
        """The user has heard of it and has done what there was to do."""
        if event.kind is not RebalanceKind.ASSIGNED:
            self.owned = _without(self.owned, event.partitions)
        if self._events and self._events[0] is event:
            self._events.popleft()
        else:
            # The member was thrown out meanwhile: what the user gave back can't be lost too.
            self._events = deque(
                Rebalance(each.kind, tuple(_without(each.partitions, event.partitions)))
                for each in self._events
            )
        if not self._events:
            self._events_are_over()

    @abstractmethod
    def leave(self, now_ms: int, *, forever: bool) -> None:
        """Leave the group; `forever` also with a name that could come back (a static member)."""

    # What the shell does.

    @abstractmethod
    def calls(self, now_ms: int) -> list[Call]:
        """The requests to be made now."""

    @abstractmethod
    def wake_at_ms(self) -> int | None:
        """When to ask for calls again."""

    @property
    @abstractmethod
    def is_gone(self) -> bool:
        """Has the coordinator heard that this member left, as far as it ever will?"""

    @property
    @abstractmethod
    def identity(self) -> GroupMetadata:
        """Who the member is at present."""

    @abstractmethod
    def may_commit(self, identity: GroupMetadata, wheres: Collection[TopicPartition]) -> bool:
        """Are these partitions still the member's, who was called `identity` when it read them?"""

    # What the protocols do.

    @abstractmethod
    def _subscription_changed(self) -> None:
        """The user wants other topics, or wants some again."""

    @abstractmethod
    def _events_are_over(self) -> None:
        """The user has heard of everything."""

    @abstractmethod
    def _forget_membership(self) -> None:
        """Not a member any more; join again when there are no events left."""

    def _check_user(self, now_ms: int) -> None:
        """Leave, if the user hasn't polled for too long."""
        if self._poll_by_ms is not None and self._poll_by_ms <= now_ms:
            self._poll_by_ms = None
            self._is_away = True
            self.leave(now_ms, forever=False)

    def _lose_everything(self) -> None:
        """Somebody else may have the partitions already."""
        self._events.clear()
        if self.owned:
            self._events.append(Rebalance(RebalanceKind.LOST, tuple(self.owned)))
        self._forget_membership()

    def _fail(self, failure: Exception) -> None:
        self._lose_everything()
        self.failure = failure

    def _retry_later(self, now_ms: int) -> None:
        self._not_before_ms = now_ms + self._backoff.failed()

    def _ask(
        self,
        request: Request,
        answered: Callable[[Any, int], None],
        failed: Callable[[Exception, int], None],
        *,
        timeout_ms: int | None = None,
        lane: str = LANE,
    ) -> Call:
        """A request to the coordinator; its outcome counts unless another is begun before."""
        self._give_up_asking()
        self._is_asking = True
        attempt = self._attempt

        def if_current(act: Callable[[Any, int], None], outcome: object, now_ms: int) -> None:
            if attempt == self._attempt:
                self._is_asking = False
                act(outcome, now_ms)

        return self._finder.call(
            request,
            partial(if_current, answered),
            partial(if_current, failed),
            timeout_ms=timeout_ms,
            lane=lane,
        )

    def _give_up_asking(self) -> None:
        """Whatever comes of the request that is under way is of no interest any more."""
        self._attempt += 1
        self._is_asking = False


def _without(
    partitions: Iterable[TopicPartition], others: Collection[TopicPartition]
) -> dict[TopicPartition, None]:
    gone = frozenset(others)
    return {where: None for where in partitions if where not in gone}
