"""A simulated controller node: the product's controller with all its operations, and its shell.

The shell does what the runner in trio does: it polls when something is due, one event at a time,
carries effects out in order, and tells the controller of appends that Raft did not take. After
every poll the controller is looked at from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from random import Random
from typing import Any, NamedTuple

from kraftpy.config import NodeConfig, from_mapping
from kraftpy.config.dynamic import DynamicConfig
from kraftpy.metadata.bootstrap import bootstrap_records
from kraftpy.metadata.committed_feed import LeadershipListener
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.controller import Controller
from kraftpy.metadata.controller.effects import (
    Answer,
    AppendRecords,
    ControllerEffect,
    ProbeBroker,
    Refuse,
    ResignLeadership,
)
from kraftpy.metadata.controller.metrics import ControllerMetrics
from kraftpy.metadata.controller.parts import assemble, make_controls
from kraftpy.metadata.controller.result import Caller, ControllerError
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    default_levels,
    supported_features,
)
from kraftpy.metadata.publisher import MetadataLoader
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k63_broker_heartbeat import BrokerHeartbeatRequest
from kraftpy.raft import effects as fx
from kraftpy.raft import inputs
from kraftpy.sim.cluster_answers import check_answer, epoch_at_arrival
from kraftpy.sim.cluster_derived import check_derived
from kraftpy.sim.cluster_network import CLIENT, ClusterNetwork, OnReply
from kraftpy.sim.cluster_node import MetadataNode
from kraftpy.sim.cluster_swarm import ClusterSwarm
from kraftpy.sim.cluster_truth import ClusterTruth
from kraftpy.sim.kernel import EventHeap
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.quorum_network import node_id_of
from kraftpy.sim.quorum_node import QuorumNode
from kraftpy.world import Random as RandomPort

__all__ = ["CLUSTER_ID", "SimulatedController"]

CLUSTER_ID = "simulated"
_DERIVED_EVERY = 100


class _FixedVersion:
    """The quorum's kraft.version stays what it is."""

    kraft_version = 0
    voter_ids: tuple[int, ...] = ()

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        raise ControllerError(ErrorCode.UNSUPPORTED_VERSION)


class _Waiting(NamedTuple):
    """A request that is not answered yet."""

    request: Any
    reply: OnReply
    # That of the broker that asks, as it was committed when the request came.
    epoch: int | None
    arrived_us: int


class _Leadership:
    """Passes the feed's news on, with the time."""

    __slots__ = ("_controller", "_node")

    def __init__(self, controller: Controller, node: QuorumNode) -> None:
        self._controller = controller
        self._node = node

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        self._controller.leader_changed(epoch, leader_id, self._node.now_ms())

    def leadership_lost(self, epoch: int) -> None:
        self._controller.leadership_lost(epoch, self._node.now_ms())


class SimulatedController(MetadataNode):
    __slots__ = (
        "_alarm_us",
        "_last_id",
        "_mail",
        "_network",
        "_polls",
        "_swarm",
        "context",
        "controller",
        "replies",
    )

    def __init__(
        self,
        node: QuorumNode,
        *,
        heap: EventHeap,
        truth: ClusterTruth,
        random: Random,
        network: ClusterNetwork,
        swarm: ClusterSwarm,
    ) -> None:
        super().__init__(
            node, heap=heap, truth=truth, random=random, task_mean_us=swarm.task_mean_us
        )
        self._network = network
        self._swarm = swarm
        self.controller: Controller | None = None
        self.context: ControllerContext | None = None
        self.replies: dict[int, _Waiting] = {}
        # What came while the process was paused.
        self._mail: list[Callable[[], None]] = []
        self._last_id = 0
        self._alarm_us = -1
        self._polls = 0
        network.controllers[node.node_id] = self

    def prepare(self, loader: MetadataLoader) -> LeadershipListener:
        swarm = self._swarm
        settings = ControllerSettings(
            node_id=self.node_id,
            cluster_id=CLUSTER_ID,
            features=supported_features(),
            broker_session_timeout_ms=swarm.session_timeout_ms,
            broker_heartbeat_interval_ms=swarm.heartbeat_interval_ms,
            leader_imbalance_check_interval_ms=swarm.balance_interval_ms,
            unclean_leader_election_interval_ms=5_000,
            metadata_max_idle_interval_ms=swarm.idle_interval_ms,
            # So few that operations come in parts although topics are small.
            partitions_at_once=2,
        )
        levels = {
            name: level
            for name, level in default_levels(swarm.metadata_version).items()
            if name != ELIGIBLE_LEADER_REPLICAS
        }
        if swarm.has_elr:
            levels[ELIGIBLE_LEADER_REPLICAS] = 1
        self.context = context = ControllerContext(settings)
        random: RandomPort = self.random
        controls = make_controls(
            context, DynamicConfig(_node_config(self.node_id)), _FixedVersion(), random
        )
        parts = assemble(controls, bootstrap_records(levels), loader.open_transaction)
        metrics = ControllerMetrics(MetricRegistry(), self.node.now_ms(), self.node.now_ms)
        self.controller = controller = Controller(context, parts, metrics)
        controller.on_work = self._note_work
        loader.install(controller)
        return _Leadership(controller, self.node)

    def stopped(self) -> None:
        super().stopped()
        self.controller = None
        self.context = None
        self.replies.clear()
        self._mail.clear()
        self._alarm_us = -1

    def resumed(self) -> None:
        super().resumed()
        self._alarm_us = -1
        mail, self._mail = self._mail, []
        for receive in mail:
            receive()
        self._note_work()

    @property
    def is_active(self) -> bool:
        return self.controller is not None and self.controller.is_active

    # Facts.

    def receive(self, sender_id: int, request: Any, api_version: int, reply: OnReply) -> None:
        """A request has come; a paused process hears it later."""
        controller = self.controller
        if controller is None:
            return
        if self.node.paused:
            self._mail.append(partial(self.receive, sender_id, request, api_version, reply))
            return
        now_ms = self.node.now_ms()
        if isinstance(request, BrokerHeartbeatRequest):
            controller.note_contact(request.broker_id, request.broker_epoch, now_ms)
        self._last_id += 1
        epoch = None if sender_id == CLIENT else epoch_at_arrival(self.truth, request)
        self.replies[self._last_id] = _Waiting(request, reply, epoch, self.heap.now_us)
        controller.submit(self._last_id, request, Caller(api_version=api_version), now_ms)
        self.truth.note_event(self.heap.now_us, type(request).__name__, self.node_id, sender_id)

    def note_disconnected(self, broker_id: int) -> None:
        if self.controller is not None and not self.node.paused:
            self.controller.note_disconnected(broker_id, self.node.now_ms())

    # Work.

    def published(self) -> None:
        """The controller is a publisher, and knows."""

    def _note_work(self) -> None:
        controller = self.controller
        if controller is None:
            return
        due_ms = controller.next_deadline_ms()
        if due_ms is None:
            return
        now_us = self.heap.now_us
        due_us = now_us + self.task_delay_us()
        if due_ms > self.node.now_ms():
            due_us = max(due_us, int((due_ms + 1) * 1_000 / self.node.rate))
        if self._alarm_us <= now_us or due_us < self._alarm_us:
            self._alarm_us = due_us
            self.plan(due_us - now_us, partial(self._poll, due_us))

    def _poll(self, due_us: int) -> None:
        controller, core = self.controller, self.node.core
        if controller is None or core is None or due_us != self._alarm_us:
            return
        self._alarm_us = -1
        now_ms = self.node.now_ms()
        effects = controller.poll(now_ms, now_ms, core.quorum.log.end_offset)
        self._carry_out(controller, effects)
        self._check(controller)
        self.truth.note_event(self.heap.now_us, "poll", self.node_id, len(effects))
        self._note_work()

    def _carry_out(self, controller: Controller, effects: list[ControllerEffect]) -> None:
        refused_epoch: int | None = None
        for effect in effects:
            match effect:
                case AppendRecords():
                    if effect.epoch != refused_epoch and not self._append(effect):
                        refused_epoch = effect.epoch
                        controller.append_refused(effect.epoch, self.node.now_ms())
                case Answer() | Refuse():
                    self._reply(effect)
                case ResignLeadership():
                    self.node.feed(inputs.Resign(effect.epoch), "resign")
                case ProbeBroker():
                    heard = partial(self._probed, self.node.incarnation, effect.broker_id)
                    self._network.probe(self.node_id, node_id_of(effect.host), heard)

    def _append(self, effect: AppendRecords) -> bool:
        proposal = inputs.Propose(effect.base_offset, effect.epoch, effect.values)
        for outcome in self.node.feed(proposal, "propose"):
            if isinstance(outcome, fx.Proposed):
                return outcome.last_offset == effect.last_offset
        return False

    def _reply(self, effect: Answer | Refuse) -> None:
        waiting = self.replies.pop(effect.request_id, None)
        if waiting is None:
            raise InvariantViolated("answered-twice", f"{self.node_id}: {effect}")
        if isinstance(effect, Answer):
            check_answer(self.truth, waiting.request, effect.response, waiting.epoch)
        waiting.reply(effect)

    def _probed(self, incarnation: int, broker_id: int, is_refused: bool) -> None:
        controller = self.controller
        if controller is None or incarnation != self.node.incarnation or self.node.paused:
            return
        if is_refused:
            controller.note_refused(broker_id, self.node.now_ms())
        else:
            controller.note_reachable(broker_id)

    def _check(self, controller: Controller) -> None:
        context = self.context
        if context is None:
            return
        if not controller.is_active and context.image is not context.stable:
            raise InvariantViolated(
                "standby-ahead",
                f"{self.node_id}: {context.image.provenance}, {context.stable.provenance}",
            )
        self._polls += 1
        if self._polls % _DERIVED_EVERY == 0 and not context.is_amid_append:
            check_derived(self.node_id, context)

    def check_now(self) -> None:
        """Everything that is otherwise checked at intervals."""
        if self.context is not None and self.loader is not None:
            if not self.context.is_amid_append:
                check_derived(self.node_id, self.context)
            self.truth.check_whole(self.node_id, self.loader.image)


@cache
def _node_config(node_id: int) -> NodeConfig:
    settings = {
        "node.id": str(node_id),
        "process.roles": "controller",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:9093",
        "controller.quorum.voters": f"{node_id}@127.0.0.1:9093",
        "log.dirs": "/data",
    }
    return NodeConfig(from_mapping(settings, "simulation"))
