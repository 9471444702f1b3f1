"""Both disks, so that what the log's tests demand holds on the machine and in simulation."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_place import Place
from log_rig import Rig

from kraftpy.log.handles import HandlePool
from kraftpy.world import Disk
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.real_disk import RealDisk


@pytest.fixture(params=["real", "memory"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    disk: Disk
    if request.param == "real":
        disk, directory = RealDisk(), str(tmp_path)
    else:
        disk, directory = MemoryDisk(), "/data"
        await disk.make_directory(directory)
    return Place(disk, directory, HandlePool(disk, limit=100))


@pytest.fixture
def rig(place: Place) -> Rig:
    """A partition directory with the smallest settings."""
    return Rig.at(place)
