"""Kafka's Java consumers in groups, of two releases and both protocols, and transactions."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from compat.data_cluster import SECONDS, DataCluster
from compat.test_librdkafka_groups import PARTITIONS, PROTOCOLS, all_of, members, until
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from support.kafka_jars import QUICK_JAVA, classpath, run_java

# A busy machine has its time: the probe's own waits end what hangs.
pytestmark = [pytest.mark.compat, pytest.mark.java, pytest.mark.timeout(700)]

PROBE = Path(__file__).with_name("GroupProbe.java")


@pytest.mark.parametrize(
    ("release", "protocol"), [("4.3", "classic"), ("4.3", "consumer"), ("3.9", "classic")]
)
def test_groups_and_transactions(three_nodes: DataCluster, release: str, protocol: str) -> None:
    """GRP-22, GRP-41, CGP-30, CGP-36: nothing is read twice where nobody was lost."""
    topics = [three_nodes.topic(PARTITIONS) for _ in range(3)]
    done = run_java(
        PROBE,
        three_nodes.bootstrap,
        protocol,
        *topics,
        release=release,
        logs=True,
        timeout_seconds=600,
    )
    # The one that pauses is told so by its own client; and where the markers of a transaction take
    # longer than a broker waits for them, the next one's first records are sent again.
    told = (
        r"WARN .*(poll timeout has expired|exceeded approximately by \d+ ms\. Member"
        r"|, retrying .* Error: CONCURRENT_TRANSACTIONS\.)"
    )
    complaints = [line for line in done.stderr.splitlines() if not re.search(told, line)]
    assert complaints == []
    assert done.returncode == 0
    assert dict(line.split("=", 1) for line in done.stdout.splitlines()) == {
        "of-second": "100",
        "each-once": "true",
        "moved-only": "true",
        "unnoticed": "true",
        "replaced": "true",
        "back": "true",
        "without": "4",
        "committed": "OffsetAndMetadata{offset=40, leaderEpoch=null, metadata='a note'}",
        "from-committed": "360",
        "after-alteration": "0",
        "fenced": "true",
        "whole": "true",
        "transformed": "true",
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_dies_is_replaced(three_nodes: DataCluster, protocol: str) -> None:
    """GRP-38, CGP-33: a Java consumer and one of librdkafka share a topic until one is killed."""
    topic = three_nodes.topic(PARTITIONS)
    group = f"dies-{topic}"
    session = ConfigEntry(
        "consumer.session.timeout.ms", "6000", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[session])
    three_nodes.admin.incremental_alter_configs([resource])[resource].result(SECONDS)
    java = [*QUICK_JAVA, "-cp", classpath(), str(PROBE), "member"]
    with (
        members(three_nodes, group, protocol, {}) as (survivor,),
        subprocess.Popen([*java, three_nodes.bootstrap, protocol, topic, group]) as process,
    ):
        try:
            survivor.subscribe(topic)
            until(lambda: len(survivor.owned) == PARTITIONS // 2, survivor, seconds=200)
        finally:
            process.kill()
        until(lambda: survivor.owned == all_of(topic), survivor)
