"""A node's data directories on a disk, and managers over them: started, stopped, crashed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.log_config import LogConfig
from kraftpy.log.manager import LogManager
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.protocol.ids import Uuid, parse_uuid
from kraftpy.world import Disk, World
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_image import FileInode
from kraftpy.world.memory_rng import MemoryRng
from kraftpy.world.real_network import RealNetwork

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = parse_uuid("LbWaf3qcTM2zxfIuYfLDVw")
OTHER_ID = parse_uuid("7NUiGCnoQdeqDvnJ5vQwoA")
# A segment every few batches, and no room for preallocated indexes to speak of.
SMALL = LogConfig(segment_bytes=1024, index_interval_bytes=100, segment_index_bytes=4800)


@dataclass
class Events:
    """Notes what it is told."""

    failed: list[tuple[str, list[TopicPartition]]] = field(default_factory=list)
    unlinked: list[tuple[TopicPartition, Uuid | None]] = field(default_factory=list)

    def directory_failed(self, path: str, lost: Sequence[TopicPartition]) -> None:
        self.failed.append((path, list(lost)))

    def partition_unlinked(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> None:
        self.unlinked.append((topic_partition, topic_id))


class Home:
    """`a` and `b`, two data directories below `root`."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.a = f"{root}/a"
        self.b = f"{root}/b"
        self.config = SMALL
        self.events = Events()
        self.seed = 0

    def manager(self, **changes: object) -> LogManager:
        settings = {
            "directories": (self.a, self.b),
            "cluster_id": CLUSTER_ID,
            "node_id": 7,
            "open_files_max": 100,
        } | changes
        # Another seed for each life, or the names of directories would repeat.
        self.seed += 1
        world = World(
            clock=MemoryClock(),
            rng=MemoryRng(self.seed),
            network=RealNetwork(),
            disk=self.disk,
        )
        return LogManager(
            world,
            LogManagerSettings(**settings),  # type: ignore[arg-type]
            config_of=lambda _: self.config,
            events=self.events,
        )

    def text(self, path: str) -> str:
        file = self.disk.open(path)
        try:
            return file.pread(file.size(), 0).decode()
        finally:
            file.close()

    def put(self, path: str, text: str) -> None:
        file = self.disk.open(path, write=True, create=True)
        file.truncate(0)
        file.pwrite([text.encode()], 0)
        file.close()

    async def names(self, directory: str) -> list[str]:
        """Of partitions' directories."""
        return [
            name
            for name in await self.disk.list_directory(directory)
            if (await self.disk.stat(f"{directory}/{name}")).is_directory
        ]


def open_handles(disk: MemoryDisk) -> list[str]:
    """The paths of open files; `(unlinked)` for those that only a handle keeps on the disk."""
    paths = {inode.number: path for path, inode in disk.image.files()}
    return [
        paths.get(inode.number, "(unlinked)")
        for inode in disk.image.inodes.values()
        if isinstance(inode, FileInode) and inode.handles
    ]
