"""Formatting: making a node's directories ready for its first start.

The metadata directory gets the snapshot 0-0 with the first voters, where they are dynamic and
given; each directory gets `bootstrap.checkpoint`, and last of all `meta.properties`. That file
alone makes a directory a formatted one; a crash before it leaves what the next formatting replaces.
Nothing is written before everything has been checked, and data is never touched: a directory
that holds partitions and has lost its meta.properties is refused.

The voters of a quorum are either static (controller.quorum.voters, kraft.version 0) or dynamic
(kept in the log, kraft.version 1). Dynamic ones begin with one controller (`standalone`), with a
given set (`initial_controllers`), or with those that others were formatted with
(`has_no_initial_controllers`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from kraftpy.config import NodeConfig
from kraftpy.config.checks import parse_voter
from kraftpy.log.checkpoints import AtomicFile
from kraftpy.log.errors import StorageError
from kraftpy.log.log_directory import LOCK_FILE, make_path
from kraftpy.log.meta_properties import META_PROPERTIES, MetaProperties, format_meta_properties
from kraftpy.metadata.bootstrap import bootstrap_records, bootstrap_voters, write_bootstrap
from kraftpy.metadata.directories import (
    FORMATTING,
    METADATA_LOG,
    DirectoryPaths,
    DirectoryState,
    FoundDirectory,
    find_problems,
    inspect_directories,
)
from kraftpy.metadata.features import (
    FEATURES,
    KRAFT_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSIONS,
    SCRAM_LEVEL,
    default_levels,
    metadata_version_at,
    metadata_version_of_release,
    unmet_dependency,
)
from kraftpy.metadata.records import METADATA_VERSION, UserScramCredentialRecord
from kraftpy.protocol.ids import Uuid, format_uuid, parse_uuid, random_uuid
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT
from kraftpy.raft.snapshot_files import SnapshotFiles
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from kraftpy.world import Disk, World

__all__ = [
    "FormatRefusedError",
    "FormatRequest",
    "Formatted",
    "InitialController",
    "format_storage",
    "parse_initial_controllers",
]

_CLUSTER_ID = re.compile(r"[A-Za-z0-9._-]+")
_RESERVED_IDS = 100


class FormatRefusedError(StorageError):
    """Nothing was written; the message says why and what to do next."""


@dataclass(frozen=True, slots=True)
class InitialController:
    """One of the first voters of a dynamic quorum."""

    node_id: int
    host: str
    port: int
    directory_id: Uuid


@dataclass(frozen=True, slots=True)
class FormatRequest:
    cluster_id: str
    standalone: bool = False
    initial_controllers: tuple[InitialController, ...] = ()
    has_no_initial_controllers: bool = False
    # A release or a version of it, as in 4.3 and 4.3-IV0; None: the latest.
    release: str | None = None
    features: Mapping[str, int] = field(default_factory=dict)
    credentials: tuple[UserScramCredentialRecord, ...] = ()
    ignores_formatted: bool = False

    @property
    def voters_are_dynamic(self) -> bool:
        return bool(self.standalone or self.initial_controllers or self.has_no_initial_controllers)


@dataclass(frozen=True, slots=True)
class Formatted:
    """What was done: paths, in the order in which they were written."""

    paths: tuple[str, ...]
    already_formatted: tuple[str, ...]
    metadata_version: str
    levels: Mapping[str, int]
    voters: VoterSet | None
    """The first voters, where the metadata directory was given some."""


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """`id@host:port:directory`, comma-separated; ValueError says what is wrong."""
    controllers = []
    for item in text.split(","):
        address, _, directory = item.strip().rpartition(":")
        voter = parse_voter(address)
        if voter is None:
            raise ValueError(f"can't read {item.strip()!r}; write id@host:port:directory-id")
        directory_id = parse_uuid(directory)
        if int.from_bytes(directory_id) < _RESERVED_IDS:
            raise ValueError(
                f"{directory} is a reserved id; `kraftpy storage random-uuid` makes one"
            )
        controllers.append(InitialController(*voter, directory_id))
    for name, values in (
        ("node id", [each.node_id for each in controllers]),
        ("directory id", [each.directory_id for each in controllers]),
    ):
        if len(dict.fromkeys(values)) != len(values):
            raise ValueError(f"two initial controllers have the same {name}")
    return tuple(controllers)


async def format_storage(
    config: NodeConfig,
    request: FormatRequest,
    paths: DirectoryPaths,
    world: World,
    *,
    host_name: str = "localhost",
) -> Formatted:
    """Format what is not formatted yet. `host_name` stands for a listener on every interface.

    Raises FormatRefusedError with nothing written, or OSError.
    """
    levels = _levels(config, request)
    _check_request(config, request)
    disk = world.disk
    found = await inspect_directories(disk, paths.all)
    _check_found(config, request, found, paths)
    empty = [each.path for each in found if each.state is DirectoryState.EMPTY]
    random = world.rng.stream("uuid")
    metadata_id = _given_id(config, request) or random_uuid(random)
    voters = _first_voters(config, request, metadata_id, host_name)
    timestamp_ms = world.clock.wall_ms()
    records = bootstrap_records(levels, request.credentials)
    with ExitStack() as locks:
        for path in empty:
            await make_path(disk, path)
            try:
                locks.callback(disk.lock(f"{path}/{LOCK_FILE}").release)
            except BlockingIOError as error:
                raise FormatRefusedError(
                    f"{path} is in use by another process; stop that node first"
                ) from error
        # The metadata directory comes first in the list and is written last: it is formatted only
        # when everything is.
        for path in reversed(empty):
            await _remove_rest(disk, path)
            is_metadata = path == paths.metadata
            if is_metadata and voters is not None:
                await _write_voters(disk, path, voters, timestamp_ms)
            # It syncs the directory, with the names of everything before.
            await write_bootstrap(disk, path, records, timestamp_ms)
            directory_id = metadata_id if is_metadata else random_uuid(random)
            meta = MetaProperties(request.cluster_id, config.node_id, directory_id)
            file = AtomicFile(disk, f"{path}/{META_PROPERTIES}")
            await file.replace(format_meta_properties(meta))
    version = metadata_version_at(levels[METADATA_VERSION])
    return Formatted(
        tuple(reversed(empty)),
        tuple(each.path for each in found if each.meta is not None),
        version.name if version is not None else "",
        levels,
        voters if paths.metadata in empty else None,
    )


async def _remove_rest(disk: Disk, path: str) -> None:
    """Remove the voters that an interrupted formatting may have written."""
    directory = f"{path}/{METADATA_LOG}"
    try:
        names = await disk.list_directory(directory)
    except FileNotFoundError:
        return
    for name in names:
        await disk.unlink(f"{directory}/{name}")
    await disk.remove_directory(directory)


async def _write_voters(
    disk: Disk, metadata_path: str, voters: VoterSet, timestamp_ms: int
) -> None:
    """The snapshot 0-0."""
    directory = f"{metadata_path}/{METADATA_LOG}"
    await disk.make_directory(directory)
    writer = SnapshotFiles(disk, directory).create(BOOTSTRAP_SNAPSHOT, FORMATTING)
    writer.append(bootstrap_voters(voters, timestamp_ms))
    await writer.freeze()


# What is asked for.


def _levels(config: NodeConfig, request: FormatRequest) -> dict[str, int]:
    """The levels of the new cluster, metadata.version first and no kraft.version."""
    features = dict(request.features)
    given = features.pop(METADATA_VERSION, None)
    if request.release is not None and given is not None:
        raise FormatRefusedError(
            "--release-version and --feature metadata.version say the same thing; leave one out"
        )
    level = LATEST_METADATA_VERSION.level if given is None else given
    if request.release is not None:
        version = metadata_version_of_release(request.release)
        if version is None:
            known = ", ".join(each.name for each in METADATA_VERSIONS)
            raise FormatRefusedError(f"no release {request.release!r}; known are {known}")
        level = version.level
    elif metadata_version_at(level) is None:
        first, last = METADATA_VERSIONS[0], METADATA_VERSIONS[-1]
        raise FormatRefusedError(
            f"metadata.version {level} is not known; choose from {first.level} ({first.name}) to "
            f"{last.level} ({last.name})"
        )
    if request.credentials and level < SCRAM_LEVEL:
        raise FormatRefusedError(
            f"--add-scram needs metadata.version {SCRAM_LEVEL} (3.5-IV2) at least; choose a later "
            "--release-version"
        )
    levels = default_levels(level)
    _check_kraft_version(config, request, features.pop(KRAFT_VERSION, None))
    for name, wanted in features.items():
        feature = FEATURES.get(name)
        if feature is None:
            known = ", ".join([METADATA_VERSION, *FEATURES])
            raise FormatRefusedError(f"no feature {name!r}; known are {known}")
        if not 0 <= wanted <= feature.max_supported_level:
            raise FormatRefusedError(
                f"{name}={wanted} is not supported; choose from 0 to {feature.max_supported_level}"
            )
        reason = unmet_dependency(name, wanted, level)
        if reason is not None:
            raise FormatRefusedError(f"{name}={wanted} is not possible: {reason}")
        levels[name] = wanted
    return {name: wanted for name, wanted in levels.items() if wanted > 0}


def _check_kraft_version(config: NodeConfig, request: FormatRequest, wanted: int | None) -> None:
    """It follows from how the voters are found, and may only be said again."""
    if wanted is None or not config.is_controller:
        return
    actual = 0 if config.topology.voters else 1
    if wanted != actual:
        raise FormatRefusedError(
            f"kraft.version is {actual} here, because controller.quorum.voters is "
            f"{'set' if config.topology.voters else 'not set'}; leave --feature kraft.version out"
        )


def _check_request(config: NodeConfig, request: FormatRequest) -> None:
    if _CLUSTER_ID.fullmatch(request.cluster_id) is None:
        raise FormatRefusedError(
            f"{request.cluster_id!r} is no cluster id; `kraftpy storage random-uuid` makes one"
        )
    ways = (
        request.standalone,
        bool(request.initial_controllers),
        request.has_no_initial_controllers,
    )
    options = "--standalone, --initial-controllers and --no-initial-controllers"
    if sum(ways) > 1:
        raise FormatRefusedError(f"{options} exclude each other; give one of them")
    if config.topology.voters:
        if request.voters_are_dynamic:
            raise FormatRefusedError(
                f"{options} are for voters that are kept in the log, and controller.quorum.voters "
                "is set; leave the option out, or replace that key by "
                "controller.quorum.bootstrap.servers"
            )
        return
    if request.standalone and not config.is_controller:
        raise FormatRefusedError(
            "--standalone is for a controller, and process.roles is broker; leave it out"
        )
    if config.is_controller and not request.voters_are_dynamic:
        raise FormatRefusedError(
            "controller.quorum.voters is not set on this controller, so the first voters must be "
            "given:\n"
            "  --standalone                            this controller alone; others can be added\n"
            "  --initial-controllers ID@HOST:PORT:DIRECTORY-ID,...   these, the same on each\n"
            "  --no-initial-controllers                it joins controllers that exist already"
        )


def _given_id(config: NodeConfig, request: FormatRequest) -> Uuid | None:
    for controller in request.initial_controllers:
        if controller.node_id == config.node_id:
            return controller.directory_id
    return None


def _first_voters(
    config: NodeConfig, request: FormatRequest, metadata_id: Uuid, host_name: str
) -> VoterSet | None:
    topology = config.topology
    if request.standalone:
        endpoints = tuple(
            Endpoint(each.listener_name, each.host or host_name, each.port)
            for each in topology.advertised_controller_listeners
        )
        return VoterSet([Voter(ReplicaKey(config.node_id, metadata_id), endpoints)])
    if not request.initial_controllers:
        return None
    listener = topology.controller_listener_names[0]
    return VoterSet(
        Voter(
            ReplicaKey(each.node_id, each.directory_id),
            (Endpoint(listener, each.host, each.port),),
        )
        for each in request.initial_controllers
    )


# What is there.


def _check_found(
    config: NodeConfig,
    request: FormatRequest,
    found: Sequence[FoundDirectory],
    paths: DirectoryPaths,
) -> None:
    problems = []
    for each in found:
        if each.state is DirectoryState.UNREADABLE:
            problems.append(
                f"{each.path} can't be read: {each.error}; repair it, or take it out of log.dirs"
            )
        elif each.state is DirectoryState.ANONYMOUS:
            problems.append(
                f"{each.path} holds data and has no {META_PROPERTIES}; restore that file from a "
                "backup, or move the data away and format the empty directory"
            )
        elif each.meta is not None:
            problems += _contradictions(config, request, each.path, each.meta, paths)
    problems += find_problems(found, config.node_id, paths.metadata)
    if problems:
        raise FormatRefusedError("\n".join(problems))
    formatted = [each.path for each in found if each.meta is not None]
    if formatted and not request.ignores_formatted:
        raise FormatRefusedError(
            f"already formatted: {', '.join(formatted)}; --ignore-formatted leaves it as it is "
            "and formats what is not"
        )


def _contradictions(
    config: NodeConfig,
    request: FormatRequest,
    path: str,
    meta: MetaProperties,
    paths: DirectoryPaths,
) -> list[str]:
    problems = []
    if meta.cluster_id != request.cluster_id:
        problems.append(
            f"{path} belongs to cluster {meta.cluster_id}; format with --cluster-id "
            f"{meta.cluster_id} --ignore-formatted, or use an empty directory"
        )
    given_id = _given_id(config, request)
    if path == paths.metadata and given_id is not None and given_id != meta.directory_id:
        present = "none" if meta.directory_id is None else format_uuid(meta.directory_id)
        problems.append(
            f"{path} has directory.id {present}, and --initial-controllers gives node "
            f"{config.node_id} {format_uuid(given_id)}; use the same id on all controllers, or an "
            "empty directory"
        )
    return problems
