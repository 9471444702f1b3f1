"""`quorum-state`: the file that keeps a node's promise.

It is replaced as a whole, so that a crash leaves the old promise or the new one. A file that can't
be understood is therefore damage, and stops the node: to start without it would be to vote twice.
Only a file that is not there stands for a node that has promised nothing yet; beside a log, that is
told.
"""

from __future__ import annotations

from kraftpy.log.checkpoints import AtomicFile, read_text
from kraftpy.log.errors import MalformedFileError
from kraftpy.raft.effects import PersistElection
from kraftpy.raft.election_state import ElectionState, QuorumStateError, decode_quorum_state
from kraftpy.world import Disk

__all__ = ["QUORUM_STATE", "QuorumStateFile"]

QUORUM_STATE = "quorum-state"


class QuorumStateFile:
    __slots__ = ("_disk", "_file")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._file = AtomicFile(disk, f"{directory}/{QUORUM_STATE}")

    @property
    def path(self) -> str:
        return self._file.path

    async def read(self) -> ElectionState | None:
        """The promise on record, None without one; QuorumStateError, naming the file, if it can't
        be read.
        """
        path = self._file.path
        try:
            text = await read_text(self._disk, path)
            return None if text is None else decode_quorum_state(text.encode())
        except (MalformedFileError, QuorumStateError) as error:
            raise QuorumStateError(
                f"{path}: {error}; it says whom this node has voted for, so bring back the file as "
                "it was, or remove the node from the quorum and add it anew"
            ) from error

    async def write(self, promise: PersistElection) -> None:
        """Durable when this returns."""
        content = promise.election.encode(promise.kraft_version, promise.voter_ids)
        await self._file.replace(content.decode())
