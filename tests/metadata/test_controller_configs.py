"""Changes of settings: operations, refusals in their order, and what one key brings with it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from small_cluster import CALLER, SmallCluster

from kraftpy.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    ConfigResourceType,
    MetadataRecord,
    TopicRecord,
)
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44

TOPIC, BROKER, LOGGER = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
)
METRICS, GROUP = ConfigResourceType.CLIENT_METRICS, ConfigResourceType.GROUP
SET, DELETE, APPEND, SUBTRACT = range(4)
MIN_ISR = "min.insync.replicas"
THROTTLED = "leader.replication.throttled.replicas"

Change = tuple[str, int, str | None]


def with_topics(**options: object) -> SmallCluster:
    cluster = SmallCluster(**options)  # type: ignore[arg-type]
    topics = [TopicRecord(name, Uuid(name.encode().ljust(16))) for name in ("t", "u")]
    cluster.apply(topics)
    return cluster


@pytest.fixture
def cluster() -> SmallCluster:
    return with_topics()


def incremental(
    cluster: SmallCluster,
    *resources: tuple[int, str, list[Change]],
    validate_only: bool = False,
) -> tuple[list[ErrorCode], tuple[MetadataRecord, ...]]:
    request = k44.IncrementalAlterConfigsRequest(
        resources=[
            k44.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    k44.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )
    result = cluster.configs.incremental_alter_configs(request, CALLER)
    assert result.is_atomic
    assert encode_bytes(result.answer, 1)
    for each in result.answer.responses:
        assert bool(each.error_code) == bool(each.error_message)
    cluster.apply(result.records)
    return [ErrorCode(each.error_code) for each in result.answer.responses], result.records


def legacy(
    cluster: SmallCluster, kind: int, name: str, settings: Mapping[str, str | None]
) -> tuple[ErrorCode, tuple[MetadataRecord, ...]]:
    configs = [k33.AlterableConfig(name=key, value=value) for key, value in settings.items()]
    resource = k33.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    result = cluster.configs.alter_configs(k33.AlterConfigsRequest(resources=[resource]), CALLER)
    assert encode_bytes(result.answer, 2)
    cluster.apply(result.records)
    (response,) = result.answer.responses
    return ErrorCode(response.error_code), result.records


def test_set_and_delete(cluster: SmallCluster) -> None:
    changes: list[Change] = [("retention.ms", SET, "5"), ("segment.ms", SET, "6")]
    assert incremental(cluster, (TOPIC, "t", changes))[0] == [ErrorCode.NONE]
    assert cluster.image.config(TOPIC, "t") == {"retention.ms": "5", "segment.ms": "6"}
    incremental(cluster, (TOPIC, "t", [("retention.ms", DELETE, None)]))
    assert cluster.image.config(TOPIC, "t") == {"segment.ms": "6"}


def test_what_changes_nothing_writes_nothing_but_for_brokers(cluster: SmallCluster) -> None:
    change: list[Change] = [("retention.ms", SET, "5")]
    assert len(incremental(cluster, (TOPIC, "t", change))[1]) == 1
    assert incremental(cluster, (TOPIC, "t", change)) == ([ErrorCode.NONE], ())
    assert incremental(cluster, (TOPIC, "u", [("retention.ms", DELETE, None)]))[1] == ()
    threads: list[Change] = [("num.io.threads", SET, "5")]
    for _ in range(2):
        assert incremental(cluster, (BROKER, "1", threads)) == (
            [ErrorCode.NONE],
            (ConfigRecord(BROKER, "1", "num.io.threads", "5"),),
        )
    assert len(incremental(cluster, (BROKER, "2", [("num.io.threads", DELETE, None)]))[1]) == 1


def test_append_and_subtract_work_on_lists_from_their_default(cluster: SmallCluster) -> None:
    policy = "cleanup.policy"
    incremental(cluster, (TOPIC, "t", [(policy, APPEND, "compact")]))
    assert cluster.image.config(TOPIC, "t")[policy] == "delete,compact"
    incremental(cluster, (TOPIC, "t", [(policy, SUBTRACT, "delete")]))
    assert cluster.image.config(TOPIC, "t")[policy] == "compact"
    incremental(cluster, (TOPIC, "t", [(policy, APPEND, "compact,delete")]))
    assert cluster.image.config(TOPIC, "t")[policy] == "compact,delete"
    incremental(cluster, (TOPIC, "u", [(THROTTLED, APPEND, "0:1,0:2")]))
    assert cluster.image.config(TOPIC, "u")[THROTTLED] == "0:1,0:2"


KEY_STORE = "listener.name.internal.ssl.keystore.location"
LONGEST = "0:1," * 8191 + "0:1"
BAD = ("retention.ms", SET, "much")

# Each is wrong in its own way and, where that is possible, in the ways below it.
REFUSED = [
    (3, "t", [BAD, BAD], ErrorCode.INVALID_REQUEST),
    (TOPIC, "nobody", [BAD, BAD], ErrorCode.INVALID_REQUEST),
    (TOPIC, "nobody", [("retention.ms", SET, None), BAD], ErrorCode.INVALID_REQUEST),
    (TOPIC, "nobody", [("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST),
    (TOPIC, "nobody", [("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "nobody", [("retention.ms", SUBTRACT, "1")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "", [BAD], ErrorCode.INVALID_REQUEST),
    (TOPIC, "not ok", [BAD], ErrorCode.INVALID_TOPIC_EXCEPTION),
    (TOPIC, "nobody", [BAD], ErrorCode.INVALID_CONFIG),
    (TOPIC, "nobody", [("no.such.key", SET, "1")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "t", [("segment.ms", SET, "1"), BAD], ErrorCode.INVALID_CONFIG),
    (TOPIC, "t", [(THROTTLED, SET, LONGEST + ",0:1")], ErrorCode.INVALID_CONFIG),
    (TOPIC, "t", [("retention.ms", SET, "9" * 32_767)], ErrorCode.INVALID_CONFIG),
    (TOPIC, "n" * 32_767, [BAD], ErrorCode.INVALID_TOPIC_EXCEPTION),
    (TOPIC, "t", [("k" * 32_767, SET, "1")], ErrorCode.INVALID_CONFIG),
    (BROKER, "", [("plugin.key", SET, "é" * 16_383)], ErrorCode.NONE),
    (BROKER, "", [("plugin.key", SET, "é" * 16_384)], ErrorCode.INVALID_CONFIG),
    (TOPIC, "nobody", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (TOPIC, "t", [(THROTTLED, SET, LONGEST)], ErrorCode.NONE),
    (LOGGER, "1", [("root", SET, "INFO")], ErrorCode.INVALID_REQUEST),
    (BROKER, "one", [("num.io.threads", SET, "x")], ErrorCode.INVALID_REQUEST),
    (BROKER, "-1", [("num.io.threads", SET, "x")], ErrorCode.INVALID_REQUEST),
    (BROKER, str(1 << 31), [("num.io.threads", SET, "x")], ErrorCode.INVALID_REQUEST),
    (BROKER, "9", [("num.io.threads", SET, "x")], ErrorCode.INVALID_CONFIG),
    (BROKER, "9", [("node.id", SET, "4")], ErrorCode.INVALID_CONFIG),
    (BROKER, "", [("advertised.listeners", SET, "A://a:1")], ErrorCode.INVALID_CONFIG),
    (BROKER, "", [(KEY_STORE, SET, "/a")], ErrorCode.INVALID_CONFIG),
    (BROKER, "1", [(KEY_STORE, SET, "/a")], ErrorCode.NONE),
    (BROKER, "9", [("num.io.threads", SET, "4")], ErrorCode.BROKER_ID_NOT_REGISTERED),
    (BROKER, "100", [("num.io.threads", SET, "4")], ErrorCode.NONE),
    (BROKER, "", [("num.io.threads", SET, "4")], ErrorCode.NONE),
    (BROKER, "", [("plugin.key", SET, "4")], ErrorCode.NONE),
    (METRICS, "", [("interval.ms", SET, "x")], ErrorCode.INVALID_REQUEST),
    (METRICS, "m", [("no.such.key", SET, "x")], ErrorCode.INVALID_REQUEST),
    (METRICS, "m", [("interval.ms", SET, "x")], ErrorCode.INVALID_CONFIG),
    (METRICS, "m", [("interval.ms", SET, "99")], ErrorCode.INVALID_REQUEST),
    (METRICS, "m", [("interval.ms", SET, "3600001")], ErrorCode.INVALID_REQUEST),
    (METRICS, "m", [("match", SET, "client_id")], ErrorCode.INVALID_CONFIG),
    (METRICS, "m", [("match", SET, "client=a")], ErrorCode.INVALID_CONFIG),
    (METRICS, "m", [("match", SET, "client_id=[")], ErrorCode.INVALID_CONFIG),
    (
        METRICS,
        "m",
        [("match", SET, "client_id=a.*"), ("interval.ms", SET, "100")],
        ErrorCode.NONE,
    ),
    (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")], ErrorCode.INVALID_REQUEST),
    (GROUP, "g", [("no.such.key", SET, "50000")], ErrorCode.INVALID_CONFIG),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "60001")], ErrorCode.INVALID_CONFIG),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "50000")], ErrorCode.NONE),
]


@pytest.mark.parametrize(("kind", "name", "changes", "code"), REFUSED)
def test_each_refusal(
    cluster: SmallCluster, kind: int, name: str, changes: list[Change], code: ErrorCode
) -> None:
    """One key that fails fails its resource, and nothing of it is written."""
    before = cluster.image
    codes, _ = incremental(cluster, (kind, name, changes), validate_only=True)
    assert codes == [code]
    assert cluster.image is before
    codes, records = incremental(cluster, (kind, name, changes))
    assert codes == [code]
    assert bool(records) == (code is ErrorCode.NONE)


def test_one_refused_resource_does_not_hurt_another(cluster: SmallCluster) -> None:
    good: list[Change] = [("retention.ms", SET, "5")]
    codes, _ = incremental(cluster, (TOPIC, "t", [BAD]), (TOPIC, "u", good))
    assert codes == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert cluster.image.config(TOPIC, "t") == {}
    assert cluster.image.config(TOPIC, "u") == {"retention.ms": "5"}


def test_a_resource_named_twice_is_refused(cluster: SmallCluster) -> None:
    good: list[Change] = [("retention.ms", SET, "5")]
    codes, records = incremental(cluster, (TOPIC, "t", good), (TOPIC, "t", good))
    assert (codes, records) == ([ErrorCode.INVALID_REQUEST], ())


def test_settings_are_judged_together(cluster: SmallCluster) -> None:
    incremental(cluster, (TOPIC, "t", [("max.compaction.lag.ms", SET, "10")]))
    codes, _ = incremental(cluster, (TOPIC, "t", [("min.compaction.lag.ms", SET, "11")]))
    assert codes == [ErrorCode.INVALID_CONFIG]


def test_unknown_keys_in_the_log_are_in_nobodys_way(cluster: SmallCluster) -> None:
    cluster.apply([ConfigRecord(TOPIC, "t", "of.another.release", "1")])
    codes, _ = incremental(cluster, (TOPIC, "t", [("retention.ms", SET, "5")]))
    assert codes == [ErrorCode.NONE]
    codes, _ = incremental(cluster, (TOPIC, "t", [("of.another.release", DELETE, None)]))
    assert codes == [ErrorCode.NONE]
    assert cluster.image.config(TOPIC, "t") == {"retention.ms": "5"}


def test_a_secret_is_not_repeated(cluster: SmallCluster) -> None:
    request = k44.IncrementalAlterConfigsRequest(
        resources=[
            k44.AlterConfigsResource(
                resource_type=BROKER,
                resource_name="1",
                configs=[k44.AlterableConfig(name="ssl.keystore.password", value="hunter2")],
            )
        ]
    )
    answer = cluster.configs.incremental_alter_configs(request, CALLER).answer
    assert answer.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert "hunter2" not in (answer.responses[0].error_message or "")


# The old way.


def test_legacy_alter_replaces_everything(cluster: SmallCluster) -> None:
    legacy(cluster, TOPIC, "t", {"retention.ms": "5", "segment.ms": "6"})
    code, records = legacy(cluster, TOPIC, "t", {"retention.ms": "5", "flush.ms": "7"})
    assert code is ErrorCode.NONE
    assert records == (
        ConfigRecord(TOPIC, "t", "flush.ms", "7"),
        ConfigRecord(TOPIC, "t", "segment.ms", None),
    )
    assert cluster.image.config(TOPIC, "t") == {"retention.ms": "5", "flush.ms": "7"}
    legacy(cluster, TOPIC, "t", {})
    assert cluster.image.config(TOPIC, "t") == {}


@pytest.mark.parametrize(
    ("name", "settings", "code"),
    [
        ("t", {"retention.ms": None}, ErrorCode.INVALID_REQUEST),
        ("t", {"retention.ms": "much"}, ErrorCode.INVALID_CONFIG),
        ("nobody", {"retention.ms": "5"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_legacy_refusals(
    cluster: SmallCluster, name: str, settings: dict[str, str | None], code: ErrorCode
) -> None:
    cluster.apply([ConfigRecord(TOPIC, "t", "segment.ms", "6")])
    assert legacy(cluster, TOPIC, name, settings) == (code, ())
    assert cluster.image.config(TOPIC, "t") == {"segment.ms": "6"}


# Eligible leader replicas.


def test_a_new_minimum_forgets_eligible_leaders(cluster: SmallCluster) -> None:
    """KRF-119: of the topic, or of all of them."""
    _, records = incremental(cluster, (TOPIC, "t", [(MIN_ISR, SET, "2")]))
    assert records == (ConfigRecord(TOPIC, "t", MIN_ISR, "2"), ClearElrRecord("t"))
    assert incremental(cluster, (TOPIC, "t", [(MIN_ISR, SET, "2")]))[1] == ()
    _, records = incremental(cluster, (TOPIC, "t", [(MIN_ISR, DELETE, None)]))
    assert records == (ConfigRecord(TOPIC, "t", MIN_ISR, None), ClearElrRecord("t"))
    _, records = incremental(cluster, (BROKER, "", [(MIN_ISR, SET, "2")]))
    assert records == (ConfigRecord(BROKER, "", MIN_ISR, "2"), ClearElrRecord(""))
    _, records = incremental(cluster, (BROKER, "", [(MIN_ISR, SET, "2")]))
    assert records == (ConfigRecord(BROKER, "", MIN_ISR, "2"),)
    _, records = incremental(cluster, (TOPIC, "t", [("retention.ms", SET, "2")]))
    assert records == (ConfigRecord(TOPIC, "t", "retention.ms", "2"),)


def test_with_elr_all_brokers_share_one_minimum(cluster: SmallCluster) -> None:
    """KRF-119: not one broker's own, and not none for the cluster."""
    cluster.apply([ConfigRecord(BROKER, "", MIN_ISR, "1"), ConfigRecord(BROKER, "1", MIN_ISR, "2")])
    invalid = [ErrorCode.INVALID_CONFIG]
    assert incremental(cluster, (BROKER, "2", [(MIN_ISR, SET, "2")]))[0] == invalid
    assert incremental(cluster, (BROKER, "", [(MIN_ISR, DELETE, None)]))[0] == invalid
    assert legacy(cluster, BROKER, "", {})[0] is ErrorCode.INVALID_CONFIG
    assert incremental(cluster, (BROKER, "1", [(MIN_ISR, DELETE, None)]))[0] == [ErrorCode.NONE]


def test_without_elr_minimums_are_settings_like_others() -> None:
    cluster = with_topics(elr=False)
    _, records = incremental(
        cluster, (TOPIC, "t", [(MIN_ISR, SET, "2")]), (BROKER, "1", [(MIN_ISR, SET, "2")])
    )
    assert [type(record) for record in records] == [ConfigRecord, ConfigRecord]
    assert incremental(cluster, (BROKER, "", [(MIN_ISR, DELETE, None)]))[0] == [ErrorCode.NONE]
