"""A cluster whose brokers register and beat through the controller's own operations.

Every result's records go through their bytes into the timeline and are kept, so that a failover is
what it is: another context that replays the same log, and knows of no heartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from timeline_rig import let_happen

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.brokers import BrokerControl
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.heartbeat_table import HeartbeatTable
from kraftpy.metadata.controller.result import Caller, ControllerResult
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.features import ELIGIBLE_LEADER_REPLICAS, supported_features
from kraftpy.metadata.image import Provenance
from kraftpy.metadata.record_format import decode_record, encode_record
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from kraftpy.protocol.schema.k63_broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from kraftpy.protocol.schema.k64_unregister_broker import UnregisterBrokerRequest

Answer = TypeVar("Answer")

CALLER = Caller(api_version=4)
SETTINGS = ControllerSettings(node_id=100, cluster_id="cluster", features=supported_features())
SESSION_MS = SETTINGS.broker_session_timeout_ms
TOPIC = Uuid(b"topic-----000001")
OTHER_TOPIC = Uuid(b"topic-----000002")
FAR = 2**62


def directory(broker_id: int, number: int = 0) -> Uuid:
    return Uuid(b"directory-%03d-%02d" % (broker_id, number))


def incarnation(number: int) -> Uuid:
    return Uuid(b"incarnation-%04d" % number)


def features() -> list[Feature]:
    return [
        Feature(name=name, min_supported_version=low, max_supported_version=high)
        for name, low, high in supported_features()
    ]


def registration(broker_id: int, process: int = 1, **fields: object) -> BrokerRegistrationRequest:
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="cluster",
        incarnation_id=incarnation(process),
        listeners=[Listener(name="PLAINTEXT", host=f"host-{broker_id}", port=9092)],
        features=features(),
        rack="north",
        log_dirs=[directory(broker_id)],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


class BrokerCluster:
    """An active controller at time 1,000 and its log; no brokers yet."""

    def __init__(self, *, level: int = 30, elr: bool = False) -> None:
        self.now_ms = 1_000
        self.log: list[r.MetadataRecord] = []
        self._start()
        self.happen(r.FeatureLevelRecord(r.METADATA_VERSION, level))
        if elr:
            self.happen(r.FeatureLevelRecord(ELIGIBLE_LEADER_REPLICAS, 1))
        self._activate()

    def _start(self) -> None:
        self.context = ControllerContext(SETTINGS)
        self.control = BrokerControl(self.context)

    def _activate(self) -> None:
        self.context.replica_states.forget_acknowledgements(self.next_offset - 1)
        self.context.heartbeats = HeartbeatTable.at_activation(
            self.context.image, SESSION_MS, SETTINGS.probe_after_ms, self.now_ms
        )

    def fail_over(self) -> None:
        """Another node becomes the controller, after it has replayed the log."""
        log, self.log = self.log, []
        before = self.context.image
        self._start()
        self.happen(*log)
        assert replace(self.context.image, provenance=before.provenance) == before
        self._activate()

    @property
    def next_offset(self) -> int:
        return len(self.log)

    @property
    def table(self) -> HeartbeatTable:
        assert self.context.heartbeats is not None
        return self.context.heartbeats

    def happen(self, *records: r.MetadataRecord) -> None:
        if not records:
            return
        read = [decode_record(encode_record(record)) for record in records]
        assert read == list(records)
        self.log += read
        let_happen(self.context, read, Provenance(self.next_offset - 1, 1, 0))
        self.context.commit(self.context.image)

    def carry_out(self, result: ControllerResult[Answer]) -> Answer:
        self.happen(*result.records)
        return result.answer

    # Brokers.

    def register(self, broker_id: int, process: int = 1, **fields: object) -> int:
        """The broker's epoch."""
        request = registration(broker_id, process, **fields)
        return self.carry_out(self.ask(request)).broker_epoch

    def ask(
        self, request: BrokerRegistrationRequest
    ) -> ControllerResult[BrokerRegistrationResponse]:
        return self.control.register_broker(request, CALLER, self.now_ms, self.next_offset)

    def request(
        self, broker_id: int, offset: int = FAR, **fields: object
    ) -> BrokerHeartbeatRequest:
        broker = self.context.image.brokers.get(broker_id)
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=-1 if broker is None else broker.broker_epoch,
            current_metadata_offset=offset,
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    def ask_beat(
        self, broker_id: int, offset: int = FAR, **fields: object
    ) -> ControllerResult[BrokerHeartbeatResponse]:
        """A heartbeat arrives and is processed; its records don't happen."""
        request = self.request(broker_id, offset, **fields)
        self.table.touch(broker_id, request.broker_epoch, self.now_ms)
        return self.control.heartbeat(request, CALLER, self.now_ms, self.next_offset)

    def beat(self, broker_id: int, offset: int = FAR, **fields: object) -> BrokerHeartbeatResponse:
        return self.carry_out(self.ask_beat(broker_id, offset, **fields))

    def start(self, *broker_ids: int, **fields: object) -> None:
        """Brokers that register and are unfenced."""
        for broker_id in broker_ids:
            self.register(broker_id, **fields)
            assert not self.beat(broker_id).is_fenced

    def unregister(self, broker_id: int) -> None:
        self.carry_out(self.control.unregister_broker(unregistration(broker_id), CALLER))

    def broker(self, broker_id: int) -> r.RegisterBrokerRecord:
        return self.context.image.brokers[broker_id]

    def die(self, broker_id: int) -> None:
        """Evidence: the connection broke, and every listener refuses."""
        self.table.note_disconnected(broker_id, self.now_ms)
        listeners = len(self.broker(broker_id).end_points)
        assert broker_id in self.table.to_probe(self.now_ms)
        self.table.probed(broker_id, listeners, self.now_ms)
        assert [self.table.note_refused(broker_id) for _ in range(listeners)][-1]
        self.carry_out(self.control.fence_dead(broker_id))

    # Partitions.

    def topic(
        self, *replica_lists: Sequence[int], name: str = "orders", topic_id: Uuid = TOPIC
    ) -> None:
        """A topic with a partition for each list, whose brokers are in sync."""
        partitions = [
            r.PartitionRecord(
                number,
                topic_id,
                tuple(replicas),
                tuple(replicas),
                leader=replicas[0],
                directories=tuple(self.broker(each).log_dirs[0] for each in replicas),
            )
            for number, replicas in enumerate(replica_lists)
        ]
        self.happen(r.TopicRecord(name, topic_id), *partitions)

    def partition(self, number: int = 0) -> r.PartitionRecord:
        partition = self.context.image.partition(TOPIC, number)
        assert partition is not None
        return partition

    def leaders(self) -> list[int]:
        return [each.leader for each in self.context.partitions_for_topic("orders")]

    def in_sync(self) -> list[tuple[int, ...]]:
        return [each.isr for each in self.context.partitions_for_topic("orders")]


def unregistration(broker_id: int) -> UnregisterBrokerRequest:
    return UnregisterBrokerRequest(broker_id=broker_id)
