"""The states of replicas and partitions, and the ways between them.

States are derived from records, so one record can move a replica over several states at once: what
removes a topic takes an online replica through Offline to DeletionStarted. A move is therefore
judged by its whole way, each step of which begins in a legal predecessor. A move without a way is
illegal: the machines log it and don't follow it.

Only the ways that records can take are ways. Others could be pieced together from legal steps
(DeletionStarted, DeletionIneligible, Online), but no record means them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeAlias

__all__ = [
    "PARTITION_PREDECESSORS",
    "PARTITION_WAYS",
    "REPLICA_PREDECESSORS",
    "REPLICA_WAYS",
    "PartitionState",
    "ReplicaState",
]


class ReplicaState(IntEnum):
    NEW = 1
    ONLINE = 2
    OFFLINE = 3
    DELETION_STARTED = 4
    DELETION_SUCCESSFUL = 5
    DELETION_INELIGIBLE = 6
    NON_EXISTENT = 7


class PartitionState(IntEnum):
    NEW = 0
    ONLINE = 1
    OFFLINE = 2
    NON_EXISTENT = 3


_NEW: Final = ReplicaState.NEW
_ONLINE: Final = ReplicaState.ONLINE
_OFFLINE: Final = ReplicaState.OFFLINE
_STARTED: Final = ReplicaState.DELETION_STARTED
_SUCCESSFUL: Final = ReplicaState.DELETION_SUCCESSFUL
_INELIGIBLE: Final = ReplicaState.DELETION_INELIGIBLE
_GONE: Final = ReplicaState.NON_EXISTENT

REPLICA_PREDECESSORS: Final[Mapping[ReplicaState, frozenset[ReplicaState]]] = {
    _NEW: frozenset({_GONE}),
    _ONLINE: frozenset({_NEW, _ONLINE, _OFFLINE, _INELIGIBLE}),
    _OFFLINE: frozenset({_NEW, _ONLINE, _OFFLINE, _INELIGIBLE}),
    _STARTED: frozenset({_OFFLINE}),
    _SUCCESSFUL: frozenset({_STARTED}),
    _INELIGIBLE: frozenset({_OFFLINE, _STARTED}),
    _GONE: frozenset({_SUCCESSFUL}),
}

PARTITION_PREDECESSORS: Final[Mapping[PartitionState, frozenset[PartitionState]]] = {
    PartitionState.NEW: frozenset({PartitionState.NON_EXISTENT}),
    PartitionState.ONLINE: frozenset(
        {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}
    ),
    PartitionState.OFFLINE: frozenset(
        {PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}
    ),
    PartitionState.NON_EXISTENT: frozenset({PartitionState.OFFLINE}),
}

ReplicaWay: TypeAlias = tuple[ReplicaState, ...]
PartitionWay: TypeAlias = tuple[PartitionState, ...]

# From a state to another: the states that follow, the last being the other one.
REPLICA_WAYS: Final[Mapping[tuple[ReplicaState, ReplicaState], ReplicaWay]] = {
    # A partition is made, or a replica added.
    (_GONE, _NEW): (_NEW,),
    (_GONE, _ONLINE): (_NEW, _ONLINE),
    (_GONE, _OFFLINE): (_NEW, _OFFLINE),
    # Brokers come and go, and new replicas catch up.
    (_NEW, _ONLINE): (_ONLINE,),
    (_NEW, _OFFLINE): (_OFFLINE,),
    (_ONLINE, _OFFLINE): (_OFFLINE,),
    (_OFFLINE, _ONLINE): (_ONLINE,),
    # A topic or a replica is removed, from a broker that is there or from one that isn't.
    (_NEW, _STARTED): (_OFFLINE, _STARTED),
    (_ONLINE, _STARTED): (_OFFLINE, _STARTED),
    (_OFFLINE, _STARTED): (_STARTED,),
    (_NEW, _INELIGIBLE): (_OFFLINE, _INELIGIBLE),
    (_ONLINE, _INELIGIBLE): (_OFFLINE, _INELIGIBLE),
    (_OFFLINE, _INELIGIBLE): (_INELIGIBLE,),
    # The broker goes before the files are gone, and comes back.
    (_STARTED, _INELIGIBLE): (_INELIGIBLE,),
    (_INELIGIBLE, _STARTED): (_OFFLINE, _STARTED),
    # The files are gone, or the broker is and nobody waits for it.
    (_STARTED, _GONE): (_SUCCESSFUL, _GONE),
    (_INELIGIBLE, _GONE): (_OFFLINE, _STARTED, _SUCCESSFUL, _GONE),
    (_OFFLINE, _GONE): (_STARTED, _SUCCESSFUL, _GONE),
    (_NEW, _GONE): (_OFFLINE, _STARTED, _SUCCESSFUL, _GONE),
    (_ONLINE, _GONE): (_OFFLINE, _STARTED, _SUCCESSFUL, _GONE),
}

PARTITION_WAYS: Final[Mapping[tuple[PartitionState, PartitionState], PartitionWay]] = {
    (PartitionState.NON_EXISTENT, PartitionState.NEW): (PartitionState.NEW,),
    (PartitionState.NON_EXISTENT, PartitionState.ONLINE): (
        PartitionState.NEW,
        PartitionState.ONLINE,
    ),
    # More than one record, as a snapshot has it: the leader was there and went.
    (PartitionState.NON_EXISTENT, PartitionState.OFFLINE): (
        PartitionState.NEW,
        PartitionState.OFFLINE,
    ),
    (PartitionState.NEW, PartitionState.ONLINE): (PartitionState.ONLINE,),
    (PartitionState.NEW, PartitionState.OFFLINE): (PartitionState.OFFLINE,),
    (PartitionState.ONLINE, PartitionState.ONLINE): (PartitionState.ONLINE,),
    (PartitionState.ONLINE, PartitionState.OFFLINE): (PartitionState.OFFLINE,),
    (PartitionState.OFFLINE, PartitionState.ONLINE): (PartitionState.ONLINE,),
    (PartitionState.OFFLINE, PartitionState.OFFLINE): (PartitionState.OFFLINE,),
    # A removed topic's partitions go both steps, so that what counts states stays exact.
    (PartitionState.NEW, PartitionState.NON_EXISTENT): (
        PartitionState.OFFLINE,
        PartitionState.NON_EXISTENT,
    ),
    (PartitionState.ONLINE, PartitionState.NON_EXISTENT): (
        PartitionState.OFFLINE,
        PartitionState.NON_EXISTENT,
    ),
    (PartitionState.OFFLINE, PartitionState.NON_EXISTENT): (PartitionState.NON_EXISTENT,),
}
