"""The kinds of faults of the process suite, by name and by the specification's id.

What is missing, and why: N7 (drift) is the simulator's, and N25 (clients that crash) belongs to the
workloads. Of N21 there is the delay; loss and reordering would need a queueing discipline that
kernels may not have. N9 is a write that is torn in the middle of a crash. N29 is the error that the
next requests get; points inside of the code are the simulator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jepsen_tests.nemeses.change_kinds import CHANGE_KINDS
from jepsen_tests.nemeses.kind import Kind
from jepsen_tests.nemeses.network_kinds import NETWORK_KINDS
from jepsen_tests.nemeses.node_kinds import NODE_KINDS

__all__ = ["CATALOGUE", "NONE"]

CATALOGUE: Final[Mapping[str, Kind]] = {
    kind.name: kind for kind in (*NETWORK_KINDS, *NODE_KINDS, *CHANGE_KINDS)
}
NONE: Final = "none"
"""The name of no fault at all."""
