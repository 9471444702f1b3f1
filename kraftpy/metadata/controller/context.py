"""What the controller's operations read: the metadata, what follows from it, and the settings.

One object for the life of a node, active or not. It owns the timeline of images and everything
derived from them, and moves both together. What an operation may ask about a broker, a topic or a
partition is answered from the newest image; only `stable` is the committed one.

Nothing here is a second truth: each answer is a function of the image, but for what replica_states
remembers, and for `epoch` and `heartbeats`, which the controller sets while it is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraftpy.config.definition import REQUIRED, Definition, Value, parse, render
from kraftpy.config.definitions import TOPIC
from kraftpy.config.problems import BadValueError
from kraftpy.metadata.controller.partition_index import IndexedPartition, PartitionIndex
from kraftpy.metadata.controller.partition_states import PartitionStateMachine
from kraftpy.metadata.controller.replica_states import ReplicaStateMachine, has_online_directory
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.controller.state import Derived, MetadataTimeline
from kraftpy.metadata.controller.topic_deletion import TopicDeletion
from kraftpy.metadata.controller.transitions import ReplicaState
from kraftpy.metadata.image import MetadataImage, Provenance
from kraftpy.metadata.records import (
    ConfigResourceType,
    MetadataRecord,
    PartitionRecord,
    PendingReplica,
    RegisterBrokerRecord,
)
from kraftpy.protocol.ids import Uuid

if TYPE_CHECKING:
    from kraftpy.metadata.controller.heartbeat_table import HeartbeatTable

__all__ = ["ELR_FEATURE", "ControllerContext"]

ELR_FEATURE: Final = "eligible.leader.replicas.version"


class ControllerContext:
    __slots__ = (
        "_timeline",
        "deletions",
        "epoch",
        "heartbeats",
        "partition_states",
        "partitions",
        "replica_states",
        "settings",
    )

    def __init__(self, settings: ControllerSettings) -> None:
        self.settings = settings
        self.partitions = PartitionIndex()
        self.replica_states = ReplicaStateMachine(self.partitions)
        self.partition_states = PartitionStateMachine(self.partitions)
        self.deletions = TopicDeletion()
        # In this order: the state machines look into the index.
        self._timeline = MetadataTimeline(
            (self.partitions, self.replica_states, self.partition_states, self.deletions)
        )
        # The Raft epoch in which this node is the active controller; 0 while it isn't.
        self.epoch = 0
        self.heartbeats: HeartbeatTable | None = None

    # Time.

    @property
    def image(self) -> MetadataImage:
        """The newest state, of which some may not be committed."""
        return self._timeline.image

    @property
    def stable(self) -> MetadataImage:
        """The newest committed state."""
        return self._timeline.stable

    @property
    def pending_offset(self) -> int | None:
        """The last offset that is appended and not known to be committed; None if all is."""
        return self._timeline.pending_offset

    @property
    def is_amid_append(self) -> bool:
        """Whether records have happened and what is derived from the image isn't all there yet."""
        return self._timeline.is_amid_append

    def appending(
        self, records: Sequence[MetadataRecord], place: Callable[[], Provenance]
    ) -> Iterator[None]:
        """Let records happen that are being appended, in steps; ReplayError if they can't.

        `place` is asked where they are appended when nothing is in their way any more.
        """
        return self._timeline.appending(records, place, self.settings.partitions_at_once)

    def commit(self, image: MetadataImage) -> None:
        """All of `image` is committed."""
        self._timeline.commit(image)
        self.replica_states.settle(image.provenance.last_offset)

    def revert(self) -> None:
        """Forget what isn't known to be committed."""
        self._timeline.revert()

    def follow(self, derived: Derived) -> None:
        """Tell one more of every change, behind the others."""
        self._timeline.follow(derived)

    # Brokers.

    @property
    def live_brokers(self) -> Iterator[RegisterBrokerRecord]:
        """Registered and unfenced; brokers that are shutting down among them."""
        return (broker for broker in self.image.brokers.values() if not broker.fenced)

    @property
    def live_broker_epochs(self) -> dict[int, int]:
        return {broker.broker_id: broker.broker_epoch for broker in self.live_brokers}

    @property
    def live_broker_ids(self) -> tuple[int, ...]:
        return tuple(
            broker.broker_id for broker in self.live_brokers if not broker.in_controlled_shutdown
        )

    @property
    def live_or_shutting_down_broker_ids(self) -> tuple[int, ...]:
        return tuple(broker.broker_id for broker in self.live_brokers)

    @property
    def shutting_down_broker_ids(self) -> tuple[int, ...]:
        return tuple(
            broker.broker_id for broker in self.live_brokers if broker.in_controlled_shutdown
        )

    def replicas_on_offline_dirs(self, broker_id: int) -> Iterator[IndexedPartition]:
        """Partitions of a registered broker whose replica there lies on a failed directory."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return
        for topic, partition in self.partitions.partitions_on(broker_id):
            if not has_online_directory(broker, partition):
                yield topic, partition

    # Topics and partitions.

    @property
    def all_partitions(self) -> Iterator[IndexedPartition]:
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                yield topic, partition

    def partitions_for_topic(self, topic_name: str) -> tuple[PartitionRecord, ...]:
        """Empty for a topic that doesn't exist."""
        topic = self.image.topics.get(topic_name)
        return topic.partitions if topic is not None else ()

    def replica_assignment(self, topic_id: Uuid, partition_id: int) -> tuple[int, ...]:
        """Empty for a partition that doesn't exist."""
        partition = self.image.partition(topic_id, partition_id)
        return partition.replicas if partition is not None else ()

    def replicas_in_state(self, topic_id: Uuid, state: ReplicaState) -> list[PendingReplica]:
        """Those replicas of a topic, or of a removed one, that are in a state."""
        states = self.replica_states.topic_states(topic_id)
        return [replica for replica, has in states if has is state]

    def are_all_replicas_in_state(self, topic_id: Uuid, state: ReplicaState) -> bool:
        return all(has is state for _, has in self.replica_states.topic_states(topic_id))

    def is_any_replica_in_state(self, topic_id: Uuid, state: ReplicaState) -> bool:
        return any(has is state for _, has in self.replica_states.topic_states(topic_id))

    # Settings.

    @property
    def is_elr_enabled(self) -> bool:
        return (self.image.features.get(ELR_FEATURE) or 0) > 0

    def topic_config(self, topic_name: str, key: str) -> str | None:
        """The value of a topic's key as text; None if it has none.

        The topic's own setting counts most, then what this node, all brokers, and this node's
        file say under the broker's name of the key, then the default. Broker keys in a coarser
        unit are not looked at: no operation of the controller reads a key that has such.
        """
        definition = TOPIC[key]
        for text in self._topic_settings(topic_name, definition):
            return text
        return None if definition.default is REQUIRED else render(definition.default)

    def min_insync_replicas(self, topic_name: str) -> int:
        value = self._topic_value(topic_name, "min.insync.replicas")
        return value if isinstance(value, int) else 1

    def allows_unclean(self, topic_name: str) -> bool:
        """Whether the topic prefers a leader that lost records over none."""
        return self._topic_value(topic_name, "unclean.leader.election.enable") is True

    def _topic_value(self, topic_name: str, key: str) -> Value:
        """The strongest setting that can be read: a broken one must not stop an election."""
        definition = TOPIC[key]
        for text in self._topic_settings(topic_name, definition):
            try:
                return parse(definition, text)
            except BadValueError:
                continue
        return None if definition.default is REQUIRED else definition.default

    def _topic_settings(self, topic_name: str, definition: Definition) -> Iterator[str]:
        """Everything that is set for a topic's key, the strongest first; the default is not."""
        image = self.image
        own = image.config(ConfigResourceType.TOPIC, topic_name)
        if definition.name in own:
            yield own[definition.name]
        node = image.config(ConfigResourceType.BROKER, str(self.settings.node_id))
        cluster = image.config(ConfigResourceType.BROKER, "")
        for settings in (node, cluster, self.settings.static_configs):
            for name in definition.synonyms[:1]:
                if name in settings:
                    yield settings[name]
