"""Our tables and decisions beside Kafka's own: its jars are asked, key by key.

Kafka runs once, in one process, with all questions of this module; ConfigOracle.java answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from config_cases import (
    ACCEPTED_NODES,
    GOOD_NODE,
    PROPERTIES_TEXTS,
    REFUSED_NODES,
    broken_nodes,
)
from support.kafka_jars import run_java

from kraftpy.config import ConfigurationError, DynamicConfig, NodeConfig, from_mapping
from kraftpy.config.definition import REQUIRED, Definition, parse, render
from kraftpy.config.definitions import CLIENT_METRICS, GROUP, NODE, TOPIC
from kraftpy.config.problems import BadValueError
from kraftpy.config.properties import parse_properties

pytestmark = pytest.mark.java

SCOPES: dict[str, Mapping[str, Definition]] = {
    "broker": NODE,
    "topic": TOPIC,
    "group": GROUP,
    "client-metrics": CLIENT_METRICS,
    "broker-quota": NODE,
}
OWN_PREFIX = "kraftpy."
# Kafka's authorizer reads these itself, so that its configuration does not know them.
OF_THE_AUTHORIZER = ("super.users", "allow.everyone.if.no.acl.found")


def is_known_to_kafka(key: str) -> bool:
    return not key.startswith(OWN_PREFIX) and key not in OF_THE_AUTHORIZER


# Kafka defines these apart from a broker's other keys.
BROKER_QUOTAS = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)

SAMPLES = (
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "-2",
        "2",
        "3",
        "5",
        "9",
        "10",
        "17",
        "22",
        "25",
        "99",
        "100",
        "128",
    ),
    *("255", "500", "501", "1000", "1001", "1023", "1024", "2000", "10000", "10001", "30000"),
    *("65536", "524287", "524288", "1048575", "1048576", "8388607", "8388608", "3600000"),
    *("3600001", "32767", "32768", "2147483647", "2147483648", "-2147483649"),
    *("9223372036854775807", "9223372036854775808", "+7", " 7 ", "1_000", "0x10", "1L", "1.0"),
    *(
        "0.5",
        ".5",
        "1e-1",
        "1e",
        "0.5d",
        "0.5F",
        "NaN",
        "Infinity",
        "-0",
        "true",
        "TRUE",
        " false ",
    ),
    *("yes", "delete", "compact,delete", "delete,delete", "delete,", " delete , compact ", "none"),
    *("broker", "broker,controller", "controller , broker", "broker,zookeeper", "gzip", "GZIP"),
    *("producer", "zstd", "CreateTime", "createtime", "LogAppendTime", "required", "SSL", "ssl"),
    *("PLAINTEXT", "bidirectional", "Upgrade", "latest", "earliest", "by_duration:PT1H"),
    *("by_duration:P1DT2H3M4.5S", "by_duration:PT", "by_duration:-PT1H", "by_duration:1h"),
    *("read_committed", "1@localhost:9093", "1@[::1]:9093,2@h:1", "1@h", "a@h:1", "h:9092"),
    *("h:1,[::1]:2", "h:99999", "h", "*", "0:1,1:2", "*,0:1", "0:", "a,b", "a,a", "a,,b", "rs256"),
    *("classic", "classic,consumer", "consumer,share,streams,classic", "java.lang.String"),
)
"""Texts at and around every bound and choice that the tables have."""


def value_questions() -> list[dict[str, str]]:
    return [
        {"scope": scope, "key": key, "value": sample}
        for scope, definitions in SCOPES.items()
        for key in definitions
        if is_known_to_kafka(key) and (key in BROKER_QUOTAS) == (scope == "broker-quota")
        for sample in SAMPLES
    ]


def node_questions() -> list[dict[str, Any]]:
    nodes = [*ACCEPTED_NODES.values(), *REFUSED_NODES.values(), *broken_nodes()]
    return [{"scope": "node", "properties": properties} for properties in nodes]


def dynamic_questions() -> list[dict[str, Any]]:
    """Every key, set for one broker, for the cluster and for one listener, to a value it takes."""
    questions: list[dict[str, Any]] = []
    for name, definition in NODE.items():
        default = None if definition.default is REQUIRED else render(definition.default)
        value = GOOD_NODE.get(name, default)
        if value is None and definition.type.value in ("string", "password"):
            value = "x"
        if name == "listener.security.protocol.map":
            value = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
        if not is_known_to_kafka(name) or not value:
            continue
        questions += [
            {"scope": scope, "properties": {prefix + name: value}}
            for prefix in ("", "listener.name.external.")
            for scope in ("per-broker", "cluster-wide")
        ]
    return questions


def properties_questions() -> list[dict[str, str]]:
    return [{"scope": "properties", "text": text} for text in PROPERTIES_TEXTS]


@cache
def _asked() -> tuple[dict[str, Any], dict[str, Any]]:
    """Kafka's answer to each question, by the question's JSON; and its definitions."""
    questions = [
        *value_questions(),
        *node_questions(),
        *dynamic_questions(),
        *properties_questions(),
    ]
    done = run_java(Path(__file__).with_name("ConfigOracle.java"), stdin=json.dumps(questions))
    assert done.returncode == 0, done.stderr
    *answers, definitions = json.loads(done.stdout)
    assert len(answers) == len(questions)
    asked = map(json.dumps, questions)
    return dict(zip(asked, answers, strict=True)), definitions


def kafka_says(question: dict[str, Any]) -> dict[str, Any]:
    return _asked()[0][json.dumps(question)]


def kafka_definitions() -> dict[str, Any]:
    return _asked()[1]


def test_no_key_is_missing_and_none_is_invented() -> None:
    scopes = kafka_definitions()["scopes"]
    ours = [name for name in NODE if is_known_to_kafka(name)]
    assert sorted(ours) == sorted([*scopes["broker"], *scopes["broker-quota"]])
    assert sorted(TOPIC) == sorted(scopes["topic"])
    assert sorted(GROUP) == sorted(scopes["group"])
    assert sorted(CLIENT_METRICS) == sorted(scopes["client-metrics"])


@pytest.mark.parametrize("scope", SCOPES)
def test_type_default_importance_and_internal_are_kafkas(scope: str) -> None:
    for name, facts in kafka_definitions()["scopes"][scope].items():
        ours = SCOPES[scope][name]
        assert ours.type.name == facts["type"], name
        assert ours.importance.name == facts["importance"], name
        assert ours.internal == facts["internal"], name
        assert (ours.default is not REQUIRED) == facts["has_default"], name
        if facts["default"] is not None:
            # Kafka's checks don't hold for defaults, and some defaults would fail them.
            assert ours.default == parse(ours._replace(check=None), facts["default"]), name
        elif facts["has_default"]:
            assert ours.default is None, name


def test_who_may_change_a_key_is_kafkas() -> None:
    modes = kafka_definitions()["update_modes"]
    for name, definition in NODE.items():
        if is_known_to_kafka(name):
            assert definition.mode.value == modes.get(name, "read-only"), name


def test_broker_keys_behind_topic_and_group_keys_are_kafkas() -> None:
    topic_synonyms = kafka_definitions()["topic_synonyms"]
    group_synonyms = kafka_definitions()["group_synonyms"]
    for name, definition in TOPIC.items():
        assert list(definition.synonyms) == topic_synonyms.get(name, []), name
    for name, definition in GROUP.items():
        expected = [group_synonyms[name]] if group_synonyms[name] else []
        assert list(definition.synonyms) == expected, name


def test_every_value_is_judged_and_read_as_by_kafka() -> None:
    """A class has to exist for Kafka; we load none, so only its name's form is judged.

    Assignors are classes or names of those that come with the broker. Kafka looks for them after
    it has read its configuration; ours are all that there is, and judged at once.
    """
    differences = []
    for question in value_questions():
        definition = SCOPES[question["scope"]][question["key"]]
        if definition.type.value == "class" and "." not in question["value"]:
            continue
        if question["key"] == "group.consumer.assignors" and "range" not in question["value"]:
            continue
        answer = kafka_says(question)
        try:
            ours = {"parsed": parse(definition, question["value"])}
        except BadValueError:
            ours = {"refused": ""}
        same = ours.keys() == answer.keys()
        if "parsed" in ours and definition.type.value not in ("password", "double"):
            same &= render(ours["parsed"]) == answer.get("parsed")
        if not same:
            differences.append((question, ours, answer))
    assert differences == []


@pytest.mark.parametrize("name", ACCEPTED_NODES)
def test_kafka_starts_with_what_we_start_with(name: str) -> None:
    answer = kafka_says({"scope": "node", "properties": ACCEPTED_NODES[name]})
    assert "refused" not in answer, answer


@pytest.mark.parametrize("name", REFUSED_NODES)
def test_kafka_refuses_what_we_refuse(name: str) -> None:
    assert "refused" in kafka_says({"scope": "node", "properties": REFUSED_NODES[name]})


def test_nodes_broken_in_one_or_two_keys_are_judged_as_by_kafka() -> None:
    differences = []
    for properties in broken_nodes():
        answer = kafka_says({"scope": "node", "properties": properties})
        try:
            NodeConfig(from_mapping(properties, "test"))
            ours = None
        except ConfigurationError as error:
            ours = str(error)
        if (ours is None) != ("refused" not in answer):
            changed = {key: text for key, text in properties.items() if GOOD_NODE.get(key) != text}
            differences.append((changed, ours, answer))
    assert differences == []


def test_dynamic_changes_are_judged_as_by_kafka() -> None:
    node = DynamicConfig(NodeConfig(from_mapping(GOOD_NODE, "test")))
    differences = []
    for question in dynamic_questions():
        answer = kafka_says(question)
        try:
            node.check(question["properties"], per_broker=question["scope"] == "per-broker")
            ours = None
        except ConfigurationError as error:
            ours = str(error)
        if (ours is None) != ("refused" not in answer):
            differences.append((question, ours, answer))
    assert differences == []


@pytest.mark.parametrize("text", PROPERTIES_TEXTS)
def test_properties_files_are_read_as_by_java(text: str) -> None:
    answer = kafka_says({"scope": "properties", "text": text})
    if "refused" in answer:
        with pytest.raises(ConfigurationError):
            parse_properties(text)
    else:
        ours = {item.key: item.value for item in parse_properties(text)}
        assert ours == json.loads(answer["parsed"])
