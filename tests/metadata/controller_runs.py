"""Lives of a controller for tests: records appended, committed, lost; brokers that acknowledge.

`Life` carries a ControllerContext through appends, commits and reverts, and remembers the images
that survive, so that a fresh context can be led along the surviving ones only.
`ExplicitRun` is the replica state machine as it was before states were derived: a table of
states, changed by commands of which each is checked against the legal predecessors. It knows
the cluster from NaiveMetadata, and shares no code with kraftpy's machine.
`ClusterSource` writes what a sane controller would: unlike RecordSource, its reassignments, ISRs
and directories make sense.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from random import Random

from metadata_sequences import NaiveMetadata
from timeline_rig import let_happen

from kraftpy.metadata import records as r
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.protocol.ids import Uuid

SETTINGS = ControllerSettings(node_id=1, cluster_id="cluster", features=())
ENDPOINTS = (r.Endpoint("PLAINTEXT", "localhost", 9092, 0),)

NEW, ONLINE, OFFLINE, STARTED, SUCCESSFUL, INELIGIBLE, GONE = range(1, 8)
LEGAL = {
    NEW: {GONE},
    ONLINE: {NEW, ONLINE, OFFLINE, INELIGIBLE},
    OFFLINE: {NEW, ONLINE, OFFLINE, INELIGIBLE},
    STARTED: {OFFLINE},
    SUCCESSFUL: {STARTED},
    INELIGIBLE: {OFFLINE, STARTED},
    GONE: {SUCCESSFUL},
}

Replica = tuple[Uuid, int, int]


def topic_id(number: int) -> Uuid:
    return Uuid(b"topic-" + number.to_bytes(10))


def directory(number: int) -> Uuid:
    return Uuid(b"directory-" + number.to_bytes(6))


def broker(broker_id: int, epoch: int = 10, *, fenced: bool = False) -> r.RegisterBrokerRecord:
    dirs = (directory(broker_id * 2), directory(broker_id * 2 + 1))
    incarnation = Uuid(epoch.to_bytes(16))
    return r.RegisterBrokerRecord(
        broker_id, incarnation, epoch, ENDPOINTS, fenced=fenced, log_dirs=dirs
    )


def partition(topic: int, number: int, *replicas: int) -> r.PartitionRecord:
    dirs = tuple(directory(broker_id * 2) for broker_id in replicas)
    return r.PartitionRecord(
        number, topic_id(topic), replicas, replicas, leader=replicas[0], directories=dirs
    )


class Life:
    """A context, the images that have not been lost, and the next offset."""

    def __init__(self, *records: r.MetadataRecord) -> None:
        self.context = ControllerContext(SETTINGS)
        self.images: list[MetadataImage] = [EMPTY_IMAGE]
        self.committed = 0
        if records:
            self.append(*records)
            self.commit()

    @property
    def offset(self) -> int:
        """The last offset."""
        return self.images[-1].provenance.last_offset

    def append(self, *records: r.MetadataRecord) -> None:
        let_happen(self.context, records, Provenance(self.offset + len(records), 1, 0))
        self.images.append(self.context.image)

    def commit(self, count: int | None = None) -> None:
        """Commit the next `count` appended batches, all without it."""
        drafts = len(self.images) - 1 - self.committed
        self.committed += drafts if count is None else min(count, drafts)
        committed = self.images[self.committed]
        # What the loader publishes is equal to what the controller made, and another object.
        self.context.commit(MetadataDelta(committed).apply(committed.provenance))

    def revert(self) -> None:
        self.context.revert()
        del self.images[self.committed + 1 :]

    def activate(self) -> None:
        self.context.replica_states.forget_acknowledgements(self.offset)

    def state(self, topic: int, number: int, broker_id: int) -> int:
        return self.context.replica_states.state(topic_id(topic), number, broker_id)


def led_along(images: Sequence[MetadataImage]) -> ControllerContext:
    """A context that has seen these images, from the empty one on, and nothing else."""
    context = ControllerContext(SETTINGS)
    for image in images[1:]:
        context.commit(image)
    return context


class ExplicitRun:
    """States by command. `replay` gives the commands that a record stands for."""

    def __init__(self) -> None:
        self.model = NaiveMetadata()
        self.states: dict[Replica, int] = {}
        self.waiting: dict[Replica, int] = {}
        self.removed: dict[Replica, tuple[int, Uuid]] = {}
        self.is_active = False

    def handle_state_change(self, replica: Replica, *targets: int) -> None:
        for target in targets:
            current = self.states.setdefault(replica, GONE)
            assert current in LEGAL[target], f"{replica}: from {current} to {target}"
            self.states[replica] = target

    def copy(self) -> ExplicitRun:
        return deepcopy(self)

    # What a broker is good for.

    def is_usable(self, replica: Replica) -> bool:
        found = self.model.state["brokers"].get(replica[2])
        part = self.model.state["topics"][replica[0]][1][replica[1]]
        place = part.directories[part.replicas.index(replica[2])]
        if found is None or found.fenced or found.in_controlled_shutdown:
            return False
        return place in (*found.log_dirs, r.DIRECTORY_UNASSIGNED)

    def can_delete(self, replica: Replica) -> bool:
        found = self.model.state["brokers"].get(replica[2])
        if found is None or found.fenced:
            return False
        return replica not in self.removed or self.removed[replica][1] in found.log_dirs

    # Stimuli.

    def replay(self, record: r.MetadataRecord, offset: int) -> None:
        topics = self.model.state["topics"]
        match record:
            case r.PartitionRecord():
                self.model.replay(record)
                for broker_id in record.replicas:
                    self._create((record.topic_id, record.partition_id, broker_id), offset)
            case r.PartitionChangeRecord():
                old = topics[record.topic_id][1][record.partition_id]
                self.model.replay(record)
                new = topics[record.topic_id][1][record.partition_id]
                for broker_id in new.replicas:
                    replica = (record.topic_id, record.partition_id, broker_id)
                    if broker_id not in old.replicas:
                        self._create(replica, offset)
                for broker_id in old.replicas:
                    replica = (record.topic_id, record.partition_id, broker_id)
                    if broker_id not in new.replicas:
                        place = old.directories[old.replicas.index(broker_id)]
                        self.removed[replica] = (offset, place)
                        self._begin_deletion(replica)
                self._go_online_where_ready()
            case r.RemoveTopicRecord():
                parts = topics[record.topic_id][1]
                self.model.replay(record)
                for replica in [each for each in self.removed if each[0] == record.topic_id]:
                    self._finish_deletion(replica)
                for number, part in parts.items():
                    for broker_id in part.replicas:
                        self._begin_deletion((record.topic_id, number, broker_id))
            case r.ReplicaDeletedRecord():
                self.model.replay(record)
                self._finish_deletion((record.topic_id, record.partition_id, record.broker_id))
            case _:
                self.model.replay(record)
                self._follow_brokers()

    def acknowledge(self, broker_id: int, offset: int) -> None:
        for replica in [each for each, at in self.waiting.items() if at <= offset]:
            if replica[2] == broker_id:
                del self.waiting[replica]
        for replica in [each for each, (at, _) in self.removed.items() if at <= offset]:
            if replica[2] == broker_id:
                self._finish_deletion(replica)
        self._go_online_where_ready()

    def activate(self, is_active: bool) -> None:
        self.is_active = is_active
        self.waiting.clear()
        self._go_online_where_ready()

    # Commands.

    def _create(self, replica: Replica, offset: int) -> None:
        if replica in self.removed:
            self._finish_deletion(replica)
        self.handle_state_change(replica, NEW)
        if not self.is_usable(replica):
            self.handle_state_change(replica, OFFLINE)
        elif self.is_active:
            self.waiting[replica] = offset
        self._go_online_where_ready()

    def _go_online_where_ready(self) -> None:
        for replica, state in list(self.states.items()):
            if state == NEW and replica not in self.waiting:
                part = self.model.state["topics"][replica[0]][1][replica[1]]
                if replica[2] not in part.adding_replicas or replica[2] in part.isr:
                    self.handle_state_change(replica, ONLINE)

    def _begin_deletion(self, replica: Replica) -> None:
        self.waiting.pop(replica, None)
        self.handle_state_change(replica, OFFLINE)
        if replica[2] not in self.model.state["brokers"]:
            self._finish_deletion(replica)
        else:
            self.handle_state_change(replica, STARTED if self.can_delete(replica) else INELIGIBLE)

    def _finish_deletion(self, replica: Replica) -> None:
        self.removed.pop(replica, None)
        if self.states[replica] == INELIGIBLE:
            self.handle_state_change(replica, OFFLINE)
        if self.states[replica] == OFFLINE:
            self.handle_state_change(replica, STARTED)
        self.handle_state_change(replica, SUCCESSFUL, GONE)

    def _follow_brokers(self) -> None:
        for replica, state in list(self.states.items()):
            if state in (NEW, ONLINE, OFFLINE):
                if self.is_usable(replica):
                    if state == OFFLINE:
                        self.handle_state_change(replica, ONLINE)
                elif state != OFFLINE:
                    self.waiting.pop(replica, None)
                    self.handle_state_change(replica, OFFLINE)
            elif state in (STARTED, INELIGIBLE):
                if replica[2] not in self.model.state["brokers"]:
                    self._finish_deletion(replica)
                elif self.can_delete(replica) and state == INELIGIBLE:
                    self.handle_state_change(replica, OFFLINE, STARTED)
                elif not self.can_delete(replica) and state == STARTED:
                    self.handle_state_change(replica, INELIGIBLE)


class ClusterSource:
    """Records of a cluster of five brokers whose controller is in its right mind."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.model = NaiveMetadata()
        self.epoch = 10
        self.topics = 0

    def __iter__(self) -> Iterator[r.MetadataRecord]:
        return self

    def __next__(self) -> r.MetadataRecord:
        makers = (self._broker, self._broker, self._topic, self._topic, *(self._change,) * 6)
        record = None
        while record is None:
            record = self.random.choice(makers)()
        self.model.replay(record)
        return record

    def _broker(self) -> r.MetadataRecord | None:
        random = self.random
        number = random.randrange(5)
        found = self.model.state["brokers"].get(number)
        if found is None or random.random() < 0.1:
            self.epoch += 1
            return broker(number, self.epoch, fenced=random.random() < 0.7)
        match random.randrange(9):
            case 0:
                return r.UnregisterBrokerRecord(number, found.broker_epoch)
            case 1:
                return r.BrokerRegistrationChangeRecord(
                    number, found.broker_epoch, in_controlled_shutdown=True
                )
            case 2:
                places = (random.choice(found.log_dirs),)
                return r.BrokerRegistrationChangeRecord(number, found.broker_epoch, log_dirs=places)
            case 3 if not found.fenced:
                return r.FenceBrokerRecord(number, found.broker_epoch)
            case _ if found.fenced:
                return r.BrokerRegistrationChangeRecord(number, found.broker_epoch, fenced=-1)
            case _:
                return None

    def _topic(self) -> r.MetadataRecord | None:
        random, state = self.random, self.model.state
        match random.randrange(8):
            case 0 if state["topics"]:
                return r.RemoveTopicRecord(random.choice(sorted(state["topics"])))
            case 1 | 2 if state["deletions"]:
                topic = random.choice(sorted(state["deletions"]))
                replicas = sorted(state["deletions"][topic][1])
                return r.ReplicaDeletedRecord(topic, *random.choice(replicas))
            case 3 | 4 if len(state["topics"]) < 6:
                self.topics += 1
                return r.TopicRecord(f"topic-{self.topics}", topic_id(self.topics))
            case _ if state["topics"]:
                topic = random.choice(sorted(state["topics"]))
                replicas = tuple(random.sample(range(5), random.randrange(1, 4)))
                number = len(state["topics"][topic][1])
                return partition(int.from_bytes(topic[6:]), number, *replicas)
            case _:
                return None

    def _change(self) -> r.MetadataRecord | None:
        random, state = self.random, self.model.state
        parts = [part for _, topic in state["topics"].values() for part in topic.values()]
        if not parts:
            return None
        part = random.choice(parts)
        if part.adding_replicas or part.removing_replicas:
            return self._reassigned(part)
        match random.randrange(3):
            case 0:
                return self._reassignment(part)
            case 1:
                leader = random.choice((*part.isr, r.NO_LEADER))
                return r.PartitionChangeRecord(part.partition_id, part.topic_id, leader=leader)
            case _:
                isr = tuple(each for each in part.replicas if random.random() < 0.7)
                isr = isr or part.replicas
                return r.PartitionChangeRecord(
                    part.partition_id, part.topic_id, isr=isr, leader=isr[0]
                )

    def _reassignment(self, part: r.PartitionRecord) -> r.PartitionChangeRecord | None:
        target = tuple(self.random.sample(range(5), self.random.randrange(1, 4)))
        adding = tuple(each for each in target if each not in part.replicas)
        removing = tuple(each for each in part.replicas if each not in target)
        if not adding and not removing:
            return None
        replicas = (*target, *removing)
        return r.PartitionChangeRecord(
            *(part.partition_id, part.topic_id),
            replicas=replicas,
            adding_replicas=adding,
            removing_replicas=removing,
            directories=self._places(part, replicas),
        )

    def _reassigned(self, part: r.PartitionRecord) -> r.PartitionChangeRecord:
        """One replica more in the ISR, the end of a reassignment, or its cancellation."""
        missing = [each for each in part.adding_replicas if each not in part.isr]
        where = (part.partition_id, part.topic_id)
        is_cancelled = self.random.random() < 0.2
        if missing and not is_cancelled:
            return r.PartitionChangeRecord(*where, isr=(*part.isr, self.random.choice(missing)))
        gone = part.adding_replicas if is_cancelled else part.removing_replicas
        kept = tuple(each for each in part.replicas if each not in gone) or part.replicas[:1]
        isr = tuple(each for each in part.isr if each in kept) or kept[:1]
        return r.PartitionChangeRecord(
            *where,
            isr=isr,
            leader=isr[0],
            replicas=kept,
            adding_replicas=(),
            removing_replicas=(),
            directories=self._places(part, kept),
        )

    def _places(self, part: r.PartitionRecord, replicas: tuple[int, ...]) -> tuple[Uuid, ...]:
        return tuple(
            part.directory_of(each) or directory(each * 2 + self.random.randrange(2))
            for each in replicas
        )
