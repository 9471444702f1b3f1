"""Moving a partition between data directories.

A `-future` log in the other directory catches up with the current one, and then, at one moment,
takes its place; the old one is deleted, and the directory of the new one gets the partition's name.
While moves have copied too much, a quota holds all of them back. A crash leaves one of these:

- Both, and the future log has not all of the current one: the move goes on when it is asked for.
- Both, and the future log has all of the current one, perhaps more: it had taken its place, or
  might as well have. Whatever was flushed since the swap is in it, so it is the one to keep.
- Only the future log: it has taken the place, and lacks nothing but the name. (A deletion removes
  the future log first.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import StorageError
from kraftpy.log.log_directory import LogDirectory, random_id
from kraftpy.log.moving import copy_step, has_caught_up
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.partitions import Partitions
from kraftpy.log.segment_files import (
    deleting_directory_name,
    directory_name,
    future_directory_name,
)
from kraftpy.security.replication_quota import ReplicationQuota

__all__ = ["MovablePartitions"]

# How often a log that is being moved looks for what was appended to it.
_PAUSE_SECONDS: Final = 0.05

_log = logging.getLogger(__name__)


class MovablePartitions(Partitions):
    """Adds moves."""

    __slots__ = ("_move_quota", "_moving")

    # Partitions with a move under way. Set by LogManager.
    _moving: dict[TopicPartition, None]
    _move_quota: ReplicationQuota | None

    async def move(
        self,
        topic_partition: TopicPartition,
        directory: str,
        on_swap: Callable[[PartitionLog], None],
    ) -> None:
        """Move a partition's log into another data directory while it is in use.

        At one moment the new log has all that the old one has and takes its place; `on_swap` is
        called with it in that moment, and whoever holds the old one must use the new one from then
        on. Cancelled before that moment, the move goes on where it was when it is asked for again.
        StorageError if the partition is deleted meanwhile.
        """
        target = self._directory(directory)
        if topic_partition in self._moving:
            raise StorageError(f"{directory_name(*topic_partition)} is being moved already")
        self._moving[topic_partition] = None
        try:
            async with self._cleaner.paused(topic_partition):
                await self._move(topic_partition, target, on_swap)
        finally:
            del self._moving[topic_partition]

    async def _move(
        self,
        topic_partition: TopicPartition,
        target: LogDirectory,
        on_swap: Callable[[PartitionLog], None],
    ) -> None:
        async with self._turn(topic_partition):
            source = self.directory_of(topic_partition)
            if source is None:
                raise StorageError(f"there is no log of {directory_name(*topic_partition)}")
            if source is target:
                return
            future = await self._future_in(target, topic_partition)
            current = source.logs[topic_partition]
        while True:
            async with self._turn(topic_partition):
                if (
                    source.logs.get(topic_partition) is not current
                    or target.futures.get(topic_partition) is not future
                ):
                    raise StorageError(f"{current.directory} has gone while it was moved")
                if not self._is_held_back():
                    copied = await copy_step(current, future)
                    if copied:
                        self._note_copied(copied)
                        continue
                # From here to the swap nothing may wait.
                if has_caught_up(current, future):
                    self._swap(source, target, current, future)
                    on_swap(future)
                    with trio.CancelScope(shield=True):
                        await self._finish_swap(source, target, current, future)
                    return
            await self._world.clock.sleep(_PAUSE_SECONDS)

    def _is_held_back(self) -> bool:
        quota = self._move_quota
        return quota is not None and quota.is_exceeded(self._world.clock.monotonic_ms())

    def _note_copied(self, byte_count: int) -> None:
        if self._move_quota is not None:
            self._move_quota.record(byte_count, self._world.clock.monotonic_ms())

    async def _future_in(
        self, target: LogDirectory, topic_partition: TopicPartition
    ) -> PartitionLog:
        future = target.futures.get(topic_partition)
        if future is not None:
            return future
        await self._drop_future(topic_partition)
        name = future_directory_name(*topic_partition, random_id(self._world).hex())
        topic_id = self._topic_ids.get(topic_partition)
        future = await self._make(target, name, topic_partition, topic_id)
        target.futures[topic_partition] = future
        return future

    def _swap(
        self,
        source: LogDirectory,
        target: LogDirectory,
        current: PartitionLog,
        future: PartitionLog,
    ) -> None:
        future.update_high_watermark(current.high_watermark)
        del target.futures[future.topic_partition]
        del source.logs[current.topic_partition]
        target.logs[future.topic_partition] = future

    async def _finish_swap(
        self,
        source: LogDirectory,
        target: LogDirectory,
        old: PartitionLog,
        new: PartitionLog,
    ) -> None:
        """The names follow. What the old log had must be durable in the new one before."""
        await new.flush()
        await old.rename_directory(self._moving_path(deleting_directory_name, source, old))
        source.remove_later(
            old,
            self._topic_ids.get(old.topic_partition),
            delay_ms=old.config.file_delete_delay_ms,
        )
        await self._give_name(target, new)
        await source.write_checkpoints()
        await target.write_checkpoints()
        await self._cleaner.forget(old)
        _log.info("moved %s", new.directory)

    async def _give_name(self, directory: LogDirectory, log: PartitionLog) -> None:
        await log.rename_directory(f"{directory.path}/{directory_name(*log.topic_partition)}")

    async def _finish_moves(self) -> None:
        """After loading: finish the moves that were at their end.

        While a directory is offline nobody knows what is in there; they wait.
        """
        if len(self._online()) < len(self._directories):
            return
        for target in self._online():
            for topic_partition, future in list(target.futures.items()):
                source = self.directory_of(topic_partition)
                with suppress(StorageError):
                    if source is None:
                        del target.futures[topic_partition]
                        target.logs[topic_partition] = future
                        await self._give_name(target, future)
                    elif has_caught_up(source.logs[topic_partition], future):
                        current = source.logs[topic_partition]
                        self._swap(source, target, current, future)
                        await self._finish_swap(source, target, current, future)
