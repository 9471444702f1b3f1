"""franz-go and sarama in groups, and their transactions; franz-go in the new protocol too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from compat.data_cluster import DataCluster
from compat.test_go_data import BUILD_TIMEOUT_SECONDS, probe
from compat.test_librdkafka_groups import PARTITIONS, RECORDS

__all__ = ["probe"]

pytestmark = pytest.mark.compat

# Of six transactions the second and the fifth one are aborted.
WHOLE = ",".join(f"{number}-{partition}" for number in (0, 2, 3, 5) for partition in range(4))


@pytest.mark.timeout(BUILD_TIMEOUT_SECONDS + 600)
@pytest.mark.parametrize("client", ["franz-go", "franz-go-848", "sarama"])
def test_groups_and_transactions(three_nodes: DataCluster, probe: Path, client: str) -> None:
    """GRP-22, GRP-41, CGP-30, CGP-36: nothing is read twice where nobody was lost."""
    topics = [three_nodes.topic(PARTITIONS) for _ in range(3)]
    done = subprocess.run(
        [str(probe), "groups", client, three_nodes.bootstrap, *topics],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    found = dict(line.split("=") for line in done.stdout.splitlines())
    expected = {"of-second": "100", "each-once": "true", "whole": WHOLE}
    if client != "franz-go-848":
        expected["unnoticed"] = "true"
    if client == "sarama":
        # Of the transaction that was committed last.
        expected["committed"] = "5"
    else:
        expected["moved-only"] = "true"
        expected["transformed"] = ",".join(sorted(map(str, range(2 * RECORDS))))
    assert found == expected
