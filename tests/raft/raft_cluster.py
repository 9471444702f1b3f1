"""A few cores in one place, with time and messages in the test's hand.

`Cluster` delivers messages at once and in order when told to `settle`, syncs at once unless told
otherwise, and writes down in words what happens: the transcripts in tests/raft/transcripts are made
of these words.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from kraftpy.protocol.codec import decode, encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema import k01_fetch as fetch
from kraftpy.protocol.schema import k52_vote as vote
from kraftpy.protocol.schema import k53_begin_quorum_epoch as begin
from kraftpy.protocol.schema import k54_end_quorum_epoch as end
from kraftpy.protocol.schema import k59_fetch_snapshot as fetch_snapshot
from kraftpy.raft import effects as fx
from kraftpy.raft import inputs
from kraftpy.raft.core import RaftCore
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT, SnapshotId
from kraftpy.raft.memory_storage import MemoryStorage
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.roles import Leader
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from kraftpy.sim.quorum_nemesis import snapshot_bytes

CLUSTER_ID = "test-cluster"
STORAGE_EFFECTS = (
    fx.PersistElection,
    fx.AppendLog,
    fx.TruncateLog,
    fx.TrimLog,
    fx.WriteSnapshotChunk,
    fx.DropDownload,
    fx.InstallSnapshot,
    fx.DeleteSnapshots,
)


def directory(node_id: int, generation: int = 0) -> Uuid:
    return Uuid(bytes([node_id, generation]) + bytes(14))


def key_of(node_id: int, generation: int = 0) -> ReplicaKey:
    return ReplicaKey(node_id, directory(node_id, generation))


def endpoint_of(node_id: int) -> Endpoint:
    return Endpoint("CONTROLLER", f"node{node_id}", 9093)


def voter_of(node_id: int, generation: int = 0) -> Voter:
    return Voter(key_of(node_id, generation), (endpoint_of(node_id),))


def config_of(node_id: int, **changes: Any) -> RaftConfig:
    config = RaftConfig(
        cluster_id=CLUSTER_ID,
        local=key_of(node_id),
        endpoints=(endpoint_of(node_id),),
        bootstrap_servers=(),
    )
    return replace(config, **changes)


def bootstrapped(voters: VoterSet) -> dict[SnapshotId, bytes]:
    """What `storage format` leaves: the first voters at kraft.version 1."""
    return {BOOTSTRAP_SNAPSHOT: snapshot_bytes(BOOTSTRAP_SNAPSHOT, voters, 1)}


@dataclass
class Node:
    config: RaftConfig
    storage: MemoryStorage
    core: RaftCore | None = None
    seed: int = 0
    effects: list[fx.Effect] = field(default_factory=list)
    waiting: list[fx.Send | fx.Reply] = field(default_factory=list)
    askers: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    replies: dict[int, Any] = field(default_factory=dict)
    next_request_id: int = 0
    role: str = ""
    syncs: bool = True

    @property
    def up(self) -> RaftCore:
        assert self.core is not None
        return self.core


class Cluster:
    def __init__(self, voters: int = 3, observers: int = 0, *, dynamic: bool = True) -> None:
        members = VoterSet(voter_of(node_id) for node_id in range(1, voters + 1))
        static = VoterSet(
            replace(voter, key=ReplicaKey(voter.key.node_id)) for voter in members.voters
        )
        self.now_ms = 0
        self.lines: list[str] = []
        self.messages: deque[tuple[int, int, Any]] = deque()
        self.cut: set[tuple[int, int]] = set()
        # Whether messages go through their newest encoding, as on a real connection.
        self.encodes = False
        self.nodes: dict[int, Node] = {}
        for node_id in range(1, voters + observers + 1):
            config = config_of(
                node_id,
                static_voters=VoterSet() if dynamic else static,
                bootstrap_servers=tuple(endpoint_of(each) for each in range(1, voters + 1)),
            )
            is_voter = node_id <= voters
            storage = MemoryStorage(bootstrapped(members) if dynamic and is_voter else None)
            self.nodes[node_id] = Node(config, storage)

    def __getitem__(self, node_id: int) -> RaftCore:
        return self.nodes[node_id].up

    # Life.

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.nodes):
            node = self.nodes[node_id]
            node.seed += 1
            recovered = node.storage.recover(node.config.static_voters)
            node.core = RaftCore(node.config, recovered, Random(100 * node_id + node.seed))
            self._perform(node_id, node.core.start(self.now_ms))

    def crash(self, node_id: int, *, keep: bool = True) -> None:
        node = self.nodes[node_id]
        node.core = None
        node.waiting.clear()
        node.askers.clear()
        share = 1.0 if keep else 0.0
        node.storage.crash(kept_promises=share, kept_log=share)
        self.lines.append(f"{node_id} crashes")

    # Inputs.

    def step(self, node_id: int, event: inputs.Input) -> list[fx.Effect]:
        node = self.nodes[node_id]
        return self._perform(node_id, node.up.step(event, self.now_ms))

    def ask(self, node_id: int, request: inputs.RaftRequest) -> Any:
        """Ask a node from outside; its answer, or None if it does not come at once."""
        node = self.nodes[node_id]
        node.next_request_id += 1
        request_id = node.next_request_id
        self.step(node_id, inputs.RequestReceived(request_id, request))
        return node.replies.get(request_id)

    def propose(self, node_id: int, *values: str) -> list[fx.Effect]:
        epoch = self[node_id].quorum.epoch
        return self.step(
            node_id, inputs.Propose(1, epoch, tuple(value.encode() for value in values))
        )

    def sync(self, node_id: int) -> None:
        """Finish the node's disk writes."""
        node = self.nodes[node_id]
        token = node.storage.last_token
        if token > node.storage.durable_token:
            node.storage.sync(token)
            self.step(node_id, inputs.Persisted(token))
        ready = [each for each in node.waiting if each.after <= node.storage.durable_token]
        node.waiting = [each for each in node.waiting if each not in ready]
        for effect in ready:
            self._say(node_id, effect)

    def settle(self, limit: int = 2_000) -> None:
        """Sync and deliver until nothing is under way; time stands still."""
        for _ in range(limit):
            for node_id, node in self.nodes.items():
                if node.core is not None and node.syncs:
                    self.sync(node_id)
            if not self.messages:
                return
            self.deliver()
        raise AssertionError("the cluster does not come to rest")

    def deliver(self) -> None:
        sender, receiver, message = self.messages.popleft()
        node = self.nodes[receiver]
        if (sender, receiver) in self.cut:
            return
        if isinstance(message, fx.Send):
            if node.core is None:
                failed = inputs.RequestFailed(
                    message.node_id, message.correlation_id, ErrorCode.BROKER_NOT_AVAILABLE
                )
                if self.nodes[sender].core is not None:
                    self.step(sender, failed)
                return
            node.next_request_id += 1
            node.askers[node.next_request_id] = (sender, message.node_id, message.correlation_id)
            request = through_the_wire(message.request) if self.encodes else message.request
            self.step(receiver, inputs.RequestReceived(node.next_request_id, request))
        elif node.core is not None:
            if self.encodes:
                message = replace(message, response=through_the_wire(message.response))
            self.step(receiver, message)

    def advance(self, milliseconds: int) -> None:
        """Let time pass; every deadline on the way is kept, and everything settles."""
        end_ms = self.now_ms + milliseconds
        while True:
            self.settle()
            due = [
                deadline_ms
                for node in self.nodes.values()
                if node.core is not None
                and (deadline_ms := node.core.next_deadline_ms()) is not None
            ]
            self.now_ms = min([end_ms, *due])
            for node_id, node in self.nodes.items():
                if node.core is not None:
                    self.step(node_id, inputs.TimeAdvanced())
            self.settle()
            if self.now_ms >= end_ms:
                return

    # Effects.

    def _perform(self, node_id: int, effects: list[fx.Effect]) -> list[fx.Effect]:
        node = self.nodes[node_id]
        node.effects += effects
        for effect in effects:
            if isinstance(effect, STORAGE_EFFECTS):
                node.storage.perform(effect)
            if isinstance(effect, fx.Send | fx.Reply):
                if effect.after > node.storage.durable_token:
                    node.waiting.append(effect)
                else:
                    self._say(node_id, effect)
            else:
                self._note(node_id, effect)
        self._note_role(node_id)
        return effects

    def _say(self, node_id: int, effect: fx.Send | fx.Reply) -> None:
        node = self.nodes[node_id]
        if isinstance(effect, fx.Send):
            receiver = int(effect.address.host.removeprefix("node"))
            self.lines.append(f"{node_id} -> {receiver} {describe_request(effect.request)}")
            self.messages.append((node_id, receiver, effect))
            return
        asker = node.askers.pop(effect.request_id, None)
        if asker is None:
            node.replies[effect.request_id] = effect.response
            return
        receiver, asked_id, correlation_id = asker
        self.lines.append(f"{node_id} => {receiver} {describe_response(effect.response)}")
        received = inputs.ResponseReceived(asked_id, correlation_id, effect.response)
        self.messages.append((node_id, receiver, received))

    def _note(self, node_id: int, effect: fx.Effect) -> None:
        match effect:
            case fx.PersistElection():
                election = effect.election
                voted = election.voted.node_id if election.voted else "-"
                leader = election.leader_id if election.has_leader else "-"
                words = f"promises epoch {election.epoch} leader {leader} vote {voted}"
            case fx.AppendLog():
                parts = [
                    f"{batch.base_offset}..{batch.end_offset - 1}@{batch.epoch}"
                    for batch in effect.batches
                ]
                words = f"appends {' '.join(parts)}"
            case fx.TruncateLog():
                words = f"truncates to {effect.end_offset}"
            case fx.HighWatermarkAdvanced():
                words = f"has committed {effect.offset}"
            case fx.LeaderChanged():
                words = f"tells: epoch {effect.epoch} leader {effect.leader_id}"
            case fx.WriteSnapshotChunk():
                words = f"writes {len(effect.data)} bytes of {snapshot_name(effect.snapshot_id)}"
            case fx.InstallSnapshot():
                words = f"installs {snapshot_name(effect.snapshot_id)}"
            case _:
                words = type(effect).__name__
        self.lines.append(f"{node_id} {words}")

    def _note_role(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if node.core is not None:
            role = str(node.core.describe()["role"])
            if role != node.role:
                self.lines.append(f"{node_id} is {role}")
                node.role = role

    # Answers to questions of tests.

    def leader(self) -> int:
        """The leader of the highest epoch."""
        leaders = [
            (node.core.quorum.epoch, node_id)
            for node_id, node in self.nodes.items()
            if node.core is not None and isinstance(node.core.quorum.role, Leader)
        ]
        assert leaders, "nobody leads"
        return max(leaders)[1]

    def election(self, node_id: int) -> ElectionState:
        return self[node_id].quorum.election


def through_the_wire(message: Any) -> Any:
    """The message as it arrives, in the newest version of its API."""
    version = API[message.KEY].max_version
    return decode(type(message), version, encode_bytes(message, version))


def snapshot_name(snapshot_id: SnapshotId) -> str:
    return f"{snapshot_id.end_offset}-{snapshot_id.epoch}"


def describe_request(request: Any) -> str:
    match request:
        case vote.VoteRequest():
            asked = request.topics[0].partitions[0]
            kind = "PreVote" if asked.pre_vote else "Vote"
            last = f"{asked.last_offset}@{asked.last_offset_epoch}"
            return f"{kind} epoch {asked.replica_epoch} log {last}"
        case begin.BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch {request.topics[0].partitions[0].leader_epoch}"
        case end.EndQuorumEpochRequest():
            ending = request.topics[0].partitions[0]
            return f"EndQuorumEpoch {ending.leader_epoch} {ending.preferred_successors}"
        case fetch.FetchRequest():
            part = request.topics[0].partitions[0]
            end_of_log = f"{part.fetch_offset}@{part.last_fetched_epoch}"
            return f"Fetch epoch {part.current_leader_epoch} log {end_of_log}"
        case fetch_snapshot.FetchSnapshotRequest():
            part = request.topics[0].partitions[0]
            name = f"{part.snapshot_id.end_offset}-{part.snapshot_id.epoch}"
            return f"FetchSnapshot {name} at {part.position}"
    return type(request).__name__.removesuffix("Request")


def describe_response(response: Any) -> str:
    match response:
        case vote.VoteResponse():
            answer = response.topics[0].partitions[0]
            said = "granted" if answer.vote_granted else "rejected"
            return f"Vote {said} epoch {answer.leader_epoch}{_error(answer.error_code)}"
        case fetch.FetchResponse():
            data = response.responses[0].partitions[0]
            leader = f"leader {data.current_leader.leader_id}@{data.current_leader.leader_epoch}"
            if data.diverging_epoch.epoch >= 0:
                diverging = data.diverging_epoch
                return f"Fetch {leader} diverging {diverging.end_offset}@{diverging.epoch}"
            if data.snapshot_id.epoch >= 0:
                return f"Fetch {leader} snapshot {data.snapshot_id.end_offset}"
            size = len(data.records or b"")
            what = f"{size} bytes, committed {data.high_watermark}"
            return f"Fetch {leader} {what}{_error(data.error_code)}"
        case fetch_snapshot.FetchSnapshotResponse():
            chunk = response.topics[0].partitions[0]
            size = len(chunk.unaligned_records)
            return f"FetchSnapshot {size} of {chunk.size} bytes{_error(chunk.error_code)}"
    return type(response).__name__.removesuffix("Response")


def _error(code: int) -> str:
    return f" {ErrorCode(code).name}" if code else ""
