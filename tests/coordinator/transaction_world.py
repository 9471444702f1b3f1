"""A coordinator, partition logs and producers, with messages that are lost, late and repeated.

The coordinator is a real shard, markers go through the real queues, partitions are logs with the
real rules for producers. What lies between them is a bag of messages from which a seeded random
picks: requests and answers get lost, requests come twice, much later too. The coordinator moves,
and then loses any part of what was not committed; partitions refuse markers for a while.

Producers are generators that yield requests and get answers, or None when they lose patience. They
note what they know of each transaction: committed, aborted, or not known.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from coordinator.transaction_rig import TransactionRig

from kraftpy.broker.marker_queues import MarkerBatch, MarkerQueues
from kraftpy.broker.memory_replica_log import MemoryReplicaLog
from kraftpy.coordinator.memory_shard_log import MemoryShardLog
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.coordinator.transactions.endings import Ending
from kraftpy.coordinator.transactions.identities import Claim, Identity, NeedsProducerId
from kraftpy.coordinator.transactions.machine import TransactionMachine
from kraftpy.coordinator.transactions.ports import MarkerJob
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.coordinator.transactions.state import grouped
from kraftpy.log.errors import LogError
from kraftpy.log.log_config import LogConfig
from kraftpy.log.verifications import NO_GUARD
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import (
    EndTransactionMarker,
    build_end_transaction,
    read_control_record,
)
from kraftpy.records.reader import read_records
from kraftpy.records.validation import AppendOrigin
from kraftpy.records.walker import walk_batches
from kraftpy.sim.quorum_invariants import InvariantViolated

PARTITIONS = (("a", 0), ("a", 1), ("b", 0))
Reply = Callable[[Any], None]
Call = Callable[[Reply], None]

AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


@dataclass
class Wanted:
    """One transaction, as its producer knows it."""

    name: str
    values: dict[tuple[str, int], bytes] = field(default_factory=dict)
    # True: committed, False: aborted, None: not known.
    outcome: bool | None = None


class Markers:
    """A MarkerSender on the real queues, whose requests are messages of the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.queues = MarkerQueues(lambda name: 1)

    def send(self, job: MarkerJob, done: Callable[[], None]) -> None:
        if job.transaction_version >= 2:
            identity = (job.producer_id, job.producer_epoch)
            self._world.decided.setdefault(identity, {})[job.is_commit] = None
        self.queues.add(job, done, self._world.rig.clock.now_ms)
        self.pump()

    def cancel(self, shard: int) -> None:
        self.queues.cancel(shard)

    def pump(self) -> None:
        for batch in self.queues.take():
            self._world.later(lambda each=batch: self._deliver(each))

    def _deliver(self, batch: MarkerBatch) -> None:
        world = self._world
        now_ms = world.rig.clock.now_ms
        if world.is_faulty and world.random.random() < 0.2:
            self.queues.failed(batch, now_ms)
            return
        answer = WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=world.write_marker(marker, (topic.name, index)),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in batch.request.markers
            ]
        )
        if world.is_faulty and world.random.random() < 0.2:
            world.later(lambda: self.queues.failed(batch, world.rig.clock.now_ms))
        else:
            world.later(lambda: self.queues.answered(batch, answer, world.rig.clock.now_ms))
        if world.is_faulty and world.random.random() < 0.1:
            # A request of a connection that was given up comes when all is over. One of version 1
            # would end the next transaction, which is what version 2 is for (KIP-1228).
            marker = world.random.choice(batch.request.markers)
            for topic in marker.topics if marker.transaction_version >= 2 else ():
                for index in topic.partition_indexes:
                    world.much_later(
                        lambda name=(topic.name, index): world.write_marker(marker, name)
                    )


class WorldRig(TransactionRig):
    def __init__(self, world: World, *, level: int) -> None:
        self._whole_world = world
        super().__init__(
            level=level,
            commits_at_once=False,
            settings=TransactionSettings(abort_interval_ms=5_000),
        )

    def _make_transactions(self, context: Any) -> TransactionMachine:
        return TransactionMachine(
            context,
            self.transaction_settings,
            self._whole_world.markers,
            self.provide_producer_id,
        )

    def fail_over(self, *, keep: int) -> None:
        """Another broker leads, whose log ends at that offset."""
        old, self.log = self.log, MemoryShardLog()
        for data in old.batches:
            if RecordBatch(bytearray(data)).next_offset <= keep:
                self.log.append(data)
        self.log.high_watermark = min(old.high_watermark, self.log.log_end_offset)
        self.move()


class World:
    def __init__(self, seed: int, *, level: int = 2, faults: float = 1.0) -> None:
        self.random = Random(seed)
        self.faults = faults
        self.is_faulty = True
        self.markers = Markers(self)
        self.decided: dict[tuple[int, int], dict[bool, None]] = {}
        self.rig = WorldRig(self, level=level)
        self.logs: dict[tuple[str, int], MemoryReplicaLog] = {}
        for name in PARTITIONS:
            log = self.logs[name] = MemoryReplicaLog(self.rig.clock, LogConfig())
            log.producers.configure(expiration_ms=86_400_000, verify_transactions=True)
        self._bag: list[Callable[[], None]] = []
        self._much_later: list[Callable[[], None]] = []
        self._producers: list[Producer] = []
        self.wanted: list[Wanted] = []

    # Messages.

    def later(self, message: Callable[[], None]) -> None:
        self._bag.append(message)

    def much_later(self, message: Callable[[], object]) -> None:
        self._much_later.append(lambda: message() and None)

    def send(self, call: Call, answered: Reply, *, may_repeat: bool) -> None:
        """A request: perhaps lost, perhaps repeated; its answer is lost as easily."""
        random = self.random
        if self.is_faulty and random.random() < 0.05 * self.faults:
            return

        def answer(found: Any) -> None:
            if not (self.is_faulty and random.random() < 0.1 * self.faults):
                self.later(lambda: answered(found))

        self.later(lambda: call(answer))
        if may_repeat and self.is_faulty and random.random() < 0.15 * self.faults:
            self.much_later(lambda: call(lambda found: None))

    # What servers do.

    def write(self, operation: Callable[[TransactionMachine], Outcome[Any]], reply: Reply) -> None:
        self.rig.shard.write(operation, reply)

    def write_with_id(
        self,
        operation: Callable[[TransactionMachine, int | None], Outcome[Any]],
        reply: Reply,
    ) -> None:
        def first(found: Any) -> None:
            if isinstance(found, NeedsProducerId):
                fresh = self.rig.next_producer_id
                self.rig.next_producer_id += 1
                self.write(lambda machine: operation(machine, fresh), reply)
            else:
                reply(found)

        self.write(lambda machine: operation(machine, None), first)

    def write_marker(self, marker: WritableTxnMarker, name: tuple[str, int]) -> ErrorCode:
        if self.is_faulty and self.random.random() < 0.1:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        batch = build_end_transaction(
            EndTransactionMarker(marker.transaction_result, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=self.rig.clock.wall_ms(),
        )
        return self._append(
            name,
            batch,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=marker.transaction_version,
        )

    def produce(
        self,
        transactional_id: str,
        identity: Identity,
        name: tuple[str, int],
        value: bytes,
        *,
        sequence: int,
        version: int,
        reply: Reply,
    ) -> None:
        """As a leader does it: ask the coordinator first, if this begins a transaction here."""
        log = self.logs[name]
        adds = version == 2
        try:
            guard = log.producers.start_verification(
                identity.producer_id,
                epoch=identity.epoch,
                sequence=sequence,
                now_ms=self.rig.clock.wall_ms(),
                supports_epoch_bump=adds,
            )
        except LogError as error:
            reply(error.error_code)
            return
        builder = BatchBuilder(
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        builder.append(None, value, timestamp_ms=self.rig.clock.wall_ms())
        batch = builder.build()

        def verified(found: Any) -> None:
            code = found.code if isinstance(found, CoordinatorError) else found
            if code is ErrorCode.NONE:
                code = self._append(name, batch, guard=guard)
            reply(code)

        if guard is NO_GUARD:
            verified(ErrorCode.NONE)
        elif adds:
            self.write(
                lambda machine: machine.add_partitions(
                    transactional_id, identity, grouped([name]), client_version=2
                ),
                lambda found: self._soon_or_late(lambda: verified(found)),
            )
        else:
            self._verify(transactional_id, identity, name, verified)

    def _verify(
        self, transactional_id: str, identity: Identity, name: tuple[str, int], reply: Reply
    ) -> None:
        try:
            found: Any = self.rig.shard.read(
                lambda machine: machine.verify_partitions(
                    transactional_id, identity, grouped([name])
                )
            )[name]
        except CoordinatorError as error:
            found = error
        self._soon_or_late(lambda: reply(found))

    def _soon_or_late(self, message: Callable[[], None]) -> None:
        """A leader that has its answer may still be slow to act on it."""
        is_late = self.is_faulty and self.random.random() < 0.1 * self.faults
        (self.much_later if is_late else self.later)(message)

    def _append(self, name: tuple[str, int], batch: bytearray, **terms: Any) -> ErrorCode:
        log = self.logs[name]
        try:
            log.append_as_leader(batch, 0, **terms)
        except LogError as error:
            return error.error_code
        log.increment_high_watermark(log.log_end)
        log.producers.high_watermark_advanced(log.log_end_offset)
        return ErrorCode.NONE

    # Time.

    def add_producer(self, name: str, version: int, count: int) -> None:
        self._producers.append(Producer(self, name, version, count))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.is_faulty = False
        for message in self._much_later:
            self.later(message)
        self._much_later = []
        for _ in range(20_000):
            self.step()
            if not self._bag and all(each.is_done for each in self._producers):
                break
        # Whatever is left open is aborted when its time is over.
        for _ in range(100):
            self.rig.advance(2_000)
            self.rig.commit()
            self.markers.queues.retry_due(self.rig.clock.now_ms)
            self.markers.pump()
            while self._bag:
                self._bag.pop(0)()
                self.rig.commit()
                self.markers.pump()

    def step(self) -> None:
        random = self.random
        rig = self.rig
        kind = random.random()
        if kind < 0.5 and self._bag:
            self._bag.pop(random.randrange(len(self._bag)))()
        elif kind < 0.7:
            rig.flush()
            log = rig.log
            rig.commit(random.randint(log.high_watermark, log.log_end_offset))
        elif kind < 0.8:
            rig.clock.now_ms += random.choice((1, 20, 200))
            rig.flush()
            self.markers.queues.retry_due(rig.clock.now_ms)
        elif kind < 0.97:
            each = random.choice(self._producers)
            each.step()
        elif self.is_faulty:
            self._mishap()
        self.markers.pump()

    def _mishap(self) -> None:
        random = self.random
        kind = random.random()
        if kind < 0.3 * self.faults:
            log = self.rig.log
            self.rig.fail_over(keep=random.randint(log.high_watermark, log.log_end_offset))
        elif kind < 0.45 * self.faults:
            # The next one has everything, but does not live long enough to commit it.
            self.rig.flush()
            self.rig.fail_over(keep=self.rig.log.log_end_offset)
            for _ in range(random.randint(1, 20)):
                self.markers.pump()
                if self._bag:
                    self._bag.pop(random.randrange(len(self._bag)))()
            self.rig.fail_over(keep=self.rig.log.high_watermark)
        elif kind < 0.6 * self.faults:
            self.rig.fail_next(ErrorCode.NOT_ENOUGH_REPLICAS)
        elif kind < 0.7 * self.faults:
            self.rig.advance(20_000)
        elif self._much_later:
            self.later(self._much_later.pop(random.randrange(len(self._much_later))))

    # What came of it.

    def check(self) -> None:
        """Raise InvariantViolated if a transaction is neither there nor not there."""
        visible: dict[tuple[str, int], dict[bytes, None]] = {}
        for name in PARTITIONS:
            found, undecided = self._values_in(name)
            _claim(not undecided, "transaction-hangs", undecided)
            visible[name] = dict.fromkeys(found)
            _claim(len(found) == len(visible[name]), "written-twice", name)
            log = self.logs[name]
            _claim(log.last_stable_offset == log.log_end_offset, "unstable-for-ever", name)
        for transaction in self.rig.machine.transactions.values():
            _claim(transaction.state.is_idle, "transaction-not-completed", transaction)
        for wanted in self.wanted:
            there = [value in visible[name] for name, value in wanted.values.items()]
            _claim(wanted.outcome is not True or all(there), "committed-and-lost", wanted)
            _claim(wanted.outcome is not False or not any(there), "aborted-and-there", wanted)
            _claim(all(there) or not any(there), "torn", wanted)
        for identity, decisions in self.decided.items():
            _claim(len(decisions) == 1, "decided-twice", identity)

    def _values_in(self, name: tuple[str, int]) -> tuple[list[bytes], list[bytes]]:
        """Values of committed transactions, and of undecided ones."""
        data = self.logs[name].read(0, 1 << 30).records
        found: list[bytes] = []
        open_values: dict[int, list[bytes]] = {}
        epochs: dict[int, int] = {}
        content = b"" if data is None else data.file.pread(data.length, data.position)
        for batch in walk_batches(content):
            assert isinstance(batch, RecordBatch)
            producer_id = batch.producer_id
            is_right = batch.producer_epoch >= epochs.get(producer_id, -1)
            _claim(is_right, "epoch-of-the-past", batch)
            epochs[producer_id] = batch.producer_epoch
            [record] = read_records(batch, max_bytes=1 << 20)
            if not batch.is_control:
                open_values.setdefault(producer_id, []).append(record.value or b"")
                continue
            marker = read_control_record(record)
            assert isinstance(marker, EndTransactionMarker)
            values = open_values.pop(producer_id, [])
            if marker.is_commit:
                found += values
        return found, [value for values in open_values.values() for value in values]


def _claim(condition: bool, code: str, what: object) -> None:
    if not condition:
        raise InvariantViolated(code, str(what))


def simulate(seed: int, *, versions: tuple[int, ...] = (2, 2, 0), level: int = 2) -> World:
    """A run, checked at its end."""
    world = World(seed, level=level)
    for number, version in enumerate(versions):
        world.add_producer(f"p{number}", version, 8)
    world.run(4_000)
    world.check()
    return world


class Producer:
    """Runs transactions one after the other; is begun anew, as a new process, when it is fenced."""

    def __init__(self, world: World, name: str, version: int, count: int) -> None:
        self._world = world
        self._name = name
        self._version = version
        self._left = count
        self._steps = self._run()
        self._answer: Any = None
        self._is_waiting = False
        self._patience = 0
        self._asked = 0
        self.is_done = False
        self._number = 0
        self._advance(None)

    def step(self) -> None:
        """Time passes for this producer."""
        if self.is_done:
            return
        if self._is_waiting:
            self._patience -= 1
            if self._patience > 0:
                return
        self._advance(None)

    def _advance(self, answer: Any) -> None:
        self._asked += 1
        self._is_waiting = False
        try:
            call = self._steps.send(answer)
        except StopIteration:
            self.is_done = True
            return
        if call is None:
            return
        number = self._asked
        self._is_waiting = True
        self._patience = 30

        def late_calls_are_dropped(reply: Reply) -> None:
            # A late end of version 1 ends another transaction than its own: that is why there is
            # version 2 (KAFKA-17754).
            if self._version == 2 or number == self._asked:
                call(reply)

        self._world.send(
            late_calls_are_dropped,
            lambda found: self._advance(found) if number == self._asked else None,
            may_repeat=self._version == 2,
        )

    def _ask(self, call: Call, attempts: int = 1_000_000) -> Generator[Call | None, Any, Any]:
        """Until there is an answer that says something; None if there was none."""
        for _ in range(attempts):
            found = yield call
            if isinstance(found, CoordinatorError):
                found = found.code
            if found is not None and found not in AGAIN:
                return found
            yield None
        return None

    def _run(self) -> Generator[Call | None, Any, None]:
        world = self._world
        identity: Identity | None = None
        sequences: dict[tuple[str, int], int] = {}
        while self._left > 0:
            if identity is None:
                found = yield from self._ask(self._init)
                assert isinstance(found, Identity), found
                identity, sequences = found, {}
            self._left -= 1
            self._number += 1
            wanted = Wanted(f"{self._name}/{self._number}")
            world.wanted.append(wanted)
            names = world.random.sample(PARTITIONS, world.random.randint(1, len(PARTITIONS)))
            is_whole = yield from self._write(identity, names, wanted, sequences)
            is_commit = is_whole and world.random.random() < 0.7
            death = world.random.random()
            if death < 0.2:
                # The process dies, and another one takes its place, unless this was the last.
                if death < 0.1:
                    yield self._ending(identity, is_commit=is_commit)
                identity = None
                continue
            identity = yield from self._end(identity, wanted, is_commit=is_commit)
            if self._version == 2:
                sequences = {}
            elif not is_whole:
                identity = None

    def _init(self, reply: Reply) -> None:
        claim = Claim(self._name, 60_000)
        self._world.write_with_id(
            lambda machine, fresh: machine.init_producer_id(claim, fresh), reply
        )

    def _write(
        self,
        identity: Identity,
        names: list[tuple[str, int]],
        wanted: Wanted,
        sequences: dict[tuple[str, int], int],
    ) -> Generator[Call | None, Any, bool]:
        """Whether all of it was written."""
        world = self._world
        if self._version != 2:
            found = yield from self._ask(
                lambda reply: world.write(
                    lambda machine: machine.add_partitions(
                        self._name, identity, grouped(names), client_version=0
                    ),
                    reply,
                )
            )
            if found is not ErrorCode.NONE:
                return False
        for name in names:
            value = f"{wanted.name}/{name[0]}{name[1]}".encode()
            wanted.values[name] = value
            sequence = sequences.get(name, 0)
            found = yield from self._ask(
                lambda reply, name=name, value=value, sequence=sequence: world.produce(
                    self._name,
                    identity,
                    name,
                    value,
                    sequence=sequence,
                    version=self._version,
                    reply=reply,
                ),
                attempts=world.random.choice((1, 3, 30)),
            )
            if found is not ErrorCode.NONE:
                return False
            sequences[name] = sequence + 1
        return True

    def _end(
        self, identity: Identity, wanted: Wanted, *, is_commit: bool
    ) -> Generator[Call | None, Any, Identity | None]:
        found = yield from self._ask(self._ending(identity, is_commit=is_commit))
        if isinstance(found, Identity):
            wanted.outcome = is_commit
            return found
        if found is ErrorCode.INVALID_TXN_STATE and is_commit:
            wanted.outcome = False
        return None

    def _ending(self, identity: Identity, *, is_commit: bool) -> Call:
        ending = Ending(self._name, identity.producer_id, identity.epoch, is_commit, self._version)
        return lambda reply: self._world.write_with_id(
            lambda machine, fresh: machine.end(ending, fresh), reply
        )
