"""A cluster for tests of the controller: its context, and brokers and topics put there by records.

Nothing is imitated: every record goes through the timeline, as the active controller's do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from timeline_rig import let_happen

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.leader_and_isr import leader_and_isr_changes
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.features import ELIGIBLE_LEADER_REPLICAS
from kraftpy.metadata.image import Provenance
from kraftpy.protocol.ids import Uuid

CONTROLLER = 3000


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"."))


def directory(broker_id: int, number: int = 0) -> Uuid:
    return Uuid(b"directory-%03d-%02d" % (broker_id, number))


class Cluster:
    """Brokers 0 and following, unfenced, each with its own directories."""

    def __init__(
        self,
        brokers: int = 6,
        *,
        level: int = 30,
        elr: bool = False,
        directories: int = 1,
        imbalance_percentage: int = 10,
        static_configs: Mapping[str, str] | None = None,
    ) -> None:
        settings = ControllerSettings(
            CONTROLLER,
            "cluster",
            static_configs=static_configs or {},
            leader_imbalance_per_broker_percentage=imbalance_percentage,
        )
        self.context = ControllerContext(settings)
        self._offset = -1
        self.happen(r.FeatureLevelRecord(r.METADATA_VERSION, level))
        if elr:
            self.happen(r.FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS, 1))
        for broker_id in range(brokers):
            self.register(broker_id, [directory(broker_id, n) for n in range(directories)])

    def happen(self, *records: r.MetadataRecord) -> None:
        """Append and commit records as one batch; none at all is nothing."""
        if not records:
            return
        self.append(*records)
        self.context.commit(self.context.image)

    def append(self, *records: r.MetadataRecord) -> None:
        """Append records that are not committed yet."""
        self._offset += len(records)
        let_happen(self.context, records, Provenance(self._offset, 1, self._offset))

    def register(
        self, broker_id: int, directories: Sequence[Uuid], *, fenced: bool = False
    ) -> None:
        endpoint = r.Endpoint("PLAINTEXT", "localhost", 9092, 0)
        self.happen(
            r.RegisterBrokerRecord(
                broker_id,
                Uuid(b"incarnation-0001"),
                100 + broker_id,
                (endpoint,),
                fenced=fenced,
                log_dirs=tuple(directories),
            )
        )

    def topic(self, name: str, partitions: Iterable[r.PartitionRecord]) -> None:
        identity = topic_id(name)
        placed = [
            replace(each, topic_id=identity, partition_id=number)
            for number, each in enumerate(partitions)
        ]
        self.happen(r.TopicRecord(name, identity), *placed)

    def configure(self, topic: str, key: str, value: str | None) -> None:
        """A topic's setting, or with an empty name that of all brokers."""
        kind = r.ConfigResourceType.TOPIC if topic else r.ConfigResourceType.BROKER
        self.happen(r.ConfigRecord(kind, topic, key, value))

    def change_broker(self, broker_id: int, **fields: object) -> r.MetadataRecord:
        base = r.BrokerRegistrationChangeRecord(broker_id, 100 + broker_id)
        return replace(base, **fields)  # type: ignore[arg-type]

    def fence(self, broker_id: int) -> tuple[r.PartitionChangeRecord, ...]:
        """As a broker's death is carried out: changes first, then the fence."""
        changes = changes_needed(
            self.context,
            removing=broker_id,
            partitions=self.context.partitions.with_isr_member(broker_id),
        )
        self.happen(*changes, self.change_broker(broker_id, fenced=1))
        return changes

    def unfence(self, broker_id: int) -> tuple[r.PartitionChangeRecord, ...]:
        changes = changes_needed(
            self.context,
            adding=broker_id,
            partitions=self.context.partition_states.to_bring_online(),
        )
        self.happen(self.change_broker(broker_id, fenced=-1), *changes)
        return changes

    def partition(self, topic: str, partition_id: int = 0) -> r.PartitionRecord:
        partition = self.context.image.partition(topic_id(topic), partition_id)
        assert partition is not None
        return partition


def changes_needed(
    context: ControllerContext, **fields: Any
) -> tuple[r.PartitionChangeRecord, ...]:
    """Of those partitions that need one."""
    changes = leader_and_isr_changes(context, **fields)
    return tuple(change for change in changes if change is not None)


def placed(
    replicas: tuple[int, ...], isr: tuple[int, ...] | None = None, leader: int | None = None
) -> r.PartitionRecord:
    """A partition, in sync and led by its first replica unless told otherwise."""
    isr = replicas if isr is None else isr
    led_by = (isr or replicas)[0] if leader is None else leader
    return r.PartitionRecord(0, topic_id(""), replicas, isr, leader=led_by, leader_epoch=5)
