"""The world of production: the machine itself."""

from __future__ import annotations

from kraftpy.world.ports import World
from kraftpy.world.real_clock import RealClock
from kraftpy.world.real_disk import RealDisk
from kraftpy.world.real_network import RealNetwork
from kraftpy.world.real_rng import RealRng

__all__ = ["real_world"]


def real_world() -> World:
    """A fresh world; nodes in one interpreter each get their own."""
    return World(clock=RealClock(), rng=RealRng(), network=RealNetwork(), disk=RealDisk())
