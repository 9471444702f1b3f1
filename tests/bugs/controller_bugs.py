"""Seeded bugs of the controller, each one replacing one method of the product (testing.md 10.5).

The cluster simulation must find every one of them; see seeded_bugs.py for how.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import chain
from typing import Any

from seeded_bugs import Bug, Suite

from kraftpy.metadata.controller.alter_partition import AlterPartitionControl, _Alteration
from kraftpy.metadata.controller.broker_states import BrokerState
from kraftpy.metadata.controller.brokers import BrokerControl
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.controller import Controller
from kraftpy.metadata.controller.effects import Answer
from kraftpy.metadata.controller.heartbeat_table import HeartbeatTable
from kraftpy.metadata.controller.partition_change import Election, PartitionChangeBuilder
from kraftpy.metadata.controller.partition_index import PartitionIndex
from kraftpy.metadata.controller.result import ControllerResult, in_parts
from kraftpy.metadata.controller.topic_deletion import TopicDeletion
from kraftpy.metadata.publisher import MetadataLoader
from kraftpy.metadata.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    ReplicaDeletedRecord,
)
from kraftpy.metadata.topics_draft import TopicsDraft
from kraftpy.protocol.errors import ErrorCode
from kraftpy.sim.cluster_simulation import run_cluster

EVENTS = 5_000


# Answers and leadership.

_serve = Controller._serve


def answer_before_commit(self: Controller, request_id: int, *how: Any) -> None:
    _serve(self, request_id, *how)
    while self._parked:
        parked = self._parked.popleft()
        self._effects.append(Answer(parked.request_id, parked.answer))


def answer_without_records_at_once(
    self: Controller, request_id: int, operation: Any, *how: Any
) -> None:
    """What it read may not be committed."""
    end_offset = self._end_offset
    _serve(self, request_id, operation, *how)
    if self._end_offset == end_offset and self._parked and not operation.is_read:
        parked = self._parked.pop()
        self._effects.append(Answer(parked.request_id, parked.answer))


def memory_survives_the_leadership(self: ControllerContext) -> None:
    self._timeline._drafts.clear()


def parked_answers_survive_the_leadership(
    self: Controller, kind: Any, now_ms: int, *, must_resign: bool = False
) -> None:
    parked = list(self._parked)
    _give_up(self, kind, now_ms, must_resign=must_resign)
    self._parked.extend(parked)


_give_up = Controller._give_up


# Brokers.


def unfenced_before_caught_up(self: HeartbeatTable, broker_id: int) -> bool:
    return True


_heartbeat = BrokerControl.heartbeat


def stale_heartbeat_accepted(
    self: BrokerControl, request: Any, caller: Any, now_ms: int, next_offset: int
) -> Any:
    broker = self._context.image.brokers.get(request.broker_id)
    if broker is not None:
        request = copy(request)
        request.broker_epoch = broker.broker_epoch
    return _heartbeat(self, request, caller, now_ms, next_offset)


def fenced_broker_stays_in_isr(
    self: BrokerControl, broker_id: int, reason: str, answer: Any
) -> Any:
    broker = self._context.image.brokers[broker_id]
    change = BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, 1)
    return ControllerResult((change,), answer(), is_atomic=False)


def fenced_before_it_has_left(self: BrokerControl, broker_id: int, reason: str, answer: Any) -> Any:
    broker = self._context.image.brokers[broker_id]
    change = BrokerRegistrationChangeRecord(broker_id, broker.broker_epoch, 1)
    return in_parts(
        chain((change,), self._changes_by_leaving(broker_id)),
        self._part_size,
        lambda records, _: ControllerResult(records, answer(), is_atomic=False),
        0,
    )


def unclean_broker_stays_eligible(
    self: BrokerControl, broker_id: int, known: Any, previous_epoch: int
) -> Any:
    return self._changes_by_leaving(broker_id)


def broker_epoch_restarts(
    self: BrokerControl, request: Any, known: Any, now_ms: int, next_offset: int
) -> Any:
    return _checked(self, request, known, now_ms, 5 if known is None else next_offset)


_checked = BrokerControl._checked


def controlled_shutdown_keeps_leaders(
    self: BrokerControl, broker: Any, present: Any, state: Any, lost: Any
) -> Any:
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        return iter(())
    return _partition_changes(self, broker, present, state, lost)


_partition_changes = BrokerControl._partition_changes


def returning_broker_leads_nothing(self: BrokerControl, broker: Any, lost: Any) -> Any:
    return iter(())


# Partitions.


def alteration_of_an_earlier_process(self: AlterPartitionControl, request: Any, caller: Any) -> Any:
    broker = self._context.image.brokers.get(request.broker_id)
    if broker is not None:
        request = copy(request)
        request.broker_epoch = broker.broker_epoch
    return _alter_partition(self, request, caller)


_alter_partition = AlterPartitionControl.alter_partition


def leader_epoch_not_raised(self: TopicsDraft, record: PartitionChangeRecord) -> None:
    _change_partition(self, record)
    partitions = self._open_partitions[record.topic_id]
    partition = partitions[record.partition_id]
    if record.leader >= 0:
        lower = max(0, partition.leader_epoch - 1)
        partitions[record.partition_id] = replace(partition, leader_epoch=lower)


_change_partition = TopicsDraft.change_partition


def partition_epoch_unchecked(self: _Alteration, partition: Any, data: Any, members: Any) -> Any:
    code = _check(self, partition, data, members)
    if code is not ErrorCode.INVALID_UPDATE_VERSION:
        return code
    data.partition_epoch, asked = partition.partition_epoch, data.partition_epoch
    code = _check(self, partition, data, members)
    data.partition_epoch = asked
    return code


_check = _Alteration._check


def member_epoch_unchecked(self: _Alteration, member: Any) -> bool:
    broker = self._context.image.brokers.get(member.broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def fenced_member_accepted(self: _Alteration, member: Any) -> bool:
    return True


def elected_from_outside_isr(self: PartitionChangeBuilder) -> int:
    for replica in self.replicas:
        if self._is_acceptable(self._partition, replica):
            return replica
    return NO_LEADER


def elr_not_cleared(self: PartitionChangeBuilder) -> None:
    if not self._rules.is_elr_enabled:
        self._elr = self._last_known_elr = ()
        return
    had_everything = self._partition.eligible_leader_replicas + self._partition.isr
    self._elr = tuple(
        replica
        for replica in self.replicas
        if replica in had_everything
        and replica not in self.isr
        and replica not in self.uncleanly_stopped
    )


def move_ends_early(self: PartitionChangeBuilder) -> None:
    isr = tuple(replica for replica in self.isr if replica not in self.removing)
    if isr:
        self.isr = isr
        self.replicas = tuple(each for each in self.replicas if each not in self.removing)
        self.removing = self.adding = ()


def empty_isr_without_elr(self: PartitionChangeBuilder) -> Any:
    record = _build(self)
    if record is None or self.isr or self._rules.is_elr_enabled:
        return record
    return replace(record, isr=())


_build = PartitionChangeBuilder.build


def epoch_stays_when_a_replica_goes(
    self: PartitionChangeBuilder, leader: int, isr: tuple[int, ...]
) -> int:
    return -2 if leader == self._partition.leader else leader


def online_election_is_unclean(self: PartitionChangeBuilder) -> int:
    election, self.election = self.election, Election.UNCLEAN
    try:
        return _unclean_leader(self)
    finally:
        self.election = election


_unclean_leader = PartitionChangeBuilder._unclean_leader


# Topics, deletion, and what is derived.


def deletion_reported_for_everybody(self: TopicDeletion, broker_id: int, topic_ids: Any) -> Any:
    return tuple(
        ReplicaDeletedRecord(topic_id, replica.partition_id, replica.broker_id)
        for topic_id in dict.fromkeys(topic_ids)
        if topic_id in self._by_broker.get(broker_id, {})
        for replica in self._image.pending_deletions[topic_id].replicas
    )


def deletions_forgotten(self: TopicDeletion, broker_id: int, topic_ids: Any) -> Any:
    return ()


def index_keeps_removed_topics(self: PartitionIndex, changes: Any) -> None:
    self._image = changes.after
    for change in changes.partitions():
        if change.after is not None:
            self._follow(change)


_replay_record = MetadataLoader._replay_record


def last_record_of_a_batch_is_lost(self: MetadataLoader, batch: Any, record: Any) -> None:
    if record.offset < batch.last_offset or batch.records_count == 1 or batch.base_offset < 20:
        _replay_record(self, batch, record)


_publish = MetadataLoader._show


def half_a_batch_is_published(self: MetadataLoader, provenance: Any) -> None:
    """The image is labelled with one record less than it has."""
    if provenance.last_offset % 7 == 0:
        provenance = provenance._replace(last_offset=provenance.last_offset - 1)
    _publish(self, provenance)


BUGS = (
    Bug("answer before commit", Controller, "_serve", answer_before_commit),
    Bug("answer without records at once", Controller, "_serve", answer_without_records_at_once),
    Bug(
        "memory survives the leadership",
        ControllerContext,
        "revert",
        memory_survives_the_leadership,
    ),
    Bug(
        "parked answers survive the leadership",
        Controller,
        "_give_up",
        parked_answers_survive_the_leadership,
    ),
    Bug("unfenced before caught up", HeartbeatTable, "is_caught_up", unfenced_before_caught_up),
    Bug("stale heartbeat accepted", BrokerControl, "heartbeat", stale_heartbeat_accepted),
    Bug("fenced broker stays in ISR", BrokerControl, "_fencing", fenced_broker_stays_in_isr),
    Bug("fenced before it has left", BrokerControl, "_fencing", fenced_before_it_has_left),
    Bug(
        "unclean broker stays eligible",
        BrokerControl,
        "_changes_by_restart",
        unclean_broker_stays_eligible,
    ),
    Bug("broker epoch restarts", BrokerControl, "_checked", broker_epoch_restarts),
    Bug(
        "controlled shutdown keeps leaders",
        BrokerControl,
        "_partition_changes",
        controlled_shutdown_keeps_leaders,
    ),
    Bug(
        "returning broker leads nothing",
        BrokerControl,
        "_changes_by_coming",
        returning_broker_leads_nothing,
    ),
    Bug(
        "alteration of an earlier process",
        AlterPartitionControl,
        "alter_partition",
        alteration_of_an_earlier_process,
    ),
    Bug("leader epoch not raised", TopicsDraft, "change_partition", leader_epoch_not_raised),
    Bug("partition epoch unchecked", _Alteration, "_check", partition_epoch_unchecked),
    Bug("member's broker epoch unchecked", _Alteration, "_is_eligible", member_epoch_unchecked),
    Bug("fenced member accepted", _Alteration, "_is_eligible", fenced_member_accepted),
    Bug(
        "elected from outside the ISR",
        PartitionChangeBuilder,
        "_clean_leader",
        elected_from_outside_isr,
    ),
    Bug(
        "every election may be unclean",
        PartitionChangeBuilder,
        "_unclean_leader",
        online_election_is_unclean,
    ),
    Bug("ELR not cleared", PartitionChangeBuilder, "_choose_elr", elr_not_cleared),
    Bug("empty ISR without ELR", PartitionChangeBuilder, "build", empty_isr_without_elr),
    Bug(
        "epoch stays when a replica goes",
        PartitionChangeBuilder,
        "_leader_to_write",
        epoch_stays_when_a_replica_goes,
    ),
    Bug("reassignment ends early", PartitionChangeBuilder, "_finish_reassignment", move_ends_early),
    Bug(
        "deletion reported for everybody",
        TopicDeletion,
        "reported",
        deletion_reported_for_everybody,
    ),
    Bug("reports of deletions ignored", TopicDeletion, "reported", deletions_forgotten),
    Bug("index keeps removed topics", PartitionIndex, "update", index_keeps_removed_topics),
    Bug(
        "last record of a batch is lost",
        MetadataLoader,
        "_replay_record",
        last_record_of_a_batch_is_lost,
    ),
    Bug("image labelled with another offset", MetadataLoader, "_show", half_a_batch_is_published),
)


def run(seed: int) -> None:
    run_cluster(seed, EVENTS)


SUITE = Suite("controller", "L2, cluster", BUGS, run)
