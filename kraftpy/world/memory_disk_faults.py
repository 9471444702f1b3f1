"""Faults of a running memory disk: their names, when they strike, and where they may do damage.

The names are the project's one language of faults (`name` of each class); a power loss is not here,
it is `MemoryDisk.crash` with a CrashPolicy.

- `disk-read-error`: a read fails with EIO.
- `disk-write-error`: a write fails with ENOSPC or EIO after a random part of it was written.
- `disk-sync-error`: a sync fails with EIO; what it should have covered is lost, and the next sync
  succeeds all the same.
- `disk-bit-rot`: a read finds one bit flipped, and so does every later one, also after a crash,
  until the byte is written again.
- `disk-misdirected-write`: a write is acknowledged, but its bytes land somewhere else.
- `disk-slow`, `disk-stall`: awaited calls take long; a stall holds up the whole disk.
- `disk-cold`: bytes are not in the page cache, so that their readers must wait for them.

A fault strikes calls whose path matches `paths` (a glob in which `*` also matches `/`): the first
`after` of them are spared, then each is struck with `probability`, at most `count` times.

Rot and misdirected writes are permanent. So that a scenario stays recoverable, the FaultAtlas knows
all damage on all disks and refuses what would leave too few clean replicas of anything.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import ClassVar, TypeVar, cast

from kraftpy.world.invariants import assert_always

__all__ = [
    "BitRot",
    "ColdCache",
    "Damage",
    "DiskFault",
    "DiskFaults",
    "DiskStall",
    "FaultAtlas",
    "InjectedFault",
    "MisdirectedWrite",
    "ReadError",
    "SlowDisk",
    "SyncError",
    "WriteError",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFault:
    name: ClassVar[str]

    paths: str = "*"
    probability: float = 1.0
    after: int = 0
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadError(DiskFault):
    name = "disk-read-error"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteError(DiskFault):
    name = "disk-write-error"

    error: int = errno.ENOSPC


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncError(DiskFault):
    """`reverted`: reading shows the lost bytes' old state at once, as some file systems have it,
    and not the new one until power is lost, as others have it.
    """

    name = "disk-sync-error"

    reverted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BitRot(DiskFault):
    name = "disk-bit-rot"


@dataclass(frozen=True, slots=True, kw_only=True)
class MisdirectedWrite(DiskFault):
    name = "disk-misdirected-write"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDisk(DiskFault):
    """Each call takes `least_seconds` and an exponentially distributed time more."""

    name = "disk-slow"

    least_seconds: float = 0.0
    mean_more_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskStall(DiskFault):
    """From the call that it strikes on, no call ends before `seconds` have passed."""

    name = "disk-stall"

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdCache(DiskFault):
    """`resident` answers False; with a probability below one, lest nobody ever gets warm."""

    name = "disk-cold"


_Fault = TypeVar("_Fault", bound=DiskFault)


class InjectedFault:
    """A fault at work: how often calls matched, and how often it struck."""

    __slots__ = ("fault", "seen", "struck")

    def __init__(self, fault: DiskFault) -> None:
        assert_always(0 <= fault.probability <= 1, "fault-probability", fault=fault)
        self.fault = fault
        self.seen = 0
        self.struck = 0


class FaultHold:
    """While it is on, nothing strikes the disks that share it, and nothing is counted."""

    __slots__ = ("is_on",)

    def __init__(self) -> None:
        self.is_on = False


class DiskFaults:
    """The faults at work on one disk."""

    __slots__ = ("_injected", "_random", "hold")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._injected: list[InjectedFault] = []
        self.hold = FaultHold()

    def inject(self, fault: DiskFault) -> InjectedFault:
        injected = InjectedFault(fault)
        self._injected.append(injected)
        return injected

    def heal(self, injected: InjectedFault | None = None) -> None:
        """End one fault, or all of them."""
        self._injected = (
            [] if injected is None else [f for f in self._injected if f is not injected]
        )

    def aimed(self, kind: type[DiskFault], path: str) -> InjectedFault | None:
        """The first fault of this kind that is about to strike a call on `path`.

        Whoever then can do the damage counts it in `struck`.
        """
        for injected in () if self.hold.is_on else self._injected:
            fault = injected.fault
            if not isinstance(fault, kind) or not fnmatchcase(path, fault.paths):
                continue
            injected.seen += 1
            if injected.seen <= fault.after or injected.struck == fault.count:
                continue
            if fault.probability == 1 or self._random.random() < fault.probability:
                return injected
        return None

    def strike(self, kind: type[_Fault], path: str) -> _Fault | None:
        """The fault of this kind that strikes this call on `path`, if one does."""
        injected = self.aimed(kind, path)
        if injected is None:
            return None
        injected.struck += 1
        return cast("_Fault", injected.fault)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes `start` to `end` of something that several disks hold."""

    key: str
    start: int
    end: int


class FaultAtlas:
    """Where permanent damage is, on all disks of a scenario.

    `clean_replicas` of everything stay clean. `unit_bytes` is the length of the longest thing that
    one wrong byte destroys as a whole (a batch): damages closer than that count as one place.
    `locate` says what is kept at a path and range, and None where damage is always allowed since
    the bytes can be derived again. As files of the same path need not have the same content on
    every disk, `locate` may answer in other terms than paths and positions, as long as they are
    the same ones on every disk.
    """

    __slots__ = ("_clean_replicas", "_damages", "_locate", "_replicas_of", "_unit_bytes")

    def __init__(
        self,
        *,
        clean_replicas: int,
        replicas_of: Callable[[str], Sequence[str]],
        unit_bytes: int = 1,
        locate: Callable[[str, int, int], Damage | None] = Damage,
    ) -> None:
        """`replicas_of` gives the names of the disks that hold a key."""
        self._clean_replicas = clean_replicas
        self._replicas_of = replicas_of
        self._unit_bytes = unit_bytes
        self._locate = locate
        self._damages: dict[str, list[Damage]] = {}

    def claim(self, disk: str, *places: tuple[str, int, int]) -> bool:
        """Enter damage to all of these (path, start, end) of a disk, or refuse all."""
        damages = [damage for place in places if (damage := self._locate(*place)) is not None]
        if not all(self._leaves_enough(disk, damage) for damage in damages):
            return False
        self._damages.setdefault(disk, []).extend(damages)
        return True

    def _leaves_enough(self, disk: str, damage: Damage) -> bool:
        replicas = self._replicas_of(damage.key)
        start, end = damage.start - self._unit_bytes + 1, damage.end + self._unit_bytes - 1
        damaged = [
            replica
            for replica in replicas
            if replica == disk
            or any(
                other.key == damage.key and other.start < end and start < other.end
                for other in self._damages.get(replica, ())
            )
        ]
        return len(replicas) - len(damaged) >= self._clean_replicas

    def damages(self, disk: str) -> list[Damage]:
        return list(self._damages.get(disk, ()))

    def forget(self, disk: str) -> None:
        """The disk was replaced, or all of it written anew."""
        self._damages.pop(disk, None)
