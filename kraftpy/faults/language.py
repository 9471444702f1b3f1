"""What can go wrong, in one set of names with one meaning everywhere (decision 15).

A fault is a value: a name and parameters. Its text is `name key=value ...`, as in

    kill node=2
    partition a=1,2 b=3
    one-way senders=1 receivers=2,3
    fail-next api=Produce error=NOT_LEADER_OR_FOLLOWER times=2 node=1

and `parse_fault(format_fault(fault)) == fault`. The text is what journals and reports show, and
what is sent to the process of a node. A fault that makes no sense can't be made: ValueError says
what is wrong with it.

Faults last until `heal`, unless their nature is to happen once (kill, restart, fail-next,
torn-write, reset). What befalls the files of a node that does not run (wipe, flip-bits, cut-tail)
stays: it is for its replicas to make that good. `administration` has the changes that are no
faults by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar, Final, TypeAlias

from kraftpy.faults.administration import (
    AddVoter,
    AdministrativeFault,
    CancelReassignments,
    ChangeConfig,
    Decommission,
    ElectLeaders,
    Hijack,
    Reassign,
    RecreateTopic,
    RemoveVoter,
)
from kraftpy.faults.inside import (
    DISK_OPERATIONS,
    POWER_POLICIES,
    SLOW_OPERATIONS,
    ClockFault,
    ClockJump,
    ClockStrobe,
    CutTail,
    DiskError,
    DiskFault,
    DiskFull,
    FailNext,
    FileFault,
    FlipBits,
    NodeFault,
    PowerLoss,
    SlowDisk,
    StrayWrite,
    TornWrite,
    Wipe,
    api_key_of,
)

__all__ = [
    "DISK_OPERATIONS",
    "FAULTS",
    "HELD_DIRECTIONS",
    "POWER_POLICIES",
    "SLOW_OPERATIONS",
    "AddVoter",
    "AdministrativeFault",
    "BusyMachine",
    "CancelReassignments",
    "ChangeConfig",
    "ClockFault",
    "ClockJump",
    "ClockStrobe",
    "CutClients",
    "CutTail",
    "Decommission",
    "Delay",
    "DiskError",
    "DiskFault",
    "DiskFull",
    "ElectLeaders",
    "FailNext",
    "Fault",
    "FileFault",
    "FlipBits",
    "Heal",
    "Hijack",
    "Hold",
    "Kill",
    "LinkFault",
    "NoDescriptors",
    "NodeFault",
    "Nodes",
    "OneWay",
    "Partition",
    "Pause",
    "PowerLoss",
    "ProcessFault",
    "Reassign",
    "RecreateTopic",
    "RemoveVoter",
    "Reset",
    "Restart",
    "Resume",
    "RollingRestart",
    "SlowDisk",
    "Stop",
    "StrayWrite",
    "SwitchVersion",
    "TornWrite",
    "Wipe",
    "api_key_of",
    "format_fault",
    "parse_fault",
]

Nodes: TypeAlias = tuple[int, ...]
HELD_DIRECTIONS: Final = ("request", "response")


@dataclass(frozen=True, slots=True)
class Kill:
    """The process ends at once, as in a crash; what it had written stays."""

    name: ClassVar[str] = "kill"
    node: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The node ends in good order."""

    name: ClassVar[str] = "stop"
    node: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The node is stopped in good order if it runs, and started."""

    name: ClassVar[str] = "restart"
    node: int


@dataclass(frozen=True, slots=True)
class Pause:
    """The node hangs: its connections stay, and nothing is answered."""

    name: ClassVar[str] = "pause"
    node: int


@dataclass(frozen=True, slots=True)
class Resume:
    """A paused node goes on where it was."""

    name: ClassVar[str] = "resume"
    node: int


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """These nodes are restarted in good order, one after the other."""

    name: ClassVar[str] = "rolling-restart"
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class SwitchVersion:
    """The node is stopped in good order, and goes on as the other version of the software; if it
    is that already, as the usual one.
    """

    name: ClassVar[str] = "switch-version"
    node: int


@dataclass(frozen=True, slots=True)
class NoDescriptors:
    """The node can open no further file and take no further connection."""

    name: ClassVar[str] = "no-descriptors"
    node: int


@dataclass(frozen=True, slots=True)
class BusyMachine:
    """So many processes beside the nodes want all the processors' time."""

    name: ClassVar[str] = "busy-machine"
    processes: int = 1

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise ValueError(f"{self.processes} processes keep nobody busy")


@dataclass(frozen=True, slots=True)
class Partition:
    """Nothing passes between a node of `a` and one of `b`, in either direction.

    What is sent meanwhile arrives after `heal`, as TCP sees to it.
    """

    name: ClassVar[str] = "partition"
    a: Nodes
    b: Nodes

    def __post_init__(self) -> None:
        _check_sides(self.a, self.b)


@dataclass(frozen=True, slots=True)
class OneWay:
    """What `senders` send does not reach `receivers`; the other direction is whole."""

    name: ClassVar[str] = "one-way"
    senders: Nodes
    receivers: Nodes

    def __post_init__(self) -> None:
        _check_sides(self.senders, self.receivers)


@dataclass(frozen=True, slots=True)
class Delay:
    """Everything between `a` and `b` arrives so much later, in both directions; order is kept."""

    name: ClassVar[str] = "delay"
    a: Nodes
    b: Nodes
    milliseconds: int

    def __post_init__(self) -> None:
        _check_sides(self.a, self.b)
        if self.milliseconds < 0:
            raise ValueError(f"nothing arrives {-self.milliseconds} ms before it is sent")


@dataclass(frozen=True, slots=True)
class CutClients:
    """Nothing passes between these nodes and clients; between nodes it does."""

    name: ClassVar[str] = "cut-clients"
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class Reset:
    """All connections between `a` and `b` are reset, once."""

    name: ClassVar[str] = "reset"
    a: Nodes
    b: Nodes

    def __post_init__(self) -> None:
        _check_sides(self.a, self.b)


@dataclass(frozen=True, slots=True)
class Hold:
    """The next messages of this kind stop on their way: `times` requests to `node`, or responses
    of it, and with them what follows on the same connection. They arrive after `milliseconds`, or
    for 0 after `heal`, also if their sender has hung up meanwhile.
    """

    name: ClassVar[str] = "hold"
    node: int
    api: str
    direction: str = "request"
    times: int = 1
    milliseconds: int = 0

    def __post_init__(self) -> None:
        api_key_of(self.api)
        if self.direction not in HELD_DIRECTIONS:
            raise ValueError(f"{self.direction!r} is none of {', '.join(HELD_DIRECTIONS)}")
        if self.times < 1 or self.milliseconds < 0:
            raise ValueError(f"{self.times} times, {self.milliseconds} ms is never")


@dataclass(frozen=True, slots=True)
class Heal:
    """All is well again: links, disks and requests, and every node runs."""

    name: ClassVar[str] = "heal"


ProcessFault: TypeAlias = (
    Kill
    | Stop
    | Restart
    | Pause
    | Resume
    | RollingRestart
    | SwitchVersion
    | NoDescriptors
    | BusyMachine
)
LinkFault: TypeAlias = Partition | OneWay | Delay | CutClients | Reset | Hold
Fault: TypeAlias = ProcessFault | LinkFault | NodeFault | FileFault | AdministrativeFault | Heal

_CLASSES: Final[tuple[type[Fault], ...]] = (
    *(Kill, Stop, Restart, Pause, Resume, RollingRestart, SwitchVersion),
    *(NoDescriptors, BusyMachine),
    *(Partition, OneWay, Delay, CutClients, Reset, Hold),
    *(FailNext, DiskFull, DiskError, TornWrite, SlowDisk, PowerLoss),
    *(ClockJump, ClockStrobe, Wipe, FlipBits, CutTail, StrayWrite),
    *(ElectLeaders, Reassign, CancelReassignments, RecreateTopic, ChangeConfig),
    *(Decommission, RemoveVoter, AddVoter, Hijack, Heal),
)
FAULTS: Final[Mapping[str, type[Fault]]] = {each.name: each for each in _CLASSES}
"""Every fault, by its name."""


def format_fault(fault: Fault) -> str:
    """One line; parameters that have their defaults are left out."""
    words = [fault.name]
    for each in fields(fault):
        value = getattr(fault, each.name)
        if each.default is MISSING or value != each.default:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words.append(f"{each.name}={text}")
    return " ".join(words)


def parse_fault(text: str) -> Fault:
    """Raises ValueError, which says what is wrong."""
    name, *words = text.split() or [""]
    fault_class = FAULTS.get(name)
    if fault_class is None:
        raise ValueError(f"{name!r} is no fault; there are {', '.join(FAULTS)}")
    known: dict[str, Field[Any]] = {each.name: each for each in fields(fault_class)}
    values: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in known or not equals:
            raise ValueError(f"{name} has no parameter {word!r}; it has {', '.join(known)}")
        if key in values:
            raise ValueError(f"{key} is given twice: {text!r}")
        try:
            values[key] = _READERS[str(known[key].type)](value)
        except ValueError:
            raise ValueError(f"{value!r} is no {key} of {name}") from None
    missing = [key for key, each in known.items() if each.default is MISSING and key not in values]
    if missing:
        raise ValueError(f"{name} needs {', '.join(missing)}")
    return fault_class(**values)


def _check_sides(a: Nodes, b: Nodes) -> None:
    if not a or not b:
        raise ValueError("both sides need a node")
    if both := sorted(set(a) & set(b)):
        raise ValueError(f"node {both[0]} can't be on both sides")


def _nodes(text: str) -> Nodes:
    return tuple(int(each) for each in text.split(","))


# By the annotation of the field.
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "int": int,
    "int | None": int,
    "str": str,
    "Nodes": _nodes,
    "tuple[int, ...]": _nodes,
}
