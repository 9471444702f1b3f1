"""What a node has promised in elections: the content of the `quorum-state` file.

One JSON object without a line end, its fields in Kafka's order. `data_version` 0 belongs to
kraft.version 0 and names the static voters; 1 belongs to kraft.version 1 and has the directory of
the replica that got the vote. Both are read whatever the version in force, because an upgrade
leaves the old file behind. A file that can't be read stops the node: to take it for a missing one
would be to vote twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from kraftpy.protocol.ids import ZERO_UUID, format_uuid, parse_uuid
from kraftpy.raft.voters import ReplicaKey
from kraftpy.world import quickly_made

__all__ = ["NO_LEADER", "ElectionState", "QuorumStateError", "decode_quorum_state"]

NO_LEADER = -1
_NOT_VOTED = -1


class QuorumStateError(Exception):
    """The file is not one that this release understands."""


@quickly_made
@dataclass(frozen=True, slots=True)
class ElectionState:
    """Invariant: within an epoch the leader is set once and the vote is given once."""

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted: ReplicaKey | None = None

    @property
    def has_leader(self) -> bool:
        return self.leader_id != NO_LEADER

    def encode(self, kraft_version: int, voter_ids: Iterable[int]) -> bytes:
        """The file at the given kraft.version."""
        voted_id = _NOT_VOTED if self.voted is None else self.voted.node_id
        fields: dict[str, object] = {} if kraft_version else {"clusterId": ""}
        fields |= {"leaderId": self.leader_id, "leaderEpoch": self.epoch, "votedId": voted_id}
        if kraft_version == 0:
            voters = [{"voterId": voter_id} for voter_id in voter_ids]
            fields |= {"appliedOffset": 0, "currentVoters": voters}
        else:
            directory_id = ZERO_UUID if self.voted is None else self.voted.directory_id
            fields["votedDirectoryId"] = format_uuid(directory_id)
        fields["data_version"] = 0 if kraft_version == 0 else 1
        return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> ElectionState:
    """Read the file; QuorumStateError if it says anything but a promise."""
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise QuorumStateError(f"quorum-state is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise QuorumStateError("quorum-state is not a JSON object")
    version = fields.get("data_version")
    if version not in (0, 1):
        raise QuorumStateError(f"quorum-state has data_version {version!r}, known are 0 and 1")
    epoch = _integer(fields, "leaderEpoch", least=0)
    leader_id = _integer(fields, "leaderId", least=NO_LEADER)
    voted_id = _integer(fields, "votedId", least=_NOT_VOTED)
    if voted_id == _NOT_VOTED:
        return ElectionState(epoch, leader_id)
    directory_id = ZERO_UUID
    if version == 1:
        try:
            directory_id = parse_uuid(str(fields.get("votedDirectoryId")))
        except ValueError as error:
            raise QuorumStateError(f"quorum-state: votedDirectoryId is {error}") from error
    return ElectionState(epoch, leader_id, ReplicaKey(voted_id, directory_id))


def _integer(fields: dict[str, object], name: str, *, least: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise QuorumStateError(f"quorum-state: {name} is {value!r}")
    return value
