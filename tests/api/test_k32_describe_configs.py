"""DescribeConfigs of topics, brokers, loggers, groups; and the other descriptions of the image."""

from __future__ import annotations

import logging

import pytest
from api.image_cluster import NODE_SETTINGS, bench_of, broker, configs, topic, view_of
from api.recording import Bench

from kraftpy.api.k29_describe_acls import DescribeAclsHandler
from kraftpy.api.k32_describe_configs import DescribeConfigsHandler
from kraftpy.api.k48_describe_client_quotas import DescribeClientQuotasHandler
from kraftpy.api.k50_describe_user_scram_credentials import DescribeUserScramCredentialsHandler
from kraftpy.config import DynamicConfig, NodeConfig, from_mapping
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k29_describe_acls as k29
from kraftpy.protocol.schema import k32_describe_configs as k32
from kraftpy.protocol.schema import k48_describe_client_quotas as k48
from kraftpy.protocol.schema import k50_describe_user_scram_credentials as k50
from kraftpy.security.authorizer import StandardAuthorizer

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def node_config() -> DynamicConfig:
    config = DynamicConfig(NodeConfig(from_mapping(NODE_SETTINGS, "test")))
    config.update(cluster={"log.retention.ms": "5000"}, per_broker={"log.cleaner.threads": "2"})
    return config


def handler() -> DescribeConfigsHandler:
    view = view_of(
        broker(1),
        *topic("t", (1,)),
        *configs(
            (TOPIC, "t", "cleanup.policy", "compact"),
            (GROUP, "g", "consumer.session.timeout.ms", "50000"),
            (CLIENT_METRICS, "m", "interval.ms", "1000"),
        ),
    )
    return DescribeConfigsHandler(view, node_config())


def describe(
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> k32.DescribeConfigsResult:
    request = k32.DescribeConfigsRequest(
        resources=[
            k32.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=keys
            )
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    response = bench_of(handler()).ask(request, version)
    assert isinstance(response, k32.DescribeConfigsResponse)
    [result] = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def values(result: k32.DescribeConfigsResult) -> dict[str, tuple[str | None, int]]:
    assert result.error_code == ErrorCode.NONE
    return {each.name: (each.value, each.config_source) for each in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic(version: int) -> None:
    """Its own settings, the cluster's, the file's and defaults, each with its source."""
    found = values(describe(TOPIC, "t", version=version))
    assert found["cleanup.policy"] == ("compact", 1)
    assert found["retention.ms"] == ("5000", 3)
    assert found["segment.bytes"] == ("2000000", 4)
    assert found["min.insync.replicas"] == ("1", 5)


def test_synonyms_types_and_documentation() -> None:
    result = describe(TOPIC, "t", ["cleanup.policy"], synonyms=True, documentation=True)
    [policy] = result.configs
    assert [(each.name, each.value, each.source) for each in policy.synonyms] == [
        ("cleanup.policy", "compact", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    assert policy.config_type == 7
    assert policy.documentation
    [plain] = describe(TOPIC, "t", ["cleanup.policy"]).configs
    assert (plain.synonyms, plain.documentation) == ([], None)


@pytest.mark.parametrize("keys", [None, []])
def test_no_keys_are_all_keys(keys: list[str] | None) -> None:
    assert len(describe(TOPIC, "t", keys).configs) > 20


def test_a_key_that_nobody_knows_is_left_out() -> None:
    assert list(values(describe(TOPIC, "t", ["nope", "segment.bytes"]))) == ["segment.bytes"]


def test_this_broker_and_the_default_of_all() -> None:
    own = values(describe(BROKER, "1"))
    assert own["log.cleaner.threads"] == ("2", 2)
    assert own["log.retention.ms"] == ("5000", 3)
    assert own["node.id"] == ("1", 4)
    assert values(describe(BROKER, "")) == {"log.retention.ms": ("5000", 3)}


def test_loggers() -> None:
    logging.getLogger("kraftpy.test.described").setLevel(logging.WARNING)
    result = describe(LOGGER, "1")
    assert values(result)["kraftpy.test.described"] == ("WARN", 6)
    assert "root" in values(result)


def test_groups_and_client_metrics() -> None:
    group = values(describe(GROUP, "g"))
    assert group["consumer.session.timeout.ms"] == ("50000", 8)
    assert group["consumer.heartbeat.interval.ms"] == ("5000", 5)
    assert values(describe(GROUP, "other"))["consumer.session.timeout.ms"] == ("45000", 5)
    metrics = values(describe(CLIENT_METRICS, "m"))
    assert metrics["interval.ms"] == ("1000", 7)
    assert metrics["match"][1] == 5


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x" * 30_000, ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (0, "t", ErrorCode.INVALID_REQUEST),
        (-128, "t", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_can_t_be_described(kind: int, name: str, code: ErrorCode) -> None:
    result = describe(kind, name)
    assert result.error_code == code
    assert result.error_message
    assert result.configs == []


def test_secrets_stay_here() -> None:
    secret = DynamicConfig(
        NodeConfig(from_mapping({**NODE_SETTINGS, "ssl.keystore.password": "tell nobody"}, "test"))
    )
    request = k32.DescribeConfigsRequest(
        resources=[k32.DescribeConfigsResource(resource_type=BROKER, resource_name="1")],
        include_synonyms=True,
    )
    view = view_of(broker(1))
    answer = bench_of(DescribeConfigsHandler(view, secret)).ask(request, 4)
    assert isinstance(answer, k32.DescribeConfigsResponse)
    [result] = answer.results
    [password] = [each for each in result.configs if each.name == "ssl.keystore.password"]
    assert (password.value, password.is_sensitive) == (None, True)
    assert "tell nobody" not in repr(answer)


def test_access_control_quotas_and_users_of_an_empty_cluster() -> None:
    """The functions behind have tests of their own; this is the way to them."""
    view = view_of(broker(1))
    everything = k29.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    authorizer = StandardAuthorizer(["User:ANONYMOUS"])
    acls = Bench([DescribeAclsHandler(view)], authorizer=authorizer).ask(everything, 3)
    assert isinstance(acls, k29.DescribeAclsResponse)
    assert (acls.error_code, acls.resources) == (ErrorCode.NONE, [])
    for version in (0, 1):
        request = k48.DescribeClientQuotasRequest()
        quotas = bench_of(DescribeClientQuotasHandler(view)).ask(request, version)
        assert isinstance(quotas, k48.DescribeClientQuotasResponse)
        assert (quotas.error_code, quotas.entries) == (ErrorCode.NONE, [])
    asked = k50.DescribeUserScramCredentialsRequest(users=[k50.UserName(name="ann")])
    users = bench_of(DescribeUserScramCredentialsHandler(view)).ask(asked, 0)
    assert isinstance(users, k50.DescribeUserScramCredentialsResponse)
    assert [each.error_code for each in users.results] == [ErrorCode.RESOURCE_NOT_FOUND]
