"""Make the directories of a node ready for its first start, and look at what is in them.

Every node is formatted once, all of a cluster with the same cluster id. CONFIG is the properties
file that the node will be started with; --set overrides it, as for `kraftpy node`.

examples:
  kraftpy storage random-uuid                          a new id, for a cluster or a directory
  kraftpy storage format --config server.properties --cluster-id ID --standalone
                                                       the first controller of a dynamic quorum
  kraftpy storage format --config server.properties --cluster-id ID --no-initial-controllers
                                                       a controller that joins those
  kraftpy storage format --config server.properties --cluster-id ID
                                                       a broker, or static voters
  kraftpy storage info --config server.properties      what the directories are, and what is wrong
  kraftpy storage version-mapping --release-version 4.0    the features of a release
"""

from __future__ import annotations

import json
import os
import random
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from kraftpy.cli.failure import EXIT_FAILED, EXIT_USAGE, CommandFailed
from kraftpy.protocol.ids import format_uuid, random_uuid

if TYPE_CHECKING:
    from kraftpy.config import NodeConfig
    from kraftpy.metadata.directories import DirectoryPaths, FoundDirectory
    from kraftpy.metadata.format import FormatRequest, Formatted

__all__ = ["add_arguments", "run"]


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("random-uuid", help="print a new random id for a cluster or a directory")
    _add_format_arguments(verbs.add_parser("format", help="format the directories of a node"))
    info = verbs.add_parser("info", help="show what the directories of a node are")
    _add_config_arguments(info)
    mapping = verbs.add_parser("version-mapping", help="show the feature levels of a release")
    mapping.add_argument("-r", "--release-version", metavar="RELEASE", help="the latest, if not")
    dependencies = verbs.add_parser("feature-dependencies", help="show what features need")
    dependencies.add_argument(
        "--feature", action="append", type=_feature, required=True, metavar="NAME=LEVEL"
    )
    for verb in (info, mapping):
        verb.add_argument(
            "--format", choices=("table", "json"), default="table", help="how to print (table)"
        )


def _add_config_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", required=True, metavar="CONFIG", help="the node's properties file"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="KEY=VALUE",
        help="set one configuration key; may be given many times",
    )


def _add_format_arguments(parser: ArgumentParser) -> None:
    _add_config_arguments(parser)
    parser.add_argument(
        "-t", "--cluster-id", required=True, metavar="ID", help="the same on all nodes"
    )
    parser.add_argument(
        "-s", "--standalone", action="store_true", help="this controller is the only first voter"
    )
    parser.add_argument(
        "-I",
        "--initial-controllers",
        metavar="LIST",
        help="the first voters: ID@HOST:PORT:DIRECTORY-ID, comma-separated",
    )
    parser.add_argument(
        "-N",
        "--no-initial-controllers",
        action="store_true",
        help="this controller joins voters that exist already",
    )
    parser.add_argument(
        "-r", "--release-version", metavar="RELEASE", help="begin with its features (the latest)"
    )
    parser.add_argument(
        "-f",
        "--feature",
        action="append",
        type=_feature,
        default=[],
        metavar="NAME=LEVEL",
        help="begin with this level of a feature; may be given many times",
    )
    parser.add_argument(
        "-S",
        "--add-scram",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="begin with a user: SCRAM-SHA-256=[name=USER,password=SECRET]",
    )
    parser.add_argument(
        "-g",
        "--ignore-formatted",
        action="store_true",
        help="leave directories alone that are formatted, and format the others",
    )


def _feature(text: str) -> tuple[str, int]:
    name, _, level = text.partition("=")
    if not name or not level.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not NAME=LEVEL")
    return name, int(level)


def run(options: Namespace) -> int:
    match options.verb:
        case "random-uuid":
            print(format_uuid(random_uuid(random.SystemRandom())))
            return 0
        case "format":
            return _format(options)
        case "info":
            return _info(options)
        case "version-mapping":
            return _version_mapping(options)
        case _:
            return _feature_dependencies(options)


def _load(options: Namespace) -> tuple[NodeConfig, DirectoryPaths]:
    from kraftpy.cli.node_settings import file_layer, load_node_config
    from kraftpy.metadata.directories import directory_paths

    config = load_node_config(file_layer(options.config), options.assignments)
    return config, directory_paths(config, os.getcwd())


def _format(options: Namespace) -> int:
    import socket

    import trio

    from kraftpy.metadata.format import FormatRefusedError, format_storage
    from kraftpy.world.real import real_world

    config, paths = _load(options)
    request = _format_request(options)

    async def work() -> Formatted:
        return await format_storage(
            config, request, paths, real_world(), host_name=socket.gethostname()
        )

    try:
        done = trio.run(work)
    except FormatRefusedError as error:
        raise CommandFailed(f"nothing was formatted.\n{error}") from None
    except OSError as error:
        raise CommandFailed(
            f"formatting failed: {error}\nRepeat the command with --ignore-formatted when that is "
            "repaired."
        ) from None
    for path in done.already_formatted:
        print(f"{path} is formatted already")
    for path in done.paths:
        print(f"formatted {path} with metadata.version {done.metadata_version}")
    if done.voters is not None:
        print(f"voters: {', '.join(str(node_id) for node_id in done.voters.ids)}")
        if config.is_controller and config.node_id not in done.voters.ids:
            print(f"node {config.node_id} is not among them, and will be an observer")
    return 0


def _format_request(options: Namespace) -> FormatRequest:
    from kraftpy.metadata.format import FormatRequest, parse_initial_controllers
    from kraftpy.metadata.scram_option import parse_scram_option

    initial = options.initial_controllers
    features: dict[str, int] = {}
    for name, level in options.feature:
        if features.setdefault(name, level) != level:
            raise CommandFailed(f"--feature gives {name} two levels", exit_code=EXIT_USAGE)
    try:
        controllers = () if initial is None else parse_initial_controllers(initial)
    except ValueError as error:
        raise CommandFailed(f"--initial-controllers: {error}", exit_code=EXIT_USAGE) from None
    source = random.SystemRandom()
    try:
        credentials = tuple(parse_scram_option(text, source) for text in options.add_scram)
    except ValueError as error:
        raise CommandFailed(f"--add-scram: {error}", exit_code=EXIT_USAGE) from None
    return FormatRequest(
        cluster_id=options.cluster_id,
        standalone=options.standalone,
        initial_controllers=controllers,
        has_no_initial_controllers=options.no_initial_controllers,
        release=options.release_version,
        features=features,
        credentials=credentials,
        ignores_formatted=options.ignore_formatted,
    )


def _info(options: Namespace) -> int:
    import trio

    from kraftpy.metadata.directories import DirectoryState, find_problems, inspect_directories
    from kraftpy.world.real_disk import RealDisk

    config, paths = _load(options)
    found = trio.run(inspect_directories, RealDisk(), paths.all)
    problems = [
        f"{each.path} {each.state.value}" + (f": {each.error}" if each.error else "")
        for each in found
        if each.state is not DirectoryState.FORMATTED
    ]
    problems += find_problems(found, config.node_id, paths.metadata)
    facts = [_facts(each, paths) for each in found]
    if options.format == "json":
        print(json.dumps({"directories": facts, "problems": problems}, indent=2))
    else:
        for each in facts:
            role = "metadata and data" if each["path"] == paths.metadata else "data"
            print(f"{each['path']} ({role}): {each['state']}")
            for name in ("cluster.id", "node.id", "directory.id"):
                if each[name] is not None:
                    print(f"  {name}={each[name]}")
        for problem in problems:
            print(f"problem: {problem}")
    return EXIT_FAILED if problems else 0


def _facts(found: FoundDirectory, paths: DirectoryPaths) -> dict[str, object]:
    meta = found.meta
    directory_id = None if meta is None else meta.directory_id
    return {
        "path": found.path,
        "state": found.state.value,
        "formatting_was_interrupted": found.was_interrupted,
        "is_metadata_directory": found.path == paths.metadata,
        "cluster.id": None if meta is None else meta.cluster_id,
        "node.id": None if meta is None else meta.node_id,
        "directory.id": None if directory_id is None else format_uuid(directory_id),
    }


def _version_mapping(options: Namespace) -> int:
    from kraftpy.metadata.features import (
        FEATURES,
        KRAFT_VERSION,
        LATEST_METADATA_VERSION,
        METADATA_VERSIONS,
        default_levels,
        metadata_version_of_release,
    )

    version = LATEST_METADATA_VERSION
    if options.release_version is not None:
        found = metadata_version_of_release(options.release_version)
        if found is None:
            known = ", ".join(each.name for each in METADATA_VERSIONS)
            raise CommandFailed(
                f"no release {options.release_version!r}; known are {known}", exit_code=EXIT_USAGE
            )
        version = found
    levels = dict.fromkeys(FEATURES, 0) | default_levels(version.level)
    levels[KRAFT_VERSION] = int(version.level >= FEATURES[KRAFT_VERSION].levels[0].default_from)
    if options.format == "json":
        print(json.dumps({"release": version.name, "levels": levels}, indent=2))
        return 0
    for name in sorted(levels):
        named = f" ({version.name})" if name == "metadata.version" else ""
        print(f"{name}={levels[name]}{named}")
    return 0


def _feature_dependencies(options: Namespace) -> int:
    from kraftpy.metadata.features import (
        FEATURES,
        MINIMUM_METADATA_VERSION,
        metadata_version_at,
        unmet_dependency,
    )

    for name, level in options.feature:
        if name == "metadata.version":
            if metadata_version_at(level) is None:
                raise CommandFailed(f"{name} has no level {level}", exit_code=EXIT_USAGE)
            reason = None
        elif name not in FEATURES:
            raise CommandFailed(
                f"no feature {name!r}; known are metadata.version, {', '.join(FEATURES)}",
                exit_code=EXIT_USAGE,
            )
        elif level not in (0, *(each.level for each in FEATURES[name].levels)):
            raise CommandFailed(f"{name} has no level {level}", exit_code=EXIT_USAGE)
        else:
            reason = unmet_dependency(name, level, MINIMUM_METADATA_VERSION.level)
        print(f"{name}={level}: {reason or 'needs nothing'}")
    return 0
