"""Invariant 9 and its kin: what no committed step of the metadata may do to partitions and brokers.

Every committed batch is judged by the images before and after it, which the checker has folded
itself. The rules are written from the specification and share nothing with the controller's code.

- One leader for each leader epoch of a partition, ever; epochs never fall, and rise with leaders
  and with the removal of a replica.
- The leader is in the ISR and is there: registered, unfenced, not shutting down.
- ISR and ELR are parts of the replicas with nothing in common; the ELR is empty when the ISR is
  large enough, and only who was in either can be in it. Without ELR the ISR is never empty.
- Whoever isn't there is in no ISR, but alone where there is no ELR: it waits to come back.
- A leader from outside of both is marked as recovering, and allowed only where somebody asked.
- A reassignment ends when all that it adds is in sync.
- Broker epochs grow; nobody serves before it has seen its own registration; whoever lost the end
  of its logs is in no ISR and no ELR until a leader has said otherwise.
- A replica counts as deleted when its broker has said so, or is registered no more.
"""

from __future__ import annotations

from typing import NamedTuple

from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.features import ELIGIBLE_LEADER_REPLICAS
from kraftpy.metadata.image import MetadataImage, TopicImage
from kraftpy.metadata.records import (
    NO_LEADER,
    RECOVERING,
    ConfigResourceType,
    PartitionRecord,
    RegisterBrokerRecord,
)
from kraftpy.protocol.ids import Uuid
from kraftpy.sim.quorum_invariants import InvariantViolated

__all__ = ["ClusterRules", "min_isr"]

_MIN_ISR = "min.insync.replicas"


def min_isr(image: MetadataImage, topic_name: str) -> int:
    """As it is set for a topic, or else for all."""
    own = image.config(ConfigResourceType.TOPIC, topic_name)
    everybody = image.config(ConfigResourceType.BROKER, "")
    return int(own.get(_MIN_ISR) or everybody.get(_MIN_ISR) or 1)


def _is_there(broker: RegisterBrokerRecord | None) -> bool:
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


class _Step(NamedTuple):
    """What a batch does to a partition; put into words only if that is against a rule."""

    topic_name: str
    before: PartitionRecord | None
    after: PartitionRecord

    def __str__(self) -> str:
        return f"{self.topic_name} from {self.before} to {self.after}"


class ClusterRules:
    __slots__ = (
        "_allows_unclean",
        "_leaders",
        "_newest_epochs",
        "deleted",
        "is_unclean",
        "reached",
        "registration_offsets",
    )

    def __init__(self, *, allows_unclean: bool) -> None:
        self._allows_unclean = allows_unclean
        self._leaders: dict[tuple[Uuid, int, int], int] = {}
        self._newest_epochs: dict[int, int] = {}
        # What the simulated brokers did: how far each process has replayed the log, which of
        # them came back without the end of their logs, and whose files they unlinked.
        self.reached: dict[tuple[int, Uuid], int] = {}
        self.is_unclean: dict[tuple[int, Uuid], bool] = {}
        self.deleted: dict[tuple[int, Uuid], None] = {}
        # Where each broker's present registration stands in the log.
        self.registration_offsets: dict[int, int] = {}

    def check(self, changes: ImageChanges) -> None:
        """One committed batch."""
        after = changes.after
        for change in changes.partitions():
            if change.after is not None:
                self._check_partition(changes, change.topic, change.before, change.after)
        has_left = False
        for broker in changes.brokers:
            self._check_broker(broker.key, broker.before, broker.after)
            has_left = has_left or not _is_there(broker.after)
            if broker.after is not None and broker.after.fenced:
                self._check_return(after, broker.before, broker.after)
        if has_left:
            for topic in after.topics.values():
                for partition in topic.partitions:
                    self._check_presence(after, topic, partition)
        for pending in changes.pending_deletions:
            kept = pending.after.replicas if pending.after is not None else ()
            for replica in pending.before.replicas if pending.before is not None else ():
                if replica in kept or replica.broker_id not in after.brokers:
                    continue
                if (replica.broker_id, pending.key) not in self.deleted:
                    self._fail("deletion-invented", after, f"{replica} of {pending.key.hex()}")

    def _fail(self, code: str, image: MetadataImage, details: object) -> None:
        raise InvariantViolated(code, f"offset {image.provenance.last_offset}: {details}")

    # Partitions.

    def _check_partition(
        self,
        changes: ImageChanges,
        topic: TopicImage,
        before: PartitionRecord | None,
        after: PartitionRecord,
    ) -> None:
        image = changes.after
        what = _Step(topic.name, before, after)
        key = (after.topic_id, after.partition_id, after.leader_epoch)
        if self._leaders.setdefault(key, after.leader) != after.leader:
            self._fail("leader-epoch", image, what)
        self._check_sets(image, topic, after, what)
        self._check_presence(image, topic, after)
        if before is None:
            return
        if (
            after.partition_epoch <= before.partition_epoch
            or after.leader_epoch < before.leader_epoch
        ):
            self._fail("epoch-falls", image, what)
        gone = [each for each in before.replicas if each not in after.replicas]
        if gone and after.leader_epoch == before.leader_epoch:
            self._fail("epoch-after-removal", image, what)
        had_everything = before.isr + before.eligible_leader_replicas
        if any(each not in had_everything for each in after.eligible_leader_replicas):
            self._fail("elr-invented", image, what)
        self._check_election(changes, topic, before, after, what)
        if not after.adding_replicas and not after.removing_replicas:
            self._check_move(image, before, after, what)

    def _check_sets(
        self, image: MetadataImage, topic: TopicImage, after: PartitionRecord, what: _Step
    ) -> None:
        isr, elr = after.isr, after.eligible_leader_replicas
        has_elr = bool(image.features.get(ELIGIBLE_LEADER_REPLICAS))
        for members in (after.replicas, isr, elr):
            if len(set(members)) != len(members):
                self._fail("member-twice", image, what)
        if any(each not in after.replicas for each in isr + elr):
            self._fail("outside-replicas", image, what)
        if any(each in isr for each in elr):
            self._fail("isr-and-elr", image, what)
        if after.leader != NO_LEADER and after.leader not in isr:
            self._fail("leader-outside-isr", image, what)
        if not isr and not has_elr:
            self._fail("empty-isr", image, what)
        if elr and not has_elr:
            self._fail("elr-without-feature", image, what)
        if elr and len(isr) >= min(min_isr(image, topic.name), len(after.replicas)):
            self._fail("elr-beside-isr", image, what)

    def _check_presence(
        self, image: MetadataImage, topic: TopicImage, partition: PartitionRecord
    ) -> None:
        brokers = image.brokers
        if partition.leader != NO_LEADER and not _is_there(brokers.get(partition.leader)):
            self._fail("leader-absent", image, f"{topic.name} {partition}")
        absent = [each for each in partition.isr if not _is_there(brokers.get(each))]
        may_wait = len(partition.isr) == 1 and not image.features.get(ELIGIBLE_LEADER_REPLICAS)
        if absent and not may_wait:
            self._fail("absent-in-isr", image, f"{topic.name} {partition}")

    def _check_election(
        self,
        changes: ImageChanges,
        topic: TopicImage,
        before: PartitionRecord,
        after: PartitionRecord,
        what: _Step,
    ) -> None:
        if after.leader in (NO_LEADER, before.leader):
            return
        if after.leader in before.isr + before.eligible_leader_replicas:
            return
        is_first = before.leader == NO_LEADER and before.leader_epoch == 0
        is_moved = bool(before.adding_replicas or before.removing_replicas)
        if is_first or is_moved:
            return
        if after.leader_recovery_state != RECOVERING or after.isr != (after.leader,):
            self._fail("unclean-unmarked", changes.after, what)
        is_last_known = before.last_known_elr == (after.leader,)
        if not self._allows_unclean and not is_last_known:
            self._fail("unclean-uncalled", changes.after, what)

    def _check_move(
        self, image: MetadataImage, before: PartitionRecord, after: PartitionRecord, what: _Step
    ) -> None:
        """A partition that isn't on the move, or no more: whoever has gone was replaced.

        A move that is cancelled takes away what it added, and needs nothing. One that begins and
        ends at once adds nothing, so that everybody who stays must be in sync.
        """
        gone = [each for each in before.replicas if each not in after.replicas]
        if all(each in before.adding_replicas for each in gone):
            return
        needed = after.replicas
        is_planned = sorted(gone) == sorted(before.removing_replicas)
        if is_planned and len(gone) <= len(before.adding_replicas):
            needed = before.adding_replicas
        in_sync = after.isr
        if after.leader_recovery_state == RECOVERING and after.leader != before.leader:
            # An unclean election follows the end of the move, and makes another ISR.
            in_sync += before.isr
        if any(each not in in_sync for each in needed):
            self._fail("move-ends-early", image, what)

    # Brokers.

    def _check_broker(
        self,
        broker_id: int,
        before: RegisterBrokerRecord | None,
        after: RegisterBrokerRecord | None,
    ) -> None:
        if after is None:
            return
        newest = self._newest_epochs.get(broker_id, -1)
        is_same = before is not None and before.incarnation_id == after.incarnation_id
        if after.broker_epoch < newest or (after.broker_epoch == newest and not is_same):
            raise InvariantViolated("broker-epoch-falls", f"{after} after {newest}")
        self._newest_epochs[broker_id] = after.broker_epoch
        if not after.fenced and (before is None or before.fenced):
            reached = self.reached.get((broker_id, after.incarnation_id), -1)
            if reached < self.registration_offsets[broker_id]:
                raise InvariantViolated("unfenced-too-early", f"{after} at {reached}")

    def _check_return(
        self,
        image: MetadataImage,
        before: RegisterBrokerRecord | None,
        after: RegisterBrokerRecord,
    ) -> None:
        """A new process without the end of its logs has nothing that anybody may count on."""
        if before is not None and before.incarnation_id == after.incarnation_id:
            return
        if not self.is_unclean[after.broker_id, after.incarnation_id]:
            return
        if not image.features.get(ELIGIBLE_LEADER_REPLICAS):
            return
        for topic in image.topics.values():
            for partition in topic.partitions:
                if after.broker_id in partition.isr + partition.eligible_leader_replicas:
                    self._fail("unclean-eligible", image, f"{topic.name} {partition}")
