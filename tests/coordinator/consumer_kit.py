"""Consumer groups on a real shard, and members who behave as clients of KIP-848 do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from coordinator.shard_kit import ShardRig, Waiting

from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_groups import ConsumerGroups
from kraftpy.coordinator.groups.consumer_member import ConsumerMember
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.groups.metrics import GroupMetrics
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.memory_shard_log import MemoryShardLog
from kraftpy.coordinator.outcome import CoordinatorRecord, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.metadata import records as r
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.features import GROUP_VERSION
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.protocol.coordinator_records import GROUP_RECORDS, encode_key
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kraftpy.records.batch import RecordBatch
from kraftpy.records.reader import read_records

NEWEST = 1
SESSION_MS = 45_000
REBALANCE_MS = 60_000
INTERVAL_MS = 1000

# Partitions that somebody has, by the topics' names.
Owned = dict[str, set[int]]


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"-")[-16:])


def image_with(
    topics: Mapping[str, int],
    *,
    version: int = 0,
    group_version: int = 1,
    group_configs: Mapping[str, Mapping[str, str]] | None = None,
) -> MetadataImage:
    """Topics with that many partitions; `version` is the offset of the metadata."""
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(r.FeatureLevelRecord(GROUP_VERSION, group_version))
    for name, count in topics.items():
        delta.replay(r.TopicRecord(name, topic_id(name)))
        for partition in range(count):
            delta.replay(r.PartitionRecord(partition, topic_id(name), (1,), (1,), leader=1))
    for group_id, settings in (group_configs or {}).items():
        for key, value in settings.items():
            delta.replay(r.ConfigRecord(r.ConfigResourceType.GROUP, group_id, key, value))
    return delta.apply(Provenance(version, 1, 0))


class ConsumerRig(ShardRig[GroupMachine]):
    """The shard; everything is committed at once unless a test says otherwise."""

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        settings: GroupSettings | None = None,
        commits_at_once: bool = True,
        log: MemoryShardLog | None = None,
        group_configs: Mapping[str, Mapping[str, str]] | None = None,
        metrics: GroupMetrics | None = None,
        seed: int = 1,
    ) -> None:
        random = Random(seed)
        self.group_settings = settings or GroupSettings()
        self.topics = dict(topics or {})

        def make(context: ShardContext) -> GroupMachine:
            return GroupMachine(context, self.group_settings, random, metrics)

        super().__init__(
            make,
            GROUP_RECORDS,
            commits_at_once=commits_at_once,
            log=log,
            image=image_with(self.topics, group_configs=group_configs),
        )

    # What is there.

    @property
    def consumers(self) -> ConsumerGroups:
        return self.machine.consumers

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.machine.directory.get(group_id)
        assert isinstance(group, ConsumerGroup)
        return group

    def member(self, member_id: str, group_id: str = "g") -> ConsumerMember:
        return self.group(group_id).members[member_id]

    def held(self, member_id: str) -> Owned:
        """What the member holds, assigned or to be revoked."""
        held: Owned = {}
        for each, partition in self.member(member_id).current.partitions():
            held.setdefault(self.name(each), set()).add(partition)
        return held

    def name(self, wanted: Uuid) -> str:
        return wanted.lstrip(b"-").decode()

    def records(self, start: int = 0) -> list[CoordinatorRecord]:
        """Those in the log from an offset on."""
        found = []
        for data in self.log.batches:
            for record in read_records(RecordBatch(data), max_bytes=1 << 24):
                if record.offset < start or record.key is None:
                    continue
                key = GROUP_RECORDS.decode_key(record.key)
                value = (
                    None
                    if record.value is None
                    else GROUP_RECORDS.decode_value(key, record.value)[0]
                )
                found.append(CoordinatorRecord(key, value))
        return found

    def written(self, action: Callable[[], Any]) -> list[CoordinatorRecord]:
        """What an action writes."""
        self.commit()
        end = self.log.log_end_offset
        action()
        self.commit()
        return self.records(end)

    # Requests.

    def heartbeat(self, version: int = NEWEST, **fields: Any) -> Waiting:
        request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", **fields})
        return self.write(lambda machine: self._beat(request, version))

    def _beat(
        self, request: ConsumerGroupHeartbeatRequest, version: int
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        return self.consumers.heartbeat(
            request, api_version=version, client_id="client", client_host="/host"
        )

    def beat(self, version: int = NEWEST, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat that is accepted."""
        waiting = self.heartbeat(version, **fields)
        self.commit()
        answer = waiting.answer
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def refused(self, version: int = NEWEST, **fields: Any) -> ErrorCode:
        """The error of a heartbeat, which must have written nothing."""
        self.commit()
        end = self.log.log_end_offset
        waiting = self.heartbeat(version, **fields)
        self.commit()
        assert waiting.error is not None
        assert self.log.log_end_offset == end
        return waiting.error

    # The world.

    def change_topics(self, version: int = 1, **topics: int) -> None:
        """Topics as they are from now on; a count of 0 deletes one."""
        self.topics.update(topics)
        self.topics = {name: count for name, count in self.topics.items() if count}
        before, self.image = self.image, image_with(self.topics, version=version)
        self.shard.metadata_changed(ImageChanges(before, self.image), self.image)


class Client:
    """A member as a client is: it owns what it was assigned, and gives up what it no longer is."""

    def __init__(
        self,
        rig: ConsumerRig,
        member_id: str,
        topics: Sequence[str] = (),
        *,
        regex: str | None = None,
        instance: str | None = None,
        group_id: str = "g",
        **more: Any,
    ) -> None:
        self.rig = rig
        self.member_id = member_id
        self.topics = list(topics)
        self.regex = regex
        self.instance = instance
        self.group_id = group_id
        self.more = more
        self.epoch = 0
        self.owned: Owned = {}

    def join(self) -> ConsumerGroupHeartbeatResponse:
        self.epoch, self.owned = 0, {}
        return self.take(self.rig.beat(**self.full_request()))

    def full_request(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": list(self.topics),
            "subscribed_topic_regex": self.regex,
            "topic_partitions": self.listed(),
            **self.more,
        }

    def short_request(self) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
        }

    def listed(self) -> list[TopicPartitions]:
        return [
            TopicPartitions(topic_id=topic_id(name), partitions=sorted(partitions))
            for name, partitions in sorted(self.owned.items())
            if partitions
        ]

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A short heartbeat, with what it owns."""
        return self.take(
            self.rig.beat(**{**self.short_request(), "topic_partitions": self.listed(), **fields})
        )

    def short_beat(self) -> ConsumerGroupHeartbeatResponse:
        return self.take(self.rig.beat(**self.short_request()))

    def leave(self, epoch: int = -1) -> None:
        self.rig.beat(**{**self.short_request(), "member_epoch": epoch})
        self.epoch, self.owned = 0, {}

    def take(self, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {
                self.rig.name(each.topic_id): set(each.partitions)
                for each in answer.assignment.topic_partitions
            }
        return answer


def types(records: Iterable[CoordinatorRecord]) -> list[str]:
    """The numbers of the records' types, with a minus for tombstones."""
    return [f"{'-' if each.value is None else ''}{record_type(each)}" for each in records]


def record_type(record: CoordinatorRecord) -> int:
    return int.from_bytes(encode_key(record.key)[:2], "big")


def holders(group: ConsumerGroup) -> dict[tuple[bytes, int], str]:
    """Who holds what, by the members themselves; nobody may hold what another one holds."""
    found: dict[tuple[bytes, int], str] = {}
    for member in group.members.values():
        for key in member.current.partitions():
            assert key not in found, f"{key} is held by {found[key]} and {member.member_id}"
            found[key] = member.member_id
    return found


def settle(clients: Sequence[Client], rounds: int = 10) -> None:
    """Let all of them send heartbeats, again and again."""
    for _ in range(rounds):
        clients[0].rig.clock.now_ms += INTERVAL_MS
        for client in clients:
            client.beat()


def assigned(answer: ConsumerGroupHeartbeatResponse) -> Owned | None:
    if answer.assignment is None:
        return None
    return {
        each.topic_id.lstrip(b"-").decode(): set(each.partitions)
        for each in answer.assignment.topic_partitions
    }
