"""How a partition may change: the one place that decides leaders, in-sync replicas and their kin.

Whoever wants something of a partition (an operator a new assignment, a leader another ISR, a broker
to go away) sets targets on a PartitionChangeBuilder. The builder adds what follows from them: the
end of a reassignment, the eligible leader replicas, an election, a new leader epoch. The result
is one record, or none if nothing differs.

Safety. Everything below the high watermark is on every member of the ISR, and, with the feature
eligible.leader.replicas.version (ELR), on every eligible leader replica as well: it left the ISR
when that was smaller than min.insync.replicas, and from then on the high watermark stood still. So
a leader of either kind loses nothing. Any other leader is unclean: it needs permission, and its log
becomes the truth: the ISR is that one broker, and the partition is marked as recovering.

Invariants of what a build leads to, if they held before: the leader is in the ISR, or there is
none; ISR and ELR are subsets of the replicas and have nothing in common; the ISR is empty only with
ELR: without it the last member stays, as the one that can come back with everything.

Candidates are tried in the order of the replicas, which is the operator's preference, never in that
of the ISR, which is accidental.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kraftpy.metadata.features import (
    DIRECTORIES_LEVEL,
    ELIGIBLE_LEADER_REPLICAS,
    ISR_SHRINK_KEEPS_EPOCH_LEVEL,
)
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import (
    DIRECTORY_UNASSIGNED,
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERING,
    RECOVERY_UNCHANGED,
    PartitionChangeRecord,
    PartitionRecord,
)
from kraftpy.protocol.ids import Uuid

__all__ = [
    "AcceptableLeader",
    "ChangeRules",
    "Election",
    "PartitionChangeBuilder",
    "default_directory",
]

# Whether a broker may lead a partition as far as its own state goes: alive, and its disk too.
AcceptableLeader: TypeAlias = Callable[[PartitionRecord, int], bool]


class Election(Enum):
    """How far an election may go."""

    # The leader stays while it can; otherwise the first that has everything.
    ONLINE = "online"
    # The first replica, if it has everything; otherwise as ONLINE.
    PREFERRED = "preferred"
    # As ONLINE; if nobody has everything, the first replica that is there.
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """What the cluster's feature levels make of changes; the same for all of one operation."""

    image: MetadataImage
    is_elr_enabled: bool
    is_epoch_raised_by_shrink: bool
    has_directories: bool

    @classmethod
    def of(cls, image: MetadataImage) -> ChangeRules:
        level = image.metadata_version
        return cls(
            image=image,
            is_elr_enabled=bool(image.features.get(ELIGIBLE_LEADER_REPLICAS)),
            is_epoch_raised_by_shrink=level < ISR_SHRINK_KEEPS_EPOCH_LEVEL,
            has_directories=level >= DIRECTORIES_LEVEL,
        )


def default_directory(image: MetadataImage, broker_id: int) -> Uuid:
    """Where a new replica will be: the broker's only directory, or not yet known."""
    broker = image.brokers.get(broker_id)
    if broker is not None and len(broker.log_dirs) == 1:
        return broker.log_dirs[0]
    return DIRECTORY_UNASSIGNED


class PartitionChangeBuilder:
    """One partition, and what shall become of it: set what is wanted, then build once.

    The targets start as what the partition has. `replicas` is everything, with those that are
    being added and removed.
    """

    __slots__ = (
        "_elr",
        "_is_acceptable",
        "_last_known_elr",
        "_min_isr",
        "_partition",
        "_rules",
        "adding",
        "assigned_directories",
        "election",
        "isr",
        "recovery_state",
        "removing",
        "replicas",
        "uncleanly_stopped",
    )

    def __init__(
        self,
        partition: PartitionRecord,
        rules: ChangeRules,
        is_acceptable: AcceptableLeader,
        min_isr: int,
        election: Election = Election.ONLINE,
    ) -> None:
        """`min_isr` is as configured, even if it is more than there are replicas."""
        self._partition = partition
        self._rules = rules
        self._is_acceptable = is_acceptable
        self._min_isr = min_isr
        self._last_known_elr = partition.last_known_elr
        self.election = election
        self.isr = partition.isr
        self._elr = partition.eligible_leader_replicas
        self.replicas = partition.replicas
        self.adding = partition.adding_replicas
        self.removing = partition.removing_replicas
        self.recovery_state = partition.leader_recovery_state
        # Brokers that lost their page cache: what they had may be gone, so they have nothing.
        self.uncleanly_stopped: Collection[int] = ()
        # Directories that brokers have put their replicas of this partition into.
        self.assigned_directories: dict[int, Uuid] = {}

    def build(self) -> PartitionChangeRecord | None:
        """The record that leads to the targets and what follows from them; None if no change."""
        partition = self._partition
        if self.adding or self.removing:
            self._finish_reassignment()
        self._choose_elr()
        leader = self._elect()
        self._note_last_leader(leader)
        isr = self.isr
        if not isr and not self._rules.is_elr_enabled:
            isr = partition.isr
        recovery_state = self.recovery_state
        is_reassigned = self.replicas != partition.replicas
        directories = None
        if (is_reassigned or self.assigned_directories) and self._rules.has_directories:
            directories = self._directories()
        record = PartitionChangeRecord(
            partition.partition_id,
            partition.topic_id,
            None if isr == partition.isr else isr,
            self._leader_to_write(leader, isr),
            self.replicas if is_reassigned else None,
            None if self.removing == partition.removing_replicas else self.removing,
            None if self.adding == partition.adding_replicas else self.adding,
            RECOVERY_UNCHANGED
            if recovery_state == partition.leader_recovery_state
            else recovery_state,
            directories,
            None if self._elr == partition.eligible_leader_replicas else self._elr,
            None if self._last_known_elr == partition.last_known_elr else self._last_known_elr,
        )
        return None if _changes_nothing(record) else record

    def _finish_reassignment(self) -> None:
        """If what is added has caught up, let what is removed go.

        If the partition is to have fewer replicas, all that remain must have caught up, so that
        it doesn't lose more copies than it was asked to.
        """
        removing, adding = self.removing, self.adding
        isr = tuple([replica for replica in self.isr if replica not in removing])
        if not isr or not all(replica in isr for replica in adding):
            return
        replicas = tuple([replica for replica in self.replicas if replica not in removing])
        if len(removing) > len(adding) and not all(replica in isr for replica in replicas):
            return
        self.isr, self.replicas = isr, replicas
        self.removing = self.adding = ()

    def _choose_elr(self) -> None:
        """Whoever leaves too small an ISR still has all that was ever acknowledged."""
        is_enabled = self._rules.is_elr_enabled
        isr, replicas = self.isr, self.replicas
        # A minimum above the number of replicas needs no care: with all in sync, none is left.
        if not is_enabled or len(isr) >= self._min_isr:
            self._elr = self._last_known_elr = ()
            return
        had_everything = self._partition.eligible_leader_replicas + self._partition.isr
        self._elr = tuple(
            [
                replica
                for replica in replicas
                if replica in had_everything
                and replica not in isr
                and replica not in self.uncleanly_stopped
            ]
        )

    def _elect(self) -> int:
        """Choose a leader, or NO_LEADER, and let ISR, ELR and recovery state fit the choice."""
        clean = self._clean_leader()
        if clean != NO_LEADER:
            if clean not in self.isr:
                self.isr = (clean,)
                self._elr = tuple([replica for replica in self._elr if replica != clean])
            return clean
        unclean = self._unclean_leader()
        if unclean != NO_LEADER:
            self.isr, self._elr = (unclean,), ()
            self.recovery_state = RECOVERING
        return unclean

    def _clean_leader(self) -> int:
        """The best of those that have everything, or NO_LEADER."""
        partition, is_acceptable = self._partition, self._is_acceptable
        candidates = self.isr or self._elr
        if self.election is Election.PREFERRED:
            preferred = self.replicas[0]
            if preferred in candidates and is_acceptable(partition, preferred):
                return preferred
        leader = partition.leader
        if leader in candidates and is_acceptable(partition, leader):
            return leader
        for replica in self.replicas:
            if replica in candidates and is_acceptable(partition, replica):
                return replica
        return NO_LEADER

    def _unclean_leader(self) -> int:
        """The last leader if nobody has everything, or, if permitted, anybody; or NO_LEADER.

        The last leader needs no permission: nobody can have more, and there is nobody to wait for.
        """
        partition, is_acceptable = self._partition, self._is_acceptable
        last_known = self._last_known_elr
        if len(last_known) == 1 and not self.isr and not self._elr:
            last_leader = last_known[0]
            if last_leader in self.replicas and is_acceptable(partition, last_leader):
                return last_leader
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if is_acceptable(partition, replica):
                    return replica
        return NO_LEADER

    def _note_last_leader(self, leader: int) -> None:
        if leader != NO_LEADER:
            self._last_known_elr = ()
        elif self._partition.leader != NO_LEADER and self._rules.is_elr_enabled and not self.isr:
            self._last_known_elr = (self._partition.leader,)

    def _leader_to_write(self, leader: int, isr: tuple[int, ...]) -> int:
        """The leader if there is to be a new leader epoch: to name it, even again, begins one.

        A replica that goes must not be able to go on fetching under the old epoch.
        """
        partition = self._partition
        if leader != partition.leader:
            return leader
        if self.replicas != partition.replicas and _is_smaller(self.replicas, partition.replicas):
            return leader
        if self._rules.is_epoch_raised_by_shrink and _is_smaller(isr, partition.isr):
            return leader
        return LEADER_UNCHANGED

    def _directories(self) -> tuple[Uuid, ...] | None:
        """The directory of each replica, or None if they are what they were."""
        partition, image = self._partition, self._rules.image
        directories = tuple(
            [
                self.assigned_directories.get(replica)
                or partition.directory_of(replica)
                or default_directory(image, replica)
                for replica in self.replicas
            ]
        )
        return None if directories == partition.directories else directories


def _is_smaller(after: tuple[int, ...], before: tuple[int, ...]) -> bool:
    """Whether something of `before` has gone."""
    return not all(replica in after for replica in before)


def _changes_nothing(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == LEADER_UNCHANGED
        and record.isr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == RECOVERY_UNCHANGED
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
