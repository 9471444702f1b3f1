"""The only door to the machine: ports, their real adapters and their memory twins.

Import ports from here. Adapters are imported by name, by those who assemble a node: `world.real`
for production, `world.memory` for tests and simulation.
"""

from kraftpy.world.invariants import InternalInvariant, assert_always
from kraftpy.world.ports import (
    LATE_SECONDS,
    Address,
    Bell,
    Buffer,
    Buggify,
    Clock,
    Disk,
    DiskSpace,
    File,
    FileLock,
    FileSlice,
    FileStat,
    Listener,
    Network,
    Random,
    Rng,
    SocketOptions,
    Stream,
    World,
    never,
)
from kraftpy.world.quick import quickly_made

__all__ = [
    "LATE_SECONDS",
    "Address",
    "Bell",
    "Buffer",
    "Buggify",
    "Clock",
    "Disk",
    "DiskSpace",
    "File",
    "FileLock",
    "FileSlice",
    "FileStat",
    "InternalInvariant",
    "Listener",
    "Network",
    "Random",
    "Rng",
    "SocketOptions",
    "Stream",
    "World",
    "assert_always",
    "never",
    "quickly_made",
]
