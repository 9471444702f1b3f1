"""One node process for all tests with clients; each of them leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compat.node_process import NodeProcess, running_node


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node")) as process:
        yield process
        assert process.stop() == 0, process.log()
        assert " ERROR " not in process.log()
        assert "Traceback" not in process.log()
