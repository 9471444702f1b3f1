"""kafkajs produces and administers; it consumes in groups only, so others read what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from compat.data_cluster import DataCluster
from compat.test_librdkafka_data import Voice, consumer, read_to_end
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from support.components import cache_folder, exclusively, require

pytestmark = pytest.mark.compat

VERSION = "2.2.4"
PROBE = Path(__file__).with_name("kafkajs_probe.js")
INSTALL_TIMEOUT_SECONDS = 280


@pytest.fixture(scope="session")
def kafkajs() -> Path:
    """A folder of packages that has it; fetched once for each machine."""
    require("node", "npm")
    folder = cache_folder() / f"kafkajs-{VERSION}"
    with exclusively(folder.with_name(f"{folder.name}.lock")):
        if not (folder / "node_modules/kafkajs/package.json").exists():
            command = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
            command += ["--prefix", str(folder), f"kafkajs@{VERSION}"]
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=INSTALL_TIMEOUT_SECONDS,
            )
            if done.returncode != 0:
                pytest.skip(f"missing: kafkajs {VERSION} (npm: {done.stderr.strip()[:200]})")
    return folder / "node_modules"


def test_kafkajs(cluster: DataCluster, kafkajs: Path) -> None:
    topic = cluster.topic()
    replicas = str(cluster.replication_factor)
    done = subprocess.run(
        ["node", str(PROBE), cluster.bootstrap, replicas, topic, f"{topic}-by-kafkajs"],
        env={**os.environ, "NODE_PATH": str(kafkajs), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["complaints"] == []
    assert found["offsets"] == [{"partition": 0, "offset": "48", "low": "0", "high": "48"}]
    voice = Voice()
    reader = consumer(cluster, voice)
    got = read_to_end(reader, TopicPartition(topic, 0, OFFSET_BEGINNING))
    reader.close()
    assert voice.lines == []
    assert [each.value() for each in got[:6]] == [
        *(f"0 0 {number}".encode() for number in range(5)),
        None,
    ]
    assert {each.value() for each in got[24:]} == {
        None,
        *(f"1 {acks} {number}".encode() for acks in (0, 1, -1) for number in range(5)),
    }
    assert got[-1].headers() == [("a", b"1")]
    assert got[-1].key() is None
