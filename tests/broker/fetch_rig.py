"""Fetchers for tests: answers made by hand, and brokers that fetch from each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from core_rig import LAG_MS, TOPIC_ID, Brokers, Events, batch, data_of, memory_log, record

from kraftpy.broker.fetcher_core import FetcherCore
from kraftpy.broker.fetcher_steps import (
    ChangeLogs,
    Fetch,
    FetcherSettings,
    FindOffsets,
    Flush,
    Idle,
    LogChange,
    Restart,
    Step,
    Truncate,
)
from kraftpy.broker.isr import IsrAnswer
from kraftpy.broker.memory_replica_log import MemoryReplicaLog
from kraftpy.broker.partition import Partition, ReplicaError
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.errors import OffsetOutOfRangeError
from kraftpy.log.offsets import Isolation
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kraftpy.protocol.schema.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

SETTINGS = FetcherSettings(broker_id=1, backoff_ms=1000, first_backoff_ms=100)


@dataclass
class Traffic:
    throttled: list[TopicPartition] = field(default_factory=list)
    is_over: bool = False
    counted: list[tuple[TopicPartition, int]] = field(default_factory=list)

    def is_exceeded(self) -> bool:
        return self.is_over

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.throttled

    def replicated(self, partition: Partition, byte_count: int) -> None:
        self.counted.append((partition.topic_partition, byte_count))


def follower(
    name: TopicPartition = ("t", 0),
    *,
    topic_id: Uuid = TOPIC_ID,
    epoch: int = 5,
    log: MemoryReplicaLog | None = None,
) -> Partition:
    """Broker 1's replica of a partition that broker 2 leads."""
    partition = Partition(
        name,
        topic_id,
        1,
        memory_log() if log is None else log,
        brokers=Brokers(),
        events=Events(),
        lag_time_max_ms=LAG_MS,
    )
    partition.follow(record(2, leader_epoch=epoch))
    return partition


def memory_log_of(partition: Partition) -> MemoryReplicaLog:
    assert isinstance(partition.log, MemoryReplicaLog)
    return partition.log


class Fetcher:
    """A core, and a shell that does what it is told at once."""

    def __init__(self, *partitions: Partition) -> None:
        self.traffic = Traffic()
        self.core = FetcherCore(SETTINGS, self.traffic, lambda: 101)
        self.now_ms = 0
        for partition in partitions:
            self.core.add(partition)

    def step(self) -> Step:
        return self.core.next_step(self.now_ms)

    def fetch(self) -> FetchRequest:
        step = self.step()
        assert isinstance(step, Fetch), step
        return step.request

    def asked(self) -> dict[int, FetchPartition]:
        """The partitions of the next request by number, in order."""
        return {each.partition: each for topic in self.fetch().topics for each in topic.partitions}

    def changes(self) -> list[LogChange]:
        step = self.step()
        assert isinstance(step, ChangeLogs), step
        return list(step.changes)

    def answer(self, *data: PartitionData, session_id: int = 7, error: int = 0) -> None:
        response = FetchResponse(
            error_code=error,
            session_id=session_id,
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(data))],
        )
        self.core.answered(response, self.now_ms)

    def answer_offset(self, offset: int, *, error: int = 0) -> None:
        found = ListOffsetsPartitionResponse(partition_index=0, offset=offset, error_code=error)
        topic = ListOffsetsTopicResponse(name="t", partitions=[found])
        self.core.offsets_answered(ListOffsetsResponse(topics=[topic]), self.now_ms)


def data(
    index: int = 0,
    records: bytes | bytearray = b"",
    *,
    error: int = 0,
    high_watermark: int = 0,
    log_start: int = 0,
    diverging: tuple[int, int] | None = None,
) -> PartitionData:
    epoch, end_offset = (-1, -1) if diverging is None else diverging
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        records=bytes(records),
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
    )


def carry_out(change: LogChange) -> None:
    log = memory_log_of(change.partition)
    match change:
        case Truncate(offset=offset):
            log.truncate_to(offset)
        case Restart(offset=offset):
            log.truncate_fully_and_start_at(offset)
        case Flush():
            log.flush()


class Member:
    """A broker of a cluster with one partition: its replica, and its fetcher while it follows."""

    def __init__(self, broker_id: int, brokers: Brokers, *, flush_messages: int) -> None:
        self.broker_id = broker_id
        self.brokers = brokers
        self.log = memory_log(flush_messages=flush_messages)
        self.partition = self._host()
        self.core: FetcherCore | None = None
        # The session that this broker keeps for each fetcher: its epoch, and what it asked for.
        self.sessions: dict[int, tuple[int, FetchPartition | None]] = {}
        self.is_up = True

    def _host(self) -> Partition:
        return Partition(
            ("t", 0),
            TOPIC_ID,
            self.broker_id,
            self.log,
            brokers=self.brokers,
            events=Events(),
            lag_time_max_ms=LAG_MS,
        )

    def crash(self, kept_end_offset: int) -> None:
        self.is_up = False
        self.core = None
        self.sessions.clear()
        self.log.crash(kept_end_offset)
        self.partition = self._host()
        self.brokers.epochs[self.broker_id] = self.broker_epoch + 100

    @property
    def broker_epoch(self) -> int:
        return self.brokers.epochs.get(self.broker_id, 100 + self.broker_id)


class Cluster:
    """Brokers, and a controller that is asked and tells at once; time is told."""

    def __init__(self, count: int = 3, *, flush_messages: int = 1 << 62) -> None:
        self.brokers = Brokers()
        self.members = {
            each: Member(each, self.brokers, flush_messages=flush_messages)
            for each in range(1, count + 1)
        }
        self.now_ms = 0
        self.leader_id = -1
        self.isr = tuple(self.members)
        self.leader_epoch = 0
        self.partition_epoch = 0
        # Requests that are long on their way, with whom they go to.
        self.late: list[tuple[Member, FetchRequest]] = []

    # The controller.

    def elect(self, leader_id: int, isr: tuple[int, ...] | None = None) -> None:
        self.leader_id = leader_id
        self.isr = self.isr if isr is None else isr
        self.leader_epoch += 1
        self.partition_epoch += 1
        for each in self.members:
            self.tell(each)

    def tell(self, broker_id: int) -> None:
        """Metadata reaches a broker."""
        member = self.members[broker_id]
        if not member.is_up:
            return
        told = record(
            self.leader_id,
            isr=self.isr,
            replicas=tuple(self.members),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        if self.leader_id == broker_id:
            member.core = None
            member.partition.lead(told, self.now_ms)
        elif member.partition.follow(told):
            member.core = FetcherCore(
                FetcherSettings(broker_id=broker_id, first_backoff_ms=5),
                Traffic(),
                lambda: member.broker_epoch,
            )
            if self.leader_id >= 0:
                member.core.add(member.partition)

    def alter(self, broker_id: int, *, is_lost: bool = False) -> None:
        """A leader's proposal is judged, and answered, unless the answer is lost."""
        partition = self.members[broker_id].partition
        proposal = partition.proposal
        if proposal is None:
            return
        if (
            proposal.base.leader_epoch != self.leader_epoch
            or proposal.base.partition_epoch != self.partition_epoch
        ):
            answer = IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        elif any(
            not self.members[each].is_up or epoch not in (-1, self.members[each].broker_epoch)
            for each, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
        ):
            answer = IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
        else:
            self.isr = proposal.isr
            self.partition_epoch += 1
            answer = IsrAnswer(
                ErrorCode.NONE, broker_id, self.isr, self.leader_epoch, self.partition_epoch
            )
        if is_lost:
            answer = IsrAnswer(ErrorCode.REQUEST_TIMED_OUT)
        partition.proposal_answered(proposal, answer, self.now_ms)

    # Fetching.

    def produce(self, *values: bytes) -> int:
        """At the leader; the offset after it."""
        partition = self.members[self.leader_id].partition
        info = partition.append(batch(*values), required_acks=1, now_ms=self.now_ms)
        log = self.members[self.leader_id].log
        if info.must_flush:
            log.flush()
            partition.flushed(log.recovery_point, self.now_ms)
        return info.last_offset + 1

    def turn(self, broker_id: int, *, is_lost: bool = False) -> bool:
        """A follower's next step, with its request or its answer lost; False if it is idle."""
        core = self.members[broker_id].core
        if core is None or not self.members[broker_id].is_up:
            return False
        step = core.next_step(self.now_ms)
        match step:
            case Idle():
                return False
            case ChangeLogs(changes=changes):
                self._make(core, changes)
            case Fetch(request=request):
                response = self.serve(request, self._source(broker_id))
                if response is None or is_lost:
                    core.failed_request(self.now_ms, "lost")
                else:
                    core.answered(response, self.now_ms)
            case FindOffsets(request=offsets):
                found = self.serve_offsets(broker_id, offsets)
                if found is None or is_lost:
                    core.failed_request(self.now_ms, "lost")
                else:
                    core.offsets_answered(found, self.now_ms)
        return True

    def turn_late(self, broker_id: int) -> None:
        """A follower gives up its request, which is still on its way."""
        core = self.members[broker_id].core
        leader = self._source(broker_id)
        if core is None or leader is None or not self.members[broker_id].is_up:
            return
        step = core.next_step(self.now_ms)
        if isinstance(step, Fetch):
            self.late.append((leader, step.request))
            core.failed_request(self.now_ms, "late")
        elif isinstance(step, ChangeLogs):
            self._make(core, step.changes)
        elif isinstance(step, FindOffsets):
            core.failed_request(self.now_ms, "late")

    def arrive(self) -> None:
        """A late request."""
        if self.late:
            leader, request = self.late.pop(0)
            if leader.is_up:
                leader.sessions.clear()
                self.serve(request, leader)

    def _make(self, core: FetcherCore, changes: Sequence[LogChange]) -> None:
        for change in changes:
            carry_out(change)
            core.changed(change, self.now_ms)

    def settle(self) -> None:
        """Everybody fetches until nothing changes any more."""
        for _ in range(40):
            self.now_ms += 1100
            for each in self.members:
                self.turn(each)
            self.alter(self.leader_id)

    def _source(self, broker_id: int) -> Member | None:
        """Whom a follower fetches from, by what it was told."""
        leader = self.members.get(self.members[broker_id].partition.leader_id)
        return leader if leader is not None and leader.is_up else None

    def serve(self, request: FetchRequest, leader: Member | None) -> FetchResponse | None:
        broker_id = request.replica_state.replica_id
        if leader is None:
            return None
        epoch, asked = leader.sessions.get(broker_id, (-1, None))
        if request.session_epoch == 0:
            asked = None
        elif request.session_epoch != epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if request.forgotten_topics_data:
            asked = None
        for topic in request.topics:
            asked = topic.partitions[0]
        leader.sessions[broker_id] = (request.session_epoch + 1, asked)
        answers = []
        if asked is not None:
            told = self._read(leader, request, asked)
            answers = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[told])]
        return FetchResponse(session_id=100 + broker_id, responses=answers)

    def _read(self, leader: Member, request: FetchRequest, asked: FetchPartition) -> PartitionData:
        partition, log = leader.partition, leader.log
        if (error := partition.check_epoch(asked.current_leader_epoch)) is not ErrorCode.NONE:
            return data(error=error)
        try:
            partition.check_leader()
            if asked.last_fetched_epoch >= 0:
                diverging = partition.divergence(asked.last_fetched_epoch, asked.fetch_offset)
                if diverging is not None:
                    return data(diverging=diverging)
            read = log.read(asked.fetch_offset, 150, Isolation.LOG_END)
        except (ReplicaError, OffsetOutOfRangeError) as trouble:
            return data(error=trouble.error_code)
        if not partition.follower_fetched(
            request.replica_state.replica_id,
            read.fetch_offset,
            log_start_offset=asked.log_start_offset,
            leader_end_offset=log.log_end_offset,
            broker_epoch=request.replica_state.replica_epoch,
            now_ms=self.now_ms,
        ):
            return data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return data(
            records=data_of(read),
            high_watermark=log.high_watermark,
            log_start=log.log_start_offset,
        )

    def serve_offsets(
        self, broker_id: int, request: ListOffsetsRequest
    ) -> ListOffsetsResponse | None:
        leader = self._source(broker_id)
        if leader is None:
            return None
        asked = request.topics[0].partitions[0]
        error = leader.partition.check_epoch(asked.current_leader_epoch)
        log = leader.log
        offset = log.log_end_offset if asked.timestamp == -1 else log.log_start_offset
        found: Any = ListOffsetsPartitionResponse(
            partition_index=0, offset=offset, error_code=error
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])
