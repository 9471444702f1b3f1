"""List, describe and delete groups, and move their offsets.

`reset-offsets` shows what it would do, and does it with --execute. The group must have no members
then: a member would commit what it has read all the same.

examples:
  kraftpy groups list
  kraftpy groups describe readers --format json
  kraftpy groups reset-offsets readers --topic events --to-beginning
  kraftpy groups reset-offsets readers --topic events --shift-by -100 --execute
  kraftpy groups delete readers
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any

from kraftpy.cli.bootstrap import add_bootstrap_argument
from kraftpy.cli.clients import API_TIMEOUT_MS, client_settings, explained
from kraftpy.cli.failure import EXIT_FAILED, CommandFailed

if TYPE_CHECKING:
    from kraftpy.client.admin_groups import GroupDescription
    from kraftpy.client.blocking_clients import BlockingAdmin
    from kraftpy.client.calls import TopicPartition

__all__ = ["add_arguments", "run"]

_END = -1
_BEGINNING = -2


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("list", help="all groups, one line each")
    describing = verbs.add_parser("describe", help="members, partitions, offsets, lag")
    describing.add_argument("names", nargs="+", metavar="GROUP")
    deleting = verbs.add_parser("delete", help="delete groups without members, and their offsets")
    deleting.add_argument("names", nargs="+", metavar="GROUP")
    deleting.add_argument("--if-exists", action="store_true", help="accept one that is not there")
    resetting = verbs.add_parser("reset-offsets", help="let a group go on somewhere else")
    resetting.add_argument("name", metavar="GROUP")
    resetting.add_argument(
        "--topic",
        dest="topics",
        action="append",
        metavar="TOPIC[:P,P]",
        type=_topic,
        help="all of its partitions or these; may be repeated (all that has been committed)",
    )
    where = resetting.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-beginning", action="store_true", help="the first record there is")
    where.add_argument("--to-end", action="store_true", help="behind the last record")
    where.add_argument("--to-offset", type=_number, metavar="O", help="this offset")
    where.add_argument(
        "--to-timestamp", type=_number, metavar="MS", help="the first record of this time or later"
    )
    where.add_argument("--shift-by", type=int, metavar="N", help="from where it is; -N is back")
    resetting.add_argument("--execute", action="store_true", help="do it, don't only show it")
    for verb in (listing, describing, deleting, resetting):
        add_bootstrap_argument(verb)
        verb.add_argument(
            "--format", choices=("table", "json"), default="table", help="how to print (table)"
        )


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no number")
    return int(text)


def _topic(text: str) -> tuple[str, tuple[int, ...]]:
    """The name, and the partitions that are meant; none for all of them."""
    name, colon, numbers = text.partition(":")
    words = numbers.split(",") if colon else []
    if not name or not all(word.isdecimal() for word in words):
        raise ArgumentTypeError(f"{text!r} is not TOPIC or TOPIC:P,P")
    return name, tuple(int(word) for word in words)


def run(options: Namespace) -> int:
    from kraftpy.client.blocking_clients import BlockingAdmin
    from kraftpy.client.settings import AdminSettings

    settings = AdminSettings(client=client_settings(options), default_api_timeout_ms=API_TIMEOUT_MS)
    verbs = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset_offsets,
    }
    with explained(), BlockingAdmin(options.servers, settings) as admin:
        return verbs[options.verb](admin, options)


def _list(admin: BlockingAdmin, options: Namespace) -> int:
    from kraftpy.client.admin_groups import list_groups

    groups = admin.run(list_groups())
    if options.format == "json":
        facts = [
            {"group": each.group_id, "type": each.group_type.lower(), "state": each.state}
            for each in groups
        ]
        print(json.dumps(facts, indent=2))
        return 0
    if not groups:
        print("there are no groups; `kraftpy consume TOPIC --group NAME` makes one")
        return 0
    width = max(len(each.group_id) for each in groups)
    for each in groups:
        print(f"{each.group_id:<{width}}  {each.group_type.lower()}, {each.state}")
    return 0


def _describe(admin: BlockingAdmin, options: Namespace) -> int:
    from kraftpy.client.admin_groups import describe_group

    listing = []
    for name in dict.fromkeys(options.names):
        group = admin.run(describe_group(name))
        listing.append(_facts(group, _offsets(admin, group)))
    if options.format == "json":
        print(json.dumps(listing, indent=2))
        return 0
    for facts in listing:
        _show(facts)
    return 0


def _offsets(admin: BlockingAdmin, group: GroupDescription) -> list[dict[str, Any]]:
    """Each partition that was committed or is assigned: offset, end, lag, and whose it is."""
    from kraftpy.client.admin_groups import group_offsets, list_offsets

    owners = {where: each.member_id for each in group.members for where in each.assignment}
    committed = admin.run(group_offsets(group.group_id))
    wheres = sorted({**dict.fromkeys(owners), **dict.fromkeys(committed)})
    ends = admin.run(list_offsets(dict.fromkeys(wheres, _END))) if wheres else {}
    found = []
    for where in wheres:
        offset = committed[where].offset if where in committed else None
        found.append(
            {
                "topic": where.topic,
                "partition": where.partition,
                "offset": offset,
                "end": ends[where],
                "lag": None if offset is None else max(0, ends[where] - offset),
                "member": owners.get(where),
            }
        )
    return found


def _facts(group: GroupDescription, offsets: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator_id,
        "members": [
            {
                "member": each.member_id,
                "instance": each.group_instance_id,
                "client": each.client_id,
                "host": each.host,
                "partitions": [str(where) for where in each.assignment],
            }
            for each in group.members
        ],
        "offsets": offsets,
    }


def _show(facts: dict[str, Any]) -> None:
    assignor = f", assignor {facts['assignor']}" if facts["assignor"] else ""
    print(
        f"{facts['group']}  ({facts['type']}, {facts['state']}{assignor},"
        f" coordinator {facts['coordinator']})"
    )
    for each in facts["members"]:
        instance = f", instance {each['instance']}" if each["instance"] else ""
        count = len(each["partitions"])
        partitions = f"{count} partition{'s'[: count != 1]}"
        print(f"  {each['member']}  {each['client']} at {each['host']}{instance}: {partitions}")
    if facts["offsets"]:
        rows = facts["offsets"]
        width = max(len("topic"), *(len(each["topic"]) for each in rows))
        print(f"  {'topic':<{width}}  {'partition':>9}  {'offset':>9}  {'end':>9}  {'lag':>9}")
        for each in rows:
            offset = "none" if each["offset"] is None else each["offset"]
            lag = "" if each["lag"] is None else each["lag"]
            print(
                f"  {each['topic']:<{width}}  {each['partition']:>9}  {offset:>9}"
                f"  {each['end']:>9}  {lag:>9}"
            )


def _delete(admin: BlockingAdmin, options: Namespace) -> int:
    from kraftpy.client.admin_groups import delete_groups

    outcomes = admin.run(delete_groups(options.names))
    failed = False
    for name, failure in outcomes.items():
        if options.if_exists and failure and failure.code.name == "GROUP_ID_NOT_FOUND":
            failure = None
        failed = failed or failure is not None
        if options.format == "json":
            facts: dict[str, Any] = {"group": name, "deleted": failure is None}
            if failure is not None:
                facts |= {"error": failure.code.name, "message": failure.detail}
            print(json.dumps(facts))
        elif failure is None:
            print(f"{name}: deleted")
        elif len(outcomes) == 1:
            failure.args = (f"{name}: {failure}",)
            raise failure
        else:
            print(f"{name}: {failure}")
    return EXIT_FAILED if failed else 0


def _reset_offsets(admin: BlockingAdmin, options: Namespace) -> int:
    from kraftpy.client.admin_groups import alter_group_offsets, group_offsets
    from kraftpy.client.group_offsets import OffsetAndMetadata

    committed = {
        where: each.offset for where, each in admin.run(group_offsets(options.name)).items()
    }
    wheres = _chosen(admin, options, committed)
    targets = _targets(admin, options, committed, wheres)
    if options.execute:
        offsets = {where: OffsetAndMetadata(offset) for where, offset in targets.items()}
        for where, failure in admin.run(alter_group_offsets(options.name, offsets)).items():
            if failure is not None:
                failure.args = (f"{where}: {failure}",)
                raise failure
    if options.format == "json":
        facts = [
            {
                "topic": where.topic,
                "partition": where.partition,
                "before": committed.get(where),
                "offset": offset,
                "done": options.execute,
            }
            for where, offset in targets.items()
        ]
        print(json.dumps(facts, indent=2))
        return 0
    for where, offset in targets.items():
        print(f"{where}: {committed.get(where, 'none')} -> {offset}")
    if not options.execute:
        print("nothing was changed; --execute does it")
    return 0


def _chosen(
    admin: BlockingAdmin, options: Namespace, committed: dict[TopicPartition, int]
) -> list[TopicPartition]:
    from kraftpy.client.admin_operations import describe_topics
    from kraftpy.client.calls import TopicPartition

    if not options.topics:
        if not committed:
            raise CommandFailed(f"{options.name} has committed nothing; --topic says for what")
        return list(committed)
    topics = admin.run(describe_topics(dict.fromkeys(name for name, _ in options.topics)))
    chosen: dict[TopicPartition, None] = {}
    for name, numbers in options.topics:
        for number in numbers or topics[name].partitions:
            if number not in topics[name].partitions:
                last = len(topics[name].partitions) - 1
                raise CommandFailed(f"{name} has the partitions 0 to {last}, not {number}")
            chosen[TopicPartition(name, number)] = None
    return sorted(chosen)


def _targets(
    admin: BlockingAdmin,
    options: Namespace,
    committed: dict[TopicPartition, int],
    wheres: list[TopicPartition],
) -> dict[TopicPartition, int]:
    """Where each partition goes, never outside of its log."""
    from kraftpy.client.admin_groups import list_offsets

    firsts = admin.run(list_offsets(dict.fromkeys(wheres, _BEGINNING)))
    ends = admin.run(list_offsets(dict.fromkeys(wheres, _END)))
    if options.to_beginning:
        return firsts
    if options.to_end:
        return ends
    if options.to_timestamp is not None:
        found = admin.run(list_offsets(dict.fromkeys(wheres, options.to_timestamp)))
        return {where: ends[where] if offset < 0 else offset for where, offset in found.items()}
    wanted = dict.fromkeys(wheres, options.to_offset)
    if options.shift_by is not None:
        missing = [str(where) for where in wheres if where not in committed]
        if missing:
            raise CommandFailed(f"{options.name} has no offset to shift for {', '.join(missing)}")
        wanted = {where: committed[where] + options.shift_by for where in wheres}
    return {where: min(max(offset, firsts[where]), ends[where]) for where, offset in wanted.items()}
