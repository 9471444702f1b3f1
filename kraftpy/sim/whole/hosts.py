"""A broker's replicas as the rules see them: in a process that runs, or on a disk that waits.

A log is there when its broker isn't. `RestingLog` reads what the files of a dead node hold, as far
as batches are whole: what a broker that starts on them is going to find.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import trio

from kraftpy.broker.hosted_replicas import log_of
from kraftpy.broker.partition import Partition
from kraftpy.broker.replicas import ReplicaManager
from kraftpy.log.errors import StorageError
from kraftpy.log.offsets import Isolation, OffsetMetadata, ReadInfo
from kraftpy.node import Node
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import RecordDataError
from kraftpy.records.walker import walk_batches
from kraftpy.sim.cluster_data_rules import PartitionKey
from kraftpy.sim.cluster_producer_rules import CheckedLog
from kraftpy.sim.whole.health_rules import Needs, count_tasks, log_directories, open_files
from kraftpy.world import FileSlice
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_image import Content, FileInode

__all__ = ["RestingLog", "WholeHost", "key_of"]

_SEGMENT_SUFFIX = ".log"


def key_of(partition: Partition) -> PartitionKey:
    return partition.topic_id, partition.topic_partition[1]


class RestingLog:
    """The files of one replica, read once: as they are as long as `is_current`."""

    __slots__ = (
        "_batches",
        "_disk",
        "_file",
        "_read",
        "directory",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, disk: MemoryDisk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self._file = MemoryDisk().open("/log", write=True, create=True)
        # Where each batch lies: its last offset, position and size.
        self._batches: list[tuple[int, int, int]] = []
        self.log_start_offset = self.log_end_offset = 0
        position = 0
        self._read = self._state()
        for content, _, size in self._read:
            for batch in _whole_batches(bytes(content.data[:size])):
                if not self._batches:
                    self.log_start_offset = batch.base_offset
                self._file.pwrite([batch.data], position)
                self._batches.append((batch.last_offset, position, batch.size))
                self.log_end_offset = batch.next_offset
                position += batch.size

    def _state(self) -> list[tuple[Content, int, int]]:
        """Each segment's bytes, in order, with what tells whether they are still the same."""
        contents = [inode.seen for inode in _segment_files(self._disk, self.directory)]
        return [(content, content.changes, content.size) for content in contents]

    @property
    def is_current(self) -> bool:
        return self._state() == self._read

    @property
    def recovery_point(self) -> int:
        return self.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        return self.log_start_offset

    def check(self) -> None:
        """Nothing is claimed about it but what it has."""

    def read(self, start_offset: int, max_bytes: int, isolation: Isolation) -> ReadInfo:
        """Everything from `start_offset` on, whatever the limit."""
        place = OffsetMetadata(start_offset, 0, 0)
        found = [each for each in self._batches if each[0] >= start_offset]
        if not found:
            return ReadInfo(place, None)
        first, last = found[0], found[-1]
        length = last[1] + last[2] - first[1]
        return ReadInfo(place, FileSlice(self._file, first[1], length))


def _segment_files(disk: MemoryDisk, directory: str) -> list[FileInode]:
    try:
        names = disk.image.find_directory(directory).seen
    except OSError:
        return []
    inodes = [
        disk.image.inodes[number]
        for name, number in sorted(names.items())
        if name.endswith(_SEGMENT_SUFFIX)
    ]
    return [inode for inode in inodes if isinstance(inode, FileInode)]


def _whole_batches(data: bytes) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    try:
        for batch in walk_batches(data):
            if not isinstance(batch, RecordBatch) or not batch.is_valid:
                break
            batches.append(batch)
    except RecordDataError:
        pass
    return batches


class _Hosted(Mapping[PartitionKey, Partition]):
    """What the process has made of its logs."""

    __slots__ = ("_host",)

    def __init__(self, host: WholeHost) -> None:
        self._host = host

    def __getitem__(self, key: PartitionKey) -> Partition:
        replicas = self._host.replicas
        found = None if replicas is None else replicas.lookup_by_id(*key)
        if not isinstance(found, Partition):
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[PartitionKey]:
        return map(key_of, self._host.partitions)

    def __len__(self) -> int:
        return len(self._host.partitions)


class _Logs(Mapping[PartitionKey, CheckedLog]):
    """In use, or as they lie on the disk of a broker that does not run or can't use them."""

    __slots__ = ("_host",)

    def __init__(self, host: WholeHost) -> None:
        self._host = host

    def __getitem__(self, key: PartitionKey) -> CheckedLog:
        host = self._host
        partition = host.hosted.get(key)
        if partition is not None:
            log = log_of(partition)
            try:
                log.check_usable()
            except StorageError:
                pass
            else:
                return log
        return host.resting(key)

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._host.directories)

    def __len__(self) -> int:
        return len(self._host.directories)


class WholeHost:
    """Fits ReplicaHost."""

    __slots__ = (
        "_durable",
        "_resting",
        "_task",
        "clock",
        "directories",
        "disk",
        "hosted",
        "logs",
        "node",
        "node_id",
        "was_up",
    )

    def __init__(self, node_id: int, disk: MemoryDisk, clock: MemoryClock) -> None:
        self.node_id = node_id
        self.disk = disk
        self.clock = clock
        self.node: Node | None = None
        # The one that all of the node's tasks are below.
        self._task: trio.lowlevel.Task | None = None
        # Whether a process was killed that had served, and none has registered since.
        self.was_up = False
        # Of every replica that was ever seen here.
        self.directories: dict[PartitionKey, str] = {}
        # How far each was flushed, by whichever process.
        self._durable: dict[PartitionKey, int] = {}
        self._resting: dict[PartitionKey, RestingLog] = {}
        self.hosted: Mapping[PartitionKey, Partition] = _Hosted(self)
        self.logs: Mapping[PartitionKey, CheckedLog] = _Logs(self)

    def lives(self, node: Node) -> None:
        """Called in the node's own task."""
        self.node = node
        self._task = trio.lowlevel.current_task()

    def dies(self) -> None:
        self.node = None
        self._task = None

    def note_durable(self, key: PartitionKey, log: CheckedLog) -> None:
        self._durable[key] = max(log.recovery_point, self.durable_end(key, log))

    def durable_end(self, key: PartitionKey, log: CheckedLog) -> int:
        """What was flushed ever, and not cut off since."""
        return min(self._durable.get(key, 0), log.log_end_offset)

    @property
    def needs(self) -> Needs | None:
        """What the process has in use; None if there is none."""
        node = self.node
        if self._task is None or node is None or node.server is None:
            return None
        return Needs(
            tasks=count_tasks(self._task),
            files=open_files(self.disk),
            connections=len(node.server.connections),
            # One that starts has its logs open before it knows what it hosts.
            replicas=max(len(self.partitions), log_directories(self.disk)),
        )

    def resting(self, key: PartitionKey) -> RestingLog:
        directory = self.directories[key]
        found = self._resting.get(key)
        if found is None or found.directory != directory or not found.is_current:
            found = self._resting[key] = RestingLog(self.disk, directory)
        return found

    @property
    def is_running(self) -> bool:
        return self.node is not None

    @property
    def replicas(self) -> ReplicaManager | None:
        node = self.node
        return None if node is None or node.broker is None else node.broker.replicas

    @property
    def partitions(self) -> tuple[Partition, ...]:
        replicas = self.replicas
        return () if replicas is None else replicas.hosted.partitions()

    @property
    def broker_epoch(self) -> int:
        node = self.node
        if node is None or node.broker is None or node.broker.lifecycle is None:
            return -1
        return node.broker.lifecycle.broker_epoch
