"""Faults that are drawn apart from the plan, so that worlds without them are as they always were:
damage to the files of a dead node, and voters that come and go.

A log is damaged only while every replica of every partition is in sync and every node serves: with
a second one damaged, a loss would be the simulator's own doing. A voter is taken out of the quorum
and comes back when the fault is over; in worlds where a node stays behind for ever nobody is taken
out, for the two that are left might need the third.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random as SeededRandom
from typing import Final

import trio

from kraftpy.client.admin import Admin, open_admin
from kraftpy.client.errors import KafkaError
from kraftpy.client.settings import AdminSettings, ClientSettings
from kraftpy.faults.damage import draw_flip, draw_stray
from kraftpy.faults.language import Fault, FlipBits, RemoveVoter, StrayWrite
from kraftpy.sim.whole.schedule import PlannedFault
from kraftpy.sim.whole.swarm import WholeSwarm
from kraftpy.verify.voter_changes import VoterChanges
from kraftpy.world import Address, Random, World
from kraftpy.world.memory_disk import MemoryDisk

__all__ = ["Voters", "damage_log", "draw_more_faults"]

_MEAN_SECONDS: Final = 8.0
_LENGTH_SECONDS: Final = 3.0
_MOST_BITS: Final = 4
_AGAIN_SECONDS: Final = 0.5
_ATTEMPTS: Final = 4
_TIMEOUT_MS: Final = 5_000
_SEGMENT: Final = ".log"


def draw_more_faults(
    random: Random, swarm: WholeSwarm, seconds: float, first_number: int
) -> list[PlannedFault]:
    plan: list[PlannedFault] = []
    if not swarm.more_faults:
        return plan
    at = random.expovariate(1 / _MEAN_SECONDS)
    while at < seconds:
        length = random.expovariate(1 / _LENGTH_SECONDS)
        plan.append(PlannedFault(first_number + len(plan), at, length, _draw(random, swarm)))
        at += length + random.expovariate(1 / _MEAN_SECONDS)
    return plan


def _draw(random: Random, swarm: WholeSwarm) -> Fault:
    match random.choice(swarm.more_faults):
        case "flip-bits":
            bits = random.randint(1, _MOST_BITS)
            return FlipBits(random.choice(swarm.brokers), bits, random.randrange(2**32))
        case "stray-write":
            return StrayWrite(random.choice(swarm.brokers), random.randrange(2**32))
        case _:
            return RemoveVoter(random.choice(swarm.controllers))


def damage_log(disk: MemoryDisk, fault: FlipBits | StrayWrite) -> str | None:
    """Do it to one of the segments that were written to last, of users' topics; what was done."""
    random = SeededRandom(fault.seed)
    paths = _active_segments(disk)
    if not paths:
        return None
    path = random.choice(paths)
    file = disk.open(path, write=True)
    places = []
    try:
        for _ in range(fault.count if isinstance(fault, FlipBits) else 1):
            draw = draw_flip if isinstance(fault, FlipBits) else draw_stray
            change = draw(file.pread(file.size(), 0), random)
            if change is not None:
                file.pwrite([change.data], change.position)
                places.append(change.position)
    finally:
        file.close()
    return f"{path} is wrong at {', '.join(map(str, places))}" if places else None


def _active_segments(disk: MemoryDisk) -> list[str]:
    """Those with anything in them. Where the log was rolled and nothing was appended since, there
    is none: the segment before is one that a node does not look at when it starts.
    """
    latest: dict[str, tuple[str, int]] = {}
    for path, inode in disk.image.files():
        directory, _, name = path.rpartition("/")
        topic = directory.rpartition("/")[2]
        if name.endswith(_SEGMENT) and not topic.startswith("__"):
            latest[directory] = max((path, inode.seen.size), latest.get(directory, ("", 0)))
    return [path for path, size in latest.values() if size]


class Voters:
    """Asked by a client of the cluster, as an administrator does."""

    def __init__(
        self, world: World, servers: Sequence[Address], controllers: dict[int, Address]
    ) -> None:
        self._world = world
        self._servers = list(servers)
        self._controllers = controllers

    async def remove(self, node: int) -> bool:
        """Whether the quorum has taken it; nobody knows if it has not answered.

        Asked some times: after its upgrade the quorum has to learn the voters' directories.
        """
        async with open_admin(self._world, self._servers, _settings()) as admin:
            changes = self._changes(admin)
            for _ in range(_ATTEMPTS):
                try:
                    await changes.use_dynamic_voters()
                    await changes.remove(node, self._controllers)
                except (KafkaError, ConnectionError):
                    await trio.sleep(_AGAIN_SECONDS)
                else:
                    return True
        return False

    async def bring_back(self, node: int) -> None:
        """As soon as the quorum lets it."""
        async with open_admin(self._world, self._servers, _settings()) as admin:
            changes = self._changes(admin)
            while True:
                try:
                    if node in await changes.voters():
                        return
                    await changes.add(node, self._controllers)
                except (KafkaError, ConnectionError):
                    await trio.sleep(_AGAIN_SECONDS)

    def _changes(self, admin: Admin) -> VoterChanges:
        client = _settings().client
        return VoterChanges(self._world, admin, client, timeout_ms=_TIMEOUT_MS)


def _settings() -> AdminSettings:
    client = ClientSettings(
        client_id="voters",
        request_timeout_ms=_TIMEOUT_MS,
        socket_connection_setup_timeout_ms=_TIMEOUT_MS,
    )
    return AdminSettings(client=client, default_api_timeout_ms=_TIMEOUT_MS)
