"""What is under a memory disk's files and names: effects, time, power and faults.

MemoryDisk and MemoryFile turn calls into effects; this performs them, or lets a fault do something
else, and takes the time that it takes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from random import Random

import trio

from kraftpy.world.invariants import assert_always
from kraftpy.world.memory_disk_crash import CrashPolicy, survivors
from kraftpy.world.memory_disk_effects import (
    Effect,
    FailedSync,
    PowerLoss,
    Resize,
    Rot,
    Sync,
    UnsyncedEffect,
    Write,
)
from kraftpy.world.memory_disk_faults import (
    BitRot,
    ColdCache,
    DiskFault,
    DiskFaults,
    DiskStall,
    FaultAtlas,
    FaultHold,
    InjectedFault,
    MisdirectedWrite,
    ReadError,
    SlowDisk,
    SyncError,
    WriteError,
)
from kraftpy.world.memory_disk_image import DirectoryInode, FileInode, Image, disk_error
from kraftpy.world.ports import Clock

__all__ = ["Medium", "PowerLost"]

_MISDIRECTION_STEP_BYTES = 512


class PowerLost(OSError):  # noqa: N818 (it names what happened)
    """The disk was switched off under this call, or before it."""


class Medium:
    __slots__ = (
        "_atlas",
        "_clock",
        "_faults",
        "_observers",
        "_powered",
        "_random",
        "_stalled_until",
        "_waiting",
        "capacity_bytes",
        "image",
        "incarnation",
        "name",
    )

    def __init__(
        self,
        *,
        name: str = "disk",
        clock: Clock | None = None,
        random: Random | None = None,
        capacity_bytes: int | None = None,
        atlas: FaultAtlas | None = None,
        image: Image | None = None,
    ) -> None:
        """`name` is the disk's name in the atlas. `clock` is needed for times and for slowness,
        `random` is what faults draw from, `image` is what is on the disk already.
        """
        self.name = name
        self.capacity_bytes = capacity_bytes
        self.incarnation = 0
        self._clock = clock
        self._random = random or Random(0)
        self._atlas = atlas
        self.image = image or Image()
        self._faults = DiskFaults(self._random)
        self._observers: list[Callable[[Effect], None]] = []
        self._powered = True
        self._stalled_until = 0.0
        self._waiting: list[trio.CancelScope] = []

    # Effects: seen by observers, kept or lost by a crash.

    def observe(self, observer: Callable[[Effect], None]) -> None:
        """Call `observer` after each effect from now on."""
        self._observers.append(observer)

    def effects(self) -> list[UnsyncedEffect]:
        """Those that are not durable yet, in the order of issue."""
        return list(self.image.pending.values())

    def power_off(self) -> None:
        """Every handle and every call under way is dead, and so is every new one until `crash`."""
        self.incarnation += 1
        self._powered = False
        for scope in self._waiting:
            scope.cancel()

    def crash(self, policy: CrashPolicy, random: Random) -> None:
        """Lose power, keeping what the policy draws."""
        self.crash_keeping(survivors(policy, self.effects(), random))

    def crash_keeping(self, survivors: Iterable[UnsyncedEffect]) -> None:
        """Lose power, and be ready for the next incarnation with these effects on the medium.

        They are of `effects()`, whole or in part, and reach the medium in the order given.
        """
        self.power_off()
        self._stalled_until = 0.0
        self.perform(PowerLoss(self.image.next_effect_id, tuple(survivors)))
        self._powered = True

    def perform(self, effect: Effect) -> None:
        self.image.apply(effect)
        for observer in self._observers:
            observer(effect)

    def resize_file(self, inode: FileInode, path: str, size: int) -> None:
        self.perform(Resize(self.image.next_effect_id, inode.number, path, size))
        inode.modified_ms = self.wall_ms()

    def write_file(self, inode: FileInode, path: str, data: bytes, position: int) -> None:
        if position < 0:
            raise disk_error(errno.EINVAL, path)
        error = 0
        fault = self._faults.strike(WriteError, path)
        if fault is not None:
            data, error = data[: self._random.randrange(len(data))], fault.error
        if self.capacity_bytes is not None:
            growth = max(0, position + len(data) - len(inode.seen.data))
            excess = growth - max(0, self.capacity_bytes - self.image.used_bytes())
            if excess > 0:
                data, error = data[: max(0, len(data) - excess)], errno.ENOSPC
        if data and not self._misdirect(inode, path, data, position):
            self._write_at(inode, path, data, position)
        if error:
            raise disk_error(error, path)

    def _write_at(self, inode: FileInode, path: str, data: bytes, position: int) -> None:
        effect_id, size_before = self.image.next_effect_id, inode.seen.size
        self.perform(Write(effect_id, inode.number, path, position, data, size_before))
        inode.modified_ms = self.wall_ms()

    def read_file(self, inode: FileInode, path: str, length: int, position: int) -> bytes:
        if length < 0 or position < 0:
            raise disk_error(errno.EINVAL, path)
        if self._faults.strike(ReadError, path) is not None:
            raise disk_error(errno.EIO, path)
        self._let_rot(inode, path, length, position)
        return inode.seen.read(length, position)

    async def sync_inode(self, inode: FileInode | DirectoryInode, path: str) -> None:
        covers = self.image.next_effect_id - 1
        await self.reach_medium(path)
        fault = self._faults.strike(SyncError, path)
        effect_id = self.image.next_effect_id
        if fault is not None:
            self.perform(FailedSync(effect_id, inode.number, path, covers, fault.reverted))
            raise disk_error(errno.EIO, path)
        self.perform(Sync(effect_id, inode.number, path, covers))

    # Faults.

    def inject(self, fault: DiskFault) -> InjectedFault:
        """Let a fault strike from now on."""
        slow = isinstance(fault, SlowDisk | DiskStall)
        assert_always(self._clock is not None or not slow, "slow-disk-without-clock", fault=fault)
        return self._faults.inject(fault)

    def heal(self, injected: InjectedFault | None = None) -> None:
        """End one fault, or all of them; damage that was done stays."""
        self._faults.heal(injected)

    def share_hold(self, hold: FaultHold) -> None:
        """Let nothing strike those who look from outside, at many disks; not across an await."""
        self._faults.hold = hold

    def rot(self, path: str, position: int, mask: int) -> bool:
        """Flip the bits of `mask` in one byte of a file, unless the atlas refuses."""
        inode = self.image.find(path)
        if isinstance(inode, DirectoryInode):
            raise disk_error(errno.EISDIR, path)
        return self._rot(inode, path, position, mask)

    def _rot(self, inode: FileInode, path: str, position: int, mask: int) -> bool:
        if not self._may_damage((path, position, position + 1)):
            return False
        self.perform(Rot(self.image.next_effect_id, inode.number, path, position, mask))
        return True

    def _let_rot(self, inode: FileInode, path: str, length: int, position: int) -> None:
        end = min(position + length, len(inode.seen.data))
        injected = self._faults.aimed(BitRot, path)
        if injected is None or end <= position:
            return
        at, bit = self._random.randrange(position, end), self._random.randrange(8)
        injected.struck += self._rot(inode, path, at, 1 << bit)

    def _misdirect(self, inode: FileInode, path: str, data: bytes, position: int) -> bool:
        """Write into bytes of another file, or of the same, that are there already.

        The file grows as it should have; it has zeros where the bytes are missing.
        """
        injected = self._faults.aimed(MisdirectedWrite, path)
        if injected is None:
            return False
        victims = [(path, inode) for path, inode in self.image.files() if inode.seen.data]
        if not victims:
            return False
        victim_path, victim = self._random.choice(victims)
        room = len(victim.seen.data)
        target = self._random.randrange(0, room, _MISDIRECTION_STEP_BYTES)
        stray = data[: room - target]
        end = position + len(data)
        if (victim is inode and target == position) or not self._may_damage(
            (path, position, end), (victim_path, target, target + len(stray))
        ):
            return False
        injected.struck += 1
        if end > inode.seen.size:
            self.resize_file(inode, path, end)
        self._write_at(victim, victim_path, stray, target)
        return True

    def _may_damage(self, *places: tuple[str, int, int]) -> bool:
        return self._atlas is None or self._atlas.claim(self.name, *places)

    def is_cold(self, path: str) -> bool:
        return self._faults.strike(ColdCache, path) is not None

    # Time and power.

    def wall_ms(self) -> int:
        return 0 if self._clock is None else self._clock.wall_ms()

    def check_power(self, path: str) -> None:
        if not self._powered:
            raise PowerLost(errno.EIO, "power lost", path)

    async def reach_medium(self, path: str) -> None:
        """Take the time that an awaited call takes."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check_power(path)
        incarnation = self.incarnation
        until = self._until(path)
        if self._clock is None or until is None:
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            with trio.CancelScope(shield=True) as scope:
                self._waiting.append(scope)
                try:
                    await self._clock.sleep_until(until)
                finally:
                    self._waiting.remove(scope)
        if self.incarnation != incarnation:
            raise PowerLost(errno.EIO, "power lost", path)

    def _until(self, path: str) -> float | None:
        """When a call that begins now is through; None for at once."""
        if self._clock is None:
            return None
        now = self._clock.monotonic()
        until = now
        slow = self._faults.strike(SlowDisk, path)
        if slow is not None:
            until += slow.least_seconds
            if slow.mean_more_seconds:
                until += self._random.expovariate(1 / slow.mean_more_seconds)
        stall = self._faults.strike(DiskStall, path)
        if stall is not None:
            self._stalled_until = max(self._stalled_until, now + stall.seconds)
        until = max(until, self._stalled_until)
        return until if until > now else None
