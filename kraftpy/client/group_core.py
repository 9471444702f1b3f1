"""A consumer in a group, without I/O: the member, its offsets, and the partitions that it reads.

The member (classic or KIP-848) decides which partitions; GroupOffsets where they begin and what is
committed; ConsumerCore reads them. This class connects the three:

- A partition that is assigned begins at the group's committed offset, or where `auto_offset_reset`
  says if there is none.
- What a poll handed out counts as done when the user polls again, not before: this is what
  automatic commits commit, every `auto_commit_interval_ms` and before partitions are given up. So a
  user who dies with records in hand finds them again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kraftpy.client.calls import Call, TopicPartition, earliest
from kraftpy.client.consumer_core import ConsumerCore
from kraftpy.client.coordinator_finder import GROUP, CoordinatorFinder
from kraftpy.client.group_classic import ClassicMember
from kraftpy.client.group_consumer import ConsumerMember
from kraftpy.client.group_member import GroupMember, GroupMetadata, Rebalance, RebalanceKind
from kraftpy.client.group_offsets import (
    Commit,
    CommittedLookup,
    GroupOffsets,
    OffsetAndMetadata,
)

if TYPE_CHECKING:
    from kraftpy.client.settings import ConsumerSettings
    from kraftpy.world import Random

__all__ = ["GroupCore"]


class GroupCore:
    def __init__(self, consumer: ConsumerCore, settings: ConsumerSettings, random: Random) -> None:
        if settings.group_id is None:
            raise ValueError("a member of a group needs a group_id")
        self._settings = settings
        self._random = random
        self._group_id = settings.group_id
        self._consumer = consumer
        cluster = consumer.cluster
        self._finder = CoordinatorFinder(self._group_id, GROUP, cluster, settings.client, random)
        self._offsets = GroupOffsets(
            settings,
            cluster,
            self._finder,
            random,
            identity=lambda: self.identity,
            may_commit=self._may_commit,
        )
        self._member: GroupMember | None = None
        # Where the user had come to when the last poll began: what lies before is done.
        self._done: dict[TopicPartition, OffsetAndMetadata] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._auto_commit: Commit | None = None
        self._auto_commit_at_ms: int | None = None
        self._revocation: tuple[Rebalance, Commit] | None = None

    @property
    def identity(self) -> GroupMetadata:
        return GroupMetadata(self._group_id) if self._member is None else self._member.identity

    @property
    def is_member(self) -> bool:
        return self._member is not None

    def subscribe(self, topics: Iterable[str]) -> None:
        """Be a member of the group for these topics; a member that is one already stays."""
        if self._member is None:
            is_classic = self._settings.group_protocol == "classic"
            self._member = (ClassicMember if is_classic else ConsumerMember)(
                self._settings, self._consumer.cluster, self._finder, self._random
            )
            self._consumer.assign(())
        self._member.subscribe(topics)

    # Polls and rebalances.

    def poll_begins(self, now_ms: int) -> None:
        self._note_done()
        if self._auto_commit_at_ms is None and self._settings.enable_auto_commit:
            self._auto_commit_at_ms = now_ms + self._settings.auto_commit_interval_ms
        if self._member is not None:
            self._member.poll_begins()

    def poll_ends(self, now_ms: int) -> None:
        if self._member is not None:
            self._member.poll_ends(now_ms)

    @property
    def failure(self) -> Exception | None:
        """Why this consumer can't be a member; told after what it has lost by that."""
        return None if self._member is None or self._member.event else self._member.failure

    def next_event(self, now_ms: int) -> Rebalance | None:
        """What the user must hear of now; before partitions are given up they are committed."""
        event = None if self._member is None else self._member.event
        if event is None or event.kind is not RebalanceKind.REVOKED:
            return event
        if not self._settings.enable_auto_commit:
            return event
        if self._revocation is None or self._revocation[0] is not event:
            wheres = frozenset(event.partitions)
            offsets = {where: done for where, done in self._done.items() if where in wheres}
            self._revocation = (event, self._commit_done(offsets, now_ms))
        return event if self._revocation[1].is_done else None

    def begin(self, event: Rebalance, now_ms: int) -> None:
        """Before the user hears of it: what is assigned can be sought in, and is looked up."""
        if self._member is None:
            return
        self._member.begin(event)
        if event.kind is RebalanceKind.ASSIGNED:
            self._consumer.assign(self._member.owned, holds_new=True)
            self._look_up(event.partitions, now_ms)

    def acknowledge(self, event: Rebalance) -> None:
        """After the user has heard of it: what is gone is read no further."""
        if self._member is None:
            return
        self._member.acknowledge(event)
        if event.kind is not RebalanceKind.ASSIGNED:
            self._consumer.assign(self._member.owned, holds_new=True)
            for where in event.partitions:
                self._done.pop(where, None)
                self._committed.pop(where, None)

    def revoke_all(self) -> Rebalance | None:
        """The user leaves: what there is to say goodbye to."""
        if self._member is None or not self._member.owned:
            return None
        return Rebalance(RebalanceKind.REVOKED, tuple(self._member.owned))

    def leave(self, now_ms: int) -> None:
        if self._member is not None:
            self._consumer.assign(())
            self._done.clear()
            self._committed.clear()
            self._member.leave(now_ms, forever=False)

    @property
    def is_gone(self) -> bool:
        return self._member is None or self._member.is_gone

    def forget(self) -> None:
        """After `leave`: what is subscribed to next is a new beginning."""
        self._member = None

    # Offsets.

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, now_ms: int
    ) -> Commit:
        """Commit these; without any, all that the user has taken."""
        return self._offsets.commit(self.positions() if offsets is None else offsets, now_ms)

    def commit_all_done(self, now_ms: int) -> Commit:
        """The last automatic commit, when the user leaves: all that was taken counts as done."""
        self._note_done()
        is_wanted = self._settings.enable_auto_commit
        return self._commit_done(self._done if is_wanted else {}, now_ms)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            where: OffsetAndMetadata(position.offset, position.leader_epoch)
            for where, position in self._consumer.positions().items()
        }

    def look_up(self, wheres: Iterable[TopicPartition], now_ms: int) -> CommittedLookup:
        return self._offsets.look_up(wheres, now_ms)

    def begin_assigned(self, wheres: Iterable[TopicPartition], now_ms: int) -> None:
        """Partitions that the user chose, without a subscription, from where the group is."""
        known = frozenset(self._consumer.assignment)
        wheres = list(wheres)
        self._consumer.assign(wheres, holds_new=True)
        self._look_up([where for where in wheres if where not in known], now_ms)

    # What the shell does.

    def calls(self, now_ms: int) -> list[Call]:
        calls = self._consumer.calls(now_ms)
        if self._member is not None:
            calls += self._member.calls(now_ms)
        self._commit_if_due(now_ms)
        calls += self._offsets.calls(now_ms)
        calls += self._finder.calls(now_ms)
        return calls

    def wake_at_ms(self) -> int | None:
        moment = earliest(
            self._consumer.wake_at_ms(),
            self._offsets.wake_at_ms(),
            self._finder.wake_at_ms(),
            None if self._auto_commit is not None else self._auto_commit_at_ms,
        )
        return moment if self._member is None else earliest(moment, self._member.wake_at_ms())

    def _may_commit(self, identity: GroupMetadata, wheres: Collection[TopicPartition]) -> bool:
        if self._member is None:
            return True
        # A subscriber that is no member has nothing to say about the group's offsets.
        return identity.generation >= 0 and self._member.may_commit(identity, wheres)

    def _note_done(self) -> None:
        self._done = self.positions()

    def _look_up(self, wheres: Iterable[TopicPartition], now_ms: int) -> None:
        lookup = self._offsets.look_up(wheres, now_ms, forever=True)
        lookup.when_done(partial(self._release, lookup))

    def _release(self, lookup: CommittedLookup) -> None:
        if lookup.failure is not None:
            self._consumer.report(lookup.failure)
            return
        for where, found in lookup.result().items():
            offset = OffsetAndMetadata(-1) if found is None else found
            self._consumer.release(where, offset.offset, offset.leader_epoch)
            if found is not None:
                self._committed[where] = found._replace(metadata="")

    def _commit_if_due(self, now_ms: int) -> None:
        if self._auto_commit is not None and self._auto_commit.is_done:
            self._auto_commit = None
        is_due = self._auto_commit_at_ms is not None and self._auto_commit_at_ms <= now_ms
        if is_due and self._auto_commit is None:
            self._auto_commit_at_ms = now_ms + self._settings.auto_commit_interval_ms
            if self._revocation is None or self._revocation[1].is_done:
                self._auto_commit = self._commit_done(self._done, now_ms)

    def _commit_done(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int
    ) -> Commit:
        news = {
            where: offset
            for where, offset in offsets.items()
            if self._committed.get(where) != offset
        }
        commit = self._offsets.commit(news, now_ms)

        def note() -> None:
            # One that failed is made again, with what is done by then.
            if commit.failure is None:
                self._committed |= news

        commit.when_done(note)
        return commit
