"""The L2 simulation of the quorum: cores on an event heap, from one seed.

First the safety phase: faults of the seed's swarm befall the nodes while proposals go on, and the
invariants are checked after every event. Then the liveness phase: everything heals, and the quorum
must elect a leader, commit new records and bring every node up to them, in bounded time.

Everything hangs on the seed: `run_quorum(seed)` twice gives the same digest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kraftpy.protocol.ids import Uuid
from kraftpy.raft import inputs
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT, SnapshotId
from kraftpy.raft.memory_storage import MemoryStorage
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from kraftpy.sim.digest import EventDigest, RunTrace
from kraftpy.sim.kernel import EventHeap, rare_collections
from kraftpy.sim.quorum_invariants import InvariantViolated, QuorumInvariants
from kraftpy.sim.quorum_nemesis import Nemesis, snapshot_bytes
from kraftpy.sim.quorum_network import QuorumNetwork, host_of
from kraftpy.sim.quorum_node import QuorumNode
from kraftpy.sim.quorum_swarm import QuorumSwarm, draw_swarm
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["QuorumRun", "QuorumSimulation", "run_quorum"]

CLUSTER_ID = "simulated"
_LISTENER = "CONTROLLER"
# Virtual time within which a healed quorum must have a leader and agree.
_LIVENESS_LIMIT_US = 120_000_000


@dataclass(frozen=True, slots=True)
class QuorumRun:
    """What a run did."""

    seed: int
    swarm: QuorumSwarm
    trace: RunTrace
    event_count: int
    virtual_us: int
    committed_end: int
    elections: int


class QuorumSimulation:
    __slots__ = (
        "_nemesis",
        "_proposal_id",
        "_workload_random",
        "digest",
        "faulty",
        "heap",
        "invariants",
        "network",
        "seed",
        "swarm",
    )

    def __init__(
        self, seed: int, swarm: QuorumSwarm | None = None, window: range = range(0)
    ) -> None:
        rng = MemoryRng(seed, "quorum")
        self.seed = seed
        self.swarm = swarm or draw_swarm(rng.stream("swarm"))
        self.heap = EventHeap()
        self.digest = EventDigest(window)
        self.invariants = QuorumInvariants()
        self.network = QuorumNetwork(self.heap, self.swarm, rng)
        self.faulty = True
        self._proposal_id = 0
        self._workload_random = rng.stream("workload")
        self._nemesis = Nemesis(self.network, self.invariants, self.swarm, rng.stream("nemesis"))
        self._make_nodes(rng)

    def _make_nodes(self, rng: MemoryRng) -> None:
        swarm = self.swarm
        random = rng.stream("nodes")
        count = swarm.voters + swarm.observers
        keys = [ReplicaKey(node_id, Uuid(random.randbytes(16))) for node_id in range(1, count + 1)]
        members = [Voter(key, (_endpoint(key.node_id),)) for key in keys[: swarm.voters]]
        voters = VoterSet(members)
        static = VoterSet(replace(voter, key=ReplicaKey(voter.key.node_id)) for voter in members)
        snapshots: dict[SnapshotId, bytes] = {}
        if swarm.dynamic:
            data = snapshot_bytes(BOOTSTRAP_SNAPSHOT, voters, 1)
            snapshots = {BOOTSTRAP_SNAPSHOT: data}
        for key in keys:
            config = RaftConfig(
                cluster_id=CLUSTER_ID,
                local=key,
                endpoints=(_endpoint(key.node_id),),
                bootstrap_servers=tuple(_endpoint(each.node_id) for each in keys),
                static_voters=VoterSet() if swarm.dynamic else static,
                retry_backoff_ms=50,
                fetch_max_bytes=swarm.fetch_max_bytes,
                fetch_snapshot_max_bytes=150,
                auto_join=swarm.auto_join,
            )
            is_voter = key.node_id <= swarm.voters
            self.network.nodes[key.node_id] = QuorumNode(
                config,
                MemoryStorage(snapshots if is_voter else None),
                heap=self.heap,
                invariants=self.invariants,
                digest=self.digest,
                rng=rng,
                wire=self.network,
                sync_mean_us=swarm.sync_mean_us,
                rate=1 + random.uniform(-swarm.drift, swarm.drift),
            )

    @property
    def event_count(self) -> int:
        """Events that reached a core; timers that were overtaken and lost messages don't count."""
        return self.invariants.checked_steps

    # Phases.

    @rare_collections()
    def run(self, event_limit: int) -> QuorumRun:
        """The safety phase for `event_limit` events, then the liveness phase."""
        try:
            for node in self.network.nodes.values():
                node.start()
            self._plan_proposal()
            self._plan_strike()
            invariants = self.invariants
            while invariants.checked_steps < event_limit:
                self._run_event()
            self._heal()
            self._demand_progress()
        except Exception as error:
            error.add_note(
                f"replay: python -m kraftpy.sim.quorum_run --seed {self.seed}"
                f" --events {event_limit}  (virtual time {self.heap.now_us / 1e6:.6f} s,"
                f" event {self.event_count}, {self.swarm})"
            )
            raise
        return QuorumRun(
            self.seed,
            self.swarm,
            self.digest.trace(),
            self.event_count,
            self.heap.now_us,
            self.invariants.committed_end,
            self.invariants.leader_count,
        )

    def _run_event(self) -> None:
        self.heap.run_next()
        if self.invariants.majority_is_due:
            self.invariants.check_majority(self.network.nodes)

    def _heal(self) -> None:
        self.faulty = False
        self.network.make_reliable()
        for node in self.network.nodes.values():
            if node.paused:
                node.resume()
            core = node.core
            if core is not None and core.quorum.shutdown_deadline_ms is not None:
                node.crash(kept_promises=1.0, kept_log=1.0)
            if not node.is_up:
                node.start()

    def _demand_progress(self) -> None:
        """Something new must be committed, by everybody."""
        goal = self.invariants.committed_end + 1
        ends = [node.storage.log.end_offset for node in self.network.nodes.values()]
        # With the smallest fetches a replica takes one batch in each round trip.
        catch_up_us = 2 * (max(ends) - min(ends)) * self.swarm.round_trip_us
        deadline_us = self.heap.now_us + _LIVENESS_LIMIT_US + catch_up_us
        while not self._has_reached(goal):
            if self.heap.now_us > deadline_us:
                states = [node.core.describe() for node in self.network.nodes.values() if node.core]
                raise InvariantViolated("liveness", f"no progress beyond {goal}: {states}")
            self._run_event()

    def _has_reached(self, goal: int) -> bool:
        for node in self.network.nodes.values():
            if node.core is None or node.core.quorum.log.high_watermark < goal:
                return False
        return True

    # The workload and the nemesis.

    def _plan_proposal(self) -> None:
        delay = self._workload_random.expovariate(1 / self.swarm.proposal_mean_us)
        self.heap.plan(int(delay) + 1, self._propose)

    def _propose(self) -> None:
        random = self._workload_random
        for node in self.network.nodes.values():
            if node.core is None or not node.leads or node.paused:
                continue
            log = node.core.quorum.log
            if log.end_offset - log.high_watermark < self.swarm.open_offsets_max:
                self._proposal_id += 1
                values = tuple(
                    b"%d.%d" % (self._proposal_id, number)
                    for number in range(random.randint(1, self.swarm.values_max))
                )
                epoch = node.core.quorum.epoch
                node.feed(inputs.Propose(self._proposal_id, epoch, values), "propose")
        self._plan_proposal()

    def _plan_strike(self) -> None:
        delay = self._workload_random.expovariate(1 / self.swarm.nemesis_mean_us)
        self.heap.plan(int(delay) + 1, self._strike)

    def _strike(self) -> None:
        if self.faulty:
            self._nemesis.strike()
            self._plan_strike()


def _endpoint(node_id: int) -> Endpoint:
    return Endpoint(_LISTENER, host_of(node_id), 9093)


def run_quorum(seed: int, event_limit: int, *, window: range = range(0)) -> QuorumRun:
    """One seed, from beginning to end."""
    return QuorumSimulation(seed, window=window).run(event_limit)
