"""The L2 simulation of a cluster: controllers, brokers and clients on an event heap, from one seed.

Every controller node has a Raft core, a loader and the whole controller; every broker a core that
observes, a loader, and the life of a broker, in some seeds with real replicas. First faults, with
all invariants after every event; then everything heals, and within bounded time the cluster must be
as it should be: brokers unfenced, partitions led, moves done, deletions complete, requests
answered, all images equal, and all replicas.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kraftpy.metadata.features import ELIGIBLE_LEADER_REPLICAS
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import NO_LEADER
from kraftpy.protocol.ids import Uuid
from kraftpy.raft.memory_storage import MemoryStorage
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from kraftpy.sim.cluster_broker import SimulatedBroker
from kraftpy.sim.cluster_clients import Clients
from kraftpy.sim.cluster_controller import CLUSTER_ID, SimulatedController
from kraftpy.sim.cluster_data_clients import DataClients
from kraftpy.sim.cluster_data_rules import DataRules
from kraftpy.sim.cluster_nemesis import ClusterNemesis
from kraftpy.sim.cluster_network import ClusterNetwork
from kraftpy.sim.cluster_node import MetadataNode
from kraftpy.sim.cluster_replicas import BrokerReplicas
from kraftpy.sim.cluster_rules import ClusterRules
from kraftpy.sim.cluster_swarm import ClusterSwarm, draw_cluster_swarm
from kraftpy.sim.cluster_truth import ClusterTruth
from kraftpy.sim.digest import EventDigest, RunTrace
from kraftpy.sim.error_log import ErrorLog
from kraftpy.sim.kernel import EventHeap, rare_collections
from kraftpy.sim.quorum_invariants import InvariantViolated, QuorumInvariants
from kraftpy.sim.quorum_network import host_of
from kraftpy.sim.quorum_node import QuorumNode
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["ClusterRun", "ClusterSimulation", "run_cluster"]

_LISTENER = "CONTROLLER"
# Virtual time within which a healed cluster must be in order.
_LIVENESS_LIMIT_US = 180_000_000
_ORDER_CHECK_US = 200_000


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """What a run did."""

    seed: int
    swarm: ClusterSwarm
    trace: RunTrace
    event_count: int
    virtual_us: int
    committed_end: int
    elections: int
    topics_created: int
    partition_changes: int
    registrations: int
    replies: int
    # Records, in runs with data.
    acknowledged: int
    delivered: int


class ClusterSimulation:
    __slots__ = (
        "_command",
        "_errors",
        "_healed_us",
        "_nemesis",
        "_next_look_us",
        "_workload_random",
        "brokers",
        "clients",
        "controllers",
        "data",
        "data_clients",
        "digest",
        "faulty",
        "heap",
        "invariants",
        "network",
        "seed",
        "swarm",
        "truth",
    )

    def __init__(
        self,
        seed: int,
        swarm: ClusterSwarm | None = None,
        window: range = range(0),
        command: str = "kraftpy.sim.cluster_run",
    ) -> None:
        """`command` is the module that replays it."""
        self._command = command
        rng = MemoryRng(seed, "cluster")
        self.seed = seed
        self.swarm = swarm or draw_cluster_swarm(rng.stream("swarm"))
        self.heap = EventHeap()
        self.digest = EventDigest(window)
        self.invariants = QuorumInvariants()
        rules = ClusterRules(allows_unclean=self.swarm.allows_unclean)
        self.truth = ClusterTruth(self.invariants, rules, self.digest)
        self.network = ClusterNetwork(self.heap, self.swarm, rng)
        self.data: DataRules | None = None
        if self.swarm.data:
            flushes = self.swarm.flush_messages == 1
            self.data = DataRules(flushes=flushes, has_elr=self.swarm.has_elr)
            self.truth.data = self.data
        self.faulty = True
        self._errors = ErrorLog()
        self._healed_us = 0
        self._next_look_us = 0
        self._workload_random = rng.stream("workload")
        self.controllers: dict[int, SimulatedController] = {}
        self.brokers: dict[int, SimulatedBroker] = {}
        self._make_nodes(rng)
        machines: dict[int, MetadataNode] = {**self.controllers, **self.brokers}
        self.clients = Clients(
            self.network,
            list(machines.values()),
            list(self.brokers),
            self.swarm,
            rng.stream("clients"),
        )
        self.data_clients = DataClients(
            self.network,
            list(machines.values()),
            self.swarm,
            self.data,
            rng.stream("data clients"),
        )
        self._nemesis = ClusterNemesis(
            self.network,
            self.invariants,
            self.swarm,
            rng.stream("nemesis"),
            machines=machines,
            brokers=self.brokers,
        )

    def _make_nodes(self, rng: MemoryRng) -> None:
        quorum = self.swarm.quorum
        random = rng.stream("nodes")
        count = quorum.voters + self.swarm.brokers
        keys = [ReplicaKey(node_id, Uuid(random.randbytes(16))) for node_id in range(1, count + 1)]
        voters = VoterSet(
            Voter(ReplicaKey(key.node_id), (_endpoint(key.node_id),))
            for key in keys[: quorum.voters]
        )
        for key in keys:
            config = RaftConfig(
                cluster_id=CLUSTER_ID,
                local=key,
                endpoints=(_endpoint(key.node_id),),
                bootstrap_servers=tuple(_endpoint(each.node_id) for each in keys[: quorum.voters]),
                static_voters=voters,
                retry_backoff_ms=50,
                fetch_max_bytes=quorum.fetch_max_bytes,
                fetch_snapshot_max_bytes=2_000,
            )
            node = QuorumNode(
                config,
                MemoryStorage(),
                heap=self.heap,
                invariants=self.invariants,
                digest=self.digest,
                rng=rng,
                wire=self.network,
                sync_mean_us=quorum.sync_mean_us,
                rate=1 + random.uniform(-quorum.drift, quorum.drift),
            )
            self.network.nodes[key.node_id] = node
            self._make_machine(node, rng)

    def _make_machine(self, node: QuorumNode, rng: MemoryRng) -> None:
        node_id = node.node_id
        random = rng.stream(f"machine {node_id}")
        if node_id <= self.swarm.quorum.voters:
            self.controllers[node_id] = SimulatedController(
                node,
                heap=self.heap,
                truth=self.truth,
                random=random,
                network=self.network,
                swarm=self.swarm,
            )
        else:
            self.brokers[node_id] = broker = SimulatedBroker(
                node,
                heap=self.heap,
                truth=self.truth,
                random=random,
                network=self.network,
                swarm=self.swarm,
                others=self.brokers,
            )
            if self.data is not None:
                stream = rng.stream(f"data {node_id}")
                broker.replicas = BrokerReplicas(
                    broker, self.data, self.network, self.swarm, stream
                )

    @property
    def event_count(self) -> int:
        """Events that reached a core, a controller, a loader or a broker."""
        return self.invariants.checked_steps

    # Phases.

    @rare_collections()
    def run(self, event_limit: int) -> ClusterRun:
        """The safety phase for `event_limit` events, then the liveness phase."""
        logger = logging.getLogger("kraftpy.metadata")
        logger.addHandler(self._errors)
        try:
            for node in self.network.nodes.values():
                node.start()
            self._plan_wish()
            self._plan_strike()
            if self.data is not None:
                self._plan_data()
            invariants = self.invariants
            while invariants.checked_steps < event_limit:
                self._run_event()
            self._heal()
            self._demand_order()
            for machine in self.controllers.values():
                machine.check_now()
            if self.data is not None:
                self.data.check_end(self.truth.image)
        except Exception as error:
            error.add_note(
                f"replay: python -m {self._command} --seed {self.seed}"
                f" --events {event_limit}  (virtual time {self.heap.now_us / 1e6:.6f} s,"
                f" event {self.event_count}, {self.swarm})"
            )
            raise
        finally:
            logger.removeHandler(self._errors)
        truth = self.truth
        return ClusterRun(
            self.seed,
            self.swarm,
            self.digest.trace(),
            self.event_count,
            self.heap.now_us,
            self.invariants.committed_end,
            self.invariants.leader_count,
            len(truth.created),
            len(truth.versions),
            len(truth.registered),
            self.clients.replies,
            0 if self.data is None else self.data.acknowledged,
            0 if self.data is None else self.data.delivered,
        )

    def _run_event(self) -> None:
        self.heap.run_next()
        if self.invariants.majority_is_due:
            self.invariants.check_majority(self.network.nodes)
        if self._errors.messages:
            raise InvariantViolated("error-logged", self._errors.messages[0])

    def _heal(self) -> None:
        self.faulty = False
        self._healed_us = self.heap.now_us
        self.network.make_reliable()
        for broker in self.brokers.values():
            broker.is_calm = True
        for node in self.network.nodes.values():
            if node.paused:
                node.resume()
            core = node.core
            if core is not None and core.quorum.shutdown_deadline_ms is not None:
                node.crash(kept_promises=1.0, kept_log=1.0)
            if not node.is_up:
                node.start()

    def _demand_order(self) -> None:
        ends = [node.storage.log.end_offset for node in self.network.nodes.values()]
        catch_up_us = 2 * (max(ends) - min(ends)) * self.swarm.quorum.round_trip_us
        deadline_us = self.heap.now_us + _LIVENESS_LIMIT_US + catch_up_us
        while (disorder := self._disorder()) is not None:
            if self.heap.now_us > deadline_us:
                raise InvariantViolated("liveness", disorder)
            self._next_look_us = self.heap.now_us + _ORDER_CHECK_US
            while self.heap.now_us < self._next_look_us:
                self._run_event()

    def _disorder(self) -> str | None:
        """What isn't yet as it should be; None if all is."""
        active = [each for each in self.controllers.values() if each.is_active]
        if len(active) != 1:
            return f"{len(active)} controllers are active"
        self.truth.advance()
        image = self.truth.image
        for broker_id, broker in self.brokers.items():
            known = image.brokers.get(broker_id)
            if known is None or known.fenced or known.broker_epoch != broker.broker_epoch:
                return f"broker {broker_id} is not there: {known}"
            if known.in_controlled_shutdown or broker.wants_to_stop:
                return f"broker {broker_id} is about to stop"
        return (
            _partition_disorder(image)
            or self._difference(image)
            or self._unanswered()
            or self._data_disorder(image)
        )

    def _data_disorder(self, image: MetadataImage) -> str | None:
        if self.data is None:
            return None
        for topic in image.topics.values():
            for partition in topic.partitions:
                key = (partition.topic_id, partition.partition_id)
                disorder = self.data.disorder(key, partition)
                if disorder is not None:
                    return f"{topic.name}: {disorder}"
        return None

    def _unanswered(self) -> str | None:
        """A request that waits since before everything was healed."""
        for node_id, controller in self.controllers.items():
            for waiting in controller.replies.values():
                if waiting.arrived_us < self._healed_us:
                    return f"controller {node_id} has not answered {waiting.request}"
        return None

    def _difference(self, image: MetadataImage) -> str | None:
        if image.pending_deletions:
            return f"deletions are pending: {image.pending_deletions}"
        for node_id, machine in (*self.controllers.items(), *self.brokers.items()):
            loader = machine.loader
            if loader is None:
                return f"node {node_id} is down"
            if image.provenance.last_offset - loader.image.provenance.last_offset > 20:
                return f"node {node_id} is behind"
            self.truth.check_whole(node_id, loader.image)
        return None

    # The workload and the nemesis.

    def _plan_wish(self) -> None:
        delay = self._workload_random.expovariate(1 / self.swarm.wish_mean_us)
        self.heap.plan(int(delay) + 1, self._wish)

    def _wish(self) -> None:
        if self.faulty:
            self.clients.wish()
            self._plan_wish()

    def _plan_data(self) -> None:
        self.heap.plan(self.data_clients.delay_us(self.swarm.produce_mean_us), self._use_data)

    def _use_data(self) -> None:
        if self.faulty:
            self.data_clients.act()
            self._plan_data()

    def _plan_strike(self) -> None:
        delay = self._workload_random.expovariate(1 / self.swarm.quorum.nemesis_mean_us)
        self.heap.plan(int(delay) + 1, self._strike)

    def _strike(self) -> None:
        if self.faulty:
            self._nemesis.strike()
            self._plan_strike()


def _partition_disorder(image: MetadataImage) -> str | None:
    """A partition that somebody could lead, or a move that could be done."""
    has_elr = bool(image.features.get(ELIGIBLE_LEADER_REPLICAS))
    for topic in image.topics.values():
        for partition in topic.partitions:
            can_lead = partition.isr + partition.eligible_leader_replicas
            if has_elr and not can_lead:
                can_lead = partition.last_known_elr
            if partition.leader == NO_LEADER and can_lead:
                return f"{topic.name} is not led: {partition}"
            if partition.leader != NO_LEADER and (
                partition.adding_replicas or partition.removing_replicas
            ):
                return f"{topic.name} is on the move: {partition}"
    return None


def _endpoint(node_id: int) -> Endpoint:
    return Endpoint(_LISTENER, host_of(node_id), 9093)


def run_cluster(seed: int, event_limit: int, *, window: range = range(0)) -> ClusterRun:
    """One seed, from beginning to end."""
    return ClusterSimulation(seed, window=window).run(event_limit)
