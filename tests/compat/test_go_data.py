"""franz-go and sarama produce with every codec and acks, and read from every position."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from compat.data_cluster import DataCluster
from compat.test_librdkafka_data import CODECS, stored_codecs
from support.go_program import BUILD_TIMEOUT_SECONDS, build_go_program

pytestmark = pytest.mark.compat

SOURCES = Path(__file__).with_name("go_probe")


@pytest.fixture(scope="session")
def probe() -> Path:
    return build_go_program(SOURCES, "the Go clients")


@pytest.mark.timeout(BUILD_TIMEOUT_SECONDS + 300)
@pytest.mark.parametrize("client", ["franz-go", "sarama"])
def test_go_clients(cluster: DataCluster, probe: Path, client: str) -> None:
    topic = cluster.topic()
    done = subprocess.run(
        [str(probe), client, cluster.bootstrap, topic],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    found = dict(line.split("=") for line in done.stdout.splitlines())
    # How many records, the offset of the first, and how many headers it has.
    assert found == {
        "sent": "100",
        "beginning": "100 0 2",
        "offset": "2 98 2",
        "relative": "1 99 2",
        # sarama leaves a batch's largest timestamp out of its header. It asks for offsets only.
        "time": "100 0 2" if client == "franz-go" else "0",
    }
    assert set(stored_codecs(cluster, topic)) == set(CODECS)
