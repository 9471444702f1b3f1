"""Changes that an administrator makes at a bad moment: they are no faults, but a cluster that is
ill must bear them, and one that is well must not lose anything by them.

They are asked of the cluster by its protocol, and refused by it when it can't. `heal` does not undo
them; it only brings back nodes and voters that were taken away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

__all__ = [
    "AddVoter",
    "AdministrativeFault",
    "CancelReassignments",
    "ChangeConfig",
    "Decommission",
    "ElectLeaders",
    "Hijack",
    "Reassign",
    "RecreateTopic",
    "RemoveVoter",
]


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Every partition is to be led by the first of its replicas, where that one is in sync."""

    name: ClassVar[str] = "elect-leaders"


@dataclass(frozen=True, slots=True)
class Reassign:
    """The partition moves to these replicas, of which the first is to lead."""

    name: ClassVar[str] = "reassign"
    topic: str
    partition: int
    replicas: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.replicas or len(set(self.replicas)) < len(self.replicas):
            raise ValueError(f"{self.replicas} can't be the replicas of a partition")


@dataclass(frozen=True, slots=True)
class CancelReassignments:
    """Partitions that are on their way go back to where they were."""

    name: ClassVar[str] = "cancel-reassignments"


@dataclass(frozen=True, slots=True)
class RecreateTopic:
    """The topic is deleted, and made again under the same name, with as many partitions."""

    name: ClassVar[str] = "recreate-topic"
    topic: str


@dataclass(frozen=True, slots=True)
class ChangeConfig:
    """A key of the topic gets this value; without one, what it is by default."""

    name: ClassVar[str] = "change-config"
    topic: str
    key: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Decommission:
    """The node's replicas move to others, it stops, and the cluster forgets it.

    `heal` brings it back with an empty disk, under the same id and with another directory.
    """

    name: ClassVar[str] = "decommission"
    node: int


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """The controller on this node votes no more; it goes on as an observer."""

    name: ClassVar[str] = "remove-voter"
    node: int


@dataclass(frozen=True, slots=True)
class AddVoter:
    """The controller on this node, an observer so far, votes."""

    name: ClassVar[str] = "add-voter"
    node: int


@dataclass(frozen=True, slots=True)
class Hijack:
    """Somebody else initialises a transactional id that is in use: its owner is fenced."""

    name: ClassVar[str] = "hijack"
    transactional_id: str


AdministrativeFault: TypeAlias = (
    ElectLeaders
    | Reassign
    | CancelReassignments
    | RecreateTopic
    | ChangeConfig
    | Decommission
    | RemoveVoter
    | AddVoter
    | Hijack
)
