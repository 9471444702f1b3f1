"""Clients of coordinators: scripts that ask, wait, and do whatever real ones do.

A client is a generator. It yields an Ask and is sent the answer, or None when its patience is over;
or it yields a Pause. It finds the coordinator as real ones do, by asking a broker, who may be
behind. What an answer means for the rules is said when the coordinator gives it (`told`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeAlias

from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kraftpy.protocol.schema.k09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kraftpy.sim.coordinator_broker import CoordinatorBroker
from kraftpy.sim.coordinator_network import CoordinatorNetwork
from kraftpy.sim.coordinator_partition import NOBODY, Reign, SimulatedPartition
from kraftpy.sim.coordinator_rules import GroupRules
from kraftpy.sim.coordinator_swarm import CoordinatorSwarm
from kraftpy.sim.kernel import EventHeap

__all__ = [
    "TOPIC",
    "Ask",
    "Client",
    "ClientWorld",
    "GroupClient",
    "Pause",
    "Reply",
    "Script",
    "code_of",
]

TOPIC: Final = "t"
_COMMIT_VERSION: Final = 9
_PATIENCE_MS: Final = 600
_SEARCH_MS: Final = 20

Reply: TypeAlias = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Ask:
    partition: SimulatedPartition
    kind: str
    call: Callable[[CoordinatorBroker, Reply], None]
    # At the coordinator, when it answers without an error.
    told: Callable[[CoordinatorBroker, Any], None]
    patience_ms: int = _PATIENCE_MS
    # Whether the request may come twice, and after the client has given up.
    repeats: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    ms: int


Script: TypeAlias = Generator[Ask | Pause, Any, None]


@dataclass(frozen=True, slots=True)
class ClientWorld:
    heap: EventHeap
    swarm: CoordinatorSwarm
    network: CoordinatorNetwork
    note: Callable[[str, str, str], None]


class Client(ABC):
    """`is_calm`: nothing is to go wrong any more, by this client's doing."""

    # Never goes back to the coordinator before the one that it has found, which may not know yet
    # that it is none. Offsets from there may be old, and nobody but the client can tell.
    is_loyal = False

    def __init__(self, world: ClientWorld, name: str, random: Random) -> None:
        self.name = name
        self.is_calm = False
        self._world = world
        self.random = random
        self.swarm = world.swarm
        self._turn = 0
        self._newest: dict[SimulatedPartition, Reign] = {}
        self._script = self.life()

    @abstractmethod
    def life(self) -> Script:
        """All that the client does; without an end."""

    def start(self) -> None:
        self._go_on(self._turn, None)

    def stop(self) -> None:
        """The process dies, and nobody comes in its place."""
        self._turn += 1

    def _go_on(self, turn: int, answer: Any) -> None:
        if turn != self._turn:
            return
        self._turn += 1
        wish = self._script.send(answer)
        if isinstance(wish, Pause):
            self._later(wish.ms, None)
        else:
            self._ask(wish)

    def _later(self, ms: int, answer: Any) -> None:
        turn = self._turn
        self._world.heap.plan(ms * 1000 + 1, lambda: self._go_on(turn, answer))

    def _ask(self, ask: Ask) -> None:
        network = self._world.network
        source = self.random.choice(list(network.brokers.values()))
        reign = self._found(ask.partition, source.heard.get(ask.partition))
        leader_id = reign.broker_id if reign is not None and source.is_up else NOBODY
        if leader_id == NOBODY:
            self._later(_SEARCH_MS, None)
            return
        broker = network.brokers[leader_id]
        turn = self._turn

        def answered(found: Any) -> None:
            code = code_of(found)
            self._world.note(ask.kind, f"{self.name}<{broker.broker_id}", code.name)
            if code is ErrorCode.NONE:
                ask.told(broker, found)
            network.answer(lambda: self._go_on(turn, found))

        def arrived() -> None:
            if ask.repeats or turn == self._turn:
                ask.call(broker, answered)

        network.request(leader_id, ask.kind, arrived, repeats=ask.repeats)
        self._later(ask.patience_ms, None)

    def _found(self, partition: SimulatedPartition, told: Reign | None) -> Reign | None:
        """Whom to ask: as a broker says, who may be behind."""
        newest = self._newest.get(partition)
        if not self.is_loyal or newest is None or (told is not None and told.epoch > newest.epoch):
            newest = told
        if newest is not None:
            self._newest[partition] = newest
        return newest


class GroupClient(Client):
    """A member of a group, of whatever protocol, that commits and reads offsets."""

    def __init__(
        self,
        world: ClientWorld,
        name: str,
        random: Random,
        *,
        group_id: str,
        rules: GroupRules,
    ) -> None:
        super().__init__(world, name, random)
        self.group_id = group_id
        self.rules = rules
        self.instance = name if random.random() < world.swarm.static else None
        self.member_id = ""
        # A generation, or a member epoch.
        self.epoch = -1
        self.owned: tuple[int, ...] = ()
        self._number = 0

    @property
    def where(self) -> SimulatedPartition:
        return self.rules.partition

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def is_wild(self, share: float = 1.0) -> bool:
        return not self.is_calm and self.random.random() < share * self.swarm.unrest

    def ask_group(
        self,
        kind: str,
        operation: Callable[[Any], Outcome[Any]],
        told: Callable[[CoordinatorBroker, Any], None] | None = None,
        *,
        repeats: bool = True,
    ) -> Ask:
        return self.ask(
            kind,
            lambda broker, reply: broker.groups.write(self.where.name[1], operation, reply),
            told,
            repeats=repeats,
        )

    def ask(
        self,
        kind: str,
        call: Callable[[CoordinatorBroker, Reply], None],
        told: Callable[[CoordinatorBroker, Any], None] | None = None,
        *,
        patience_ms: int = _PATIENCE_MS,
        repeats: bool = True,
    ) -> Ask:
        def all_told(broker: CoordinatorBroker, answer: Any) -> None:
            self.rules.answers(broker)
            if told is not None:
                told(broker, answer)

        return Ask(self.where, kind, call, all_told, patience_ms, repeats)

    # Offsets.

    def commit(self, generation: int | None) -> Generator[Ask | Pause, Any, ErrorCode | None]:
        """For a partition that it owns; `generation` is what the rules are to go by."""
        index = self.random.choice(self.owned)
        commit_id = f"{self.name}/{self.next_number()}"
        asked = self.rules.invoked(self.group_id, self.member_id)
        given = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=self._number, committed_metadata=commit_id
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[given])],
        )
        key = (self.group_id, index)
        answer = yield self.ask_group(
            "commit",
            lambda machine: machine.offsets.commit(request, _COMMIT_VERSION),
            lambda broker, found: self.rules.committed(key, commit_id, generation, asked),
        )
        return None if answer is None else code_of(answer)

    def fetch(
        self, index: int, *, is_stable: bool
    ) -> Generator[Ask | Pause, Any, tuple[int, str] | None]:
        """The committed offset, and the id of its commit."""
        asked = self.rules.invoked(self.group_id, self.member_id)
        request = OffsetFetchRequestGroup(
            group_id=self.group_id,
            topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[index])],
        )

        def told(broker: CoordinatorBroker, answer: Any) -> None:
            [found] = answer.topics[0].partitions
            if not found.error_code:
                self.rules.read(broker, (self.group_id, index), found.metadata, asked)

        def read(broker: CoordinatorBroker, reply: Reply) -> None:
            try:
                found = broker.groups.read(
                    self.where.name[1],
                    lambda machine: machine.offsets.fetch(request, is_stable=False),
                )
            except CoordinatorError as error:
                reply(error)
            else:
                reply(found)

        if is_stable:
            answer = yield self.ask_group(
                "fetch",
                lambda machine: Outcome(answer=machine.offsets.fetch(request, is_stable=True)),
                told,
            )
        else:
            answer = yield self.ask("read", read, told)
        if answer is None or code_of(answer) is not ErrorCode.NONE:
            return None
        [found] = answer.topics[0].partitions
        return None if found.error_code else (found.committed_offset, found.metadata)


def code_of(answer: Any) -> ErrorCode:
    """Of an answer of any kind; its first error, if it has several."""
    if isinstance(answer, CoordinatorError):
        return answer.code
    if isinstance(answer, ErrorCode):
        return answer
    code = getattr(answer, "error_code", 0)
    for topic in getattr(answer, "topics", ()):
        for partition in topic.partitions:
            code = code or (partition.error_code if not hasattr(partition, "metadata") else 0)
    for member in getattr(answer, "members", ()):
        code = code or getattr(member, "error_code", 0)
    return ErrorCode(code)
