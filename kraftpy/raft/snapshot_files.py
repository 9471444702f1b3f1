"""The snapshots of the metadata log as files beside its segments (KIP-630).

`<20-digit end offset>-<10-digit epoch>.checkpoint` is a frozen snapshot: complete, durable, never
changed. One that is being written has `.part` at the end, and a word in its name that keeps a
download and the node's own snapshot of the same id apart. Freezing is: sync, rename, sync the
directory. So whatever has the plain name is whole, and a `.part` found at the start is rubbish.

A snapshot that has had its day is unlinked at once. Kafka renames it to `.deleted` first, for the
sake of readers that hold it open; here a read is over when it returns. What a Kafka left under that
name is removed at the start too.
"""

from __future__ import annotations

import re
from contextlib import suppress

from kraftpy.log.errors import StorageError
from kraftpy.raft.log_state import MAX_BATCH_BYTES, SnapshotId
from kraftpy.raft.snapshot_content import SnapshotHead, read_snapshot_head
from kraftpy.records.errors import RecordDataError
from kraftpy.records.walker import batch_at
from kraftpy.world import Buffer, Disk, File, assert_always

__all__ = [
    "CorruptSnapshotFileError",
    "SnapshotFiles",
    "SnapshotWriter",
    "parse_snapshot_name",
    "snapshot_name",
]

_SUFFIX = ".checkpoint"
# Voters take some hundred bytes each.
_USUAL_HEAD_BYTES = 16 * 1024
_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_LEFT_OVER = re.compile(r"[0-9]{20}-[0-9]{10}.*\.checkpoint\.(part|deleted)")


class CorruptSnapshotFileError(StorageError):
    """A frozen snapshot that can't be right."""


def snapshot_name(snapshot_id: SnapshotId) -> str:
    return f"{_stem(snapshot_id)}{_SUFFIX}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """The id of a frozen snapshot; None for any other name."""
    found = _NAME.fullmatch(name)
    return None if found is None else SnapshotId(int(found[1]), int(found[2]))


def _stem(snapshot_id: SnapshotId) -> str:
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}"


class SnapshotWriter:
    """A snapshot that is not frozen yet. Nobody sees it before `freeze` has returned."""

    __slots__ = ("_file", "_files", "position", "snapshot_id")

    def __init__(self, files: SnapshotFiles, snapshot_id: SnapshotId, file: File) -> None:
        self._files = files
        self._file = file
        self.snapshot_id = snapshot_id
        self.position = 0

    @property
    def path(self) -> str:
        return self._file.path

    def append(self, data: Buffer) -> None:
        self.position += self._file.pwrite([data], self.position)

    async def freeze(self) -> None:
        """Durable, under its own name, when this returns."""
        try:
            await self._file.sync()
        finally:
            self._file.close()
        await self._files.take_in(self)

    def close(self) -> None:
        """Let go of the file as it is; the next start removes it. Idempotent."""
        self._file.close()

    async def abandon(self) -> None:
        self._file.close()
        await self._files.remove_part(self)


class SnapshotFiles:
    """Invariant: `ids` are the frozen snapshots of the directory, in order."""

    __slots__ = ("_directory", "_disk", "_ids")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._ids: list[SnapshotId] = []

    @property
    def ids(self) -> tuple[SnapshotId, ...]:
        return tuple(self._ids)

    async def load(self) -> None:
        """See what is there, and remove what is not a snapshot yet or any more."""
        self._ids = []
        for name in await self._disk.list_directory(self._directory):
            snapshot_id = parse_snapshot_name(name)
            if snapshot_id is not None:
                self._ids.append(snapshot_id)
            elif _LEFT_OVER.fullmatch(name) is not None:
                await self._disk.unlink(f"{self._directory}/{name}")
        self._ids.sort()

    # Writing.

    def create(self, snapshot_id: SnapshotId, purpose: str) -> SnapshotWriter:
        """Begin a snapshot, or begin it anew. Writers of different purposes do not meet."""
        path = f"{self._directory}/{_stem(snapshot_id)}-{purpose}{_SUFFIX}.part"
        file = self._disk.open(path, write=True, create=True)
        file.truncate(0)
        return SnapshotWriter(self, snapshot_id, file)

    async def take_in(self, writer: SnapshotWriter) -> None:
        """For SnapshotWriter.freeze: the file is complete and synced."""
        await self._disk.rename(writer.path, self.path(writer.snapshot_id))
        await self._disk.sync_directory(self._directory)
        if writer.snapshot_id not in self._ids:
            self._ids.append(writer.snapshot_id)
            self._ids.sort()

    async def remove_part(self, writer: SnapshotWriter) -> None:
        """For SnapshotWriter.abandon. Another writer may have begun it anew and frozen it."""
        with suppress(FileNotFoundError):
            await self._disk.unlink(writer.path)

    async def delete(self, snapshot_id: SnapshotId) -> None:
        """Remove a frozen snapshot; one that is not there is fine.

        A crash may bring it back, and the next start removes what lies below the log start.
        """
        if snapshot_id in self._ids:
            self._ids.remove(snapshot_id)
            await self._disk.unlink(self.path(snapshot_id))

    # Reading.

    def size(self, snapshot_id: SnapshotId) -> int:
        file = self._open(snapshot_id)
        try:
            return file.size()
        finally:
            file.close()

    def read(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> bytes:
        file = self._open(snapshot_id)
        try:
            return file.pread(max_bytes, position)
        finally:
            file.close()

    def read_head(self, snapshot_id: SnapshotId) -> SnapshotHead:
        """What its first batch says; CorruptSnapshotFileError names the file."""
        try:
            head = self.read(snapshot_id, 0, _USUAL_HEAD_BYTES)
            if batch_at(head) is None:
                head = self.read(snapshot_id, 0, MAX_BATCH_BYTES)
            return read_snapshot_head(head)
        except RecordDataError as error:
            raise CorruptSnapshotFileError(f"{self.path(snapshot_id)}: {error}") from error

    def _open(self, snapshot_id: SnapshotId) -> File:
        assert_always(snapshot_id in self._ids, "raft-snapshot-unknown", snapshot_id=snapshot_id)
        return self._disk.open(self.path(snapshot_id))

    def path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._directory}/{snapshot_name(snapshot_id)}"
