"""Producer, consumer and admin for code without a loop: scripts, commands, Spark's workers.

    with BlockingProducer([("127.0.0.1", 9092)]) as producer:
        producer.send("events", b"value", key=b"key")

The cores are those of the trio clients, and so is what they promise. Nothing happens in the
background: a producer sends while one of its methods runs, so that a record that lingers leaves
with the next call at the latest. A member of a group sends its heartbeats the same way: who works
longer than `session_timeout_ms` between two calls is out, and joins again. Each object is used by
one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from kraftpy.client.admin_core import AdminCore, Operation
from kraftpy.client.blocking import fresh_random, now_ms, wall_ms
from kraftpy.client.blocking_driver import BlockingDriver
from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer_core import ConsumerCore, PartitionBatches, PartitionRecords
from kraftpy.client.errors import KafkaError
from kraftpy.client.group_listener import Listeners
from kraftpy.client.leader_questions import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetAnswer
from kraftpy.client.positions import PartitionProgress
from kraftpy.client.producer_batch import Delivery, RecordMetadata
from kraftpy.client.producer_core import ProducerCore
from kraftpy.client.settings import AdminSettings, ConsumerSettings, ProducerSettings
from kraftpy.client.topic_wait import TopicWait
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.reader import Header
from kraftpy.world import Address

if TYPE_CHECKING:
    from kraftpy.client.group_core import GroupCore
    from kraftpy.client.group_member import GroupMetadata
    from kraftpy.client.group_offsets import Commit, OffsetAndMetadata
    from kraftpy.client.transaction_manager import Step, TransactionManager

__all__ = ["BlockingAdmin", "BlockingConsumer", "BlockingProducer"]

T = TypeVar("T")
Listener: TypeAlias = Callable[[list[TopicPartition]], None]


def _partitions_of(
    core: ProducerCore | ConsumerCore, driver: BlockingDriver, topic: str, timeout_ms: int
) -> list[TopicPartition]:
    wait = TopicWait(core.cluster, topic)
    driver.until(lambda: wait.is_done, timeout_ms)
    return wait.result()


class BlockingProducer:
    """A context manager; leaving it in order flushes."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ProducerSettings | None = None
    ) -> None:
        self._settings = settings or ProducerSettings()
        self._core = ProducerCore(bootstrap, self._settings, fresh_random())
        self._driver = BlockingDriver(self._core, self._settings.client)

    def __enter__(self) -> BlockingProducer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
            if self._core.transaction is not None and self._core.transaction.is_open:
                # Nobody else would end it before its time is over.
                self.abort_transaction()
        finally:
            self.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[Header] = (),
    ) -> Delivery:
        """Hand over a record. Raises KafkaError if it is too large, or finds no room in time."""
        core = self._core
        size = core.size_of(key, value, headers)
        if not core.has_room(size):
            timeout_ms = self._settings.max_block_ms
            if not self._driver.until(lambda: core.has_room(size), timeout_ms):
                why = f"no room in the buffer for {timeout_ms} ms"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)
        delivery = core.append(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=wall_ms() if timestamp_ms is None else timestamp_ms,
            headers=headers,
            now_ms=now_ms(),
        )
        if core.needs_turn:
            self._driver.turn(now_ms())
        return delivery

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions. Raises KafkaError if there is no such topic (yet)."""
        return _partitions_of(self._core, self._driver, topic, self._settings.max_block_ms)

    def poll(self, timeout_ms: int = 0) -> None:
        """Let records leave and answers come."""
        self._driver.until(lambda: False, timeout_ms)

    def wait(self, delivery: Delivery) -> RecordMetadata:
        """Where the record is, once the broker has acknowledged it; raises why not."""
        self._driver.until(lambda: delivery.is_done)
        return delivery.result()

    def flush(self) -> None:
        """Wait until all that was sent before is settled, one way or the other."""
        self._driver.until(self._core.flush())
        # Nobody else tells of requests without answers.
        self._driver.until(lambda: not self._driver.has_unsent)

    def init_transactions(self) -> None:
        """Once, first: fences earlier producers of the same id, and aborts what they left open."""
        self._step(self._transaction.init())

    def begin_transaction(self) -> None:
        self._transaction.begin()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """The group's offsets are committed if the transaction is."""
        self._step(self._transaction.send_offsets(offsets, group))

    def commit_transaction(self) -> None:
        """Wait for all that was sent, and commit it. What is raised: transaction_errors.py."""
        step = self._transaction.commit()
        self._core.flush()
        self._step(step)

    def abort_transaction(self) -> None:
        self._step(self._transaction.abort())

    @property
    def _transaction(self) -> TransactionManager:
        if self._core.transaction is None:
            raise ValueError("the producer has no transactional_id")
        return self._core.transaction

    def _step(self, step: Step) -> None:
        self._driver.until(lambda: step.is_done, self._settings.max_block_ms)
        step.result()

    def close(self) -> None:
        """At once: what is not settled fails. Idempotent."""
        self._core.close()
        self._driver.close()


class BlockingConsumer:
    """A context manager; leaving it in order commits and leaves the group, if there is one."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ConsumerSettings | None = None
    ) -> None:
        self._settings = settings or ConsumerSettings()
        random = fresh_random()
        self._core = ConsumerCore(bootstrap, self._settings, random)
        self._optional_group: GroupCore | None = None
        if self._settings.group_id is not None:
            # Commands without a group start sooner without this.
            from kraftpy.client.group_core import GroupCore

            self._optional_group = GroupCore(self._core, self._settings, random)
        self._driver = BlockingDriver(self._optional_group or self._core, self._settings.client)
        self._listeners: Listeners[None] = Listeners()

    def __enter__(self) -> BlockingConsumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            # With an exception on its way, what the user was working on isn't done.
            self.leave(commits=kind is None)
        finally:
            self.close()

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._core.assignment

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions. Raises KafkaError if there is no such topic."""
        timeout_ms = self._settings.default_api_timeout_ms
        return _partitions_of(self._core, self._driver, topic, timeout_ms)

    def assign(self, wheres: Iterable[TopicPartition]) -> None:
        """Consume these partitions and no others; those that stay keep their positions.

        With a group_id new ones begin where the group has committed.
        """
        if self._optional_group is None:
            self._core.assign(wheres)
        elif self._optional_group.is_member:
            raise ValueError("a subscription assigns the partitions; unsubscribe first")
        else:
            self._optional_group.begin_assigned(wheres, now_ms())

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Consume the partitions of these topics that the group assigns to this member.

        Without `on_lost`, lost partitions are told to `on_revoked`.
        """
        self._listeners = Listeners(on_assigned, on_revoked, on_lost)
        self._group.subscribe(topics)

    def unsubscribe(self) -> None:
        """Give the partitions back and leave the group."""
        self.leave()

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who this member is, for `send_offsets_to_transaction`."""
        return self._group.identity

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None) -> None:
        """Commit these, or all that was polled, and wait until it is done. Raises KafkaError."""
        commit = self.commit_soon(offsets)
        self._driver.until(lambda: commit.is_done)
        commit.result()

    def commit_soon(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
    ) -> Commit:
        """The same without waiting; it is done while some later call runs."""
        commit = self._group.commit(offsets, now_ms())
        self._driver.turn(now_ms())
        return commit

    def committed(
        self, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's offsets; None where it has none."""
        lookup = self._group.look_up(wheres, now_ms())
        self._driver.until(lambda: lookup.is_done)
        return lookup.result()

    def leave(self, *, commits: bool = True) -> None:
        """Leave the group, if this is a member; `commits` as far as settings say."""
        group = self._optional_group
        if group is None:
            return
        if commits:
            commit = group.commit_all_done(now_ms())
            self._driver.until(lambda: commit.is_done, self._settings.close_timeout_ms)
        event = group.revoke_all()
        if event is not None:
            self._listeners.tell(event)
        group.leave(now_ms())
        self._driver.until(lambda: group.is_gone, self._settings.close_timeout_ms)
        group.forget()

    def seek(self, where: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Go on here; with the epoch of the record before, a cut log is noticed."""
        self._core.seek(where, offset, leader_epoch)

    def seek_to_timestamp(self, where: TopicPartition, timestamp: int) -> None:
        """Go on with the first record of this time or later; or at the end, if there is none."""
        self._core.seek_to_timestamp(where, timestamp)

    def seek_to_beginning(self, where: TopicPartition) -> None:
        self.seek_to_timestamp(where, EARLIEST_TIMESTAMP)

    def seek_to_end(self, where: TopicPartition) -> None:
        self.seek_to_timestamp(where, LATEST_TIMESTAMP)

    def pause(self, where: TopicPartition) -> None:
        self._core.pause(where)

    def resume(self, where: TopicPartition) -> None:
        self._core.resume(where)

    def position(self, where: TopicPartition) -> int:
        """The offset of the next record, looked up first where that is still to be done."""
        timeout_ms = self._settings.default_api_timeout_ms
        self._driver.until(lambda: self._core.position(where) is not None, timeout_ms)
        return self._core.require_position(where)

    def progress(self, where: TopicPartition) -> PartitionProgress:
        """What the last fetch said about the log's ends."""
        return self._core.progress(where)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAnswer]:
        """The first offsets of these times or later; -1 where there is none."""
        lookup = self._core.look_up(timestamps, now_ms())
        self._driver.until(lambda: lookup.is_done)
        return lookup.result()

    def beginning_offsets(self, wheres: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = self.offsets_for_times(dict.fromkeys(wheres, EARLIEST_TIMESTAMP))
        return {where: answer.offset for where, answer in found.items()}

    def end_offsets(self, wheres: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of the logs, as far as this consumer's isolation level lets it read."""
        found = self.offsets_for_times(dict.fromkeys(wheres, LATEST_TIMESTAMP))
        return {where: answer.offset for where, answer in found.items()}

    def poll(
        self, timeout_ms: int | None = None, *, max_records: int | None = None
    ) -> list[PartitionRecords]:
        """Records, as soon as there are any; none if the time is over before."""
        count = self._settings.max_poll_records if max_records is None else max_records
        deadline_ms = None if timeout_ms is None else now_ms() + timeout_ms
        group = self._optional_group
        if group is None:
            return self._poll(count, deadline_ms)
        group.poll_begins(now_ms())
        try:
            return self._poll(count, deadline_ms)
        finally:
            group.poll_ends(now_ms())

    def poll_batches(self, timeout_ms: int) -> list[PartitionBatches]:
        """The batches of the next fetch, unopened, for those who look into many records at once.

        The first of a partition may begin before the position. None also if all that came is hidden
        from this consumer: `position` has moved on then. For assigned partitions only.
        """
        if not self._core.has_output:
            self._driver.until(lambda: self._core.has_output, timeout_ms)
        batches = self._core.take_batches()
        # The next answer is on its way while the user works on these.
        self._driver.turn(now_ms())
        return batches

    def _poll(self, count: int, deadline_ms: int | None) -> list[PartitionRecords]:
        while True:
            self._rebalance()
            records = self._core.take(count)
            if records:
                # The next answer is on its way while the user works on these.
                self._driver.turn(now_ms())
                return records
            left_ms = None if deadline_ms is None else max(0, deadline_ms - now_ms())
            if not self._driver.until(self._has_news, left_ms):
                return []

    def _has_news(self) -> bool:
        group = self._optional_group
        if self._core.has_output or group is None:
            return self._core.has_output
        return group.failure is not None or group.next_event(now_ms()) is not None

    def _rebalance(self) -> None:
        """Carry out what the group has decided, as far as it is known by now."""
        group = self._optional_group
        if group is None:
            return
        while (event := group.next_event(now_ms())) is not None:
            group.begin(event, now_ms())
            try:
                self._listeners.tell(event)
            finally:
                # A listener that fails has been told all the same.
                group.acknowledge(event)
        if group.failure is not None:
            raise group.failure

    @property
    def _group(self) -> GroupCore:
        if self._optional_group is None:
            raise ValueError("the consumer has no group_id")
        return self._optional_group

    def close(self) -> None:
        """Idempotent."""
        self._driver.close()


class BlockingAdmin:
    """Runs the operations of admin_operations.py; a context manager."""

    def __init__(self, bootstrap: Sequence[Address], settings: AdminSettings | None = None) -> None:
        self._settings = settings or AdminSettings()
        self._core = AdminCore(bootstrap, self._settings, fresh_random())
        self._driver = BlockingDriver(self._core, self._settings.client)

    def __enter__(self) -> BlockingAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, operation: Operation[T]) -> T:
        """Carry an operation out; its result. Raises KafkaError."""
        run = self._core.start(operation, now_ms())
        self._driver.until(lambda: run.is_done)
        return run.result()

    def close(self) -> None:
        """Idempotent."""
        self._driver.close()
