"""kafkajs in groups, and its transactions."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from compat.data_cluster import DataCluster
from compat.test_go_groups import WHOLE
from compat.test_kafkajs_data import kafkajs
from compat.test_librdkafka_groups import PARTITIONS

__all__ = ["kafkajs"]

pytestmark = pytest.mark.compat

PROBE = Path(__file__).with_name("kafkajs_group_probe.js")


def test_groups_and_transactions(three_nodes: DataCluster, kafkajs: Path) -> None:
    """GRP-22, GRP-40: nothing is read twice where nobody was lost."""
    topics = [three_nodes.topic(PARTITIONS) for _ in range(2)]
    done = subprocess.run(
        ["node", str(PROBE), three_nodes.bootstrap, *topics],
        env={**os.environ, "NODE_PATH": str(kafkajs), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "ofSecond": 100,
        "eachOnce": True,
        "whole": WHOLE.split(","),
        "state": "Empty",
        "committed": "5",
        "reset": ["-2"] * PARTITIONS,
        "deleted": [0],
        "complaints": [],
    }
