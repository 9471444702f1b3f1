"""A cluster's image for the tests of handlers, made of records as the controller writes them."""

from __future__ import annotations

from random import Random

from api.recording import Bench, RecordingChannel

from kraftpy.api.handler import Handler
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata import records as r
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.protocol.ids import Uuid

CLUSTER_ID = "Iy1sbGZzVmVUc2VjcmV0IQ"
DIRECTORY = Uuid(b"d" * 16)
FAILED_DIRECTORY = Uuid(b"f" * 16)
NODE_SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "C",
    "listeners": "PLAINTEXT://b:9092,C://b:9093",
    "controller.quorum.voters": "1@b:9093",
    "log.dirs": "/data",
    "log.segment.bytes": "2000000",
}


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode()[-16:].rjust(16, b"."))


def broker(
    broker_id: int, *listeners: str, fenced: bool = False, rack: str | None = None
) -> r.RegisterBrokerRecord:
    endpoints = tuple(
        r.Endpoint(name, f"{name.lower()}{broker_id}", 9000 + broker_id, 0)
        for name in listeners or ("PLAINTEXT",)
    )
    return r.RegisterBrokerRecord(
        broker_id,
        Uuid(bytes(15) + bytes([broker_id])),
        broker_id * 10,
        endpoints,
        rack=rack,
        fenced=fenced,
        log_dirs=(DIRECTORY,),
    )


def topic(name: str, *replica_sets: tuple[int, ...]) -> list[r.MetadataRecord]:
    """A topic led by the first replica of each partition."""
    partitions = [
        r.PartitionRecord(
            number,
            topic_id(name),
            replicas,
            replicas,
            leader=replicas[0],
            leader_epoch=number + 3,
            directories=(DIRECTORY,) * len(replicas),
        )
        for number, replicas in enumerate(replica_sets)
    ]
    return [r.TopicRecord(name, topic_id(name)), *partitions]


def configs(*settings: tuple[int, str, str, str]) -> list[r.ConfigRecord]:
    return [
        r.ConfigRecord(r.ConfigResourceType(kind), name, key, value)
        for kind, name, key, value in settings
    ]


def image_of(*records: r.MetadataRecord, base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(base)
    for record in records:
        delta.replay(record)
    return delta.apply(Provenance(base.provenance.last_offset + len(records), 1, 0))


def view_of(*records: r.MetadataRecord) -> BrokerMetadata:
    return BrokerMetadata(
        cluster_id=CLUSTER_ID,
        random=Random(1),
        leader_id=lambda: 300,
        kraft_version=lambda: 1,
        image=image_of(*records),
    )


def bench_of(handler: Handler, listener: str = "PLAINTEXT") -> Bench:
    return Bench([handler], channel=RecordingChannel(listener_name=listener))
