"""Members of groups: consumers of the classic protocol, and of KIP-848."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from kraftpy.coordinator.groups.classic_member import JoinCall
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kraftpy.protocol.schema.k12_heartbeat import HeartbeatRequest
from kraftpy.protocol.schema.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kraftpy.protocol.schema.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kraftpy.protocol.schema.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kraftpy.sim.coordinator_broker import CoordinatorBroker
from kraftpy.sim.coordinator_clients import TOPIC, Ask, GroupClient, Pause, Script, code_of

__all__ = ["TOPIC_ID", "ClassicConsumer", "ModernConsumer"]

TOPIC_ID: Final = Uuid(b"topic-t".rjust(16, b"-"))
_JOIN_VERSION: Final = 9
_HEARTBEAT_VERSION: Final = 1
_GIVES_UP_ITS_ID: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
_LEAVE_EPOCH: Final = -1
_STATIC_LEAVE_EPOCH: Final = -2


class ClassicConsumer(GroupClient):
    """`is_in` after a SyncGroup that succeeded, until told otherwise."""

    is_in = False

    def life(self) -> Script:
        while True:
            if not self.is_in:
                yield from self._join()
                if not self.is_in:
                    yield Pause(self.random.randint(1, 50))
            elif self.is_wild(0.3):
                yield from self._leave()
            elif self.is_wild(0.3):
                # The process dies, and another one comes after a while.
                self._forget()
                yield Pause(self.random.randint(1, 3 * self.swarm.session_ms))
            elif self.is_wild(0.3):
                yield Pause(self.random.randint(1, 2 * self.swarm.session_ms))
            elif self.is_wild(0.3):
                self.is_in = False
            else:
                yield from self._live()

    def _live(self) -> Script:
        yield Pause(self.random.randint(1, self.swarm.heartbeat_ms))
        kind = self.random.random()
        if kind < 0.3 and self.owned:
            code = yield from self.commit(self.epoch)
        elif kind < 0.4 and self.owned:
            index = self.random.choice(self.owned)
            yield from self.fetch(index, is_stable=kind < 0.35)
            return
        else:
            code = yield from self._heartbeat()
        if code is not None:
            self._react(code)

    def _react(self, code: ErrorCode) -> None:
        if code in _GIVES_UP_ITS_ID:
            self._forget()
        elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            self.is_in = False

    def _forget(self) -> None:
        self.is_in = False
        self.member_id, self.epoch, self.owned = "", -1, ()

    def _heartbeat(self) -> Generator[Ask | Pause, Any, ErrorCode | None]:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        answer = yield self.ask_group(
            "heartbeat", lambda machine: machine.classic.heartbeat(request)
        )
        return None if answer is None else code_of(answer)

    def _leave(self) -> Script:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        yield self.ask_group("leave", lambda machine: machine.classic.leave(request))
        self._forget()

    def _join(self) -> Script:
        self.owned = ()
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            session_timeout_ms=self.swarm.session_ms,
            rebalance_timeout_ms=self.swarm.rebalance_ms,
            protocol_type="consumer",
            protocols=protocols,
        )
        partition_id = self.where.name[1]
        answer = yield self.ask(
            "join",
            lambda broker, reply: broker.groups.write(
                partition_id,
                lambda machine: machine.classic.join(
                    JoinCall(request, _JOIN_VERSION, self.name, "/here", reply)
                ),
                reply,
            ),
            patience_ms=self.swarm.rebalance_ms + self.swarm.session_ms,
        )
        if answer is None:
            return
        code = code_of(answer)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code is ErrorCode.NONE:
            self.member_id, self.epoch = answer.member_id, answer.generation_id
            yield from self._sync(answer)
        else:
            self._react(code)

    def _sync(self, joined: Any) -> Script:
        assignments = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            assignments = self._assign([each.member_id for each in joined.members])
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        partition_id, generation = self.where.name[1], self.epoch
        who = self.instance or self.member_id

        def told(broker: CoordinatorBroker, answer: Any) -> None:
            self.rules.assigned(self.group_id, generation, who, answer.assignment)

        answer = yield self.ask(
            "sync",
            lambda broker, reply: broker.groups.write(
                partition_id, lambda machine: machine.classic.sync(request, reply), reply
            ),
            told,
            patience_ms=self.swarm.rebalance_ms + self.swarm.session_ms,
        )
        if answer is None:
            return
        code = code_of(answer)
        if code is ErrorCode.NONE:
            pieces = bytes(answer.assignment).partition(b"|")[2]
            self.owned = tuple(int(each) for each in pieces.split())
            self.is_in = True
        else:
            self._react(code)

    def _assign(self, member_ids: list[str]) -> list[SyncGroupRequestAssignment]:
        tag = f"{self.epoch} by {self.name} {self.next_number()}"
        pieces: dict[str, list[str]] = {each: [] for each in member_ids}
        for index in range(self.swarm.topic_partitions):
            pieces[member_ids[index % len(member_ids)]].append(str(index))
        return [
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=f"{tag}|{' '.join(piece)}".encode()
            )
            for member_id, piece in pieces.items()
        ]


class ModernConsumer(GroupClient):
    """Of KIP-848. It consumes a partition from the answer on until it has given it up."""

    # What it was told to have, while it is still giving up something else.
    target: tuple[int, ...] | None = None
    # Whether the coordinator has to hear what it owns.
    has_news = True
    # Whether an answer may have been lost.
    is_unsure = False
    process = 0
    # Whether it subscribes by a pattern, for as long as it lives.
    has_pattern = False
    # How often it does something else than sending heartbeats.
    diligence = 0.3

    def life(self) -> Script:
        self.has_pattern = self.random.random() < self.swarm.patterns
        self._restart()
        while True:
            if self.epoch > 0 and self.is_wild(0.3):
                yield from self._leave()
                self._restart()
            elif self.is_wild(0.3):
                self._let_go(())
                yield Pause(self.random.randint(1, 3 * self.swarm.session_ms))
                self._restart()
            elif self.is_wild(0.3):
                yield Pause(self.random.randint(1, 2 * self.swarm.session_ms))
            elif self.target is not None and self.random.random() < 0.6:
                self._take_target()
            elif self.epoch > 0 and self.owned and self.random.random() < self.diligence:
                yield from self.work()
            else:
                yield from self._heartbeat()
                yield Pause(self.random.randint(1, self.swarm.heartbeat_ms))

    def work(self) -> Script:
        if self.random.random() < 0.7:
            code = yield from self.commit(None)
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._fenced()
        else:
            index = self.random.choice(self.owned)
            yield from self.fetch(index, is_stable=self.random.random() < 0.5)

    def _restart(self) -> None:
        """Another process; a static one has the same instance id."""
        self._let_go(())
        self.process += 1
        self.member_id = f"{self.name}-{self.process}"
        self.epoch, self.target, self.has_news = 0, None, True

    def _fenced(self) -> None:
        self._let_go(())
        self.epoch, self.target, self.has_news = 0, None, True

    def _let_go(self, kept: tuple[int, ...]) -> None:
        for index in self.owned:
            if index not in kept:
                self.rules.gives_up(self.group_id, index, self.member_id)
        self.owned = tuple(index for index in self.owned if index in kept)

    def _take_target(self) -> None:
        target, self.target = self.target or (), None
        self._let_go(target)
        self.owned = target
        for index in target:
            self.rules.owns(self.group_id, index, self.member_id)
        self.has_news = True

    def _heartbeat(self) -> Script:
        is_full = self.epoch == 0 or self.is_unsure or self.random.random() < 0.1
        owned = None
        if is_full or self.has_news:
            self.target = None if is_full else self.target
            owned = [TopicPartitions(topic_id=TOPIC_ID, partitions=list(self.owned))]
            if not self.owned:
                owned = []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=self.swarm.rebalance_ms if is_full else -1,
            subscribed_topic_names=self._names() if is_full else None,
            subscribed_topic_regex=self._pattern() if is_full else None,
            topic_partitions=owned,
        )
        answer = yield from self._beat(request)
        code = ErrorCode.REQUEST_TIMED_OUT if answer is None else code_of(answer)
        self.is_unsure = code is not ErrorCode.NONE
        if self.is_unsure:
            # The answer may have been lost on its way back, with an assignment in it. What it says
            # next that it owns must stay true, so an assignment that it has not taken yet is void.
            self.has_news = True
            self.target = None
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._fenced()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._restart()
        elif code is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            self.has_news = False
            if answer.assignment is not None:
                self.target = tuple(
                    index
                    for topic in answer.assignment.topic_partitions
                    for index in topic.partitions
                )

    def _names(self) -> list[str]:
        return [] if self.has_pattern else [TOPIC]

    def _pattern(self) -> str:
        return f"{TOPIC}.*" if self.has_pattern else ""

    def _leave(self) -> Script:
        self._let_go(())
        epoch = _LEAVE_EPOCH if self.instance is None else _STATIC_LEAVE_EPOCH
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance,
        )
        yield from self._beat(request)

    def _beat(self, request: ConsumerGroupHeartbeatRequest) -> Generator[Ask | Pause, Any, Any]:
        member_id = self.member_id

        def told(broker: CoordinatorBroker, answer: Any) -> None:
            if answer.member_epoch > 0:
                self.rules.told_epoch(self.group_id, member_id, answer.member_epoch)

        answer = yield self.ask_group(
            "beat",
            lambda machine: machine.consumers.heartbeat(
                request, api_version=_HEARTBEAT_VERSION, client_id=self.name, client_host="/here"
            ),
            told,
            # One that says what is owned must not come after a newer one: that is what clients use
            # one connection at a time for.
            repeats=request.topic_partitions is None,
        )
        return answer
