"""The tables of keys themselves, and the page that is made from them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kraftpy.config.definition import REQUIRED, Definition, Effect, Value, parse, render
from kraftpy.config.definitions import (
    CLIENT_METRICS,
    GROUP,
    NODE,
    SECTIONS,
    TOPIC,
    find_node_key,
    node_synonyms,
)
from kraftpy.config.document import document

ROOT = Path(__file__).parents[2]
ALL = [
    definition for table in (NODE, TOPIC, GROUP, CLIENT_METRICS) for definition in table.values()
]


def test_the_page_is_current() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    assert page == document(), "run: python -m kraftpy.config > docs/configuration.md"


def test_no_key_is_defined_twice() -> None:
    assert sum(len(module.KEYS) for _, module in SECTIONS) == len(NODE)


@pytest.mark.parametrize("definition", ALL, ids=lambda definition: definition.name)
def test_a_definition_is_whole(definition: Definition) -> None:
    assert definition.doc.endswith(".")
    assert "|" not in definition.doc
    assert (definition.effect is Effect.NONE) == bool(definition.reason)
    assert all(synonym in NODE for synonym in definition.synonyms)
    if definition.default is not REQUIRED and definition.default is not None:
        shown = render(definition.default)
        assert shown is not None
        assert parse(definition._replace(check=None), shown) == definition.default


@pytest.mark.parametrize(
    ("name", "definition", "listener", "mechanism"),
    [
        ("max.connections", "max.connections", "", ""),
        ("listener.name.external.max.connections", "max.connections", "external", ""),
        ("listener.name.a.ssl.key.password", "ssl.key.password", "a", ""),
        ("listener.name.a.plain.sasl.jaas.config", "sasl.jaas.config", "a", "plain"),
        ("listener.name.a.num.partitions", None, "", ""),
        ("listener.name.a.plain.ssl.key.password", None, "", ""),
        ("num.partition", None, "", ""),
    ],
)
def test_keys_of_single_listeners(
    name: str, definition: str | None, listener: str, mechanism: str
) -> None:
    found = find_node_key(name)
    if definition is None:
        assert found is None
    else:
        assert found is not None
        assert (found.definition.name, found.listener, found.mechanism) == (
            definition,
            listener,
            mechanism,
        )


# Keys that others read through an attribute of NodeConfig or its Topology.
READ_THROUGH = {
    "process.roles": "roles",
    "node.id": "node_id",
    "broker.id": "node_id",
    "listeners": "listeners",
    "advertised.listeners": "advertised_broker_listeners",
    "listener.security.protocol.map": "security_protocol",
    "controller.listener.names": "controller_listener_names",
    "inter.broker.listener.name": "inter_broker_listener_name",
    "security.inter.broker.protocol": "inter_broker_listener_name",
    "max.connections.per.ip.overrides": "max_connections_per_ip_overrides",
    "super.users": "super_users",
    "controller.quorum.voters": "voters",
    "metadata.log.dir": "metadata_log_dir",
    "log.dir": "log_dirs",
    "log.dirs": "log_dirs",
}


def files_of_a_running_node() -> list[Path]:
    """What `kraftpy node` imports; a room that no node is built from yet has no effect."""
    program = "import sys; import kraftpy.cli.node, kraftpy.node; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    names = [name for name in done.stdout.split() if name.startswith("kraftpy.")]
    paths = [ROOT / f"{name.replace('.', '/')}.py" for name in names if ".config" not in name]
    return [path for path in paths if path.exists()]


def test_the_keys_that_have_an_effect_are_those_that_someone_reads() -> None:
    """Whoever begins to read a key says so in its table: effect=YES. A broker's key that gives
    topics the default of such a key is read with it.
    """
    words, attributes = what_a_running_node_says()
    read_of_topics = [name for name in TOPIC if name in words or name in READ_OF_TOPICS]
    said_of_topics = [name for name, each in TOPIC.items() if each.effect is Effect.YES]
    assert sorted(said_of_topics) == sorted(read_of_topics)
    read = [name for name in NODE if "." in name and name in words]
    read += [name for name, attribute in READ_THROUGH.items() if attribute in attributes]
    for name in read_of_topics:
        for synonym in TOPIC[name].synonyms:
            read += node_synonyms(synonym)
    said = [name for name, definition in NODE.items() if definition.effect is Effect.YES]
    assert sorted(said) == sorted(dict.fromkeys(read))


# Keys of topics that others read through an attribute of TopicConfig, or by a name put together.
READ_OF_TOPICS = (
    "segment.bytes",
    "internal.segment.bytes",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
)


def what_a_running_node_says() -> tuple[set[object], set[str]]:
    """The constants and the attributes in its code."""
    words: set[object] = set()
    attributes: set[str] = set()
    for path in files_of_a_running_node():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant):
                words.add(node.value)
            elif isinstance(node, ast.Attribute):
                attributes.add(node.attr)
    return words, attributes


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, None), (True, "true"), (1.5, "1.5"), ((), ""), (("a", "b"), "a,b"), ("x", "x")],
)
def test_rendering(value: Value, shown: str | None) -> None:
    assert render(value) == shown


def test_importing_pulls_in_nothing_heavy() -> None:
    """Starting a command must stay quick; difflib is for people who mistype."""
    program = "import sys; import kraftpy.config; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = done.stdout.split()
    assert "kraftpy.config.node_config" in loaded
    heavy = ("dataclasses", "inspect", "difflib", "trio", "tomllib", "logging", "kraftpy.world")
    assert [name for name in heavy if name in loaded] == []
