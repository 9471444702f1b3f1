"""Consumer groups against Apache Kafka, in the same run.

Three nodes with three replicas of everything; both clusters run at the same time and take turns, as
in `data`. The client sends frames that were made before, so that it is a small part of the figures.

- a full rebalance of a classic group: 100 members subscribe anew to 1,000 partitions, all of them
  at once; until everybody has joined, and has its assignment. Median and best of all rounds.
- commits of 1 and of 10 offsets, by 50 clients with one commit in flight each: how many a second,
  and what one costs the brokers' processors, which says more when others use the machine, too.
- 10,000 groups with 10 offsets each, all with one coordinator (a single partition of
  `__consumer_offsets`), which is killed: from SIGKILL until every group's offsets can be had again,
  how much of that is after the new leader is known, and what it cost the other two. Meanwhile these
  are asked for their versions all the time: the longest wait for an answer shows whether loading
  keeps a loop.

GROUPS_ROUNDS, GROUPS_SECONDS and GROUPS_COUNT in the environment change the sizes.
"""

from __future__ import annotations

import os
import signal
import statistics
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from bench._peers import Cluster, kafka_cluster, kraftpy_cluster
from bench._wire import Wire, answer_of, exchange_all, frame_of, repeat_for
from bench.data import create, rest, show
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kraftpy.protocol.schema.consumer_protocol import TopicPartition as AssignedTopic
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftpy.protocol.schema.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kraftpy.protocol.schema.k10_find_coordinator import Coordinator, FindCoordinatorRequest
from kraftpy.protocol.schema.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest

ROUNDS = int(os.environ.get("GROUPS_ROUNDS", "20"))
SECONDS = float(os.environ.get("GROUPS_SECONDS", "4"))
GROUPS = int(os.environ.get("GROUPS_COUNT", "10000"))
NODES = 3
MEMBERS = 100
PARTITIONS = 1_000
COMMITTERS = 50
OFFSETS_OF_A_GROUP = 10
# Few, since putting an answer together is one stretch on the loop, which is not to be measured.
GROUPS_OF_A_REQUEST = 20
TIMEOUT_SECONDS = 60.0
PAUSE_SECONDS = 0.01
JOIN, SYNC, COMMIT, FETCH, FIND, VERSIONS = 9, 5, 9, 9, 4, 0
ONE_PARTITION = {"offsets.topic.num.partitions": "1"}
# What passes while coordinators move.
PASSING = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_T = TypeVar("_T")


def main() -> None:
    print(f"   load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
    with kraftpy_cluster(NODES) as ours, kafka_cluster(NODES) as kafka:
        clusters = (ours, kafka)
        for cluster in clusters:
            create(cluster, "t", PARTITIONS, NODES)
        measure_rebalances(clusters)
        for offsets in (1, OFFSETS_OF_A_GROUP):
            measure_commits(clusters, offsets)
    found = []
    for start in (kraftpy_cluster, kafka_cluster):
        with start(NODES, ONE_PARTITION) as cluster:
            found.append(fail_over(cluster))
    show(f"SIGKILL to {GROUPS:,} groups served, s", [each.seconds for each in found])
    show("  after the new leader is known, s", [each.loading_seconds for each in found])
    show("  CPU s of the survivors meanwhile", [each.cpu_seconds for each in found])
    show("  longest wait for an answer, ms", [each.longest_wait * 1e3 for each in found])
    print(f"   load average {os.getloadavg()[0]:.1f}")


# Rebalances.


class ClassicGroup:
    """Members of a classic group, each with a connection to the coordinator."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._group_id = group_id
        found = coordinator_of(cluster, [group_id])[group_id]
        self._wires = [Wire(found.host, found.port) for _ in range(MEMBERS)]
        self._member_ids = [""] * MEMBERS
        self._generation = 0
        self._leader = 0
        # Ids first; then everybody joins while the new group waits for members.
        for _ in range(2):
            until(self._join_first)
        self._sync(exchange_all(self._wires, self._sync_frames(self._generation)))

    def _join_first(self) -> bool:
        """False if the coordinator could not write it, which it can't while others are slow."""
        joins = [self._join(number, "first") for number in range(MEMBERS)]
        frames = exchange_all(self._wires, self._frames(joins, JOIN))
        if any(answer_of(joins[0], JOIN, each).error_code in PASSING for each in frames):
            return False
        self._take(joins, frames)
        return True

    def rebalance(self, number: int) -> float:
        """Seconds until all have their assignments, after they have changed their minds."""
        joins = [self._join(each, f"round {number}") for each in range(MEMBERS)]
        join_frames = self._frames(joins, JOIN)
        sync_frames = self._sync_frames(self._generation + 1)
        started = time.perf_counter()
        joined = exchange_all(self._wires, join_frames)
        synced = exchange_all(self._wires, sync_frames)
        seconds = time.perf_counter() - started
        generation = self._generation
        self._take(joins, joined)
        if self._generation != generation + 1:
            raise SystemExit(f"generation {self._generation} came after {generation}")
        self._sync(synced)
        return seconds

    def close(self) -> None:
        for wire in self._wires:
            wire.close()

    def _join(self, number: int, mind: str) -> JoinGroupRequest:
        subscription = ConsumerProtocolSubscription(topics=["t"], user_data=mind.encode())
        metadata = struct.pack(">h", 1) + encode_bytes(subscription, 1)
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id=self._member_ids[number],
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )

    def _frames(self, requests: Sequence[JoinGroupRequest], version: int) -> list[bytes]:
        return [frame_of(request, version) for request in requests]

    def _take(self, joins: Sequence[JoinGroupRequest], frames: Sequence[bytes]) -> None:
        for number, (request, frame) in enumerate(zip(joins, frames, strict=True)):
            answer = answer_of(request, JOIN, frame)
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                raise SystemExit(f"a join was answered {ErrorCode(answer.error_code).name}")
            self._member_ids[number] = answer.member_id
            self._generation = answer.generation_id
            if answer.leader == answer.member_id:
                self._leader = number

    def _sync_frames(self, generation: int) -> list[bytes]:
        assignments = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_of(number))
            for number, member_id in enumerate(self._member_ids)
        ]
        return [
            frame_of(
                SyncGroupRequest(
                    group_id=self._group_id,
                    generation_id=generation,
                    member_id=member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=assignments if number == self._leader else [],
                ),
                SYNC,
            )
            for number, member_id in enumerate(self._member_ids)
        ]

    def _sync(self, frames: Sequence[bytes]) -> None:
        for number, frame in enumerate(frames):
            answer = answer_of(SyncGroupRequest(), SYNC, frame)
            if bytes(answer.assignment) != assignment_of(number):
                raise SystemExit(f"a member got a wrong assignment: {answer}")


def assignment_of(number: int) -> bytes:
    share = PARTITIONS // MEMBERS
    partitions = list(range(number * share, (number + 1) * share))
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopic(topic="t", partitions=partitions)]
    )
    return struct.pack(">h", 1) + encode_bytes(assignment, 1)


def measure_rebalances(clusters: Sequence[Cluster]) -> None:
    groups = [ClassicGroup(cluster, "rebalancing") for cluster in clusters]
    times: list[list[float]] = [[] for _ in clusters]
    for number in range(ROUNDS):
        for group, found in zip(groups, times, strict=True):
            rest(clusters)
            found.append(group.rebalance(number))
    for group in groups:
        group.close()
    line = f"rebalance, {MEMBERS} members, {PARTITIONS:,} partitions"
    show(f"{line}, ms", [statistics.median(found) * 1e3 for found in times])
    show("  the best, ms", [min(found) * 1e3 for found in times])


# Commits.


def commit_of(group_id: str, offsets: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=number, committed_metadata=""
        )
        for number in range(offsets)
    ]
    return OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]
    )


def measure_commits(clusters: Sequence[Cluster], offsets: int) -> None:
    rates, costs = [], []
    for cluster in clusters:
        names = [f"committer-{number}" for number in range(COMMITTERS)]
        found = coordinator_of(cluster, names)
        wires = [Wire(found[name].host, found[name].port) for name in names]
        frames = [frame_of(commit_of(name, offsets), COMMIT) for name in names]
        check_commits(exchange_all(wires, frames))
        rest(clusters)
        cpu_before = cluster.cpu_seconds()
        answers = repeat_for(wires, frames, SECONDS)
        count = sum(len(each) for each in answers)
        costs.append((cluster.cpu_seconds() - cpu_before) / count)
        rates.append(count / SECONDS)
        for each in answers:
            check_commits(each)
        for wire in wires:
            wire.close()
    show(f"commits of {offsets} offset{'s' * (offsets > 1)}, a second", rates)
    show("  CPU ms for one", [cost * 1e3 for cost in costs])


def check_commits(frames: Sequence[bytes]) -> None:
    for frame in dict.fromkeys(frames):
        answer = answer_of(OffsetCommitRequest(), COMMIT, frame)
        for partition in answer.topics[0].partitions:
            if partition.error_code:
                raise SystemExit(f"a commit failed: {ErrorCode(partition.error_code).name}")


# Failover.


@dataclass(frozen=True)
class Failover:
    seconds: float
    loading_seconds: float
    cpu_seconds: float
    longest_wait: float


def fail_over(cluster: Cluster) -> Failover:
    create(cluster, "t", OFFSETS_OF_A_GROUP, NODES)
    names = [f"group-{number}" for number in range(GROUPS)]
    first = coordinator_of(cluster, names[:1])[names[0]]
    wires = [Wire(first.host, first.port) for _ in range(COMMITTERS)]
    for start in range(0, GROUPS, COMMITTERS):
        requests = [commit_of(name, OFFSETS_OF_A_GROUP) for name in names[start:][:COMMITTERS]]
        frames = [frame_of(request, COMMIT) for request in requests]
        check_commits(exchange_all(wires[: len(frames)], frames))
    rest([cluster])
    [victim] = [server for server in cluster.servers if server.port == first.port]
    survivors = [server for server in cluster.servers if server is not victim]
    starts = range(0, GROUPS, GROUPS_OF_A_REQUEST)
    frames = [fetch_of(names[start:][:GROUPS_OF_A_REQUEST]) for start in starts]
    pingers = [Pinger(server.host, server.port) for server in survivors]
    cpu_before = sum(server.cpu_seconds() for server in survivors)
    started = time.perf_counter()
    victim.process.send_signal(signal.SIGKILL)
    asked = Wire(survivors[0].host, survivors[0].port)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=names[:1])

    def moved() -> Coordinator | None:
        [found] = asked.ask(find, FIND).coordinators
        is_new = found.error_code == ErrorCode.NONE and found.port != first.port
        return found if is_new else None

    second = until(moved)
    known = time.perf_counter()
    wire = Wire(second.host, second.port)
    until(lambda: is_served(wire, names[0]))
    answers = [wire.exchange(frame) for frame in frames]
    ended = time.perf_counter()
    cpu_seconds = sum(server.cpu_seconds() for server in survivors) - cpu_before
    longest_wait = max(each.stop() for each in pingers)
    check_fetched(answers)
    return Failover(ended - started, ended - known, cpu_seconds, longest_wait)


def fetch_of(names: Sequence[str]) -> bytes:
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    return frame_of(OffsetFetchRequest(groups=groups), FETCH)


def is_served(wire: Wire, name: str) -> bool:
    """Whether the coordinator knows, by now, what a group has."""
    answer = answer_of(OffsetFetchRequest(), FETCH, wire.exchange(fetch_of([name])))
    return ErrorCode(answer.groups[0].error_code) not in PASSING


def check_fetched(frames: Sequence[bytes]) -> None:
    groups = [
        group
        for frame in frames
        for group in answer_of(OffsetFetchRequest(), FETCH, frame).groups
        if [len(topic.partitions) for topic in group.topics] == [OFFSETS_OF_A_GROUP]
    ]
    if len(groups) != GROUPS:
        raise SystemExit(f"only {len(groups):,} of {GROUPS:,} groups have all their offsets")


class Pinger:
    """Asks a server for its versions again and again, and knows how long it ever took."""

    def __init__(self, host: str, port: int) -> None:
        self._wire = Wire(host, port)
        self._frame = frame_of(ApiVersionsRequest(), VERSIONS)
        self._is_over = False
        self._longest = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            started = time.perf_counter()
            self._wire.exchange(self._frame)
            self._longest = max(self._longest, time.perf_counter() - started)
            time.sleep(0.002)

    def stop(self) -> float:
        self._is_over = True
        self._thread.join()
        return self._longest


# Both.


def until(attempt: Callable[[], _T | None]) -> _T:
    """What the first attempt finds that finds anything."""
    deadline = time.perf_counter() + TIMEOUT_SECONDS
    while time.perf_counter() < deadline:
        found = attempt()
        if found:
            return found
        time.sleep(PAUSE_SECONDS)
    raise SystemExit(f"nothing for {TIMEOUT_SECONDS:.0f} s")


def coordinator_of(cluster: Cluster, names: Sequence[str]) -> dict[str, Coordinator]:
    """Asked until there is one for each, and it answers."""
    server = cluster.servers[0]
    wire = Wire(server.host, server.port)

    def attempt() -> dict[str, Coordinator] | None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=list(names))
        found = wire.ask(request, FIND).coordinators
        if any(each.error_code for each in found):
            return None
        return {each.key: each for each in found}

    coordinators = until(attempt)
    wire.close()
    for name, found in coordinators.items():
        wire = Wire(found.host, found.port)
        until(partial(is_served, wire, name))
        wire.close()
    return coordinators
