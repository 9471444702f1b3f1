"""A cluster's metadata to try the controller's operations on: brokers, features, a context.

Operations are pure, so a test asks one, looks at its answer, and lets its records happen with
`apply`. What can't be replayed, or can't be written, fails there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from timeline_rig import finished, let_happen

from kraftpy.config import DynamicConfig, NodeConfig, from_mapping
from kraftpy.metadata.controller.configs import ConfigControl
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.result import Caller, Outcome
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.controller.topic_names import TopicNames
from kraftpy.metadata.controller.topics import TopicControl
from kraftpy.metadata.features import default_levels, supported_features
from kraftpy.metadata.image import MetadataImage, Provenance
from kraftpy.metadata.record_format import decode_record, encode_record
from kraftpy.metadata.records import (
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from kraftpy.protocol.ids import Uuid

Answer = TypeVar("Answer")

CALLER = Caller(api_version=7)

STATIC = {
    "node.id": "100",
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.quorum.voters": "100@127.0.0.1:9093",
    "log.dirs": "/data",
}


def directory_of(broker_id: int) -> Uuid:
    return Uuid(b"directory".ljust(14, b"-") + broker_id.to_bytes(2, "big"))


def registration(
    broker_id: int,
    *,
    fenced: bool = False,
    shutting_down: bool = False,
    rack: str | None = None,
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=Uuid(bytes(14) + broker_id.to_bytes(2, "big")),
        broker_epoch=1000 + broker_id,
        end_points=(),
        features=supported_features(),
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=shutting_down,
        log_dirs=(directory_of(broker_id),),
    )


class SmallCluster:
    """Three live brokers, 1 to 3, and the newest features, unless told otherwise."""

    def __init__(
        self,
        brokers: Iterable[RegisterBrokerRecord] = (),
        *,
        metadata_version: int = 30,
        elr: bool = True,
        static: dict[str, str] | None = None,
        seed: int = 1,
    ) -> None:
        self.context = ControllerContext(
            ControllerSettings(
                node_id=100,
                cluster_id="cluster",
                features=supported_features(),
                static_configs=static or {},
            )
        )
        self.names = TopicNames()
        self.context.follow(self.names)
        levels = default_levels(metadata_version)
        if not elr:
            levels.pop("eligible.leader.replicas.version", None)
        self.apply([FeatureLevelRecord(name, level) for name, level in levels.items()])
        self.apply(list(brokers) or [registration(number) for number in (1, 2, 3)])
        self.node = DynamicConfig(NodeConfig(from_mapping(STATIC | (static or {}), "test")))
        self.configs = ConfigControl(self.context, self.node)
        self.topics = TopicControl(self.context, self.names, self.configs, Random(seed))

    @property
    def image(self) -> MetadataImage:
        return self.context.image

    def with_settings(self, **changes: object) -> None:
        self.context.settings = replace(self.context.settings, **changes)  # type: ignore[arg-type]

    def apply(self, records: Sequence[MetadataRecord]) -> None:
        """Let records happen, as one batch, after a way through their bytes."""
        if not records:
            return
        read = [decode_record(encode_record(record)) for record in records]
        assert read == list(records)
        last = self.image.provenance.last_offset + len(records)
        let_happen(self.context, read, Provenance(last, 1, 0))

    def carry_out(self, outcome: Outcome[Answer]) -> Answer:
        """Let the records of a result happen; returns its answer."""
        result = finished(outcome)
        self.apply(result.records)
        return result.answer
