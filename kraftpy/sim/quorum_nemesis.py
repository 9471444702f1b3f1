"""What befalls the quorum while it works: faults, voter changes, snapshots, and its workload."""

from __future__ import annotations

from random import Random

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k80_add_raft_voter as add_voter
from kraftpy.protocol.schema import k81_remove_raft_voter as remove_voter
from kraftpy.raft import inputs
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT, SnapshotId
from kraftpy.raft.snapshot_content import snapshot_foot, snapshot_head
from kraftpy.raft.voters import VoterSet
from kraftpy.records.builder import BatchBuilder
from kraftpy.sim.quorum_invariants import QuorumInvariants
from kraftpy.sim.quorum_network import OPERATOR, QuorumNetwork
from kraftpy.sim.quorum_node import Asker, QuorumNode
from kraftpy.sim.quorum_swarm import Fault, QuorumSwarm

__all__ = ["Nemesis", "snapshot_bytes"]


def snapshot_bytes(snapshot_id: SnapshotId, voters: VoterSet, kraft_version: int) -> bytes:
    """A snapshot whose content follows from its name: head, a body of some size, foot."""
    epoch = snapshot_id.epoch
    head, end_offset = snapshot_head(
        epoch=epoch, timestamp_ms=0, voters=voters, kraft_version=kraft_version
    )
    body = BatchBuilder(base_offset=end_offset, leader_epoch=epoch)
    body.append(None, b"%d" % snapshot_id.end_offset * 20, timestamp_ms=0)
    foot = snapshot_foot(base_offset=end_offset + 1, epoch=epoch, timestamp_ms=0)
    return bytes(head + body.build() + foot)


class Nemesis:
    """Does one thing at a time, chosen by the seed among the faults of its swarm."""

    __slots__ = ("_invariants", "_network", "_random", "_swarm")

    def __init__(
        self,
        network: QuorumNetwork,
        invariants: QuorumInvariants,
        swarm: QuorumSwarm,
        random: Random,
    ) -> None:
        self._network = network
        self._invariants = invariants
        self._swarm = swarm
        self._random = random

    def strike(self) -> None:
        """One fault, or the end of one."""
        if not self._swarm.faults:
            return
        random = self._random
        fault = random.choice(self._swarm.faults)
        nodes = list(self._network.nodes.values())
        node = random.choice(nodes)
        match fault:
            case Fault.CRASH:
                self._crash_or_start(node)
            case Fault.PAUSE:
                if node.paused:
                    node.resume()
                elif node.is_up:
                    node.paused = True
            case Fault.PARTITION | Fault.ONE_WAY | Fault.BRIDGE:
                self._cut(fault, nodes)
            case Fault.RESIGN:
                for leader in nodes:
                    if leader.core is not None and leader.leads:
                        leader.feed(inputs.Resign(leader.core.quorum.epoch), "resign")
            case Fault.SHUT_DOWN:
                if node.is_up and not node.paused:
                    node.feed(inputs.ShutDown(node.now_ms() + 5_000), "shut down")
                elif not node.is_up:
                    node.start()
            case Fault.CHANGE_VOTERS:
                self._change_voters(nodes)
            case Fault.LOSE_DISK:
                self._lose_disk(node)
            case Fault.SNAPSHOT:
                self.snapshot(node)

    def _crash_or_start(self, node: QuorumNode) -> None:
        random = self._random
        if not node.is_up:
            node.start()
            return
        kept = random.choice(((0.0, 0.0), (1.0, 1.0), (random.random(), random.random())))
        node.crash(kept_promises=kept[0], kept_log=kept[1])
        if random.random() < 0.3:
            node.start()

    def _cut(self, fault: Fault, nodes: list[QuorumNode]) -> None:
        network = self._network
        random = self._random
        if network.cuts and random.random() < 0.6:
            network.heal()
            return
        ids = [node.node_id for node in nodes]
        random.shuffle(ids)
        split = random.randrange(1, len(ids)) if len(ids) > 1 else 1
        left, right = ids[:split], ids[split:]
        bridge = ids[-1] if fault is Fault.BRIDGE else None
        network.heal()
        for one in left:
            for other in right:
                if bridge is not None and bridge in (one, other):
                    continue
                network.cuts[one, other] = None
                if fault is not Fault.ONE_WAY:
                    network.cuts[other, one] = None

    def _change_voters(self, nodes: list[QuorumNode]) -> None:
        """An operator asks some node that believes it leads."""
        random = self._random
        leaders = [node for node in nodes if node.leads and not node.paused]
        if not leaders:
            return
        leader = random.choice(leaders)
        if leader.core is None:
            return
        quorum = leader.core.quorum
        if quorum.kraft_versions.latest == 0:
            leader.feed(inputs.UpgradeKraftVersion(0, quorum.epoch, 1), "upgrade")
            return
        voters = quorum.voters.latest
        present = {node.key for node in nodes}
        lost = [each for each in voters.voters if each.key not in present]
        target = random.choice(nodes)
        # As long as a voter's disk is lost, removing another would leave too few.
        voter = lost[0] if lost else voters.find(target.node_id)
        asker = Asker(OPERATOR, 0, 0, leader.node_id)
        cluster_id = leader.config.cluster_id
        if voter is not None and len(voters) > 1:
            leader.receive(
                asker,
                remove_voter.RemoveRaftVoterRequest(
                    cluster_id=cluster_id,
                    voter_id=voter.key.node_id,
                    voter_directory_id=voter.key.directory_id,
                ),
            )
        elif voter is None:
            leader.receive(
                asker,
                add_voter.AddRaftVoterRequest(
                    cluster_id=cluster_id,
                    voter_id=target.node_id,
                    voter_directory_id=target.key.directory_id,
                    listeners=[
                        add_voter.Listener(name=each.name, host=each.host, port=each.port)
                        for each in target.config.endpoints
                    ],
                ),
            )

    def _lose_disk(self, node: QuorumNode) -> None:
        """A node comes back empty under a new directory id, if the quorum can spare its data."""
        if not node.is_up or not self._can_spare(node):
            return
        node.crash(kept_promises=0.0, kept_log=0.0)
        node.replace_disk(Uuid(self._random.randbytes(16)))
        node.start()

    def _can_spare(self, lost: QuorumNode) -> bool:
        """Whether all agree on the voters, follow somebody else, and enough have everything.

        A node that hears that it leads, and does not know it, stops; so does Kafka's. A change of
        the voters that is in the log, inherited by a new leader or not, counts as under way until
        it is committed: before, the majority that matters may be that of either set.
        """
        nodes = [node for node in self._network.nodes.values() if node is not lost]
        cores = [node.core for node in nodes if node.core is not None]
        if lost.core is None or len(cores) < len(nodes):
            return False
        voters = lost.core.quorum.voters.latest
        if not voters.contains(lost.key):
            # It might be asking to be added, and would leave a voter that never was one.
            return False
        set_offset, _ = lost.core.quorum.voters.entries()[-1]
        if set_offset >= self._invariants.committed_end:
            return False
        for core in cores:
            if core.quorum.voters.latest != voters:
                return False
            if core.quorum.election.leader_id == lost.node_id or core.describe()["changes_voters"]:
                return False
        present = {node.key for node in nodes}
        if any(voter.key not in present and voter.key != lost.key for voter in voters.voters):
            return False
        # The leader may count what this disk had as replicated, later, without asking again.
        claimed = lost.storage.durable.end_offset
        holding = [
            node
            for node in nodes
            if voters.contains(node.key)
            and node.storage.durable.end_offset >= claimed
            and self._invariants.holds_committed(node.storage.durable)
        ]
        return len(holding) >= voters.majority

    def snapshot(self, node: QuorumNode) -> None:
        """The node's state machine makes a snapshot of what it knows to be committed; or cleans."""
        core = node.core
        if core is None or node.paused:
            return
        log = core.quorum.log
        real = [each for each in log.snapshots if each != BOOTSTRAP_SNAPSHOT]
        if real and self._random.random() < 0.4:
            node.feed(inputs.SnapshotsExpired(self._random.choice(real)), "expire")
            return
        end_offset = log.high_watermark
        epoch = log.epochs.epoch_for_offset(end_offset - 1)
        if epoch is None:
            return
        snapshot_id = SnapshotId(end_offset, epoch)
        if core.snapshot_refusal(snapshot_id) is None:
            voters = core.quorum.voters.at_end(end_offset)
            data = snapshot_bytes(
                snapshot_id, voters, core.quorum.kraft_versions.at_end(end_offset)
            )
            node.freeze(snapshot_id, data)
