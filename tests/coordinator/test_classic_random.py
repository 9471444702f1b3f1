"""A classic group under everything that can happen to it, by many seeds.

Clients join, sync, send heartbeats, leave, crash and come back, some of them static; appends fail,
commits are late, the coordinator moves. What must hold at every step:

- Every request is answered exactly once; at most one waits for each client.
- All members of a generation get the assignment of the same leader, made for that generation.
- A client never goes back to an older generation under the same id.
- The group's own counts are right.

And at the end, when nothing fails any more, all clients who are there are in one generation.
"""

from __future__ import annotations

from random import Random

import pytest
from coordinator.classic_kit import ClassicRig, Member
from coordinator.shard_kit import Waiting

from kraftpy.coordinator.groups.classic_group import ClassicGroup, ClassicState
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.outcome import CoordinatorError
from kraftpy.protocol.errors import ErrorCode

STEPS = 250
GIVES_UP_ITS_ID = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
)


class Client:
    """Does what a consumer does, one request at a time."""

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.name = name
        self.random = run.random
        self.is_static = run.random.random() < 0.4
        self.member = self._process()
        self.waits_for = ""
        self.assignment: bytes | None = None
        self.is_up = True

    def _process(self) -> Member:
        names = ["range", "sticky"] if self.random.random() < 0.5 else ["sticky", "range"]
        return self.run.rig.member(
            instance_id=self.name if self.is_static else None,
            client_id=self.name,
            protocols=[(name, b"") for name in names],
            version=self.random.choice((3, 5, 9)) if not self.is_static else 9,
            session_ms=10_000,
            rebalance_ms=20_000,
        )

    def act(self) -> None:
        """Look at the answer, if there is one, and go on."""
        if not self.is_up:
            if self.random.random() < 0.2:
                self.is_up = True
                self.member = self._process()
            return
        if self.waits_for == "join":
            self._joined(self.member.joining)
        elif self.waits_for == "sync":
            self._synced(self.member.syncing)
        elif self.assignment is None:
            self._join()
        else:
            self._live()

    def _join(self) -> None:
        self.assignment = None
        self.waits_for = "join"
        self.run.watch(self.member.join())

    def _joined(self, waiting: Waiting) -> None:
        if not waiting.is_answered:
            return
        self.waits_for = ""
        answer = waiting.replies[0]
        code = answer.code if isinstance(answer, CoordinatorError) else answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member.member_id = answer.member_id
        elif code in GIVES_UP_ITS_ID:
            self._reset()
        elif code == 0:
            self.run.note_generation(self.member.member_id, answer.generation_id)
            self.member.member_id = answer.member_id
            self.member.generation = answer.generation_id
            assignments = {}
            if answer.leader == answer.member_id and not answer.skip_assignment:
                tag = f"{answer.generation_id} by {answer.leader} {self.run.next_number()}"
                assignments = {each.member_id: tag.encode() for each in answer.members}
            self.waits_for = "sync"
            self.run.watch(self.member.sync(assignments))

    def _synced(self, waiting: Waiting) -> None:
        if not waiting.is_answered:
            return
        self.waits_for = ""
        answer = waiting.replies[0]
        if isinstance(answer, CoordinatorError):
            self._refused(answer.code)
        else:
            self.assignment = answer.assignment
            self.run.note_assignment(self.member.generation, answer.assignment)

    def _live(self) -> None:
        chance = self.random.random()
        if chance < 0.04:
            self.run.watch(self.member.leave())
            self._reset()
        elif chance < 0.08:
            self._crash()
        elif chance < 0.12:
            self._join()
        else:
            waiting = self.member.heartbeat()
            self.run.watch(waiting)
            if waiting.is_answered and isinstance(waiting.replies[0], CoordinatorError):
                self._refused(waiting.replies[0].code)

    def _crash(self) -> None:
        self.is_up = False
        self.waits_for = ""
        self.assignment = None

    def _refused(self, code: ErrorCode) -> None:
        self.assignment = None
        if code in GIVES_UP_ITS_ID or code == ErrorCode.ILLEGAL_GENERATION:
            self._reset()

    def _reset(self) -> None:
        self.assignment = None
        self.member.member_id = ""
        self.member.generation = -1


class Run:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = GroupSettings(initial_rebalance_delay_ms=500, max_size=4)
        self.rig = ClassicRig(settings, seed=seed)
        self.waiting: list[Waiting] = []
        self.assignments: dict[int, bytes] = {}
        self.generations: dict[str, int] = {}
        self._number = 0
        self.clients = [Client(self, f"c{number}") for number in range(5)]

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def watch(self, waiting: Waiting) -> None:
        self.waiting.append(waiting)

    def note_generation(self, member_id: str, generation: int) -> None:
        if member_id:
            assert self.generations.get(member_id, 0) <= generation
            self.generations[member_id] = generation

    def note_assignment(self, generation: int, assignment: bytes) -> None:
        """One leader's for all; one who was not there when it was made has none."""
        if assignment:
            assert assignment.decode().startswith(f"{generation} by ")
            assert self.assignments.setdefault(generation, assignment) == assignment

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.03:
            self.rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        elif chance < 0.06:
            self.rig.commits_at_once = not self.rig.commits_at_once
        elif chance < 0.1:
            self.rig.commit()
        elif chance < 0.12:
            self.move()
        elif chance < 0.3:
            self.rig.advance(self.random.choice((50, 500, 3000, 12_000)))
        else:
            self.random.choice(self.clients).act()
        self.check()

    def move(self) -> None:
        """What the next coordinator does not know of, may come again under the same number."""
        self.rig.move()
        self.assignments.clear()
        self.generations.clear()

    def check(self) -> None:
        for waiting in self.waiting:
            assert len(waiting.replies) <= 1
        self.waiting = [each for each in self.waiting if not each.is_answered]
        group = self.rig.machine.directory.get("g")
        if isinstance(group, ClassicGroup):
            check_group(group)

    def settle(self) -> None:
        """Nothing fails any more, and nobody leaves."""
        self.rig.log.failures.clear()
        self.rig.commits_at_once = True
        self.rig.commit()
        for client in self.clients[4:]:
            client._crash()
        for _ in range(80):
            self.rig.advance(1000)
            for client in self.clients[:4]:
                client.is_up = True
                if client.assignment is not None and client.waits_for == "":
                    waiting = client.member.heartbeat()
                    if isinstance(waiting.replies[0], CoordinatorError):
                        client._refused(waiting.replies[0].code)
                else:
                    client.act()
            self.check()


def check_group(group: ClassicGroup) -> None:
    members = list(group.members.values())
    assert group.joining_count == sum(member.is_joining for member in members)
    assert (group.leader_id is None) == (not members)
    assert group.leader_id is None or group.leader_id in group.members
    assert all(member.member_id == member_id for member_id, member in group.members.items())
    assert group.static_members == {
        member.instance_id: member.member_id for member in members if member.instance_id
    }
    if group.state is not ClassicState.PREPARING:
        assert group.is_empty == (not members)
    counts: dict[str, int] = {}
    for member in members:
        for name, _ in member.protocols:
            counts[name] = counts.get(name, 0) + 1
    assert group._supporters == counts
    assert not (group.pending_members & set(group.members))
    if group.state is not ClassicState.COMPLETING:
        assert not any(member.sync_reply for member in members)
    if group.state in (ClassicState.COMPLETING, ClassicState.STABLE):
        assert set(group.pending_sync) <= set(group.members)


@pytest.mark.parametrize("seed", range(40))
def test_everything_at_once(seed: int) -> None:
    """GRP-16, GRP-25, GRP-32, GRP-35, GRP-42, GRP-86"""
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
    run.settle()
    assert not run.waiting
    group = run.rig.group()
    assert group.state is ClassicState.STABLE
    live = run.clients[:4]
    assert {client.member.generation for client in live} == {group.generation}
    assert sorted(group.members) == sorted(client.member.member_id for client in live)
    assert {client.assignment for client in live} == {run.assignments[group.generation]}
