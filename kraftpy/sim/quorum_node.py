"""One node of the simulated quorum: a core, its storage, and the shell between them.

The shell does what a driver must do and no more: it carries effects out in order, syncs (many
tokens under one sync), and holds every message until its token is durable. A crash throws core and
shell away and leaves the storage; a pause keeps everything that arrives for later.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k52_vote import VoteRequest, VoteResponse
from kraftpy.raft import effects as fx
from kraftpy.raft import inputs
from kraftpy.raft.core import RaftCore
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.memory_storage import MemoryStorage
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.roles import Leader
from kraftpy.raft.voters import ReplicaKey
from kraftpy.sim.digest import EventDigest
from kraftpy.sim.kernel import EventHeap
from kraftpy.sim.quorum_invariants import QuorumInvariants
from kraftpy.world import InternalInvariant
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["Asker", "QuorumNode", "StateMachine", "Wire"]

_Outgoing: TypeAlias = fx.Send | fx.Reply
# Tuples, because a union would be made anew for each effect.
_OUTGOING: Final = (fx.Send, fx.Reply)
_FOR_THE_MACHINE: Final = (
    fx.LeaderChanged,
    fx.LeadershipLost,
    fx.Proposed,
    fx.ProposalRefused,
)
_SYNC_LIMIT_US = 3_000_000
_TIME_ADVANCED: Final = inputs.TimeAdvanced()


class Asker(NamedTuple):
    """Whoever awaits an answer: a process of a node, or an operator (node id -1)."""

    node_id: int
    incarnation: int
    correlation_id: int
    # The id by which the asker knows the node that it asked.
    asked_id: int


class Wire(Protocol):
    """Where messages go."""

    def request(self, sender: QuorumNode, send: fx.Send) -> None: ...

    def response(self, sender: QuorumNode, asker: Asker, response: inputs.RaftResponse) -> None: ...


class StateMachine(Protocol):
    """What lives above a node's core, and dies with it."""

    def started(self, core: RaftCore) -> None: ...

    def follow(self, effects: list[fx.Effect]) -> None:
        """The core did this; messages and the storage have been seen to."""
        ...

    def resumed(self) -> None: ...

    def stopped(self) -> None: ...


class QuorumNode:
    __slots__ = (
        "_askers",
        "_checked_election",
        "_disk_random",
        "_heap",
        "_invariants",
        "_next_request_id",
        "_rng",
        "_sync_mean_us",
        "_syncing",
        "_timer_us",
        "_waiting",
        "_watermark",
        "config",
        "core",
        "digest",
        "inbox",
        "incarnation",
        "key",
        "machine",
        "node_id",
        "paused",
        "rate",
        "storage",
        "wire",
    )

    def __init__(
        self,
        config: RaftConfig,
        storage: MemoryStorage,
        *,
        heap: EventHeap,
        invariants: QuorumInvariants,
        digest: EventDigest,
        rng: MemoryRng,
        wire: Wire,
        sync_mean_us: int,
        rate: float,
    ) -> None:
        self.config = config
        self.key = config.local
        self.node_id = config.local.node_id
        self.storage = storage
        self.core: RaftCore | None = None
        self.machine: StateMachine | None = None
        self.incarnation = 0
        self.paused = False
        self.rate = rate
        self.wire = wire
        self.inbox: list[inputs.Input] = []
        self.digest = digest
        self._heap = heap
        self._invariants = invariants
        self._rng = rng
        self._disk_random = rng.stream(f"disk {self.node_id}")
        self._sync_mean_us = sync_mean_us
        self._askers: dict[int, tuple[Asker, inputs.RaftRequest]] = {}
        self._next_request_id = 0
        self._waiting: list[tuple[_Outgoing, ElectionState]] = []
        self._syncing = False
        self._timer_us = -1
        self._watermark = 0
        self._checked_election: ElectionState | None = None

    @property
    def is_up(self) -> bool:
        return self.core is not None

    @property
    def leads(self) -> bool:
        return self.core is not None and isinstance(self.core.quorum.role, Leader)

    def now_ms(self) -> int:
        """This node's own clock, which may be faster or slower than time."""
        return int(self._heap.now_us * self.rate) // 1_000

    # Life and death.

    def start(self) -> None:
        self.incarnation += 1
        self.paused = False
        random = self._rng.stream(f"node {self.node_id} {self.incarnation}")
        recovered = self.storage.recover(self.config.static_voters)
        self.core = core = RaftCore(self.config, recovered, random)
        self._checked_election = None
        self._watermark = core.quorum.log.high_watermark
        if self.machine is not None:
            self.machine.started(core)
        self._after_step(core, core.start(self.now_ms()), "start")

    def crash(self, *, kept_promises: float, kept_log: float) -> None:
        self.core = None
        self.incarnation += 1
        self.inbox.clear()
        self._askers.clear()
        self._waiting.clear()
        self._syncing = False
        self._timer_us = -1
        if self.machine is not None:
            self.machine.stopped()
        old = self.storage.durable_election
        self.storage.crash(kept_promises=kept_promises, kept_log=kept_log)
        self._invariants.check_promise(self.key, old, self.storage.election)
        self._invariants.majority_is_due = True

    def _stop(self, incarnation: int) -> None:
        """The process ends by itself; its kernel lives on, so nothing is lost."""
        if incarnation == self.incarnation:
            self.crash(kept_promises=1.0, kept_log=1.0)

    def replace_disk(self, directory_id: Uuid) -> None:
        """Another, empty disk: the node is another replica from now on."""
        self.key = ReplicaKey(self.node_id, directory_id)
        self.config = replace(self.config, local=self.key)
        self.storage = MemoryStorage()

    def freeze(self, snapshot_id: SnapshotId, data: bytes) -> None:
        """The state machine's snapshot is complete."""
        self._invariants.check_snapshot(snapshot_id, data)
        self.storage.freeze_snapshot(snapshot_id, data)
        self.feed(inputs.SnapshotFrozen(snapshot_id), "snapshot")

    def resume(self) -> None:
        self.paused = False
        inbox, self.inbox = self.inbox, []
        for event in inbox:
            self.feed(event, "late")
        self.feed(_TIME_ADVANCED, "resume")
        if self.machine is not None:
            self.machine.resumed()

    # Inputs.

    def receive(self, asker: Asker, request: inputs.RaftRequest) -> None:
        self._next_request_id += 1
        self._askers[self._next_request_id] = (asker, request)
        self.feed(inputs.RequestReceived(self._next_request_id, request), type(request).__name__)

    def feed(self, event: inputs.Input, kind: str) -> list[fx.Effect]:
        """Give the core one fact; what came of it, unless it has to wait."""
        core = self.core
        if core is None:
            return []
        if self.paused:
            self.inbox.append(event)
            return []
        effects = core.step(event, self.now_ms())
        self._after_step(core, effects, kind)
        return effects

    def _after_step(self, core: RaftCore, effects: list[fx.Effect], kind: str) -> None:
        quorum = core.quorum
        election = quorum.election
        storage = self.storage
        for effect in effects:
            if isinstance(effect, _OUTGOING):
                # Of promises made in the same step, it shows those that stand before it.
                said = storage.election
                if effect.after > storage.durable_token:
                    self._waiting.append((effect, said))
                else:
                    self._say(effect, said)
            elif isinstance(effect, fx.HighWatermarkAdvanced):
                self._advance(core, effect.offset)
            elif isinstance(effect, fx.PeerFault):
                # All peers are this code: whoever is to blame, it is wrong.
                raise InternalInvariant(effect.reason)
            elif isinstance(effect, fx.ShutdownFinished):
                self._heap.plan(1, partial(self._stop, self.incarnation))
            elif not isinstance(effect, _FOR_THE_MACHINE):
                self._store(core, effect)
        self._check(core)
        log = quorum.log
        self.digest.record(
            self._heap.now_us,
            kind,
            self.node_id,
            b"%d %d %d %d" % (election.epoch, log.end_offset, log.high_watermark, len(effects)),
        )
        if not self._syncing and storage.last_token > storage.durable_token:
            self._sync()
        self._set_timer(core)
        if effects and self.machine is not None:
            self.machine.follow(effects)

    def _check(self, core: RaftCore) -> None:
        invariants = self._invariants
        quorum = core.quorum
        invariants.checked_steps += 1
        election, stored = quorum.election, self.storage.election
        # Promises don't change; the very one that was found to be in order is so still, because
        # whoever named another leader of its epoch since would have been caught.
        if election is not self._checked_election or stored is not election:
            invariants.check_election(quorum)
            invariants.check_stored(self.key, election, stored)
            self._checked_election = election
        role = quorum.role
        if isinstance(role, Leader):
            invariants.check_new_leader(quorum, self.storage.log)
            invariants.check_leader_watermark(quorum, role)

    def _advance(self, core: RaftCore, offset: int) -> None:
        old, self._watermark = self._watermark, offset
        self._invariants.check_watermark(core.quorum, self.storage.log, old, offset)

    def _store(self, core: RaftCore, effect: object) -> None:
        invariants = self._invariants
        storage = self.storage
        match effect:
            case fx.PersistElection():
                invariants.check_promise(self.key, storage.election, effect.election)
                storage.perform(effect)
            case fx.AppendLog():
                storage.perform(effect)
                if not self.leads:
                    invariants.check_append(storage.log, effect.batches)
                if any(batch.is_control for batch in effect.batches):
                    invariants.check_voters(core.quorum)
            case fx.InstallSnapshot():
                invariants.check_install(core.quorum)
                storage.perform(effect)
                data = storage.log.snapshots[effect.snapshot_id]
                invariants.check_snapshot(effect.snapshot_id, data)
                self._watermark = effect.snapshot_id.end_offset
            case fx.DeleteSnapshots():
                storage.perform(effect)
                invariants.check_log_start(storage.log)
            case fx.TruncateLog():
                storage.perform(effect)
                invariants.majority_is_due = True
            case fx.TrimLog() | fx.WriteSnapshotChunk() | fx.DropDownload():
                storage.perform(effect)
            case _:
                raise TypeError(f"unknown effect {effect!r}")

    # The disk.

    def _sync(self) -> None:
        self._syncing = True
        latency_us = int(self._disk_random.expovariate(1 / self._sync_mean_us))
        token = self.storage.last_token
        self._heap.plan(
            min(latency_us, _SYNC_LIMIT_US), partial(self._synced, self.incarnation, token)
        )

    def _synced(self, incarnation: int, token: int) -> None:
        if incarnation != self.incarnation:
            return
        self._syncing = False
        for append in self.storage.sync(token):
            self._invariants.check_append(self.storage.durable, append.batches)
        self.feed(inputs.Persisted(token), "persisted")
        if incarnation != self.incarnation:
            return
        waiting = self._waiting
        if waiting:
            self._waiting = [each for each in waiting if each[0].after > token]
            for effect, said in waiting:
                if effect.after <= token:
                    self._say(effect, said)

    # Messages.

    def _say(self, effect: _Outgoing, said: ElectionState) -> None:
        self._invariants.check_said(self.key, said, self.storage.durable_election)
        if isinstance(effect, fx.Send):
            if isinstance(effect.request, VoteRequest):
                asked = effect.request.topics[0].partitions[0]
                if not asked.pre_vote:
                    self._invariants.check_vote(self.key, asked.replica_epoch, self.key)
            self.wire.request(self, effect)
            return
        asker, request = self._askers.pop(effect.request_id)
        response = effect.response
        if (
            isinstance(response, VoteResponse)
            and response.topics
            and isinstance(request, VoteRequest)
        ):
            asked = request.topics[0].partitions[0]
            if response.topics[0].partitions[0].vote_granted and not asked.pre_vote:
                candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
                self._invariants.check_vote(self.key, asked.replica_epoch, candidate)
        self.wire.response(self, asker, response)

    # Time.

    def _set_timer(self, core: RaftCore) -> None:
        deadline_ms = core.next_deadline_ms()
        if deadline_ms is None:
            return
        heap = self._heap
        if deadline_ms <= core.quorum.now_ms:
            self._invariants.check_deadline(self.key, deadline_ms, core.quorum.now_ms)
        now_us = heap.now_us
        due_us = int((deadline_ms + 1) * 1_000 / self.rate)
        if due_us <= now_us:
            due_us = now_us + 1
        if self._timer_us <= now_us or due_us < self._timer_us:
            self._timer_us = due_us
            heap.plan(due_us - now_us, partial(self._on_timer, self.incarnation, due_us))

    def _on_timer(self, incarnation: int, due_us: int) -> None:
        if incarnation == self.incarnation and due_us == self._timer_us and not self.paused:
            self._timer_us = -1
            self.feed(_TIME_ADVANCED, "timer")
