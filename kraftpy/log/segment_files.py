"""The names of files and directories in a data directory.

A partition's directory is `<topic>-<partition>`, cut at the last `-` since topics may contain one.
`<topic>-<partition>.<32 hex digits>-delete` is on its way out, the same with `-future` on its way
in from another data directory; with `-stray` it is kept although the cluster does not know it,
and nothing uses it. A segment's files are its base offset in 20 digits with an
extension for the kind; a second suffix tells that they do not take part: `.deleted` is about to be
removed, `.cleaned` is still being written, `.swap` is about to replace others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "CLEANED_SUFFIX",
    "DELETED_SUFFIX",
    "DELETE_DIRECTORY_SUFFIX",
    "FUTURE_DIRECTORY_SUFFIX",
    "SEGMENT_KINDS",
    "STRAY_DIRECTORY_SUFFIX",
    "SWAP_SUFFIX",
    "FileKind",
    "PartitionDirectory",
    "SegmentFile",
    "deleting_directory_name",
    "directory_name",
    "file_name",
    "future_directory_name",
    "parse_directory_name",
    "parse_file_name",
    "stray_directory_name",
]

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETE_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
STRAY_DIRECTORY_SUFFIX = "-stray"

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
# Kafka cuts the topic's name so that the whole name fits a file system's 255 characters.
_NAME_MAX_LENGTH = 255

_FILE = re.compile(
    r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?"
)
_DIRECTORY = re.compile(r"(.+)-([0-9]{1,10})", re.DOTALL)
_MOVING_DIRECTORY = re.compile(r"(.+)\.([0-9a-f]{32})(-delete|-future|-stray)", re.DOTALL)


class FileKind(Enum):
    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


# What a segment is made of; the data comes first, and is what makes it exist.
SEGMENT_KINDS = (
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
)


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """What a file's name says. For a snapshot, `base_offset` is the offset that it reaches to."""

    base_offset: int
    kind: FileKind
    suffix: str = ""

    @property
    def name(self) -> str:
        return file_name(self.base_offset, self.kind, self.suffix)


def file_name(base_offset: int, kind: FileKind, suffix: str = "") -> str:
    return f"{base_offset:020d}{kind.value}{suffix}"


def parse_file_name(name: str) -> SegmentFile | None:
    """None for a name that is none of a segment's."""
    match = _FILE.fullmatch(name)
    if match is None or int(match[1]) > _INT64_MAX:
        return None
    return SegmentFile(int(match[1]), FileKind(match[2]), match[3] or "")


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """What a partition directory's name says."""

    topic: str
    partition: int
    suffix: str = ""

    @property
    def is_deleting(self) -> bool:
        return self.suffix == DELETE_DIRECTORY_SUFFIX

    @property
    def is_future(self) -> bool:
        return self.suffix == FUTURE_DIRECTORY_SUFFIX

    @property
    def is_stray(self) -> bool:
        return self.suffix == STRAY_DIRECTORY_SUFFIX


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def deleting_directory_name(topic: str, partition: int, unique: str) -> str:
    """`unique`: 32 hexadecimal digits, so that a topic can be deleted twice at a time."""
    return _moving_name(topic, partition, unique, DELETE_DIRECTORY_SUFFIX)


def future_directory_name(topic: str, partition: int, unique: str) -> str:
    return _moving_name(topic, partition, unique, FUTURE_DIRECTORY_SUFFIX)


def stray_directory_name(topic: str, partition: int, unique: str) -> str:
    return _moving_name(topic, partition, unique, STRAY_DIRECTORY_SUFFIX)


def parse_directory_name(name: str) -> PartitionDirectory | None:
    """None for a name that is no partition's."""
    suffix = ""
    moving = _MOVING_DIRECTORY.fullmatch(name)
    if moving is not None:
        name, suffix = moving[1], moving[3]
    match = _DIRECTORY.fullmatch(name)
    if match is None or int(match[2]) > _INT32_MAX:
        return None
    return PartitionDirectory(match[1], int(match[2]), suffix)


def _moving_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    if re.fullmatch("[0-9a-f]{32}", unique) is None:
        raise ValueError(f"{unique!r} is not 32 hexadecimal digits")
    end = f"-{partition}.{unique}{suffix}"
    return topic[: _NAME_MAX_LENGTH - len(end)] + end
