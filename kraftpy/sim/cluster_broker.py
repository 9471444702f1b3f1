"""A simulated broker: it registers, beats, leads, deletes and leaves as a real one would.

In most seeds it has no data. Who is in sync with whom is drawn then, within what a real leader may
claim: a follower joins an ISR only if it is there by the leader's image, under the broker epoch
that it has there. In the others it has replicas (cluster_replicas.py), which decide that.
A process that stops after the controller's consent leaves its epoch for the next one; any other
end is unclean, and the next process says so.

One request to the controller is under way at a time for life, and one for partitions, as each has
a connection of its own. Whoever gets no answer asks again, perhaps somebody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from kraftpy.broker.isr_sender import ProposalBatch, answers_in, proposal_topics
from kraftpy.metadata.committed_feed import LeadershipListener
from kraftpy.metadata.controller.effects import Answer
from kraftpy.metadata.features import supported_features
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import MetadataLoader
from kraftpy.metadata.records import RECOVERED, PartitionRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k56_alter_partition as k56
from kraftpy.protocol.schema import k62_broker_registration as k62
from kraftpy.protocol.schema import k63_broker_heartbeat as k63
from kraftpy.sim.cluster_controller import CLUSTER_ID
from kraftpy.sim.cluster_network import ClusterNetwork, OnReply, Reply
from kraftpy.sim.cluster_node import MetadataNode
from kraftpy.sim.cluster_replicas import BrokerReplicas
from kraftpy.sim.cluster_swarm import ClusterSwarm
from kraftpy.sim.cluster_truth import ClusterTruth
from kraftpy.sim.kernel import EventHeap
from kraftpy.sim.quorum_network import host_of
from kraftpy.sim.quorum_node import QuorumNode

__all__ = ["SimulatedBroker"]

_NO_EPOCH = -1
_ALTERATIONS_MAX = 4
_ANSWER_LIMIT_US = 1_000_000
# Of claims about partitions, how many stay at the broker for a while, as behind a connection that
# has to be made first.
_STUCK = 0.15
_STUCK_MEAN_US = 1_500_000


class _Nobody:
    """Brokers don't act on leaders of the quorum."""

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        """The core knows whom to fetch from."""

    def leadership_lost(self, epoch: int) -> None:
        """It had none."""


class SimulatedBroker(MetadataNode):
    __slots__ = (
        "_altering",
        "_asking",
        "_clean_epoch",
        "_directory",
        "_is_ending",
        "_network",
        "_others",
        "_pending",
        "_previous_epoch",
        "_proposed",
        "_swarm",
        "broker_epoch",
        "incarnation_id",
        "is_calm",
        "is_fenced",
        "replicas",
        "wants_to_stop",
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
        others: Mapping[int, SimulatedBroker],
    ) -> None:
        """`others` are all brokers by id, this one too once it is there."""
        super().__init__(
            node, heap=heap, truth=truth, random=random, task_mean_us=swarm.task_mean_us
        )
        self._network = network
        self._swarm = swarm
        self._others = others
        self._directory = Uuid(random.randbytes(16))
        self._clean_epoch = self._previous_epoch = _NO_EPOCH
        self.incarnation_id = Uuid(bytes(16))
        self.broker_epoch = _NO_EPOCH
        self.is_fenced = True
        self.wants_to_stop = False
        # Without whims: followers only join.
        self.is_calm = False
        # The numbers of the requests that are under way.
        self._asking = self._altering = 0
        # What was claimed and not answered. It is claimed again as it is, however old.
        self._pending: k56.AlterPartitionRequest | None = None
        self._proposed: ProposalBatch = {}
        # Why the process ends, if its machine lives on: whether with the controller's consent.
        self._is_ending: bool | None = None
        self.replicas: BrokerReplicas | None = None

    # Life.

    def prepare(self, loader: MetadataLoader) -> LeadershipListener:
        del loader
        self.incarnation_id = Uuid(self.random.randbytes(16))
        self._previous_epoch, self._clean_epoch = self._clean_epoch, _NO_EPOCH
        key = (self.node_id, self.incarnation_id)
        self.truth.rules.is_unclean[key] = self._previous_epoch == _NO_EPOCH
        self.broker_epoch = _NO_EPOCH
        self.is_fenced = True
        self.wants_to_stop = False
        self._pending = None
        self._proposed = {}
        self.resume_work()
        return _Nobody()

    def stopped(self) -> None:
        super().stopped()
        self._network.break_connections(self.node_id)
        if self.replicas is not None:
            self.replicas.stopped(
                is_clean=self._is_ending is True, is_killed=self._is_ending is not None
            )
        self._is_ending = None

    def resumed(self) -> None:
        super().resumed()
        self.resume_work()
        if self.replicas is not None:
            self.replicas.resumed()

    def feed_delay_us(self) -> int:
        mean_us = 0 if self.is_calm else self._swarm.feed_mean_us
        late_us = int(self.random.expovariate(1 / mean_us)) if mean_us else 0
        return late_us + self.task_delay_us()

    def resume_work(self) -> None:
        self._asking += 1
        self._altering += 1
        self.plan(self.task_delay_us(), partial(self._live, self._asking))
        self.plan(self._look_delay_us(), partial(self._look, self._altering))

    def published(self) -> None:
        key = (self.node_id, self.incarnation_id)
        self.truth.rules.reached[key] = self.image.provenance.last_offset
        if self.replicas is not None:
            self.replicas.published()

    @property
    def image(self) -> MetadataImage:
        return self.truth.image if self.loader is None else self.loader.image

    def _ask(self, request: Any, api_version: int, on_reply: OnReply) -> None:
        """Ask whom this node takes for the controller, or just anybody."""
        core = self.node.core
        leader_id = -1 if core is None else core.quorum.election.leader_id
        if leader_id not in self._network.controllers or self.random.random() < 0.05:
            leader_id = self.random.choice(list(self._network.controllers))
        reply = partial(self._hear, self.node.incarnation, on_reply)
        self._network.call(self.node_id, leader_id, request, api_version, reply)

    def _hear(self, incarnation: int, on_reply: OnReply, reply: Reply) -> None:
        if incarnation == self.node.incarnation and not self.node.paused:
            on_reply(reply)

    # Registration and heartbeats.

    def _live(self, asking: int) -> None:
        """The next request of this life, unless one has overtaken it."""
        if asking != self._asking or not self.node.is_up:
            return
        self._asking += 1
        self.plan(_ANSWER_LIMIT_US, partial(self._live, self._asking))
        heard = partial(self._lived, self._asking)
        if self.broker_epoch == _NO_EPOCH:
            self._ask(self._registration(), 4, heard)
        else:
            self._ask(self._heartbeat(), 2, heard)

    def _registration(self) -> k62.BrokerRegistrationRequest:
        return k62.BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self.incarnation_id,
            listeners=[
                k62.Listener(
                    name="PLAINTEXT", host=host_of(self.node_id), port=9092, security_protocol=0
                )
            ],
            features=[
                k62.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in supported_features()
            ],
            rack=None,
            log_dirs=[self._directory],
            previous_broker_epoch=self._previous_epoch,
        )

    def _heartbeat(self) -> k63.BrokerHeartbeatRequest:
        image = self.image
        deleted = [
            topic_id
            for topic_id, pending in image.pending_deletions.items()
            if any(replica.broker_id == self.node_id for replica in pending.replicas)
            and (self.is_calm or self.random.random() < 0.5)
            and (self.replicas is None or not self.replicas.has_topic(topic_id))
        ]
        for topic_id in deleted:
            self.truth.rules.deleted[self.node_id, topic_id] = None
        return k63.BrokerHeartbeatRequest(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=image.provenance.last_offset,
            want_fence=False,
            want_shut_down=self.wants_to_stop,
            deleted_topic_ids=deleted,
        )

    def _lived(self, asking: int, reply: Reply) -> None:
        if asking != self._asking:
            return
        self.truth.note_event(self.heap.now_us, "lived", self.node_id, self.broker_epoch)
        self._asking += 1
        delay_ms = self._swarm.heartbeat_interval_ms
        if isinstance(reply, Answer):
            response = reply.response
            if isinstance(response, k62.BrokerRegistrationResponse):
                self.broker_epoch = response.broker_epoch
                delay_ms = 0
            elif isinstance(response, k63.BrokerHeartbeatResponse):
                if response.should_shut_down:
                    self._stop()
                    return
                if response.is_fenced and not response.is_caught_up:
                    delay_ms = 10
                elif self.replicas is not None:
                    self.replicas.follow_metadata()
                self.is_fenced = response.is_fenced
        elif reply.code is ErrorCode.STALE_BROKER_EPOCH:
            # Unregistered, or taken for another: only a new process helps.
            self.plan(1, partial(self.end, is_clean=False))
            return
        elif reply.code is ErrorCode.NOT_CONTROLLER:
            delay_ms = 50
        delay_us = int(delay_ms * 1_000 / self.node.rate) + self.task_delay_us()
        self.plan(delay_us, partial(self._live, self._asking))

    def _stop(self) -> None:
        if self.wants_to_stop:
            self.plan(1, partial(self.end, is_clean=True))

    def end(self, *, is_clean: bool) -> None:
        """The process ends; nothing that it has written is lost."""
        if not self.node.is_up:
            return
        epoch = self.broker_epoch
        self._is_ending = is_clean
        self.node.crash(kept_promises=1.0, kept_log=1.0)
        if is_clean:
            self._clean_epoch = epoch
        delay_us = int(self.random.expovariate(1 / 500_000))
        self.heap.plan(delay_us, self._start_again)

    def _start_again(self) -> None:
        if not self.node.is_up:
            self.node.start()

    # Partitions.

    def _look_delay_us(self) -> int:
        return 1 + int(self.random.expovariate(1 / self._swarm.look_mean_us))

    def _look(self, altering: int) -> None:
        """Look at the partitions that this broker leads, by its own image."""
        if altering != self._altering or not self.node.is_up:
            return
        self._altering += 1
        if self._pending is None and self.broker_epoch != _NO_EPOCH and not self.is_fenced:
            topics = self._alterations()
            if topics:
                self._pending = k56.AlterPartitionRequest(
                    broker_id=self.node_id, broker_epoch=self.broker_epoch, topics=topics
                )
                if not self.is_calm and self.random.random() < _STUCK:
                    delay_us = int(self.random.expovariate(1 / _STUCK_MEAN_US))
                    self.plan(delay_us, partial(self._look, self._altering))
                    return
        if self._pending is None:
            self.plan(self._look_delay_us(), partial(self._look, self._altering))
            return
        self.plan(self._swarm.alteration_limit_us, partial(self._look, self._altering))
        self._ask(self._pending, 3, partial(self._altered, self._altering))

    def _altered(self, altering: int, reply: Reply) -> None:
        if altering == self._altering:
            if isinstance(reply, Answer) or reply.code is not ErrorCode.NOT_CONTROLLER:
                self._pending = None
            if isinstance(reply, Answer) and isinstance(reply.response, k56.AlterPartitionResponse):
                self._tell_proposers(reply.response)
            self._altering += 1
            self.truth.note_event(self.heap.now_us, "altered", self.node_id, altering)
            self.plan(self._look_delay_us(), partial(self._look, self._altering))

    def _tell_proposers(self, response: k56.AlterPartitionResponse) -> None:
        if response.error_code == ErrorCode.NONE:
            answers = answers_in(response)
            for key, (partition, proposal) in self._proposed.items():
                if key in answers:
                    partition.proposal_answered(proposal, answers[key], self.node.now_ms())
        self._proposed = {}

    def _alterations(self) -> list[k56.RequestTopicData]:
        if self.replicas is not None:
            self._proposed = self.replicas.proposals()
            return proposal_topics(self._proposed)
        image = self.image
        topics: list[k56.RequestTopicData] = []
        count = 0
        for topic in image.topics.values():
            asked = []
            for partition in topic.partitions:
                if partition.leader != self.node_id:
                    continue
                isr = self._wanted_isr(image, partition)
                if isr is not None:
                    count += 1
                    asked.append(self._alteration(image, partition, isr))
                    if count == _ALTERATIONS_MAX:
                        break
            if asked:
                topics.append(k56.RequestTopicData(topic_id=topic.topic_id, partitions=asked))
            if count == _ALTERATIONS_MAX:
                break
        return topics

    def _wanted_isr(self, image: MetadataImage, partition: PartitionRecord) -> list[int] | None:
        """Another ISR, or None if this one is fine."""
        present = partition.isr
        if partition.leader_recovery_state != RECOVERED:
            return list(present)
        outside = [
            each
            for each in partition.replicas
            if each not in present and self._is_fetching(image, each)
        ]
        has_followers = len(present) > (self.node_id in present)
        if has_followers and not self.is_calm and self.random.random() < 0.2:
            isr = list(present)
            isr.remove(self.random.choice([each for each in isr if each != self.node_id]))
        elif outside and (self.is_calm or self.random.random() < 0.6):
            isr = [*present, self.random.choice(outside)]
        else:
            return None
        self.random.shuffle(isr)
        return isr

    def _is_fetching(self, image: MetadataImage, broker_id: int) -> bool:
        """Whether a follower runs, and is the one that the leader knows from its image.

        A leader that has heard it a moment ago can't know that it is gone or another one by now.
        """
        broker = image.brokers.get(broker_id)
        other = self._others.get(broker_id)
        if broker is None or other is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        is_there = other.node.is_up and broker.broker_epoch == other.broker_epoch
        return is_there or (not self.is_calm and self.random.random() < 0.3)

    def _alteration(
        self, image: MetadataImage, partition: PartitionRecord, isr: list[int]
    ) -> k56.RequestPartitionData:
        members = []
        for broker_id in isr:
            broker = image.brokers.get(broker_id)
            epoch = _NO_EPOCH if broker is None else broker.broker_epoch
            members.append(k56.BrokerState(broker_id=broker_id, broker_epoch=epoch))
        return k56.RequestPartitionData(
            partition_index=partition.partition_id,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=members,
            leader_recovery_state=RECOVERED,
            partition_epoch=partition.partition_epoch,
        )
