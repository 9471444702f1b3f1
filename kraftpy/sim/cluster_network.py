"""The cluster's network: Raft's datagrams, calls to a controller, and fetches between brokers.

A call is lost, doubled and delayed like everything else. What can't pass is not answered, and the
caller gives up by its own clock. A probe of a port is answered where a process listens, refused
where none does, and swallowed by a cut link, which is no evidence (design, decision 14).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from kraftpy.metadata.controller.effects import Answer, Refuse
from kraftpy.sim.cluster_swarm import ClusterSwarm
from kraftpy.sim.kernel import EventHeap
from kraftpy.sim.quorum_network import QuorumNetwork
from kraftpy.world.memory_rng import MemoryRng

if TYPE_CHECKING:
    from kraftpy.protocol.schema.k01_fetch import FetchRequest
    from kraftpy.protocol.schema.k02_list_offsets import ListOffsetsRequest
    from kraftpy.sim.cluster_controller import SimulatedController
    from kraftpy.sim.cluster_replicas import BrokerReplicas

__all__ = ["CLIENT", "ClusterNetwork", "OnReply", "Reply"]

Reply: TypeAlias = Answer | Refuse
OnReply: TypeAlias = Callable[[Reply], None]

# Where clients are: on no node, and behind no cut.
CLIENT = -1
_LATE_MEAN_US = 2_000_000


class ClusterNetwork(QuorumNetwork):
    __slots__ = ("_calls_random", "_heap_of_calls", "controllers", "late", "replicas")

    def __init__(self, heap: EventHeap, swarm: ClusterSwarm, rng: MemoryRng) -> None:
        super().__init__(heap, swarm.quorum, rng)
        self.late = swarm.late
        self._heap_of_calls = heap
        self._calls_random: Random = rng.stream("calls")
        self.controllers: dict[int, SimulatedController] = {}
        self.replicas: dict[int, BrokerReplicas] = {}

    def call(
        self, sender_id: int, receiver_id: int, request: Any, api_version: int, on_reply: OnReply
    ) -> None:
        """Ask a controller. There may be no reply, and there may be two."""
        receiver = self.controllers[receiver_id]
        back = partial(self._send_back, receiver_id, sender_id, on_reply)
        arrive = partial(receiver.receive, sender_id, request, api_version, back)
        self._send(sender_id, receiver_id, arrive)

    def _send_back(self, sender_id: int, receiver_id: int, on_reply: OnReply, reply: Reply) -> None:
        self._send(sender_id, receiver_id, partial(on_reply, reply))

    def _send(self, sender_id: int, receiver_id: int, arrive: Callable[[], None]) -> None:
        random = self._calls_random
        if (sender_id, receiver_id) in self.cuts or random.random() < self.loss:
            return
        self._heap_of_calls.plan(self._call_delay_us(), arrive)
        if self.duplication and random.random() < self.duplication:
            self._heap_of_calls.plan(self._call_delay_us(), arrive)

    def carry(self, sender_id: int, receiver_id: int, arrive: Callable[[], None]) -> None:
        """A piece of a stream, which comes once, or not at all."""
        is_cut = (sender_id, receiver_id) in self.cuts
        if not is_cut and self._calls_random.random() >= self.loss:
            self._heap_of_calls.plan(self._call_delay_us(), arrive)

    def fetch(
        self,
        sender_id: int,
        receiver_id: int,
        request: FetchRequest | ListOffsetsRequest,
        on_reply: Callable[[object], None],
    ) -> None:
        """Ask a broker for what it leads."""

        def reply(response: object) -> None:
            self.carry(receiver_id, sender_id, partial(on_reply, response))

        serve = partial(self.replicas[receiver_id].serve, request, reply)
        self.carry(sender_id, receiver_id, serve)

    def _call_delay_us(self) -> int:
        swarm, random = self.swarm, self._calls_random
        delay_us = swarm.delay_min_us + int(random.expovariate(1 / swarm.delay_mean_us))
        if self.late and random.random() < self.late:
            delay_us += int(random.expovariate(1 / _LATE_MEAN_US))
        return delay_us

    def make_reliable(self) -> None:
        super().make_reliable()
        self.late = 0.0

    # Evidence.

    def probe(self, prober_id: int, target_id: int, heard: Callable[[bool], None]) -> None:
        """Try to connect; `heard` gets whether the port refused."""
        arrive = partial(self._knock, prober_id, target_id, heard)
        self._heap_of_calls.plan(self._call_delay_us(), arrive)

    def _knock(self, prober_id: int, target_id: int, heard: Callable[[bool], None]) -> None:
        if (prober_id, target_id) in self.cuts or (target_id, prober_id) in self.cuts:
            return
        is_refused = not self.nodes[target_id].is_up
        self._heap_of_calls.plan(self._call_delay_us(), partial(heard, is_refused))

    def break_connections(self, broker_id: int) -> None:
        """A broker's process is gone, and its kernel says so to those it was connected to."""
        for controller_id, controller in self.controllers.items():
            is_cut = (broker_id, controller_id) in self.cuts
            if not is_cut and self._calls_random.random() < self.swarm.evidence:
                notice = partial(controller.note_disconnected, broker_id)
                self._heap_of_calls.plan(self._call_delay_us(), notice)
