"""Voters, and the sets they form.

A replica key is a node id with the id of its metadata directory, because a node that lost its disk
is another replica under the same name. A stored key without a directory (kraft.version 0) stands
for any directory of that node.

The newest set in the log counts from the moment it is appended, committed or not, and is undone
by truncation; `History` keeps what was said at which offset. Sets of adjacent changes differ in one
voter, so that their majorities overlap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema import control_records as records
from kraftpy.world import assert_always, quickly_made

__all__ = ["BOOTSTRAP_OFFSET", "Endpoint", "History", "ReplicaKey", "Voter", "VoterSet"]

T = TypeVar("T")

# Where a value stands that came from configuration or from the bootstrap snapshot: before the log.
BOOTSTRAP_OFFSET = -1


@quickly_made
@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """Where a node listens, under the name of the listener."""

    name: str
    host: str
    port: int


class ReplicaKey(NamedTuple):
    # A tuple, because it is looked up in dicts at every fetch.
    node_id: int
    directory_id: Uuid = ZERO_UUID

    def stands_for(self, other: ReplicaKey) -> bool:
        """Whether this stored key means `other`."""
        return self.node_id == other.node_id and self.directory_id in (
            ZERO_UUID,
            other.directory_id,
        )


@dataclass(frozen=True, slots=True)
class Voter:
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    min_kraft_version: int = 0
    max_kraft_version: int = 1

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None


class VoterSet:
    """Immutable; voters in the order of their node ids."""

    __slots__ = ("_by_id", "ids", "majority", "voters")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self.voters = tuple(sorted(voters, key=lambda voter: voter.key))
        self.ids = tuple([voter.key.node_id for voter in self.voters])
        self.majority = len(self.voters) // 2 + 1
        self._by_id = {voter.key.node_id: voter for voter in self.voters}
        assert_always(len(self._by_id) == len(self.voters), "raft-voter-twice", ids=self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(node_id) for node_id in self.ids)})"

    def find(self, node_id: int) -> Voter | None:
        return self._by_id.get(node_id)

    def contains(self, key: ReplicaKey) -> bool:
        voter = self._by_id.get(key.node_id)
        # As `stands_for`, without a call: a node asks this several times at every step.
        return voter is not None and voter.key.directory_id in (ZERO_UUID, key.directory_id)

    def rank(self, node_id: int, *, without: int) -> int:
        """The place of a voter among the others when `without` is gone."""
        return sum(1 for other in self._by_id if other < node_id and other != without)

    def adding(self, voter: Voter) -> VoterSet:
        return VoterSet((*self.voters, voter))

    def removing(self, node_id: int) -> VoterSet:
        return VoterSet(voter for voter in self.voters if voter.key.node_id != node_id)

    def updating(self, voter: Voter) -> VoterSet:
        return self.removing(voter.key.node_id).adding(voter)

    def to_record(self) -> records.VotersRecord:
        return records.VotersRecord(voters=[_to_entry(voter) for voter in self.voters])

    @classmethod
    def from_record(cls, record: records.VotersRecord) -> VoterSet:
        return cls(_from_entry(entry) for entry in record.voters)


def _to_entry(voter: Voter) -> records.VotersRecordVoter:
    return records.VotersRecordVoter(
        voter_id=voter.key.node_id,
        voter_directory_id=voter.key.directory_id,
        endpoints=[
            records.Endpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
            for endpoint in voter.endpoints
        ],
        kraft_version_feature=records.KRaftVersionFeature(
            min_supported_version=voter.min_kraft_version,
            max_supported_version=voter.max_kraft_version,
        ),
    )


def _from_entry(entry: records.VotersRecordVoter) -> Voter:
    return Voter(
        ReplicaKey(entry.voter_id, entry.voter_directory_id),
        tuple(Endpoint(each.name, each.host, each.port) for each in entry.endpoints),
        entry.kraft_version_feature.min_supported_version,
        entry.kraft_version_feature.max_supported_version,
    )


class History(Generic[T]):
    """What a log said about one thing, by offset; there is always a first word.

    Invariant: offsets grow strictly.
    """

    __slots__ = ("_offsets", "_values", "latest")

    def __init__(self, first: T, offset: int = BOOTSTRAP_OFFSET) -> None:
        self._offsets = [offset]
        self._values = [first]
        # The last of the values; everybody asks for it at every step.
        self.latest = first

    @property
    def latest_offset(self) -> int:
        return self._offsets[-1]

    @property
    def previous(self) -> T:
        """The value before the latest, as far as it is kept."""
        return self._values[max(len(self._values) - 2, 0)]

    def entries(self) -> tuple[tuple[int, T], ...]:
        return tuple(zip(self._offsets, self._values, strict=True))

    def at_end(self, end_offset: int) -> T:
        """The value after all records below `end_offset`."""
        position = bisect_left(self._offsets, end_offset)
        return self._values[max(position - 1, 0)]

    def add(self, offset: int, value: T) -> None:
        assert_always(offset > self._offsets[-1], "raft-history-order", offset=offset)
        self._offsets.append(offset)
        self._values.append(value)
        self.latest = value

    def truncate(self, end_offset: int) -> bool:
        """Forget what records at or behind `end_offset` said; whether that was anything."""
        remaining = max(bisect_left(self._offsets, end_offset), 1)
        removed = remaining < len(self._offsets)
        del self._offsets[remaining:], self._values[remaining:]
        self.latest = self._values[-1]
        return removed

    def forget_before(self, offset: int) -> None:
        """Keep one value for everything below `offset`, and what came later."""
        keep = max(bisect_left(self._offsets, offset) - 1, 0)
        del self._offsets[:keep], self._values[:keep]
