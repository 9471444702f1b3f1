"""Files, environment and arguments."""

from __future__ import annotations

import pytest

from kraftpy.config import (
    ConfigurationError,
    cluster_id,
    from_assignments,
    from_environment,
    from_properties,
)
from kraftpy.config.properties import parse_properties


def texts(layer: object) -> dict[str, str]:
    assert isinstance(layer, dict)
    return {key: setting.text for key, setting in layer.items()}


def test_a_properties_file() -> None:
    """The whole format is compared with Java's in test_config_oracle.py."""
    text = "# one\n! two\na=1\n b : 2\nc 3\nd=x,\\\n   y\ne\\=f=\\u00e9\\t\na=4\r\ng"
    assert texts(from_properties(text)) == {
        "a": "4",
        "b": "2",
        "c": "3",
        "d": "x,y",
        "e=f": "é\t",
        "g": "",
    }


def test_a_setting_knows_its_first_line() -> None:
    layer = from_properties("\n#\na=1,\\\n  2\nb=3", "x.properties")
    assert [(key, setting.origin) for key, setting in layer.items()] == [
        ("a", "x.properties line 3"),
        ("b", "x.properties line 5"),
    ]


def test_every_bad_escape_is_told_with_its_line() -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_properties("a=\\u12\nb=1\nc=\\uwxyz", "x")
    assert [problem.key for problem in raised.value.problems] == ["x line 1", "x line 3"]


def test_environment_in_the_way_of_the_container_image() -> None:
    environment = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_LISTENER_NAME_A__B_SSL_KEY_PASSWORD": "x",
        "KAFKA_LISTENER_NAME_X_SCRAM___SHA___256_SASL_JAAS_CONFIG": "y",
        "KAFKA_SSL_ENDPOINT_IDENTIFICATION_ALGORITHM": "",
        "KAFKA_KAFKA_METRICS_REPORTERS": "z",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_VERSION": "4.3.1",
        "KAFKA_OPTS": "",
        "KAFKA_LOG4J_LOGGERS": "a=B",
        "CLUSTER_ID": "id",
        "PATH": "/bin",
    }
    assert texts(from_environment(environment)) == {
        "node.id": "1",
        "listener.name.a_b.ssl.key.password": "x",
        "listener.name.x.scram-sha-256.sasl.jaas.config": "y",
        "ssl.endpoint.identification.algorithm": "",
        "kafka.metrics.reporters": "z",
    }
    assert cluster_id(environment) == "id"
    assert cluster_id({"CLUSTER_ID": ""}) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"KAFKA_ADVERTISED_LISTENERS": "A://example.com:9092,B://[::1]:9093"},
            "A://0.0.0.0:9092,B://0.0.0.0:9093",
        ),
        ({"KAFKA_ADVERTISED_LISTENERS": "A://x:1", "KAFKA_LISTENERS": "A://y:1"}, "A://y:1"),
        ({"KAFKA_ADVERTISED_LISTENERS": " "}, None),
    ],
)
def test_the_image_listens_where_it_advertises(
    environment: dict[str, str], expected: str | None
) -> None:
    layer = texts(from_environment(environment))
    assert layer.get("listeners") == expected
    assert ("advertised.listeners" in layer) == (expected is not None)


def test_assignments() -> None:
    assert texts(from_assignments(["a=1", "b=x=y", " c =", "a=2"])) == {
        "a": "2",
        "b": "x=y",
        "c": "",
    }
    with pytest.raises(ConfigurationError) as raised:
        from_assignments(["a", "=b", "c=1"])
    assert str(raised.value) == (
        "--set a: must have the form key=value\n--set =b: must have the form key=value"
    )
