"""The network of the simulated quorum: datagrams that are lost, doubled, delayed and reordered.

A link from one node to another can be cut in one direction. A request to a node that is down is
usually refused, which is evidence of its death (design, decision 14); one that is lost on the way
never is.
"""

from __future__ import annotations

from functools import cache, partial

from kraftpy.protocol.errors import ErrorCode
from kraftpy.raft import effects as fx
from kraftpy.raft import inputs
from kraftpy.raft.voters import ReplicaKey
from kraftpy.sim.kernel import EventHeap
from kraftpy.sim.quorum_node import Asker, QuorumNode
from kraftpy.sim.quorum_swarm import QuorumSwarm
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["OPERATOR", "QuorumNetwork", "host_of", "node_id_of"]

# Who asks for voter changes; it does not listen to answers.
OPERATOR = -1
_DELAY_LIMIT = 20


def host_of(node_id: int) -> str:
    return f"node{node_id}"


@cache
def node_id_of(host: str) -> int:
    """The node that listens there."""
    return int(host.removeprefix("node"))


class QuorumNetwork:
    __slots__ = ("_heap", "_random", "cuts", "duplication", "loss", "nodes", "swarm")

    def __init__(self, heap: EventHeap, swarm: QuorumSwarm, rng: MemoryRng) -> None:
        self._heap = heap
        self._random = rng.stream("network")
        self.swarm = swarm
        self.loss = swarm.loss
        self.duplication = swarm.duplication
        self.nodes: dict[int, QuorumNode] = {}
        # Pairs (from, to) that nothing passes.
        self.cuts: dict[tuple[int, int], None] = {}

    def heal(self) -> None:
        self.cuts.clear()

    def make_reliable(self) -> None:
        self.heal()
        self.loss = self.duplication = 0.0

    def _delay_us(self) -> int:
        swarm = self.swarm
        delay = self._random.expovariate(1 / swarm.delay_mean_us)
        return swarm.delay_min_us + int(min(delay, swarm.delay_mean_us * _DELAY_LIMIT))

    def request(self, sender: QuorumNode, send: fx.Send) -> None:
        receiver = self.nodes[node_id_of(send.address.host)]
        asker = Asker(sender.node_id, sender.incarnation, send.correlation_id, send.node_id)
        if (sender.node_id, receiver.node_id) in self.cuts:
            return
        random = self._random
        if self.loss and random.random() < self.loss:
            return
        arrive = partial(self._arrive, sender, sender.key, receiver, asker, send.request)
        self._heap.plan(self._delay_us(), arrive)
        if self.duplication and random.random() < self.duplication:
            self._heap.plan(self._delay_us(), arrive)

    def _arrive(
        self,
        sender: QuorumNode,
        sender_key: ReplicaKey,
        receiver: QuorumNode,
        asker: Asker,
        request: inputs.RaftRequest,
    ) -> None:
        if sender.key != sender_key:
            # The replica that asked is no more; the one in its place must not be taken for it.
            return
        if receiver.is_up:
            receiver.receive(asker, request)
        elif sender.incarnation == asker.incarnation:
            failed = inputs.RequestFailed(
                asker.asked_id, asker.correlation_id, ErrorCode.BROKER_NOT_AVAILABLE
            )
            sender.feed(failed, "refused")
            if self._random.random() < self.swarm.evidence and not receiver.is_up:
                sender.feed(inputs.PeerUnreachable(asker.asked_id), "evidence")

    def report_death(self, dead_id: int, witness: QuorumNode) -> None:
        """The witness's connection broke and the port refuses it."""
        if witness.is_up:
            for place, server in enumerate(witness.config.bootstrap_servers):
                if server.host == host_of(dead_id):
                    witness.feed(inputs.PeerUnreachable(-2 - place), "evidence")

    def response(self, sender: QuorumNode, asker: Asker, response: inputs.RaftResponse) -> None:
        if asker.node_id == OPERATOR or (sender.node_id, asker.node_id) in self.cuts:
            return
        random = self._random
        if self.loss and random.random() < self.loss:
            return
        arrive = partial(self._answer, asker, response)
        self._heap.plan(self._delay_us(), arrive)
        if self.duplication and random.random() < self.duplication:
            self._heap.plan(self._delay_us(), arrive)

    def _answer(self, asker: Asker, response: inputs.RaftResponse) -> None:
        node = self.nodes[asker.node_id]
        if node.incarnation == asker.incarnation:
            received = inputs.ResponseReceived(asker.asked_id, asker.correlation_id, response)
            node.feed(received, type(response).__name__)
