"""The invariants 17 to 23 as far as groups have a part in them, checked at every answer and event.

Answers are checked when the coordinator gives them, not when they arrive: then real time is on the
checker's side, and "before" means before. What a client asked with is noted when it asks.

- What is answered is committed: an offset, an assignment, a member epoch.
- A generation has one assignment, in which nobody has what another one has; generations grow.
- A commit of an older generation fails once a newer one is known to its members.
- A read finds the newest commit that was confirmed when it was asked for, or a later one.
- Nobody answers for a partition after hearing that another broker leads it.
- Two members that are in a group never consume one partition at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kraftpy.coordinator.groups.classic_group import ClassicGroup, ClassicState
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_member import ConsumerMember
from kraftpy.coordinator.groups.group import Group
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.shard import Shard, ShardState
from kraftpy.sim.coordinator_broker import CoordinatorBroker
from kraftpy.sim.coordinator_partition import Reign, SimulatedPartition
from kraftpy.sim.coordinator_truth import GroupTruth, OffsetKey, tag_of
from kraftpy.sim.quorum_invariants import InvariantViolated

__all__ = ["GroupRules", "Invocation", "check_groups", "claim", "state_of"]

_TOPIC = "t"
# Of the checks of a shard, with which everything is looked at, changed or not.
_EVERYTHING_EVERY = 20


@dataclass(frozen=True, slots=True)
class Invocation:
    """What was known when a client asked."""

    member: tuple[str, str]
    was_member: bool
    stable_generation: int
    floors: dict[OffsetKey, int]


@dataclass(slots=True)
class _Generation:
    tag: str
    pieces: dict[str, tuple[int, ...]] = field(default_factory=dict)


class _ConsumerGroupState(NamedTuple):
    """Everything that `_check_consumer_group` looks at; members are never changed in place."""

    members: list[tuple[str, ConsumerMember]]
    holders: dict[Any, str]
    topic_readers: dict[str, int]
    epoch: int
    assignment_epoch: int


class GroupRules:
    """Of the groups of one partition."""

    def __init__(self, partition: SimulatedPartition) -> None:
        self.partition = partition
        self.truth = GroupTruth(self._stopped)
        self._generations: dict[tuple[str, int], _Generation] = {}
        self._stable: dict[str, int] = {}
        # Of confirmed commits, the last position.
        self._floors: dict[OffsetKey, int] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        # Who consumes what, as the clients see it.
        self._owners: dict[OffsetKey, dict[str, None]] = {}
        # What was found in order last: of a group, and of the offsets.
        self._checked_groups: dict[str, _ConsumerGroupState] = {}
        self._checked_offsets: tuple[GroupMachine, int, int] | None = None
        self._checks = 0
        self.commits = self.reads = self.assignments = 0

    def invoked(self, group_id: str, member_id: str) -> Invocation:
        member = (group_id, member_id)
        return Invocation(
            member,
            member in self.truth.members,
            self._stable.get(group_id, -1),
            dict(self._floors),
        )

    # Answers.

    def answers(self, broker: CoordinatorBroker) -> None:
        """Somebody is told something that is no error."""
        heard = broker.heard.get(self.partition)
        claim(
            heard is not None and heard.broker_id == broker.broker_id,
            "answered-after-resigning",
            f"{self.partition} by {broker.broker_id}",
        )

    def assigned(self, group_id: str, generation: int, who: str, assignment: bytes) -> None:
        """A member of the classic protocol gets its assignment."""
        if not assignment:
            return
        self.assignments += 1
        tag = tag_of(assignment)
        claim(tag in self.truth.tags, "assignment-not-committed", tag)
        known = self._generations.get((group_id, generation))
        if known is None:
            claim(
                generation > self._stable.get(group_id, -1),
                "generation-used-again",
                f"{group_id} {generation}",
            )
            known = self._generations[group_id, generation] = _Generation(tag)
            self._stable[group_id] = generation
        claim(known.tag == tag, "two-assignments", f"{group_id} {generation}: {known.tag}, {tag}")
        piece = tuple(int(each) for each in bytes(assignment).partition(b"|")[2].split())
        for other, taken in known.pieces.items():
            is_apart = other == who or not any(each in taken for each in piece)
            claim(is_apart, "assigned-twice", f"{group_id} {generation}: {other}, {who}: {piece}")
        known.pieces[who] = piece

    def committed(
        self, key: OffsetKey, commit_id: str, generation: int | None, asked: Invocation
    ) -> None:
        """An offset is confirmed; a member of the classic protocol has a generation."""
        self.commits += 1
        position = self.truth.positions.get(commit_id)
        claim(position is not None, "commit-not-committed", commit_id)
        if generation is not None:
            claim(
                generation >= asked.stable_generation,
                "zombie-commit",
                f"{commit_id} of generation {generation}, after {asked.stable_generation}",
            )
        else:
            is_member = asked.was_member or asked.member in self.truth.members
            claim(is_member, "commit-of-a-stranger", commit_id)
        self._floors[key] = max(self._floors.get(key, -1), position or 0)

    def read(
        self, broker: CoordinatorBroker, key: OffsetKey, commit_id: str, asked: Invocation
    ) -> None:
        self.reads += 1
        position = self.truth.positions.get(commit_id) if commit_id else -1
        claim(position is not None, "read-not-committed", f"{key}: {commit_id}")
        reign = broker.leads(self.partition)
        if reign is not None and reign.is_current:
            floor = asked.floors.get(key, -1)
            is_new = position is not None and position >= floor
            claim(is_new, "commit-lost", f"{key}: {commit_id} at {position}, not {floor}")

    def told_epoch(self, group_id: str, member_id: str, epoch: int) -> None:
        """A member of the consumer protocol is told that it is in an epoch."""
        known = self.truth.member_epochs.get((group_id, member_id), -1)
        claim(epoch <= known, "epoch-not-committed", f"{member_id} {epoch}, {known}")

    # Ownership.

    def owns(self, group_id: str, partition: int, member_id: str) -> None:
        owners = self._owners.setdefault((group_id, partition), {})
        owners[member_id] = None
        members = self.truth.members
        present = [each for each in owners if (group_id, each) in members]
        claim(len(present) <= 1, "consumed-twice", f"{group_id} {partition}: {present}")

    def gives_up(self, group_id: str, partition: int, member_id: str) -> None:
        self._owners.get((group_id, partition), {}).pop(member_id, None)

    def _stopped(self, group_id: str, member_id: str) -> None:
        """Expelled: what it still consumes is nobody else's fault."""
        for (group, _), owners in self._owners.items():
            if group == group_id:
                owners.pop(member_id, None)

    # State.

    def check_shard(self, shard: Shard[GroupMachine]) -> None:
        if shard.state is not ShardState.ACTIVE:
            return
        machine = shard.machine
        self._checks += 1
        for group in machine.directory.all():
            if isinstance(group, ConsumerGroup):
                self._check_consumer_group(group)
            else:
                _check_group(group)
        reign = shard.log
        is_current = isinstance(reign, Reign) and reign.is_current
        if is_current and shard.timeline.last_committed == self.truth.end:
            # Neither the truth nor the table changes unless something is written or committed.
            state = (machine, shard.timeline.last_written, self.truth.end)
            if state != self._checked_offsets or self._is_everything_due:
                self._check_offsets(machine)
                self._checked_offsets = state

    @property
    def _is_everything_due(self) -> bool:
        return self._checks % _EVERYTHING_EVERY == 0

    def _check_consumer_group(self, group: ConsumerGroup) -> None:
        """Unless everything that the check looks at is what it was when it was looked at last."""
        state = _ConsumerGroupState(
            list(group.members.items()),
            dict(group.holders.items()),
            dict(group.topic_readers.items()),
            group.epoch.value,
            group.assignment_epoch.value,
        )
        is_new = state != self._checked_groups.get(group.group_id)
        if is_new or self._is_everything_due:
            _check_consumer_group(group)
            self._checked_groups[group.group_id] = state

    def _check_offsets(self, machine: GroupMachine) -> None:
        """Invariant 23."""
        committed = machine.offsets.state.committed
        for (group_id, index), stored in self.truth.offsets.items():
            found = committed.committed_get(group_id, (_TOPIC, index))
            if found is None or found.record_offset != stored.position:
                claim(False, "offset-differs", f"{group_id} {index}: {found}, not {stored}")
        for group in machine.directory.all():
            for (_, index), found in committed.committed_of_group(group.group_id):
                if (group.group_id, index) not in self.truth.offsets:
                    claim(False, "offset-too-many", f"{group.group_id} {index}: {found}")


def check_groups(machine: GroupMachine) -> None:
    """What holds for the state of every group, at any moment."""
    for group in machine.directory.all():
        _check_group(group)


def _check_group(group: Group) -> None:
    if isinstance(group, ConsumerGroup):
        _check_consumer_group(group)
    elif isinstance(group, ClassicGroup):
        _check_classic_group(group)


def _check_consumer_group(group: ConsumerGroup) -> None:
    holders: dict[Any, str] = {}
    readers: dict[str, int] = {}
    for member_id, member in group.members.items():
        for key in member.current.partitions():
            if key in holders:
                claim(False, "held-twice", key)
            holders[key] = member_id
        for name in member.profile.topic_names:
            readers[name] = readers.get(name, 0) + 1
        claim(member.current.member_epoch <= group.epoch.value, "member-ahead", member_id)
    claim(dict(group.holders.items()) == holders, "holders-differ", group.group_id)
    claim(dict(group.topic_readers.items()) == readers, "readers-differ", group.group_id)
    claim(group.assignment_epoch.value <= group.epoch.value, "assignment-ahead", group.group_id)


def _check_classic_group(group: ClassicGroup) -> None:
    members = group.members
    joining = 0
    waits = False
    static: dict[str, str] = {}
    for member in members.values():
        if member.is_joining:
            joining += 1
        if member.sync_reply:
            waits = True
        if member.instance_id:
            static[member.instance_id] = member.member_id
    claim(group.joining_count == joining, "joining-miscounted", group.group_id)
    claim((group.leader_id is None) == (not members), "no-leader", group.group_id)
    claim(group.leader_id is None or group.leader_id in members, "leader-gone", group.group_id)
    claim(group.static_members == static, "static-members-differ", group.group_id)
    if group.state is not ClassicState.COMPLETING:
        claim(not waits, "sync-forgotten", group.group_id)


def state_of(machine: GroupMachine) -> dict[str, object]:
    """What a coordinator that loads the same log must come to."""
    found: dict[str, object] = {}
    for group in machine.directory.all():
        offsets = machine.offsets.state
        found[f"offsets of {group.group_id}"] = (
            sorted(offsets.committed.of_group(group.group_id)),
            sorted(offsets.partitions_of(group.group_id)),
        )
        if isinstance(group, ConsumerGroup):
            found[f"consumer group {group.group_id}"] = (
                group.epoch.value,
                group.assignment_epoch.value,
                dict(sorted(group.members.items())),
                dict(sorted((key, value) for key, value in group.targets.items() if value)),
                dict(sorted(group.holders.items())),
                dict(sorted(group.static_members.items())),
                dict(sorted(group.topic_readers.items())),
                group.classic_count.value,
            )
    return found


def claim(condition: bool, code: str, what: object) -> None:
    if not condition:
        raise InvariantViolated(code, str(what))
