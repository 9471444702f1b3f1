"""The directories of a node: are they its own, and whole?

Every data directory, and the metadata directory if it is another one, has a meta.properties with
the id of cluster, node and directory. Formatting writes it last, so a directory is formatted if and
only if it has one; what an interrupted formatting leaves behind is told from data, and formatted
again. A node looks at all of them before it opens any. It refuses to start, and says what to do
next, when

- a directory isn't formatted, or belongs to another cluster or node;
- two have the same id, as after copying a disk;
- the metadata log lies in a directory that is not the metadata directory;
- the metadata directory can't be read.

A data directory that can't be read is only marked as failed: the node runs on with the others.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from kraftpy.config import NodeConfig
from kraftpy.log.checkpoints import AtomicFile, read_text
from kraftpy.log.errors import MalformedFileError, StorageError
from kraftpy.log.meta_properties import (
    META_PROPERTIES,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from kraftpy.log.segment_files import directory_name, parse_directory_name
from kraftpy.metadata.bootstrap import BOOTSTRAP_CHECKPOINT
from kraftpy.protocol.ids import Uuid, format_uuid, random_uuid
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT
from kraftpy.raft.snapshot_files import parse_snapshot_name
from kraftpy.raft.storage import TOPIC_PARTITION
from kraftpy.world import Disk, Random

__all__ = [
    "FORMATTING",
    "METADATA_LOG",
    "DirectoryPaths",
    "DirectoryState",
    "FoundDirectory",
    "NodeStorage",
    "UnusableStorageError",
    "directory_paths",
    "find_problems",
    "format_command",
    "inspect_directories",
    "present_cluster_id",
    "verify_directories",
]

METADATA_LOG: Final = directory_name(*TOPIC_PARTITION)
# The word in the name of a snapshot that formatting has not finished.
FORMATTING: Final = "format"


class UnusableStorageError(StorageError):
    """A node can't start with these directories; the message says why and what to do next."""


@dataclass(frozen=True, slots=True)
class DirectoryPaths:
    """Absolute paths of the metadata directory and of those for partitions."""

    metadata: str
    data: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """The metadata directory first, and each directory once."""
        return tuple(dict.fromkeys((self.metadata, *self.data)))


def directory_paths(config: NodeConfig, working_directory: str) -> DirectoryPaths:
    """Where a node keeps things; relative paths begin at `working_directory`."""

    def absolute(path: str) -> str:
        return posixpath.normpath(posixpath.join(working_directory, path))

    data = dict.fromkeys(absolute(path) for path in config.log_dirs)
    return DirectoryPaths(absolute(config.metadata_log_dir), tuple(data))


class DirectoryState(Enum):
    FORMATTED = "formatted"
    EMPTY = "not formatted"
    """Nothing in it is anybody's data; what an interrupted formatting wrote may be there."""
    ANONYMOUS = "holds data and has no meta.properties"
    UNREADABLE = "can't be read"


@dataclass(frozen=True, slots=True)
class FoundDirectory:
    path: str
    state: DirectoryState
    meta: MetaProperties | None = None
    has_metadata_log: bool = False
    was_interrupted: bool = False
    """Formatting was begun here, and not finished."""
    error: str = ""


async def inspect_directories(disk: Disk, paths: Sequence[str]) -> tuple[FoundDirectory, ...]:
    """Look at directories without changing anything."""
    return tuple([await _inspect(disk, path) for path in paths])


async def present_cluster_id(disk: Disk, paths: DirectoryPaths) -> str | None:
    """The cluster that some directory belongs to; None if none is formatted.

    For those who format what is new and go on with what is there.
    """
    for found in await inspect_directories(disk, paths.all):
        if found.meta is not None:
            return found.meta.cluster_id
    return None


async def _inspect(disk: Disk, path: str) -> FoundDirectory:
    meta_path = f"{path}/{META_PROPERTIES}"
    try:
        names = await _list(disk, path)
        text = await read_text(disk, meta_path)
        meta = None if text is None else parse_meta_properties(text, meta_path)
        log_names = await _list(disk, f"{path}/{METADATA_LOG}") if METADATA_LOG in names else []
    except (OSError, MalformedFileError) as error:
        return FoundDirectory(path, DirectoryState.UNREADABLE, error=str(error))
    has_metadata_log = any(not _is_of_formatting(name) for name in log_names)
    if meta is not None:
        return FoundDirectory(path, DirectoryState.FORMATTED, meta, METADATA_LOG in names)
    has_partitions = any(
        name != METADATA_LOG and parse_directory_name(name) is not None for name in names
    )
    if has_metadata_log or has_partitions:
        state = DirectoryState.ANONYMOUS
        return FoundDirectory(path, state, has_metadata_log=has_metadata_log)
    begun = METADATA_LOG in names or any(name.startswith(BOOTSTRAP_CHECKPOINT) for name in names)
    return FoundDirectory(path, DirectoryState.EMPTY, was_interrupted=begun)


async def _list(disk: Disk, path: str) -> list[str]:
    try:
        return await disk.list_directory(path)
    except FileNotFoundError:
        return []


def _is_of_formatting(name: str) -> bool:
    """Whether formatting may have made this file of a metadata log, whole or not."""
    name = name.removesuffix(".part").replace(f"-{FORMATTING}.", ".")
    return parse_snapshot_name(name) == BOOTSTRAP_SNAPSHOT


def format_command(
    config: NodeConfig,
    config_path: str,
    *,
    cluster_id: str | None = None,
    is_partly_formatted: bool = False,
) -> str:
    """The command that makes a node's directories ready."""
    words = [f"kraftpy storage format --config {config_path}"]
    words.append(f"--cluster-id {cluster_id or '$(kraftpy storage random-uuid)'}")
    if config.is_controller and not config.topology.voters:
        words.append("--standalone")
    if is_partly_formatted:
        words.append("--ignore-formatted")
    return " ".join(words)


def find_problems(found: Sequence[FoundDirectory], node_id: int, metadata_path: str) -> list[str]:
    """What contradicts what: ids of cluster, node and directories, and the metadata log's place.

    Directories that are not formatted, or can't be read, are for others to judge.
    """
    problems: list[str] = []
    formatted = [(each, each.meta) for each in found if each.meta is not None]
    by_directory_id: dict[Uuid, str] = {}
    for directory, meta in formatted:
        first_path, first = formatted[0][0].path, formatted[0][1]
        if meta.cluster_id != first.cluster_id:
            problems.append(
                f"{directory.path} belongs to cluster {meta.cluster_id} and {first_path} to "
                f"cluster {first.cluster_id}; take the one of the other cluster out of log.dirs"
            )
        if meta.node_id != node_id:
            problems.append(
                f"{directory.path} belongs to node {meta.node_id}, and this is node {node_id}; "
                "correct node.id, or use this node's own directory"
            )
        if meta.directory_id is None:
            continue
        other = by_directory_id.setdefault(meta.directory_id, directory.path)
        if other != directory.path:
            problems.append(
                f"{directory.path} and {other} have the same directory.id "
                f"{format_uuid(meta.directory_id)}; one is a copy of the other, or another name "
                "for it: take it out of log.dirs"
            )
    problems += [
        f"{each.path}/{METADATA_LOG} is in a directory that is not the metadata directory, "
        f"{metadata_path}; set metadata.log.dir={each.path}, or move {METADATA_LOG} to where it "
        "belongs while the node is stopped"
        for each in found
        if each.has_metadata_log and each.path != metadata_path
    ]
    return problems


@dataclass(frozen=True, slots=True)
class NodeStorage:
    """Whose storage it is. `directory_ids` has every directory that can be used, by path."""

    cluster_id: str
    metadata_path: str
    directory_ids: Mapping[str, Uuid]
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why, for each data directory that can't be used."""

    @property
    def metadata_directory_id(self) -> Uuid:
        return self.directory_ids[self.metadata_path]


async def verify_directories(
    config: NodeConfig, paths: DirectoryPaths, *, disk: Disk, random: Random, config_path: str
) -> NodeStorage:
    """What a node does first. `config_path` is for the command in a refusal.

    A directory that an old Kafka formatted without a directory id gets one. Raises
    UnusableStorageError.
    """
    found = await inspect_directories(disk, paths.all)
    failed = {each.path: each.error for each in found if each.state is DirectoryState.UNREADABLE}
    if paths.metadata in failed:
        raise UnusableStorageError(
            f"the metadata directory can't be read: {failed[paths.metadata]}; repair it, or give "
            "this node a new one: format an empty directory and name it in metadata.log.dir"
        )
    problems = [
        f"{each.path} holds data and has no {META_PROPERTIES}; restore that file from a backup, "
        "or take the directory out of log.dirs"
        for each in found
        if each.state is DirectoryState.ANONYMOUS
    ]
    problems += find_problems(found, config.node_id, paths.metadata)
    if problems:
        raise UnusableStorageError("\n".join(problems))
    metas = [each.meta for each in found if each.meta is not None]
    empty = [each for each in found if each.state is DirectoryState.EMPTY]
    if empty:
        command = format_command(
            config,
            config_path,
            cluster_id=metas[0].cluster_id if metas else None,
            is_partly_formatted=bool(metas),
        )
        raise UnusableStorageError(_not_formatted(empty, command, is_new=not metas))
    directory_ids = {}
    for each in found:
        if each.meta is not None:
            directory_ids[each.path] = await _directory_id(disk, each.path, each.meta, random)
    return NodeStorage(metas[0].cluster_id, paths.metadata, directory_ids, failed)


def _not_formatted(empty: Sequence[FoundDirectory], command: str, *, is_new: bool) -> str:
    paths = ", ".join(
        f"{each.path} (its formatting was interrupted)" if each.was_interrupted else each.path
        for each in empty
    )
    words = [f"not formatted: {paths}", f"run: {command}"]
    if is_new:
        words.append("All nodes of a cluster are formatted with one cluster id.")
    return "\n".join(words)


async def _directory_id(disk: Disk, path: str, meta: MetaProperties, random: Random) -> Uuid:
    if meta.directory_id is not None:
        return meta.directory_id
    directory_id = random_uuid(random)
    text = format_meta_properties(replace(meta, directory_id=directory_id))
    await AtomicFile(disk, f"{path}/{META_PROPERTIES}").replace(text)
    return directory_id
