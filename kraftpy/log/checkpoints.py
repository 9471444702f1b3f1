"""The small text files beside the data: offset checkpoints, epoch checkpoint, partition.metadata.

An offset checkpoint (`recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
`log-start-offset-checkpoint`, `cleaner-offset-checkpoint`) has a line with its version, 0, a line
with the number of entries, and a line `<topic> <partition> <offset>` for each.
`leader-epoch-checkpoint` is the same with `<epoch> <start offset>`. An empty file has no entries:
Kafka creates them so.

Reading is strict. A file that says anything else is refused as a whole, naming the line, since half
a checkpoint is worse than none. Writing replaces: a reader, or a crash, sees the old file or the
new one, never a mixture. So a malformed file is damage, not a torn write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import trio

from kraftpy.log.epochs import EpochEntry
from kraftpy.log.errors import MalformedFileError
from kraftpy.protocol.ids import ZERO_UUID, Uuid, format_uuid, parse_uuid
from kraftpy.world import Disk

__all__ = [
    "CLEANER_OFFSET_CHECKPOINT",
    "LEADER_EPOCH_CHECKPOINT",
    "LOG_START_OFFSET_CHECKPOINT",
    "NEW_PARTITION_METADATA",
    "PARTITION_METADATA",
    "RECOVERY_POINT_CHECKPOINT",
    "REPLICATION_OFFSET_CHECKPOINT",
    "AtomicFile",
    "OffsetCheckpoint",
    "TopicPartition",
    "format_epochs",
    "format_offsets",
    "format_partition_metadata",
    "parse_epochs",
    "parse_offsets",
    "parse_partition_metadata",
    "read_text",
]

TopicPartition: TypeAlias = tuple[str, int]

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
# Until everything that its directory holds since it was made is durable.
NEW_PARTITION_METADATA = "partition.metadata.new"

_VERSION = 0
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
# Narrower than int(), which takes "1_000", " 7" and digits of other scripts.
_NUMBER = re.compile(r"-?[0-9]{1,19}")


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """An offset checkpoint with these entries, in the mapping's order."""
    for topic, _ in offsets:
        if topic.split() != [topic]:
            raise ValueError(f"a checkpoint can't hold the topic name {topic!r}")
    return _format(f"{topic} {partition} {value}" for (topic, partition), value in offsets.items())


def parse_offsets(text: str, path: str) -> dict[TopicPartition, int]:
    """The entries of an offset checkpoint; `path` is for the error."""
    offsets: dict[TopicPartition, int] = {}
    for line, fields in _entries(text, path, width=3):
        topic = fields[0]
        partition = _number(fields[1], path, line, low=0, high=_INT32_MAX)
        if (topic, partition) in offsets:
            raise MalformedFileError(path, line, f"a second entry for {topic}-{partition}")
        offsets[topic, partition] = _number(fields[2], path, line, low=0, high=_INT64_MAX)
    return offsets


def format_epochs(entries: Iterable[tuple[int, int]]) -> str:
    """A leader epoch checkpoint with these (epoch, start offset) entries."""
    return _format(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def parse_epochs(text: str, path: str) -> list[EpochEntry]:
    """The entries of a leader epoch checkpoint; `path` is for the error.

    They are given in the file's order. Whether they grow is the epoch cache's business, which
    repairs what does not.
    """
    return [
        EpochEntry(
            _number(fields[0], path, line, low=0, high=_INT32_MAX),
            _number(fields[1], path, line, low=0, high=_INT64_MAX),
        )
        for line, fields in _entries(text, path, width=2)
    ]


def format_partition_metadata(topic_id: Uuid) -> str:
    """partition.metadata: which topic's data this directory holds, whatever its name says."""
    if topic_id == ZERO_UUID:
        raise ValueError("a partition's topic has an id")
    return f"version: {_VERSION}\ntopic_id: {format_uuid(topic_id)}"


def parse_partition_metadata(text: str, path: str) -> Uuid:
    """The topic id in a partition.metadata; `path` is for the error.

    Like Kafka, a newer version is accepted and what follows the id ignored, so that a downgrade
    works.
    """
    lines = text.splitlines()
    version = _labelled(lines, 0, "version", path)
    _number(version, path, 1, low=_VERSION, high=_INT32_MAX)
    try:
        topic_id = parse_uuid(_labelled(lines, 1, "topic_id", path))
    except ValueError as failure:
        raise MalformedFileError(path, 2, str(failure)) from failure
    if topic_id == ZERO_UUID:
        raise MalformedFileError(path, 2, "the topic id is zero")
    return topic_id


async def read_text(disk: Disk, path: str) -> str | None:
    """The whole of a small text file; None when there is none."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        data = await file.read(file.size(), 0)
    finally:
        file.close()
    try:
        return data.decode()
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        raise MalformedFileError(path, line, "not UTF-8") from failure


class AtomicFile:
    """A small file that is only ever replaced as a whole.

    The new content goes to `<path>.tmp` and is synced before it takes the name, and the directory
    is synced after: when `replace` returns, the content survives a loss of power. Replacements of
    one file happen one after the other in the order in which they were asked for, so that the last
    one asked for is the one that stays.
    """

    __slots__ = ("_directory", "_disk", "_path", "_turn")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._turn = trio.Lock()
        self.moved(path)

    @property
    def path(self) -> str:
        return self._path

    def moved(self, new_path: str) -> None:
        """Its directory was renamed; replacements go to the new place from now on."""
        self._path = new_path
        self._directory = new_path.rpartition("/")[0] or "/"

    async def replace(self, content: str | bytes) -> None:
        async with self._turn:
            path, temporary = self._path, self._path + ".tmp"
            file = self._disk.open(temporary, write=True, create=True)
            try:
                # A crash may have left a longer one.
                file.truncate(0)
                file.pwrite([content.encode() if isinstance(content, str) else content], 0)
                await file.sync()
            finally:
                file.close()
            await self._disk.rename(temporary, path)
            await self._disk.sync_directory(self._directory)


def _format(lines: Iterable[str]) -> str:
    entries = list(lines)
    return "\n".join([str(_VERSION), str(len(entries)), *entries, ""])


def _entries(text: str, path: str, *, width: int) -> list[tuple[int, list[str]]]:
    """The entries' fields with their line numbers."""
    lines = text.splitlines()
    if not lines:
        return []
    version = _number(lines[0], path, 1, low=0, high=_INT32_MAX)
    if version != _VERSION:
        raise MalformedFileError(path, 1, f"version {version} is not {_VERSION}")
    if len(lines) == 1:
        raise MalformedFileError(path, 2, "the number of entries is missing")
    count = _number(lines[1], path, 2, low=0, high=_INT32_MAX)
    entries = []
    for line, entry in enumerate(lines[2:], start=3):
        fields = entry.split()
        if len(fields) != width:
            raise MalformedFileError(path, line, f"{entry!r} has not {width} fields")
        entries.append((line, fields))
    if len(entries) != count:
        reason = f"{count} entries were announced, {len(entries)} are there"
        raise MalformedFileError(path, 2, reason)
    return entries


def _number(field: str, path: str, line: int, *, low: int, high: int) -> int:
    if _NUMBER.fullmatch(field) is None or not low <= (number := int(field)) <= high:
        raise MalformedFileError(path, line, f"{field!r} is no number from {low} to {high}")
    return number


def _labelled(lines: list[str], index: int, label: str, path: str) -> str:
    """What follows `label: ` in a line."""
    start = f"{label}: "
    if len(lines) <= index or not lines[index].startswith(start):
        raise MalformedFileError(path, index + 1, f"it does not begin with {start!r}")
    return lines[index].removeprefix(start).strip()


class OffsetCheckpoint:
    """One of the offset checkpoints; written only if it would change.

    Whoever asks while others wait for their turn is served by the first of them: many logs that go
    at a time cost one write or two, not one each.
    """

    __slots__ = ("_asked", "_file", "_turn", "_written", "_written_for")

    def __init__(self, file: AtomicFile) -> None:
        self._file = file
        self._turn = trio.Lock()
        self._written: str | None = None
        # How many have asked for a write, and how many of them had when the last one was collected.
        self._asked = 0
        self._written_for = 0

    async def write(self, collect: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Make what `collect` gives durable, as it is now or later.

        It is asked when it is this write's turn; all writes of a checkpoint collect the same.
        """
        self._asked += 1
        ours = self._asked
        async with self._turn:
            if self._written_for >= ours:
                return
            asked = self._asked
            text = format_offsets(collect())
            if text != self._written:
                self._written = None
                await self._file.replace(text)
                self._written = text
            self._written_for = asked
