"""One data directory of a node: its lock, its identity, its checkpoints, and the logs in it.

To its logs it is the owner that they report to. When the system refuses something other than for
lack of space, the directory is taken offline: at that moment each of its logs stops, without
another touch to the files, and answers everything with KAFKA_STORAGE_ERROR from then on. Other
directories go on. An offline directory stays so until the node starts again.

`.kafka_cleanshutdown` is written last of all by an orderly stop, and removed first of all by the
next start: at any other moment a crash must be noticed.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final, Protocol

from kraftpy.log.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    AtomicFile,
    OffsetCheckpoint,
    TopicPartition,
    parse_offsets,
    read_text,
)
from kraftpy.log.chores import Chores
from kraftpy.log.clean_shutdown import CLEAN_SHUTDOWN_MARKER, format_clean_shutdown
from kraftpy.log.errors import MalformedFileError, StorageError
from kraftpy.log.handles import HandlePool
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.log_reading import ReadableLog
from kraftpy.log.manager_settings import LogManagerSettings
from kraftpy.log.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from kraftpy.log.pacing import Pace
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.segment_files import PartitionDirectory, parse_directory_name
from kraftpy.log.unlinking import Unlinking
from kraftpy.observe.topic_metrics import TopicMetrics
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.world import Disk, FileLock, World

__all__ = [
    "LOCK_FILE",
    "DirectoryEvents",
    "DirectoryInUseError",
    "LogDirectory",
    "WrongDirectoryError",
    "lock_directory",
    "make_path",
    "random_id",
]

LOCK_FILE: Final = ".lock"

_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
_KNOWN_FILES: Final = (*_CHECKPOINTS, META_PROPERTIES, LOCK_FILE, "bootstrap.checkpoint")
# The metadata log is Raft's, which has its own ideas of recovery.
_METADATA_DIRECTORY: Final = "__cluster_metadata-0"
_FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT)

_log = logging.getLogger(__name__)


class DirectoryInUseError(StorageError):
    """Another process has the directory locked."""


class WrongDirectoryError(StorageError):
    """The directory belongs to another node or cluster."""


def lock_directory(disk: Disk, path: str) -> FileLock:
    """Keep other processes out of a directory. Raises DirectoryInUseError or OSError."""
    try:
        return disk.lock(f"{path}/{LOCK_FILE}")
    except BlockingIOError as error:
        raise DirectoryInUseError(
            f"{path} is in use by another process; stop that node, or give this one a directory "
            "of its own in log.dirs"
        ) from error


class DirectoryEvents(Protocol):
    """What whoever runs the logs wants to know. Called from synchronous code."""

    def directory_failed(self, path: str, lost: Sequence[TopicPartition]) -> None:
        """The directory is offline, and these partitions with it."""
        ...

    def partition_unlinked(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> None:
        """The last file of a deleted partition is gone."""
        ...


def random_id(world: World) -> Uuid:
    """A random uuid (RFC 4122, version 4), which is none of the reserved ones."""
    number = world.rng.stream("uuid").getrandbits(128)
    number = number & ~(0xF << 76) | 0x4 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return Uuid(number.to_bytes(16))


async def make_path(disk: Disk, path: str) -> None:
    """Make a directory, with its parents, so that it survives a loss of power."""
    parents = []
    present = path
    while not await _exists(disk, present):
        present = present.rpartition("/")[0] or "/"
        parents.append(present)
    await disk.make_directory(path)
    for parent in reversed(parents):
        await disk.sync_directory(parent)


async def _exists(disk: Disk, path: str) -> bool:
    try:
        await disk.stat(path)
    except FileNotFoundError:
        return False
    return True


class LogDirectory:
    """`open` comes first. `failure` tells why the directory is offline."""

    __slots__ = (
        "_checkpoints",
        "_events",
        "_lock",
        "_locks",
        "_path",
        "_pool",
        "_removing",
        "_unlinking",
        "_world",
        "arriving",
        "chores",
        "directory_id",
        "environment",
        "failure",
        "futures",
        "leaving",
        "logs",
        "was_clean",
    )

    def __init__(
        self,
        world: World,
        path: str,
        settings: LogManagerSettings,
        *,
        pool: HandlePool,
        events: DirectoryEvents,
        topic_metrics: TopicMetrics | None = None,
    ) -> None:
        self._world = world
        self._path = path
        self._pool = pool
        self.chores = Chores(world.clock)
        self._unlinking = Unlinking(world.disk, pool, self.chores, owner=self)
        self._events = events
        self._locks = settings.locks_directories
        self._lock: FileLock | None = None
        self._checkpoints = {
            name: OffsetCheckpoint(AtomicFile(world.disk, f"{path}/{name}"))
            for name in _CHECKPOINTS
        }
        self.environment = LogEnvironment(
            disk=world.disk,
            pool=pool,
            clock=world.clock,
            pace=Pace(world.clock),
            jitter=world.rng.stream("log-jitter"),
            owner=self,
            producer_expiration_ms=settings.producer_expiration_ms,
            verify_transactions=settings.verifies_transactions,
            topic_metrics=topic_metrics,
        )
        # From meta.properties; known once it is open.
        self.directory_id = ZERO_UUID
        self.failure: str | None = None
        self.was_clean = False
        self.logs: dict[TopicPartition, PartitionLog] = {}
        # Logs that are on their way here from another directory.
        self.futures: dict[TopicPartition, PartitionLog] = {}
        # Logs that are deleted, until their files are gone.
        self.leaving: list[PartitionLog] = []
        # The partitions of `-delete` directories, with their topics' ids.
        self._removing: list[tuple[TopicPartition, Uuid | None]] = []
        # Partitions that are being made here.
        self.arriving = 0

    def __repr__(self) -> str:
        return f"LogDirectory({self._path}, {self.failure or 'online'})"

    def configure(self, settings: LogManagerSettings) -> None:
        """What logs are given by the node has changed: for those that are here, and later ones."""
        self.environment = replace(
            self.environment,
            producer_expiration_ms=settings.producer_expiration_ms,
            verify_transactions=settings.verifies_transactions,
        )
        for log in self._all_logs():
            log.producers.configure(
                expiration_ms=settings.producer_expiration_ms,
                verify_transactions=settings.verifies_transactions,
            )

    @property
    def path(self) -> str:
        return self._path

    @property
    def is_online(self) -> bool:
        return self.failure is None

    @property
    def partition_count(self) -> int:
        """For choosing the emptiest."""
        return len(self.logs) + len(self.futures) + self.arriving

    # Start and stop.

    async def open(self, cluster_id: str, node_id: int) -> None:
        """Take possession. On the first start this makes the directory and the files in it.

        Raises DirectoryInUseError, WrongDirectoryError, MalformedFileError or OSError.
        """
        disk = self._world.disk
        await make_path(disk, self._path)
        if self._locks:
            self._lock = lock_directory(disk, self._path)
        self.directory_id = await self._identify(cluster_id, node_id)
        names = await disk.list_directory(self._path)
        for name, checkpoint in self._checkpoints.items():
            if name not in names:
                await checkpoint.write(dict)
        self.was_clean = CLEAN_SHUTDOWN_MARKER in names
        if self.was_clean:
            await disk.unlink(f"{self._path}/{CLEAN_SHUTDOWN_MARKER}")
            await disk.sync_directory(self._path)

    async def _identify(self, cluster_id: str, node_id: int) -> Uuid:
        """The directory's id, if it is this node's; one without identity becomes it."""
        path = f"{self._path}/{META_PROPERTIES}"
        text = await read_text(self._world.disk, path)
        if text is not None:
            found = parse_meta_properties(text, path)
            self._compare(path, "cluster.id", found.cluster_id, cluster_id)
            self._compare(path, "node.id", found.node_id, node_id)
            if found.directory_id is not None:
                return found.directory_id
        directory_id = random_id(self._world)
        meta = MetaProperties(cluster_id, node_id, directory_id)
        await AtomicFile(self._world.disk, path).replace(format_meta_properties(meta))
        return directory_id

    def _compare(self, path: str, name: str, found: str | int, own: str | int) -> None:
        if found != own:
            raise WrongDirectoryError(
                f"{path} says {name}={found}, and this node has {name}={own}; use the directory "
                "of this node, or format an empty one"
            )

    async def partition_directories(self) -> list[tuple[str, PartitionDirectory]]:
        """The names of partitions' directories, with what they say."""
        found = []
        for name in await self._world.disk.list_directory(self._path):
            if name == _METADATA_DIRECTORY or name in _KNOWN_FILES:
                continue
            parsed = parse_directory_name(name)
            if parsed is not None and parsed.is_stray:
                _log.warning(
                    "%s/%s belongs to nothing that the cluster knows; it is left alone: delete it "
                    "when you are sure that you don't need it",
                    self.path,
                    name,
                )
            elif parsed is not None:
                found.append((name, parsed))
            elif (await self._world.disk.stat(f"{self._path}/{name}")).is_directory:
                _log.warning("%s/%s is no partition's directory; it is left alone", self.path, name)
        return found

    async def mark_clean(self, broker_epoch: int) -> None:
        """The last act of an orderly stop: everything is closed and in the checkpoints."""
        marker = AtomicFile(self._world.disk, f"{self._path}/{CLEAN_SHUTDOWN_MARKER}")
        await marker.replace(format_clean_shutdown(broker_epoch))

    def release(self) -> None:
        """Let go of everything, whatever state it is in. Idempotent."""
        for log in self._all_logs():
            log.go_offline("the node has stopped")
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _all_logs(self) -> list[PartitionLog]:
        return [*self.logs.values(), *self.futures.values(), *self.leaving]

    # Checkpoints.

    async def read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """The entries of a checkpoint.

        A damaged one is as good as none: without a recovery point everything is recovered, without
        a log start the first segment's is taken.
        """
        path = f"{self._path}/{name}"
        try:
            text = await read_text(self._world.disk, path)
            return {} if text is None else parse_offsets(text, path)
        except MalformedFileError as error:
            _log.warning("%s; the file is taken for empty", error)
            return {}

    async def settle_logs(self) -> None:
        """Make new logs durable, one after the other, and note recovery points."""
        for log in list(self.logs.values()):
            # A failure was told to this directory.
            with suppress(StorageError):
                await log.settle()
        await self.write_recovery_points()

    async def write_recovery_points(self) -> None:
        await self._checkpoint(RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point)

    async def write_log_starts(self) -> None:
        """Only those that the first segment does not tell."""
        await self._checkpoint(
            LOG_START_OFFSET_CHECKPOINT,
            lambda log: log.log_start_offset,
            lambda log: log.log_start_offset > log.segments.first.base_offset,
        )

    async def write_high_watermarks(self) -> None:
        await self._checkpoint(REPLICATION_OFFSET_CHECKPOINT, lambda log: log.high_watermark)

    async def write_checkpoints(self) -> None:
        """All of them: a log has come or gone, or was truncated."""
        await self.write_recovery_points()
        await self.write_log_starts()
        await self.write_high_watermarks()

    async def _checkpoint(
        self,
        name: str,
        value: Callable[[PartitionLog], int],
        wanted: Callable[[PartitionLog], bool] = lambda _: True,
    ) -> None:
        if not self.is_online:
            return
        with self.guard(f"write {name}"):
            await self._checkpoints[name].write(
                lambda: {key: value(log) for key, log in self.logs.items() if wanted(log)}
            )

    # Trouble.

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Turn an OSError into a StorageError, and take the directory offline for it.

        Not for a full disk: that passes.
        """
        if self.failure is not None:
            raise StorageError(f"{self._path} is offline: {self.failure}")
        try:
            yield
        except OSError as error:
            if error.errno not in _FULL_DISK:
                self.fail(str(error))
            raise StorageError(f"{self._path}: can't {what}: {error}") from error

    def fail(self, reason: str) -> None:
        """Take the directory offline. Idempotent."""
        if self.failure is not None:
            return
        self.failure = reason
        lost = sorted(self.logs)
        _log.error("%s is offline, with %d partitions: %s", self._path, len(lost), reason)
        for log in self._all_logs():
            log.go_offline(reason)
        self._events.directory_failed(self._path, lost)

    # LogOwner.

    def work_pending(self, log: ReadableLog) -> None:
        self.chores.work_pending(log)

    def storage_failed(self, log: ReadableLog, error: OSError) -> None:
        self.fail(f"{log.directory}: {error}")

    def unlink_later(self, paths: Sequence[str], delay_ms: int) -> None:
        self._unlinking.later(paths, delay_ms)

    # Partition directories on their way out.

    def remove_later(self, log: PartitionLog, topic_id: Uuid | None, *, delay_ms: int) -> None:
        """Remove the directory of a log, called `-delete` by now, when the delay is over.

        Readers under way may use it until then.
        """
        self.leaving.append(log)

        async def remove() -> None:
            self.leaving.remove(log)
            # Not under a flush that is about to save something in that directory.
            await log.leave("it was deleted")
            await self._remove(log.directory, log.topic_partition, topic_id)

        self._remove_later(log.topic_partition, topic_id, delay_ms, remove)

    def remove_unused(
        self, path: str, topic_partition: TopicPartition, topic_id: Uuid | None
    ) -> None:
        """Remove a `-delete` directory that nobody uses, soon."""

        async def remove() -> None:
            await self._remove(path, topic_partition, topic_id)

        self._remove_later(topic_partition, topic_id, 0, remove)

    def is_removing(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> bool:
        return (topic_partition, topic_id) in self._removing

    def _remove_later(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid | None,
        delay_ms: int,
        remove: Callable[[], Awaitable[None]],
    ) -> None:
        self._removing.append((topic_partition, topic_id))
        self.chores.later(delay_ms, remove)

    async def _remove(
        self, path: str, topic_partition: TopicPartition, topic_id: Uuid | None
    ) -> None:
        if not self.is_online:
            return
        try:
            await self._world.disk.remove_tree(path)
            await self._world.disk.sync_directory(self._path)
        except OSError as error:
            self.fail(f"{path} can't be removed: {error}")
            return
        _log.info("removed %s", path)
        self._removing.remove((topic_partition, topic_id))
        self._events.partition_unlinked(topic_partition, topic_id)

    def describe(self) -> dict[str, object]:
        return {
            "path": self._path,
            "failure": self.failure,
            "partitions": len(self.logs),
            "futures": len(self.futures),
            "removing": len(self._removing),
            **self.chores.inspect(),
        }
