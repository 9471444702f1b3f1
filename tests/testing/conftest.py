"""Clusters that the tests here share: one kind for the session's, three nodes in one process."""

from __future__ import annotations

import pytest

from kraftpy.testing.options import ClusterOptions


@pytest.fixture(scope="session")
def kafka_cluster_options() -> ClusterOptions:
    return ClusterOptions(nodes=3, one_process=True)
