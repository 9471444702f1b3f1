"""Create, list, describe and delete topics.

examples:
  kraftpy topics create events --partitions 6 --replication-factor 3
  kraftpy topics create audit --config cleanup.policy=compact --if-not-exists
  kraftpy topics list
  kraftpy topics describe events --format json
  kraftpy topics delete events audit
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any

from kraftpy.cli.bootstrap import add_bootstrap_argument
from kraftpy.cli.clients import API_TIMEOUT_MS, client_settings, explained
from kraftpy.cli.failure import EXIT_FAILED, CommandFailed

if TYPE_CHECKING:
    from kraftpy.client.admin_operations import ConfigEntry, Outcomes
    from kraftpy.client.blocking_clients import BlockingAdmin
    from kraftpy.client.cluster import TopicInfo

__all__ = ["add_arguments", "run"]

# Where a value comes from, as DescribeConfigs numbers it: set for this topic.
_SET_FOR_TOPIC = 1


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    creating = verbs.add_parser("create", help="make topics")
    creating.add_argument("names", nargs="+", metavar="NAME")
    creating.add_argument(
        "-p", "--partitions", type=_positive, default=-1, metavar="N", help="(num.partitions)"
    )
    creating.add_argument(
        "-r",
        "--replication-factor",
        type=_positive,
        default=-1,
        metavar="N",
        help="(default.replication.factor)",
    )
    creating.add_argument(
        "--config",
        type=_pair,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key of the topic; `kraftpy config list --for topic` shows them",
    )
    creating.add_argument("--if-not-exists", action="store_true", help="accept one that is there")
    listing = verbs.add_parser("list", help="all topics, one line each")
    listing.add_argument("--internal", action="store_true", help="the cluster's own as well")
    describing = verbs.add_parser("describe", help="partitions, leaders, replicas, configuration")
    describing.add_argument("names", nargs="*", metavar="NAME", help="(all)")
    deleting = verbs.add_parser("delete", help="delete topics and their records")
    deleting.add_argument("names", nargs="+", metavar="NAME")
    deleting.add_argument("--if-exists", action="store_true", help="accept one that is not there")
    for verb in (creating, listing, describing, deleting):
        add_bootstrap_argument(verb)
        verb.add_argument(
            "--format", choices=("table", "json"), default="table", help="how to print (table)"
        )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def run(options: Namespace) -> int:
    from kraftpy.client.blocking_clients import BlockingAdmin
    from kraftpy.client.settings import AdminSettings

    settings = AdminSettings(client=client_settings(options), default_api_timeout_ms=API_TIMEOUT_MS)
    verbs = {"create": _create, "list": _list, "describe": _describe, "delete": _delete}
    with explained(), BlockingAdmin(options.servers, settings) as admin:
        return verbs[options.verb](admin, options)


def _create(admin: BlockingAdmin, options: Namespace) -> int:
    from kraftpy.client.admin_operations import NewTopic, create_topics

    topics = [
        NewTopic(name, options.partitions, options.replication_factor, dict(options.config))
        for name in options.names
    ]
    outcomes = admin.run(create_topics(topics))
    return _report(outcomes, options, "created", options.if_not_exists, "TOPIC_ALREADY_EXISTS")


def _delete(admin: BlockingAdmin, options: Namespace) -> int:
    from kraftpy.client.admin_operations import delete_topics

    outcomes = admin.run(delete_topics(options.names))
    return _report(outcomes, options, "deleted", options.if_exists, "UNKNOWN_TOPIC_OR_PARTITION")


def _report(
    outcomes: Outcomes,
    options: Namespace,
    done: str,
    is_forgiving: bool,
    forgiven: str,
) -> int:
    """Each topic's outcome, in the order of the command line; the first failure explained."""
    if is_forgiving:
        outcomes = {
            name: None if failure and failure.code.name == forgiven else failure
            for name, failure in outcomes.items()
        }
    failures = {name: failure for name, failure in outcomes.items() if failure is not None}
    if options.format == "json":
        for name in dict.fromkeys(options.names):
            failure = outcomes.get(name)
            facts: dict[str, Any] = {"topic": name, done: failure is None}
            if failure is not None:
                facts |= {"error": failure.code.name, "message": failure.detail}
            print(json.dumps(facts))
        return EXIT_FAILED if failures else 0
    for name in dict.fromkeys(options.names):
        if name not in failures:
            print(f"{name}: {done}")
    for name, failure in list(failures.items())[:-1]:
        print(f"{name}: {failure}")
    for name, failure in list(failures.items())[-1:]:
        failure.args = (f"{name}: {failure}",)
        raise failure
    return 0


def _list(admin: BlockingAdmin, options: Namespace) -> int:
    from kraftpy.client.admin_operations import list_topics

    topics = admin.run(list_topics(include_internal=options.internal))
    if options.format == "json":
        print(json.dumps([_facts(topic) for topic in topics.values()], indent=2))
        return 0
    if not topics:
        print("there are no topics; `kraftpy topics create NAME` makes one")
        return 0
    width = max(map(len, topics))
    for name, topic in topics.items():
        replicas = max((len(each.replicas) for each in topic.partitions.values()), default=0)
        count = len(topic.partitions)
        print(f"{name:<{width}}  {count} partition{'s'[: count != 1]}, replicas: {replicas}")
    return 0


def _describe(admin: BlockingAdmin, options: Namespace) -> int:
    from kraftpy.client.admin_operations import (
        ConfigKind,
        describe_configs,
        describe_topics,
        list_topics,
    )

    if options.names:
        topics = admin.run(describe_topics(dict.fromkeys(options.names)))
    else:
        topics = admin.run(list_topics())
    described = [
        (topic, admin.run(describe_configs(ConfigKind.TOPIC, name)))
        for name, topic in topics.items()
    ]
    if options.format == "json":
        listing = [_facts(topic) | {"configs": _set_here(configs)} for topic, configs in described]
        print(json.dumps(listing, indent=2))
        return 0
    if not described:
        raise CommandFailed("there are no topics; `kraftpy topics create NAME` makes one")
    for topic, configs in described:
        _show(topic, _set_here(configs))
    return 0


def _set_here(configs: list[ConfigEntry]) -> dict[str, str | None]:
    return {entry.name: entry.value for entry in configs if entry.source == _SET_FOR_TOPIC}


def _facts(topic: TopicInfo) -> dict[str, Any]:
    from kraftpy.protocol.ids import format_uuid

    return {
        "name": topic.name,
        "topic_id": format_uuid(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": each.partition,
                "leader": None if each.leader_id < 0 else each.leader_id,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "offline_replicas": list(each.offline_replicas),
            }
            for each in topic.partitions.values()
        ],
    }


def _show(topic: TopicInfo, configs: dict[str, str | None]) -> None:
    facts = _facts(topic)
    print(f"{topic.name}  (id {facts['topic_id']})")
    for key, value in configs.items():
        print(f"  {key}={value}")
    print(f"  {'partition':>9}  {'leader':>6}  {'replicas':<14} in sync")
    for each in facts["partitions"]:
        leader = "none" if each["leader"] is None else each["leader"]
        replicas = ",".join(map(str, each["replicas"]))
        in_sync = ",".join(map(str, each["isr"]))
        print(f"  {each['partition']:>9}  {leader:>6}  {replicas:<14} {in_sync}")
