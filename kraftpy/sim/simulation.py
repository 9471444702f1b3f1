"""The simulated universe of one run: the network, the machines, and the record of what happens.

A machine is what outlives its processes: a name in the network, a clock, a disk. `world` starts a
process on it and returns what that process sees. `kill` and `vanish` end it: from then on its World
is a ghost's, whose calls have no effect, and whoever runs its tasks cancels them. The next `world`
of that name is a new process on the same machine.

Every segment that arrives and every effect on a disk is recorded by itself; answers and whatever
else shall tell one run from another are given to `record`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kraftpy.sim.buggify import Buggify
from kraftpy.sim.digest import EventDigest
from kraftpy.world import World
from kraftpy.world.alarms import TRIO_TIME, TrueTime
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_effects import Effect, Write
from kraftpy.world.memory_network import MemoryFabric
from kraftpy.world.memory_rng import MemoryRng
from kraftpy.world.memory_stream import Segment

__all__ = ["Machine", "Simulation"]


@dataclass(slots=True)
class Machine:
    name: str
    clock: MemoryClock
    disk: MemoryDisk
    process_count: int = 0


class Simulation:
    """Given to the main function of `run_simulation`."""

    __slots__ = (
        "_digest",
        "_machines",
        "buggify",
        "fabric",
        "on_delivery",
        "rng",
        "seed",
        "true_time",
    )

    def __init__(self, seed: int, digest: EventDigest, true_time: TrueTime = TRIO_TIME) -> None:
        self.seed = seed
        self.true_time = true_time
        # For the simulation's own choices: faults, workload, weather.
        self.rng = MemoryRng(seed, "simulation")
        self.fabric = MemoryFabric(
            MemoryRng(seed, "network"), observer=self._arrived, true_time=true_time
        )
        # Called with the way (`source>target`) on which a host is about to get bytes.
        self.on_delivery: Callable[[str], None] | None = None
        self._digest = digest
        self._machines: dict[str, Machine] = {}
        self.buggify = Buggify(MemoryRng(seed, "buggify"))

    def record(self, kind: str, place: str, data: bytes = b"") -> None:
        self._digest.record(self.true_time.now, kind, place, data)

    def _arrived(self, kind: str, place: str, data: bytes) -> None:
        self._digest.record(self.true_time.now, kind, place, data)
        if kind is Segment.DATA and self.on_delivery is not None:
            self.on_delivery(place)

    def machine(self, name: str, clock: MemoryClock | None = None) -> Machine:
        """The machine of that name; a new one gets this clock."""
        machine = self._machines.get(name)
        if machine is None:
            clock = clock or MemoryClock(true_time=self.true_time)
            random = MemoryRng(self.seed, f"machine {name}").stream("disk")
            disk = MemoryDisk(name=name, clock=clock, random=random)
            disk.observe(self._disk_observer(name))
            machine = self._machines[name] = Machine(name, clock, disk)
        return machine

    def world(self, name: str, *, buggify: bool = False) -> World:
        """Start a process on a machine."""
        machine = self.machine(name)
        machine.process_count += 1
        rng = MemoryRng(self.seed, f"process {name} {machine.process_count}")
        network = self.fabric.host(name)
        if buggify:
            return World(machine.clock, rng, network, machine.disk, self.buggify)
        return World(machine.clock, rng, network, machine.disk)

    # How processes end and stop. Links fail through `fabric`, disks through `machine(...).disk`.

    def kill(self, name: str) -> None:
        """End the process; its kernel lives on, so unsynced data stays."""
        self.fabric.kill(name)
        self._end_process(name, CrashPolicy.KEEP_ALL)

    def vanish(self, name: str, policy: CrashPolicy) -> None:
        """Cut the machine's power; `policy` says what becomes of unsynced data."""
        self.fabric.vanish(name)
        self._end_process(name, policy)

    def _end_process(self, name: str, policy: CrashPolicy) -> None:
        machine = self._machines[name]
        machine.disk.crash(policy, self.rng.stream(f"crash {name}"))
        machine.clock.resume()

    def pause(self, name: str) -> None:
        """Stop the process: it gets neither bytes nor wake-ups until `resume`."""
        self.fabric.pause(name)
        self._machines[name].clock.pause()

    def resume(self, name: str) -> None:
        self.fabric.resume(name)
        self._machines[name].clock.resume()

    def _disk_observer(self, name: str) -> Callable[[Effect], None]:
        record = self.record

        def observe(effect: Effect) -> None:
            if isinstance(effect, Write):
                record("write", f"{name}:{effect.path}@{effect.position}", effect.data)
            else:
                record("disk", name, repr(effect).encode())

        return observe
