"""Classic groups and offsets, side by side with Apache Kafka: the same answers, step by step.

One and the same story is told to both. Answers are compared whole, but for the ids that a broker
makes up and the words of its errors.
"""

from __future__ import annotations

import re
import struct
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from compat.test_bad_input import node
from support.kafka_jars import QUICK_JAVA, classpath

from kraftpy.client.blocking import BlockingConnection
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema import k03_metadata as k03
from kraftpy.protocol.schema import k08_offset_commit as k08
from kraftpy.protocol.schema import k09_offset_fetch as k09
from kraftpy.protocol.schema import k10_find_coordinator as k10
from kraftpy.protocol.schema import k11_join_group as k11
from kraftpy.protocol.schema import k12_heartbeat as k12
from kraftpy.protocol.schema import k13_leave_group as k13
from kraftpy.protocol.schema import k14_sync_group as k14
from kraftpy.protocol.schema import k15_describe_groups as k15
from kraftpy.protocol.schema import k16_list_groups as k16
from kraftpy.protocol.schema import k42_delete_groups as k42
from kraftpy.protocol.schema import k47_offset_delete as k47
from kraftpy.protocol.schema.consumer_protocol import ConsumerProtocolSubscription
from kraftpy.protocol.tables import Request

pytestmark = [pytest.mark.compat, pytest.mark.java]

SETTINGS = "offsets.topic.replication.factor=1\ngroup.initial.rebalance.delay.ms=0\n"
READY_SECONDS = 60
NOWHERE = Uuid(b"\x77" * 16)
SUBSCRIPTION = struct.pack(">h", 0) + encode_bytes(ConsumerProtocolSubscription(topics=["good"]), 0)


class Story:
    """Asks one broker, and writes down what it answers."""

    def __init__(self, port: int) -> None:
        self.connection = BlockingConnection(("127.0.0.1", port))
        self.told: list[str] = []
        self.names: dict[str, str] = {}

    def ask(self, request: Request, version: int | None = None) -> Any:
        answer = self.connection.request(request, max_version=version)
        self.told.append(self._plain(f"{request!r} v{version}: {answer!r}"))
        return answer

    def _plain(self, text: str) -> str:
        text = re.sub(r"error_message='[^']*'", "error_message=…", text)
        text = re.sub(r"<ErrorCode\.\w+: (-?\d+)>", r"\1", text)
        return re.sub(r"[\w.]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", self._name, text)

    def _name(self, match: re.Match[str]) -> str:
        return self.names.setdefault(match.group(), f"member {len(self.names)}")

    # Requests.

    def join(self, version: int = 9, **fields: Any) -> Any:
        request = k11.JoinGroupRequest(
            group_id="g",
            # Nobody sends heartbeats here, and one of the two sides may be slow.
            session_timeout_ms=300_000,
            protocol_type="consumer",
            protocols=[k11.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        if version >= 1:
            request.rebalance_timeout_ms = 20_000
        for name, value in fields.items():
            setattr(request, name, value)
        return self.ask(request, version)

    def sync(self, member_id: str, generation: int, **fields: Any) -> Any:
        request = k14.SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[k14.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return self.ask(request, 5)

    def heartbeat(self, member_id: str, generation: int, **fields: Any) -> Any:
        request = k12.HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        for name, value in fields.items():
            setattr(request, name, value)
        return self.ask(request, 4)

    def commit(
        self, version: int, member_id: str, generation: int, *partitions: tuple[Any, int, str]
    ) -> Any:
        by_id = version >= 10
        topics: dict[Any, k08.OffsetCommitRequestTopic] = {}
        for topic, index, metadata in partitions:
            wanted = k08.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=7, committed_metadata=metadata
            )
            asked = topics.setdefault(
                topic,
                k08.OffsetCommitRequestTopic(
                    name="" if by_id else topic, topic_id=topic if by_id else ZERO_UUID
                ),
            )
            asked.partitions.append(wanted)
        request = k08.OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=list(topics.values()),
        )
        return self.ask(request, version)

    def fetch(self, version: int, *partitions: tuple[Any, int], group_id: str = "g") -> Any:
        if version < 8:
            topics = [
                k09.OffsetFetchRequestTopic(name=topic, partition_indexes=[index])
                for topic, index in partitions
            ]
            return self.ask(k09.OffsetFetchRequest(group_id=group_id, topics=topics), version)
        by_id = version >= 10
        named = [
            k09.OffsetFetchRequestTopics(
                name="" if by_id else topic,
                topic_id=topic if by_id else ZERO_UUID,
                partition_indexes=[index],
            )
            for topic, index in partitions
        ]
        group = k09.OffsetFetchRequestGroup(group_id=group_id, topics=named)
        return self.ask(k09.OffsetFetchRequest(groups=[group]), version)


def find_coordinator(story: Story) -> None:
    """The first who asks has the topic created."""
    deadline = time.monotonic() + READY_SECONDS
    request = k10.FindCoordinatorRequest(coordinator_keys=["g"])
    while True:
        [found] = story.connection.request(request, max_version=4).coordinators
        listed = story.connection.request(k16.ListGroupsRequest(), max_version=4)
        if found.error_code == 0 and listed.error_code == 0:
            probe = k12.HeartbeatRequest(group_id="g", member_id="nobody")
            if story.connection.request(probe, max_version=4).error_code == 25:
                return
        assert time.monotonic() < deadline
        time.sleep(0.2)


def tell_of_members(story: Story) -> str:
    """Joining and syncing, in wrong ways and in the right one. Returns the member's id."""
    story.join(group_id="")
    story.join(session_timeout_ms=5999)
    story.join(session_timeout_ms=1_800_001)
    story.join(member_id="nobody")
    story.join(protocols=[])
    story.join(version=5, protocol_type="")
    member_id: str = story.join().member_id
    story.join(member_id=member_id)
    story.sync("nobody", 1)
    story.sync(member_id, 7)
    story.sync(member_id, 1, protocol_type="connect")
    story.sync(member_id, 1, protocol_name="sticky")
    story.sync(member_id, 1, protocol_name=None)
    story.sync(member_id, 1, group_instance_id="x")
    story.heartbeat(member_id, 1)
    story.commit(9, member_id, 1, ("good", 0, ""))
    story.sync(member_id, 1)
    story.sync(member_id, 1)
    story.join(protocol_type="connect")
    story.join(member_id="nobody")
    story.heartbeat("nobody", 1)
    story.heartbeat(member_id, 2)
    story.heartbeat(member_id, 1, group_id="none")
    story.heartbeat(member_id, 1, group_id="")
    story.heartbeat(member_id, 1, group_instance_id="x")
    story.heartbeat(member_id, 1)
    return member_id


def tell_of_offsets(story: Story, member_id: str, topic_id: Uuid) -> None:
    for version in range(2, 10):
        story.commit(version, member_id, 1, ("good", version % 3, "note"))
        story.commit(version, member_id, 2, ("good", 0, ""))
        story.commit(version, "nobody", 1, ("good", 0, ""))
        story.commit(version, "", -1, ("good", 0, ""))
    long = "x" * 4097
    story.commit(9, member_id, 1, ("none", 0, ""), ("good", 3, ""), ("good", 0, long))
    story.commit(9, member_id, 1, ("good", 1, long[1:]))
    story.commit(10, member_id, 1, (topic_id, 2, "by id"))
    story.commit(10, member_id, 1, (NOWHERE, 0, ""))
    for version in range(1, 10):
        story.fetch(version, ("good", 2))
        story.fetch(version, ("good", 9))
        story.fetch(version, ("none", 0))
        story.fetch(version, ("good", 0), group_id="none")
    story.fetch(10, (topic_id, 2))
    story.fetch(10, (NOWHERE, 0))


def tell_of_administration(story: Story, member_id: str) -> None:
    def delete_offset(group_id: str, topic: str, index: int) -> None:
        partition = k47.OffsetDeleteRequestPartition(partition_index=index)
        asked = k47.OffsetDeleteRequestTopic(name=topic, partitions=[partition])
        story.ask(k47.OffsetDeleteRequest(group_id=group_id, topics=[asked]), 0)

    for version in range(7):
        story.ask(k15.DescribeGroupsRequest(groups=["g"]), version)
        story.ask(k15.DescribeGroupsRequest(groups=["none"]), version)
    asked = k15.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    story.ask(asked, 5)
    for version in range(6):
        story.ask(k16.ListGroupsRequest(), version)
    story.ask(k16.ListGroupsRequest(states_filter=["stable"], types_filter=["CLASSIC"]), 5)
    story.ask(k16.ListGroupsRequest(states_filter=["empty"]), 5)
    story.ask(k42.DeleteGroupsRequest(groups_names=["g"]), 2)
    story.ask(k42.DeleteGroupsRequest(groups_names=["none"]), 2)
    delete_offset("g", "good", 0)
    delete_offset("g", "compacted", 0)
    delete_offset("g", "none", 0)
    delete_offset("none", "good", 0)
    delete_offset("", "good", 0)
    for version in (2, 5):
        leave_nobody = k13.LeaveGroupRequest(group_id="g")
        if version < 3:
            leave_nobody.member_id = "nobody"
        else:
            leave_nobody.members = [
                k13.MemberIdentity(member_id="nobody"),
                k13.MemberIdentity(member_id="", group_instance_id="x"),
                k13.MemberIdentity(member_id=member_id, group_instance_id="x"),
            ]
        story.ask(leave_nobody, version)
        leave_nobody.group_id = "none"
        story.ask(leave_nobody, version)
    leave = k13.LeaveGroupRequest(group_id="g", members=[k13.MemberIdentity(member_id=member_id)])
    story.ask(leave, 5)
    story.ask(leave, 5)
    story.heartbeat(member_id, 1)
    story.sync(member_id, 2)
    story.ask(k15.DescribeGroupsRequest(groups=["g"]), 6)
    story.commit(9, "", -1, ("good", 0, "nobody is there"))
    delete_offset("g", "good", 0)
    story.ask(k42.DeleteGroupsRequest(groups_names=["g"]), 2)
    story.fetch(9, ("good", 1))
    story.commit(8, "m", 3, ("good", 0, ""))
    story.commit(9, "m", 3, ("good", 0, ""))


def tell_of_versions(story: Story) -> None:
    """A member's life in every version."""
    for version in range(10):
        group_id = f"version-{version}"
        member_id = story.join(version=version, group_id=group_id).member_id
        if version >= 4:
            story.join(version=version, group_id=group_id, member_id=member_id)
        sync = k14.SyncGroupRequest(group_id=group_id, generation_id=1, member_id=member_id)
        if version >= 5:
            sync.protocol_type, sync.protocol_name = "consumer", "range"
        story.ask(sync, min(version, 5))
        beat = k12.HeartbeatRequest(group_id=group_id, generation_id=1, member_id=member_id)
        story.ask(beat, min(version, 4))
        story.join(version=version, group_id=group_id, member_id=member_id)
        story.ask(beat, min(version, 4))
        leave = k13.LeaveGroupRequest(group_id=group_id)
        if version < 3:
            leave.member_id = member_id
        else:
            leave.members = [k13.MemberIdentity(member_id=member_id)]
        story.ask(leave, min(version, 5))
        story.ask(k42.DeleteGroupsRequest(groups_names=[group_id]), version % 3)


def tell_of_everything(story: Story) -> None:
    """All offsets of a group at once, also stable ones only."""
    story.commit(9, "", -1, ("good", 1, "one"))
    for version in range(2, 11):
        for group_id in ("g", "none"):
            if version < 8:
                request = k09.OffsetFetchRequest(group_id=group_id, topics=None)
            else:
                group = k09.OffsetFetchRequestGroup(group_id=group_id, topics=None)
                request = k09.OffsetFetchRequest(groups=[group])
            story.ask(request, version)
            if version >= 7:
                request.require_stable = True
                story.ask(request, version)
    group = k09.OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=3, topics=None)
    story.ask(k09.OffsetFetchRequest(groups=[group]), 9)


def tell_of_static_members(story: Story) -> None:
    """One that restarts, and one that is fenced for it."""
    first = story.join(group_instance_id="i").member_id
    story.sync(first, 1, group_instance_id="i")
    for version in (9, 5):
        again = story.join(version=version, group_instance_id="i").member_id
        story.sync(again, 1, group_instance_id="i")
        story.heartbeat(first, 1, group_instance_id="i")
        story.join(group_instance_id="i", member_id=first)
        story.sync(first, 1, group_instance_id="i")
        identity = k13.MemberIdentity(member_id=first, group_instance_id="i")
        story.ask(k13.LeaveGroupRequest(group_id="g", members=[identity]), 5)
        first = again
    story.ask(k15.DescribeGroupsRequest(groups=["g"]), 6)
    identity = k13.MemberIdentity(member_id="", group_instance_id="i")
    story.ask(k13.LeaveGroupRequest(group_id="g", members=[identity]), 5)
    story.ask(k16.ListGroupsRequest(), 5)


def tell(port: int) -> list[str]:
    story = Story(port)
    wanted = k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name="good")])
    [topic] = story.connection.request(wanted).topics
    find_coordinator(story)
    member_id = tell_of_members(story)
    tell_of_offsets(story, member_id, topic.topic_id)
    tell_of_administration(story, member_id)
    tell_of_versions(story)
    tell_of_everything(story)
    tell_of_static_members(story)
    story.connection.close()
    ids = (str(topic.topic_id), repr(topic.topic_id))
    return [_without(line, ids) for line in story.told]


def _without(line: str, ids: tuple[str, ...]) -> str:
    for each in ids:
        line = line.replace(each, "topic id")
    return line


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Of Kafka, and of kraftpy."""
    root = tmp_path_factory.mktemp("groups-side-by-side")
    java = [*QUICK_JAVA, "-Xmx512m", "-cp", classpath()]
    own = [sys.executable, "-m", "kraftpy.cli.main"]
    storage = [*java, "kafka.tools.StorageTool", "format"]
    with (
        node(root / "kafka", storage, [*java, "kafka.Kafka"], SETTINGS) as kafka,
        node(root / "kraftpy", [*own, "storage", "format"], [*own, "node"], SETTINGS) as kraftpy,
    ):
        yield kafka, kraftpy


def test_the_same_story(ports: tuple[int, int]) -> None:
    """GRP-4, GRP-7, GRP-14, GRP-31, GRP-37, GRP-39, GRP-41, GRP-44, GRP-46 to GRP-48, GRP-52 to
    GRP-54, GRP-58
    """
    with ThreadPoolExecutor(2) as pool:
        kafka, own = pool.map(tell, ports)
    differences = [pair for pair in zip(own, kafka, strict=True) if pair[0] != pair[1]]
    assert differences == []
