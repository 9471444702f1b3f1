"""One node process for all tests with clients; none of them gives it a reason to complain."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compat.node_process import NodeProcess, running_node


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    options = ("--set", "auto.create.topics.enable=false")
    with running_node(tmp_path_factory.mktemp("node"), *options) as process:
        yield process
        assert process.stop() == 0, process.log()
        # A request that was refused, and a connection that it cost, would be here. The Java client
        # has no other voice: its jars come without a logger.
        complaints = [line for line in process.log().splitlines() if " INFO " not in line]
        assert complaints == []
