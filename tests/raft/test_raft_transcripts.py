"""Scenarios as text: a script, and everything that follows from it.

Each file of tests/raft/transcripts is a list of commands, `> command`, with the lines that the
cluster wrote below each. `KRAFTPY_TRANSCRIPTS=write pytest tests/raft/test_raft_transcripts.py`
writes them anew; the difference is for review.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from raft_cluster import Cluster

from kraftpy.raft import inputs
from kraftpy.raft.log_state import SnapshotId
from kraftpy.sim.quorum_nemesis import snapshot_bytes

FOLDER = Path(__file__).parent / "transcripts"
TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


class Script:
    """The commands of a transcript."""

    def __init__(self) -> None:
        self.cluster = Cluster()

    def run(self, command: str) -> list[str]:
        name, *words = command.split()
        numbers = [int(word) for word in words if word.isdigit()]
        self.cluster.lines = []
        getattr(self, name)(words, numbers)
        return self.cluster.lines

    def cluster_of(self, words: list[str], numbers: list[int]) -> None:
        observers = numbers[1] if len(numbers) > 1 else 0
        self.cluster = Cluster(numbers[0], observers, dynamic="static" not in words)

    def elected(self, words: list[str], numbers: list[int]) -> None:
        """A cluster whose first election is over; first_election.txt shows one."""
        self.cluster_of(words, numbers)
        self.cluster.start()
        self.cluster.advance(60)
        leader = self.cluster.leader()
        epoch = self.cluster.election(leader).epoch
        self.cluster.lines = [f"{leader} leads epoch {epoch}"]

    def start(self, words: list[str], numbers: list[int]) -> None:
        self.cluster.start(*numbers)

    def crash(self, words: list[str], numbers: list[int]) -> None:
        self.cluster.crash(numbers[0], keep="losing" not in words)

    def settle(self, words: list[str], numbers: list[int]) -> None:
        self.cluster.settle()

    def advance(self, words: list[str], numbers: list[int]) -> None:
        self.cluster.advance(numbers[0])

    def hurry(self, words: list[str], numbers: list[int]) -> None:
        """Let a node's patience end now."""
        role = self.cluster[numbers[0]].quorum.role
        for name in ("election_deadline_ms", "fetch_deadline_ms"):
            if hasattr(role, name):
                setattr(role, name, self.cluster.now_ms)
        self.cluster.step(numbers[0], inputs.TimeAdvanced())

    def propose(self, words: list[str], numbers: list[int]) -> None:
        self.cluster.propose(numbers[0], *words[1:])

    def cut(self, words: list[str], numbers: list[int]) -> None:
        one, other = numbers
        self.cluster.cut |= {(one, other), (other, one)}

    def heal(self, words: list[str], numbers: list[int]) -> None:
        self.cluster.cut.clear()

    def resign(self, words: list[str], numbers: list[int]) -> None:
        epoch = self.cluster[numbers[0]].quorum.epoch
        self.cluster.step(numbers[0], inputs.Resign(epoch))

    def dead(self, words: list[str], numbers: list[int]) -> None:
        witness, dead = numbers
        self.cluster.step(witness, inputs.PeerUnreachable(dead))

    def snapshot(self, words: list[str], numbers: list[int]) -> None:
        node_id = numbers[0]
        quorum = self.cluster[node_id].quorum
        end_offset = quorum.log.high_watermark
        epoch = quorum.log.epochs.epoch_for_offset(end_offset - 1)
        assert epoch is not None
        snapshot_id = SnapshotId(end_offset, epoch)
        data = snapshot_bytes(snapshot_id, quorum.voters.latest, quorum.kraft_versions.latest)
        self.cluster.nodes[node_id].storage.freeze_snapshot(snapshot_id, data)
        self.cluster.step(node_id, inputs.SnapshotFrozen(snapshot_id))
        self.cluster.step(node_id, inputs.SnapshotsExpired(snapshot_id))


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 6


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    stored = path.read_text()
    script = Script()
    written: list[str] = []
    for line in stored.splitlines():
        if line.startswith("#") or not line:
            written.append(line)
        elif line.startswith("> "):
            written.append(line)
            written += [f"  {each}" for each in script.run(line[2:])]
    text = "\n".join(written) + "\n"
    if os.environ.get("KRAFTPY_TRANSCRIPTS") == "write":
        path.write_text(text)
    else:
        assert text == stored
