"""What befalls the cluster: the quorum's faults, with real snapshots, and brokers that leave."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from kraftpy.metadata.snapshot import snapshot_batches
from kraftpy.raft import inputs
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT, SnapshotId
from kraftpy.raft.snapshot_content import snapshot_foot, snapshot_head
from kraftpy.raft.voters import VoterSet
from kraftpy.records.batch import RecordBatch
from kraftpy.sim.cluster_broker import SimulatedBroker
from kraftpy.sim.cluster_network import ClusterNetwork
from kraftpy.sim.cluster_node import MetadataNode
from kraftpy.sim.cluster_swarm import ClusterSwarm
from kraftpy.sim.quorum_invariants import QuorumInvariants
from kraftpy.sim.quorum_nemesis import Nemesis
from kraftpy.sim.quorum_node import QuorumNode

__all__ = ["ClusterNemesis"]


class ClusterNemesis(Nemesis):
    __slots__ = ("_broker_random", "_brokers", "_cluster_network", "_controlled", "_machines")

    def __init__(
        self,
        network: ClusterNetwork,
        invariants: QuorumInvariants,
        swarm: ClusterSwarm,
        random: Random,
        *,
        machines: Mapping[int, MetadataNode],
        brokers: Mapping[int, SimulatedBroker],
    ) -> None:
        super().__init__(network, invariants, swarm.quorum, random)
        self._broker_random = random
        self._cluster_network = network
        self._machines = machines
        self._brokers = brokers
        self._controlled = swarm.controlled

    def strike(self) -> None:
        """One fault; what earlier ones have left behind is mostly repaired before.

        A cluster that is down most of the time has little to show.
        """
        random = self._broker_random
        for machine in self._machines.values():
            node = machine.node
            if not node.is_up and random.random() < 0.6:
                node.start()
            elif node.paused and random.random() < 0.5:
                node.resume()
        if self._cluster_network.cuts and random.random() < 0.4:
            self._cluster_network.heal()
        super().strike()
        if random.random() < 0.5:
            broker = random.choice(list(self._brokers.values()))
            if broker.node.paused:
                return
            if random.random() < self._controlled:
                broker.wants_to_stop = True
            else:
                broker.end(is_clean=False)

    def snapshot(self, node: QuorumNode) -> None:
        """The node writes its published image down, or lets old snapshots go."""
        core = node.core
        loader = self._machines[node.node_id].loader
        if core is None or loader is None or node.paused:
            return
        log = core.quorum.log
        real = [each for each in log.snapshots if each != BOOTSTRAP_SNAPSHOT]
        if real and self._broker_random.random() < 0.4:
            node.feed(inputs.SnapshotsExpired(self._broker_random.choice(real)), "expire")
            return
        image = loader.image
        epoch, timestamp_ms = image.provenance.epoch, image.provenance.timestamp_ms
        snapshot_id = SnapshotId(image.provenance.end_offset, epoch)
        if not loader.may_snapshot or core.snapshot_refusal(snapshot_id) is not None:
            return
        head, offset = snapshot_head(
            epoch=epoch, timestamp_ms=timestamp_ms, voters=VoterSet(), kraft_version=0
        )
        parts = [head]
        for batch in snapshot_batches(image, base_offset=offset):
            parts.append(batch)
            offset = RecordBatch(batch).next_offset
        parts.append(snapshot_foot(base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms))
        node.freeze(snapshot_id, b"".join(parts))
