"""Invariants 1 to 7 of the quorum, by what complete nodes show.

A node is looked at now and then, and not at each step: what is compared must be true at any moment.
Whoever shows a committed batch first writes the truth; all others confirm it.

- 5: the leader of the newest epoch that anybody knows has what is committed. What a leader has ends
  with its own epoch, because it begins with a record of its own: it has loaded no snapshot.
- 6: a log begins at 0, or where its earliest snapshot ends, which is named by the epoch that the
  committed log has there.
- 7: of the changes of voters that a node knows, one at most is not committed.
"""

from __future__ import annotations

from kraftpy.log.errors import StorageError
from kraftpy.raft.driver import RaftDriver
from kraftpy.raft.log_state import LogState
from kraftpy.raft.quorum import Quorum
from kraftpy.raft.roles import Leader
from kraftpy.records.batch import RecordBatch
from kraftpy.sim.quorum_invariants import InvariantViolated, QuorumInvariants

__all__ = ["WholeQuorumRules"]


class WholeQuorumRules(QuorumInvariants):
    __slots__ = ("_checked_leader", "_epoch_ends", "_last_base", "_newest_epoch")

    def __init__(self) -> None:
        super().__init__()
        # By the offset at which a committed batch ends, its epoch.
        self._epoch_ends: dict[int, int] = {}
        self._last_base = 0
        self._newest_epoch = -1
        self._checked_leader = (-1, -1)

    def check_batch(self, node_id: int, batch: RecordBatch) -> None:
        """A committed one, in the order of offsets."""
        base_offset, data = batch.base_offset, bytes(batch.data)
        known = self._committed_data.get(base_offset)
        if known is None and base_offset == self.committed_end:
            self._committed[base_offset] = batch.leader_epoch
            self._committed_data[base_offset] = data
            self._epoch_ends[batch.next_offset] = batch.leader_epoch
            self._last_base = base_offset
        elif known != data:
            raise InvariantViolated(
                "committed-changed", f"{node_id}: another batch at offset {base_offset}"
            )
        self.committed_end = max(self.committed_end, batch.next_offset)

    def note_epoch(self, quorum: Quorum) -> None:
        """Before anything is read from this node."""
        self._newest_epoch = max(self._newest_epoch, quorum.epoch)

    def check_leader(self, driver: RaftDriver) -> None:
        """Invariant 5."""
        quorum = driver.quorum
        if not isinstance(quorum.role, Leader):
            return
        epoch = quorum.epoch
        if epoch < self._newest_epoch:
            return
        node_id, log = quorum.local.node_id, quorum.log
        if log.last_epoch != epoch:
            raise InvariantViolated(
                "leader-loads-snapshot",
                f"{node_id} leads {epoch}, its log ends in {log.end}",
            )
        if self._checked_leader == (epoch, node_id):
            return
        self._checked_leader = (epoch, node_id)
        if not self._has_committed(driver):
            raise InvariantViolated(
                "leader-completeness",
                f"{node_id} leads epoch {epoch} with {log.end}, committed is {self.committed_end}",
            )

    def _has_committed(self, driver: RaftDriver) -> bool:
        """Up to the last batch, in which all that came before is implied (4)."""
        log = driver.quorum.log
        if log.start_offset >= self.committed_end:
            return True
        if log.end_offset < self.committed_end:
            return False
        try:
            batch = next(driver.log.batches(self._last_base, self.committed_end))
        except StorageError:
            # There is none that begins here, or it can't be read; the latter ends the node.
            return not log.starts_batch(self._last_base) and log.start_offset > self._last_base
        return bytes(batch.data) == self._committed_data[self._last_base]

    def check_log_begins(self, node_id: int, log: LogState) -> None:
        """Invariant 6."""
        start = log.start_offset
        if start == 0:
            return
        earliest = log.earliest_snapshot
        if earliest is None or earliest.end_offset != start:
            raise InvariantViolated(
                "snapshot-at-start", f"{node_id}: log begins at {start}, snapshot {earliest}"
            )
        epoch = self._epoch_ends.get(start, earliest.epoch)
        first = log.epochs.entries[0] if log.epochs.entries else None
        if epoch != earliest.epoch or (first is not None and first.epoch < epoch):
            raise InvariantViolated(
                "snapshot-epoch", f"{node_id}: {earliest}, where epoch {epoch} ends and {first}"
            )
