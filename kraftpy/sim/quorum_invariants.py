"""The invariants 1 to 7 of the quorum, checked after every event, from outside.

The checker keeps its own truth: who was seen to lead which epoch, who promised what, which batch
was seen at which (offset, epoch), what was ever committed. Every check costs the same however long
the run is, because it compares what has just changed with that truth:

- Log matching by induction: a batch is known by (base offset, epoch) together with the epoch of the
  batch before it. Where two logs agree on one such entry they agree on everything before.
- Committed data: the leader's high watermark writes the truth, which is never rewritten; everybody
  else's is compared with it.

A violation names the invariant by a fixed code, so that a shrunk run can be told to fail alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple, Protocol

from kraftpy.raft.election_state import NO_LEADER, ElectionState
from kraftpy.raft.log_state import Batch, SnapshotId
from kraftpy.raft.memory_storage import LogImage, MemoryStorage
from kraftpy.raft.quorum import Quorum
from kraftpy.raft.roles import Leader
from kraftpy.raft.voters import ReplicaKey, VoterSet

__all__ = ["InvariantViolated", "QuorumInvariants", "Replica"]


class InvariantViolated(Exception):  # noqa: N818 (it names what happened)
    """The quorum did something that it must never do."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code


class Replica(Protocol):
    """One disk of a node, and under which name it takes part."""

    @property
    def key(self) -> ReplicaKey: ...

    @property
    def storage(self) -> MemoryStorage: ...


class _Seen(NamedTuple):
    """A batch as it was first seen, anywhere."""

    data: bytes
    end_offset: int
    previous_epoch: int


class QuorumInvariants:
    __slots__ = (
        "_announced_watermarks",
        "_committed",
        "_committed_data",
        "_committing_voters",
        "_leaders",
        "_newest_leader",
        "_seen",
        "_snapshots",
        "_votes",
        "checked_steps",
        "committed_end",
        "majority_is_due",
    )

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._seen: dict[tuple[int, int], _Seen] = {}
        # The committed log, by base offset: epochs, and what the leader had there.
        self._committed: dict[int, int] = {}
        self._committed_data: dict[int, bytes] = {}
        self._announced_watermarks: dict[int, int] = {}
        self._snapshots: dict[SnapshotId, bytes] = {}
        self._newest_leader: tuple[int, int] = (-1, -1)
        self.committed_end = 0
        # Steps of cores after which everything was checked: what a run's length is measured in.
        self.checked_steps = 0
        # The set whose majority committed last, in the leader's eyes.
        self._committing_voters = VoterSet()
        # Something has changed that the majority's logs have to be looked at for.
        self.majority_is_due = False

    # 1 and 2: elections.

    def check_election(self, quorum: Quorum) -> None:
        """At most one leader for each epoch, ever, and nobody names another one."""
        election = quorum.election
        leader_id = election.leader_id
        if leader_id == NO_LEADER:
            return
        known = self._leaders.setdefault(election.epoch, leader_id)
        if known != leader_id:
            raise InvariantViolated(
                "single-leader",
                f"epoch {election.epoch}: {leader_id} named by {quorum.local.node_id}, was {known}",
            )

    def check_promise(self, key: ReplicaKey, old: ElectionState, new: ElectionState) -> None:
        """A promise never goes back: the epoch does not fall, vote and leader are set once."""
        same_epoch = new.epoch == old.epoch
        if (
            new.epoch < old.epoch
            or (same_epoch and old.voted not in (None, new.voted))
            or (same_epoch and old.leader_id not in (NO_LEADER, new.leader_id))
        ):
            raise InvariantViolated("promise-kept", f"{key}: from {old} to {new}")

    def check_said(self, key: ReplicaKey, said: ElectionState, durable: ElectionState) -> None:
        """Nothing leaves a node before the promise it shows is on disk."""
        if said.epoch < durable.epoch:
            return
        kept = (
            said.epoch == durable.epoch
            and said.voted in (None, durable.voted)
            and said.leader_id in (NO_LEADER, durable.leader_id)
        )
        if not kept:
            raise InvariantViolated("promise-durable", f"{key} said {said}, durable is {durable}")

    def check_stored(self, key: ReplicaKey, memory: ElectionState, stored: ElectionState) -> None:
        """What a node believes of its promise is what it has had written."""
        if memory is not stored and memory != stored:
            raise InvariantViolated("promise-stored", f"{key}: {memory}, stored {stored}")

    def check_vote(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        """A granted vote that left its node: the only one of its epoch, restarts or not."""
        known = self._votes.setdefault((voter, epoch), candidate)
        if known != candidate:
            raise InvariantViolated(
                "one-vote", f"{voter} voted for {known} and {candidate} in epoch {epoch}"
            )

    # 4: logs.

    def check_append(self, log: LogImage, batches: tuple[Batch, ...]) -> None:
        """Log matching, for batches just appended.

        A leader's own batches come here when they are durable, a follower's at once: what neither
        left its node nor reached the disk never was.
        """
        position = log.position(batches[0].base_offset)
        if position == len(log.batches) or log.batches[position] is not batches[0]:
            return
        if position > 0:
            previous_epoch = log.batches[position - 1].epoch
        else:
            at_start = [each for each in log.snapshots if each.end_offset == log.start_offset]
            previous_epoch = at_start[0].epoch if at_start else 0
        for batch in batches:
            place = (batch.base_offset, batch.epoch)
            known = self._seen.get(place)
            if known is None:
                self._seen[place] = _Seen(batch.data, batch.end_offset, previous_epoch)
            elif known != (batch.data, batch.end_offset, previous_epoch):
                raise InvariantViolated(
                    "log-matching",
                    f"offset {batch.base_offset} epoch {batch.epoch}: two batches, or two pasts",
                )
            previous_epoch = batch.epoch

    def check_snapshot(self, snapshot_id: SnapshotId, data: bytes) -> None:
        """A snapshot's name determines its content, on all nodes."""
        if self._snapshots.setdefault(snapshot_id, data) != data:
            raise InvariantViolated("snapshot-content", f"{snapshot_id} has two contents")

    # 3, 4 and 5: what is committed.

    def check_watermark(self, quorum: Quorum, log: LogImage, old: int, new: int) -> None:
        """A high watermark moved on a node: the leader writes the truth, the others confirm it."""
        # It may have resigned in the same step, because it committed its own removal.
        leads = quorum.election.leader_id == quorum.local.node_id
        if new < old:
            raise InvariantViolated("watermark-falls", f"from {old} to {new}")
        if not leads and new > self.committed_end:
            raise InvariantViolated(
                "watermark-invented", f"{quorum.local} at {new}, committed {self.committed_end}"
            )
        committed = self._committed
        passed = log.batches[log.position(old) : log.position(new)]
        # Most of them are known, above all after a restart, when the whole log is passed again.
        news = [batch for batch in passed if committed.get(batch.base_offset) != batch.epoch]
        for batch in news:
            known = committed.get(batch.base_offset)
            if known is None and leads:
                committed[batch.base_offset] = batch.epoch
                self._committed_data[batch.base_offset] = batch.data
            else:
                raise InvariantViolated(
                    "committed-changed",
                    f"offset {batch.base_offset}: epoch {batch.epoch}, committed was {known}",
                )
        if new > self.committed_end:
            self.committed_end = new
            self._committing_voters = quorum.voters.latest
            self.majority_is_due = True

    def check_leader_watermark(self, quorum: Quorum, role: Leader) -> None:
        """An epoch's leader commits a record of its own first, and never takes anything back."""
        known = role.high_watermark
        if known is None:
            return
        if known <= role.epoch_start_offset:
            raise InvariantViolated(
                "own-epoch-first",
                f"epoch {quorum.epoch} begins at {role.epoch_start_offset}, committed {known}",
            )
        epoch = quorum.election.epoch
        announced = self._announced_watermarks.get(epoch, -1)
        if known < announced:
            raise InvariantViolated(
                "watermark-falls", f"epoch {epoch}: from {announced} to {known}"
            )
        self._announced_watermarks[epoch] = known

    def check_majority(self, replicas: Mapping[int, Replica]) -> None:
        """A majority of the voters has everything that is committed, on disk.

        `replicas` are what the node ids stand for by now.
        """
        self.majority_is_due = False
        voters = self._committing_voters
        if len(voters) == 0:
            return
        holding = 0
        for voter in voters.voters:
            replica = replicas.get(voter.key.node_id)
            if replica is None or not voter.key.stands_for(replica.key):
                continue
            if self.holds_committed(replica.storage.durable):
                holding += 1
        if holding < voters.majority:
            raise InvariantViolated(
                "majority-holds",
                f"{holding} of {voters!r} have everything below {self.committed_end}",
            )

    def holds_committed(self, log: LogImage) -> bool:
        """Whether a log reaches the committed end and agrees there; the rest is log matching."""
        end = self.committed_end
        if log.start_offset >= end:
            return True
        if log.end_offset < end:
            return False
        batch = log.batches[log.position(end) - 1]
        return self._committed.get(batch.base_offset) == batch.epoch

    def committed_batch(self, base_offset: int) -> bytes:
        """The committed batch that begins here."""
        return self._committed_data[base_offset]

    def check_new_leader(self, quorum: Quorum, log: LogImage) -> None:
        """Leader completeness: whoever is elected has everything that was ever committed."""
        epoch = quorum.election.epoch
        node_id = quorum.local.node_id
        if (epoch, node_id) == self._newest_leader:
            return
        newest = epoch > self._newest_leader[0]
        if newest:
            self._newest_leader = (epoch, node_id)
        if newest and not self.holds_committed(log):
            raise InvariantViolated(
                "leader-completeness",
                f"{node_id} leads epoch {epoch} with end {log.end_offset},"
                f" committed {self.committed_end}",
            )

    @property
    def leader_count(self) -> int:
        """How many epochs had a leader."""
        return len(self._leaders)

    def check_deadline(self, key: ReplicaKey, deadline_ms: int, now_ms: int) -> None:
        """Nothing is due for a core that was just polled: a past deadline would make it spin."""
        if deadline_ms <= now_ms:
            raise InvariantViolated("idle-deadline", f"{key}: {deadline_ms} at {now_ms}")

    # 5 and 6: snapshots. 7: voters.

    def check_install(self, quorum: Quorum) -> None:
        if isinstance(quorum.role, Leader):
            raise InvariantViolated("leader-loads-snapshot", f"{quorum.local}")

    def check_log_start(self, log: LogImage) -> None:
        """A log begins at 0 or where its earliest snapshot ends, with the right epoch."""
        start = log.start_offset
        if start == 0:
            return
        earliest = min((each for each in log.snapshots if each.end_offset), default=None)
        if earliest is None or earliest.end_offset != start:
            raise InvariantViolated("snapshot-at-start", f"log {start}, snapshot {earliest}")
        if log.batches:
            first = log.batches[0]
            seen = self._seen.get((first.base_offset, first.epoch))
            follows = seen is None or seen.previous_epoch == earliest.epoch
            if first.base_offset != start or not follows:
                raise InvariantViolated(
                    "snapshot-epoch", f"{earliest} before a batch that follows {seen}"
                )

    def check_voters(self, quorum: Quorum) -> None:
        """One voter changes at a time, and only one such change is uncommitted."""
        entries = quorum.voters.entries()
        open_changes = 0
        for (_, older), (offset, newer) in pairwise(entries):
            old_keys = {voter.key for voter in older.voters}
            new_keys = {voter.key for voter in newer.voters}
            # Configured voters stay the same ones when their directories come into the log.
            is_same = older.ids == newer.ids and all(
                older.contains(voter.key) for voter in newer.voters
            )
            if old_keys and not is_same and len(old_keys ^ new_keys) > 1:
                raise InvariantViolated("voters-step", f"from {older} to {newer} at {offset}")
            if old_keys != new_keys and offset >= self.committed_end:
                open_changes += 1
        if open_changes > 1:
            raise InvariantViolated("one-voter-change", f"{quorum.local}: {entries}")
