"""Clusters of real processes to which everything that can go wrong may be done.

    async with open_cluster(real_world(), ClusterOptions(nodes=3, directory=...)) as cluster:
        await cluster.apply(Partition((1,), (2, 3)))
        await cluster.heal()

`capabilities` says what this machine offers for it, `namespaces` and `proxy` are the two kinds of
network, `shim` is what lies between a node and its system.
"""

from jepsen_tests.cluster.errors import HarnessError, NotHereError
from jepsen_tests.cluster.inspection import Inspection, PartitionState
from jepsen_tests.cluster.options import ClusterOptions
from jepsen_tests.cluster.process_cluster import JepsenCluster, open_cluster
from jepsen_tests.cluster.watcher import Watcher

__all__ = [
    "ClusterOptions",
    "HarnessError",
    "Inspection",
    "JepsenCluster",
    "NotHereError",
    "PartitionState",
    "Watcher",
    "open_cluster",
]
