"""What becomes of partitions when brokers and their disks come and go.

A broker that leaves (fenced, stopping, unregistered, its disk gone) leaves every ISR that it is in,
and what it led needs another leader; one that comes may lead what nobody leads. The records that
say so about the broker itself are written in the same operation, sometimes behind these, so that
the broker in question is judged here as if they had happened.

A partition that never had a leader has no data, and whoever is there can begin: it is initialised,
not elected. All others change by the rules of partition_change.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kraftpy.metadata.controller.partition_change import (
    AcceptableLeader,
    ChangeRules,
    Election,
    PartitionChangeBuilder,
)
from kraftpy.metadata.controller.partition_states import PartitionState, partition_state
from kraftpy.metadata.controller.replica_states import has_online_directory
from kraftpy.metadata.image import TopicImage
from kraftpy.metadata.records import (
    NO_LEADER,
    ConfigResourceType,
    PartitionChangeRecord,
    PartitionRecord,
)

if TYPE_CHECKING:
    from kraftpy.metadata.controller.context import ControllerContext

__all__ = [
    "ChangeBuilders",
    "initialised",
    "leader_and_isr_changes",
]


class ChangeBuilders:
    """Makes the builders of one operation, which looks a topic's settings up once in a row."""

    __slots__ = (
        "_context",
        "_election",
        "_min_isr",
        "_rules",
        "_settings_of",
        "_topic_name",
        "is_acceptable",
    )

    def __init__(
        self, context: ControllerContext, is_acceptable: AcceptableLeader | None = None
    ) -> None:
        """Without `is_acceptable`, brokers are what the metadata says that they are."""
        self._context = context
        self.is_acceptable = is_acceptable or context.replica_states.is_online
        self._rules = ChangeRules.of(context.image)
        self._topic_name: str | None = None
        self._settings_of: str | None = None
        self._min_isr = 1
        self._election = Election.ONLINE

    def builder(self, topic: TopicImage, partition: PartitionRecord) -> PartitionChangeBuilder:
        """A builder whose elections are unclean exactly if the topic permits it."""
        if topic.name != self._topic_name:
            self._look_up(topic.name)
        return PartitionChangeBuilder(
            partition, self._rules, self.is_acceptable, self._min_isr, self._election
        )

    def allows_unclean(self, topic: TopicImage) -> bool:
        if topic.name != self._topic_name:
            self._look_up(topic.name)
        return self._election is Election.UNCLEAN

    def _look_up(self, topic_name: str) -> None:
        self._topic_name = topic_name
        # Nearly all topics have no settings of their own, and those are all alike. A failover with
        # 10,000 topics takes half the time for it.
        context = self._context
        name = topic_name if context.image.config(ConfigResourceType.TOPIC, topic_name) else ""
        if name != self._settings_of:
            self._settings_of = name
            self._min_isr = context.min_insync_replicas(name)
            allows_unclean = context.allows_unclean(name)
            self._election = Election.UNCLEAN if allows_unclean else Election.ONLINE


def leader_and_isr_changes(
    context: ControllerContext,
    *,
    removing: int | None = None,
    adding: int | None = None,
    uncleanly_stopped: int | None = None,
    partitions: Iterable[tuple[TopicImage, PartitionRecord]],
) -> Iterator[PartitionChangeRecord | None]:
    """The change that each of `partitions` needs when a broker comes or goes; None for none.

    `removing` is judged as gone and leaves every ISR; `adding` as there; `uncleanly_stopped` is
    gone, and what it had may be, too: it leaves the eligible leader replicas as well. Nothing else
    may happen before the last has been taken than the changes that were.
    """
    is_acceptable = _acceptable_but_for(context, removing, adding, uncleanly_stopped)
    builders = ChangeBuilders(context, is_acceptable)
    gone = (removing, uncleanly_stopped)
    emptied = () if uncleanly_stopped is None else (uncleanly_stopped,)
    for topic, partition in partitions:
        if partition.leader == NO_LEADER and partition_state(partition) is PartitionState.NEW:
            record = initialised(partition, is_acceptable)
        else:
            builder = builders.builder(topic, partition)
            isr = partition.isr
            if removing in isr or uncleanly_stopped in isr:
                builder.isr = tuple([replica for replica in isr if replica not in gone])
            builder.uncleanly_stopped = emptied
            record = builder.build()
        yield record


def _acceptable_but_for(
    context: ControllerContext,
    removing: int | None,
    adding: int | None,
    uncleanly_stopped: int | None,
) -> AcceptableLeader:
    is_online = context.replica_states.is_online
    gone = (removing, uncleanly_stopped)
    newcomer = None if adding is None else context.image.brokers.get(adding)

    def is_acceptable(partition: PartitionRecord, broker_id: int) -> bool:
        if broker_id in gone:
            return False
        if newcomer is not None and broker_id == adding:
            return has_online_directory(newcomer, partition)
        return is_online(partition, broker_id)

    return is_acceptable


def initialised(
    partition: PartitionRecord, is_acceptable: AcceptableLeader
) -> PartitionChangeRecord | None:
    """The first leader of a partition: its first live replica; None while there is none."""
    live = tuple([r for r in partition.replicas if is_acceptable(partition, r)])
    if not live:
        return None
    return PartitionChangeRecord(
        partition.partition_id,
        partition.topic_id,
        isr=None if live == partition.isr else live,
        leader=live[0],
    )
