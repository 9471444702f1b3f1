"""Faults inside of a node: its answers, its disk, its clock and its files.

Imported from `language`, where the rest of the words are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.registry import API

__all__ = [
    "DISK_OPERATIONS",
    "POWER_POLICIES",
    "SLOW_OPERATIONS",
    "ClockFault",
    "ClockJump",
    "ClockStrobe",
    "CutTail",
    "DiskError",
    "DiskFault",
    "DiskFull",
    "FailNext",
    "FileFault",
    "FlipBits",
    "NodeFault",
    "PowerLoss",
    "SlowDisk",
    "StrayWrite",
    "TornWrite",
    "Wipe",
    "api_key_of",
]

DISK_OPERATIONS: Final = ("read", "write", "sync")
SLOW_OPERATIONS: Final = ("read", "sync")
"""Those that a node waits for. A write goes into the system's memory."""
POWER_POLICIES: Final = (
    *("drop-all", "keep-all", "prefix", "subset", "torn-last", "size-first", "dir-lag"),
)
"""What of the unsynced effects reaches the medium: those of `kraftpy.world.memory_disk_crash`."""


@dataclass(frozen=True, slots=True)
class FailNext:
    """The next requests of this kind from clients are answered with an error, and not carried
    out: `times` of them on `node`, or for None on each broker.
    """

    name: ClassVar[str] = "fail-next"
    api: str
    error: str
    times: int = 1
    node: int | None = None

    def __post_init__(self) -> None:
        api_key_of(self.api)
        if self.error not in ErrorCode.__members__ or self.error == "NONE":
            raise ValueError(f"{self.error!r} is no error of Kafka's protocol")
        if self.times < 1:
            raise ValueError(f"{self.times} times is never")


@dataclass(frozen=True, slots=True)
class DiskFull:
    """Nothing more fits on the node's disk: writing more, and making files, fails with ENOSPC."""

    name: ClassVar[str] = "disk-full"
    node: int


@dataclass(frozen=True, slots=True)
class DiskError:
    """The disk fails with EIO whenever it is asked to do that: read, write or sync."""

    name: ClassVar[str] = "disk-error"
    node: int
    operation: str = "write"

    def __post_init__(self) -> None:
        _check_operation(self.operation, DISK_OPERATIONS)


@dataclass(frozen=True, slots=True)
class TornWrite:
    """Of the next write only the first half reaches the disk, and the node is killed in it."""

    name: ClassVar[str] = "torn-write"
    node: int


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """Whatever the disk is asked to do of that kind takes so much longer."""

    name: ClassVar[str] = "slow-disk"
    node: int
    milliseconds: int
    operation: str = "sync"

    def __post_init__(self) -> None:
        _check_operation(self.operation, SLOW_OPERATIONS)
        if self.milliseconds < 1:
            raise ValueError(f"{self.milliseconds} ms are not slow")


@dataclass(frozen=True, slots=True)
class PowerLoss:
    """The node is killed, and what it had not synced is lost as the policy says."""

    name: ClassVar[str] = "power-loss"
    node: int
    policy: str = "drop-all"

    def __post_init__(self) -> None:
        if self.policy not in POWER_POLICIES:
            raise ValueError(f"{self.policy!r} is none of {', '.join(POWER_POLICIES)}")


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The node's wall clock moves by so much, back if negative, and goes on from there. Monotonic
    time does not move.
    """

    name: ClassVar[str] = "clock-jump"
    node: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class ClockStrobe:
    """The node's wall clock is ahead by so much for one period, right for the next, and so on."""

    name: ClassVar[str] = "clock-strobe"
    node: int
    milliseconds: int
    period_ms: int

    def __post_init__(self) -> None:
        if self.period_ms < 1:
            raise ValueError(f"a period of {self.period_ms} ms is none")


@dataclass(frozen=True, slots=True)
class Wipe:
    """All data of a node that does not run is gone; it starts with an empty disk."""

    name: ClassVar[str] = "wipe"
    node: int


@dataclass(frozen=True, slots=True)
class FlipBits:
    """Bits in the log files of a node that does not run are wrong: so many, drawn from `seed`."""

    name: ClassVar[str] = "flip-bits"
    node: int
    count: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"{self.count} bits are none")


@dataclass(frozen=True, slots=True)
class CutTail:
    """The last bytes of a log file of a node that does not run are missing. Which file is drawn
    from `seed`.
    """

    name: ClassVar[str] = "cut-tail"
    node: int
    count: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"{self.count} bytes are none")


@dataclass(frozen=True, slots=True)
class StrayWrite:
    """A part of a log file of a node that does not run stands at another place of it, over what
    was there. Which part and where is drawn from `seed`.
    """

    name: ClassVar[str] = "stray-write"
    node: int
    seed: int = 0


DiskFault: TypeAlias = DiskFull | DiskError | TornWrite | SlowDisk | PowerLoss
ClockFault: TypeAlias = ClockJump | ClockStrobe
NodeFault: TypeAlias = FailNext | DiskFault | ClockFault
"""What a node has to be told."""
FileFault: TypeAlias = Wipe | FlipBits | CutTail | StrayWrite
"""What befalls a node that does not run."""


def api_key_of(name: str) -> int:
    """Raises ValueError for a name that no API has."""
    for key, spec in API.items():
        if spec.name == name:
            return key
    raise ValueError(f"{name!r} is no API of Kafka's protocol (they are spelled as in 'Produce')")


def _check_operation(operation: str, known: tuple[str, ...]) -> None:
    if operation not in known:
        raise ValueError(f"{operation!r} is none of the disk's operations: {', '.join(known)}")
