"""Invariants 24 and 25: a node's timers, purgatories, memory, connections, tasks and open files.

A timer that should have gone off is a violation when it is seen twice, at different times: between
the moment at which time has come and the reaper's turn on the loop, everybody else may look. A node
that hangs, or did so a moment ago, is not looked at.

Tasks and open files have no limit that is written anywhere. What a node needs for each connection
and each partition is bounded, and the rest is a constant; a leak grows with time and goes beyond.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import trio

from kraftpy.log.segment_files import parse_directory_name
from kraftpy.net.server import NetworkServer
from kraftpy.node import Node
from kraftpy.purgatory.wheel import WheelView
from kraftpy.sim.coordinator_rules import claim
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_image import DirectoryInode, FileInode

__all__ = [
    "HealthRules",
    "Needs",
    "check_server",
    "count_tasks",
    "log_directories",
    "open_files",
]

_OVERDUE: Final = "overdue"
# Tasks: acceptors, sweepers, reapers, channels to controllers and brokers; a connection has a
# reader, and now and then somebody who sends for it or waits for it.
_TASKS: Final = 120
_TASKS_A_CONNECTION: Final = 4
# Files: each log keeps some of its segments open, and each segment has up to four files.
_FILES: Final = 120
_FILES_A_REPLICA: Final = 40


@dataclass(frozen=True, slots=True)
class Needs:
    """What a node has in use, and what it may be for."""

    tasks: int
    files: int
    connections: int
    replicas: int

    def check(self, node_id: int) -> None:
        most_tasks = _TASKS + _TASKS_A_CONNECTION * self.connections
        claim(self.tasks <= most_tasks, "tasks-leaked", f"{node_id}: {self}")
        most_files = _FILES + _FILES_A_REPLICA * self.replicas
        claim(self.files <= most_files, "files-leaked", f"{node_id}: {self}")


class HealthRules:
    """Of one process of a node."""

    __slots__ = ("_overdue",)

    def __init__(self) -> None:
        # What was overdue at the last look: by timer, since when.
        self._overdue: dict[str, int] = {}

    def check_timers(self, node_id: int, node: Node, now_ms: int) -> None:
        """Invariant 24."""
        broker = node.broker
        if broker is None or broker.replicas is None or broker.coordinators is None:
            return
        replicas, coordinators = broker.replicas, broker.coordinators
        problems: list[tuple[str, str]] = []
        for purgatory in (
            replicas.produce_purgatory,
            replicas.fetch_purgatory,
            replicas.delete_records_purgatory,
            replicas.elect_leader_purgatory,
        ):
            view = purgatory.inspect()
            problems += [(purgatory.name, each) for each in view.problems(now_ms)]
        for timer in (coordinators.groups.timer, coordinators.transactions.host.timer):
            view_of_timer: WheelView = timer.inspect()
            problems += [(timer.name, each) for each in view_of_timer.problems(now_ms)]
        self.judge(node_id, problems, now_ms)

    def judge(self, node_id: int, problems: list[tuple[str, str]], now_ms: int) -> None:
        overdue: dict[str, int] = {}
        for name, problem in problems:
            is_late = problem.endswith(_OVERDUE)
            claim(is_late, "purgatory-miscounted", f"{node_id}, {name}: {problem}")
            since_ms = overdue[name] = self._overdue.get(name, now_ms)
            claim(since_ms == now_ms, "timer-overdue", f"{node_id}, {name}: {problem}")
        self._overdue = overdue

    def was_away(self) -> None:
        """It hangs, or did: it need not have had its turn."""
        self._overdue = {}


def check_server(node_id: int, server: NetworkServer, request_max_bytes: int) -> None:
    """Invariant 25: what large requests have in memory, and how many connections are counted."""
    memory, quotas = server.memory, server.quotas
    if memory.capacity_bytes is not None:
        # One that is larger than everything together may come alone.
        most = max(memory.capacity_bytes, request_max_bytes)
        claim(memory.used_bytes <= most, "memory-exceeded", f"{node_id}: {memory.used_bytes}")
    if not memory.used_bytes:
        claim(not memory.waiting_count, "memory-withheld", f"{node_id}: {memory.waiting_count}")
    there = len(server.connections)
    claim(quotas.total == there, "connections-miscounted", f"{node_id}: {quotas.total}, {there}")


def count_tasks(task: trio.lowlevel.Task) -> int:
    """A task and all below it."""
    tasks = [task]
    for each in tasks:
        for nursery in each.child_nurseries:
            tasks.extend(nursery.child_tasks)
    return len(tasks)


def log_directories(disk: MemoryDisk) -> int:
    """Those of replicas that are on their way neither out nor in."""
    inodes = disk.image.inodes
    return sum(
        _is_replica(name)
        for inode in inodes.values()
        if isinstance(inode, DirectoryInode)
        for name, number in inode.seen.items()
        if isinstance(inodes[number], DirectoryInode)
    )


@lru_cache
def _is_replica(directory_name: str) -> bool:
    parsed = parse_directory_name(directory_name)
    return parsed is not None and not parsed.suffix


def open_files(disk: MemoryDisk) -> int:
    return sum(
        inode.handles for inode in disk.image.inodes.values() if isinstance(inode, FileInode)
    )
