"""The composition root: one node from one configuration, in one nursery.

The only room that knows everyone. It reads configuration keys and hands plain values to the rooms
below, so that none of them knows where its limits come from. A node touches the machine through the
World it is given and shares nothing with other nodes of the same interpreter.
"""

from kraftpy.node.node import Node, NodeAddresses

__all__ = ["Node", "NodeAddresses"]
