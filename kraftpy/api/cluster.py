"""What may be done to the cluster, to topics and to groups, as the bit fields of the protocol.

Without an authorizer everybody may do all of it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CLUSTER_OPERATIONS", "GROUP_OPERATIONS", "TOPIC_OPERATIONS"]


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


# Create, alter, describe, cluster action, describe configs, alter configs, idempotent write.
CLUSTER_OPERATIONS: Final = _bits(5, 7, 8, 9, 10, 11, 12)
# Read, write, create, delete, alter, describe, describe configs, alter configs.
TOPIC_OPERATIONS: Final = _bits(3, 4, 5, 6, 7, 8, 10, 11)
# Read, delete, describe, describe configs, alter configs.
GROUP_OPERATIONS: Final = _bits(3, 6, 8, 10, 11)
