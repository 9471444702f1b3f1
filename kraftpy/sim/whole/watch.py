"""Holds every node against the invariants while the simulation runs.

Looked at is a node when something is delivered to it, and all of them 10 ms later,
before one dies, and at the end. What is compared costs the same however long the run is: only what
has changed since the last look.

Quorum (1 to 7, quorum_rules.py) and metadata (8, 9): the committed log is read from whoever shows
it first, and must be the same, byte for byte, wherever it is shown later. It is folded here, by
ClusterTruth, and every image that a node publishes must be what the fold has at that offset.

Replicas (10 to 18): DataRules, with the real logs, running or not. Answers are seen when they are
given (answers.py).

Transactions (19 to 21, transaction_rules.py), groups and their offsets (22, 23, offset_rules.py):
what is committed in each partition is read once, as it is with the metadata.

Health (24, 25, health_rules.py): what a node has in use.

The first violation ends the run: it is kept, because it may be found deep inside of the product's
own tasks, which would answer for it as for any other failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from kraftpy.broker.hosted_replicas import log_of
from kraftpy.broker.partition import Partition
from kraftpy.broker.transaction_parts import TRANSACTION_TOPIC
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.shard import Shard, ShardState
from kraftpy.log.errors import StorageError
from kraftpy.log.partition_log import PartitionLog
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.metadata.records import ConfigResourceType
from kraftpy.node import Node
from kraftpy.node.coordinators import OFFSETS_TOPIC
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.raft.driver import RaftDriver
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.quorum import Quorum
from kraftpy.raft.roles import Leader
from kraftpy.records.batch import RecordBatch
from kraftpy.sim.cluster_data_rules import DataRules, PartitionKey, TrueRecord
from kraftpy.sim.cluster_producer_rules import CheckedLog, producer_batches
from kraftpy.sim.cluster_rules import ClusterRules
from kraftpy.sim.cluster_truth import ClusterTruth
from kraftpy.sim.coordinator_rules import check_groups
from kraftpy.sim.digest import EventDigest
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.whole.answers import Place
from kraftpy.sim.whole.committed_news import CommittedNews
from kraftpy.sim.whole.health_rules import HealthRules, check_server
from kraftpy.sim.whole.hosts import WholeHost, key_of
from kraftpy.sim.whole.offset_rules import OffsetTruth
from kraftpy.sim.whole.quorum_rules import WholeQuorumRules
from kraftpy.sim.whole.transaction_rules import (
    WholeTransactionRules,
    marker_of,
    wrong_aborted_index,
)
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_faults import FaultHold

__all__ = ["Watch", "WholeData"]

# Of the looks at all nodes, with which the groups are looked at.
_GROUPS_EVERY = 20


class WholeData(DataRules):
    """What is compacted has lost records rightly: nobody can tell from what is left."""

    __slots__ = ("compacted", "wholes")

    def __init__(self, wholes: dict[int, WholeHost], *, flushes: bool, has_elr: bool) -> None:
        super().__init__(flushes=flushes, has_elr=has_elr)
        self.compacted: dict[Uuid, str] = {}
        self.wholes = wholes
        self.hosts.update(wholes)

    def _check_producers(self, key: PartitionKey, log: CheckedLog) -> None:
        if key[0] not in self.compacted:
            super()._check_producers(key, log)

    def _check_records(self, broker_id: int, key: PartitionKey) -> None:
        if key[0] not in self.compacted:
            super()._check_records(broker_id, key)

    def shown_all(self, key: PartitionKey, records: Iterator[tuple[int, TrueRecord]]) -> None:
        """As `shown` for each of them."""
        true = self._true(key)
        is_judged = self._is_judged(true)
        for offset, record in records:
            self.delivered += 1
            if is_judged:
                self._remember(key, true, offset, record)

    def _durable_end(self, broker_id: int, key: PartitionKey, log: CheckedLog) -> int:
        """A process that has just recovered a log counts on less than the one before has flushed,
        until it has flushed again: what it knows is a checkpoint. The disk has it all the same.
        """
        return max(log.recovery_point, self.wholes[broker_id].durable_end(key, log))


class _State(NamedTuple):
    """Of a replica, what something has to be checked for when it changes."""

    end_offset: int
    high_watermark: int
    start_offset: int
    recovery_point: int
    leader_id: int
    leader_epoch: int

    @property
    def leadership(self) -> tuple[int, int]:
        return self.leader_id, self.leader_epoch


class _Seen:
    """What was seen of one process of a node."""

    __slots__ = (
        "health",
        "high_watermark",
        "image",
        "noted_image",
        "partitions",
        "promise",
        "voters",
    )

    def __init__(self) -> None:
        self.high_watermark = 0
        self.image = EMPTY_IMAGE
        # With which the rules of the metadata know the broker.
        self.noted_image: MetadataImage | None = None
        self.promise: ElectionState | None = None
        self.partitions: dict[Partition, _State] = {}
        self.voters: object = None
        self.health = HealthRules()


class Watch:
    """A Witness of all answers."""

    def __init__(
        self,
        hosts: dict[int, WholeHost],
        *,
        flushes: bool,
        has_elr: bool,
        failed: Callable[[], None],
    ) -> None:
        """`failed` is called at the first violation, which is then in `violation`."""
        self.hosts = hosts
        self._failed = failed
        self.violation: InvariantViolated | None = None
        self._quorum = WholeQuorumRules()
        self._rules = ClusterRules(allows_unclean=False)
        self.data = WholeData(hosts, flushes=flushes, has_elr=has_elr)
        self.truth = ClusterTruth(self._quorum, self._rules, EventDigest())
        self.truth.data = self.data
        self.transactions = WholeTransactionRules()
        self.offsets: dict[PartitionKey, OffsetTruth] = {}
        self._news = CommittedNews()
        self._seen: dict[int, _Seen] = {}
        self._looks = 0
        self._hold = FaultHold()
        for host in hosts.values():
            host.disk.share_hold(self._hold)
        self._topics: dict[Uuid, None] = {}
        self.checks = 0

    # Looking.

    def _guarded(self, look: Callable[..., None], *args: object) -> None:
        if self.violation is not None:
            return
        self._hold.is_on = True
        try:
            look(*args)
        except InvariantViolated as violation:
            self._fail(violation)
        except Exception as error:
            # Not the product's business, in whose tasks this may be.
            failure = InvariantViolated("watch-failed", repr(error))
            failure.__cause__ = error
            self._fail(failure)
        finally:
            self._hold.is_on = False

    def _fail(self, violation: InvariantViolated) -> None:
        self.violation = violation
        self._failed()

    def look_at(self, node_id: int) -> None:
        self._guarded(self._look_at, node_id)

    def look_at_all(self) -> None:
        self._looks += 1
        for node_id in self.hosts:
            self.look_at(node_id)
        if self._looks % _GROUPS_EVERY == 0:
            self._guarded(self._look_at_groups)
            self._guarded(self._look_at_health)

    def _look_at(self, node_id: int) -> None:
        host = self.hosts[node_id]
        node = host.node
        if node is None or node.quorum is None:
            return
        self.checks += 1
        seen = self._seen[node_id]
        self._note_broker(node_id, host)
        self._look_at_quorum(node_id, node, seen)
        image = node.quorum.loader.image
        if image is not seen.image:
            self._look_at_image(node_id, image, seen)
        before = seen.partitions
        for partition in host.partitions:
            # As `log_of`, without the calls: this is what most looks consist of.
            log: Any = partition.log
            state = (
                *log.marks(),
                partition.leader_id,
                partition.leader_epoch,
            )
            if before.get(partition) != state:
                self._look_at_partition(host, partition, seen, _State(*state))

    def _look_at_quorum(self, node_id: int, node: Node, seen: _Seen) -> None:
        assert node.quorum is not None
        driver = node.quorum.driver
        quorum = driver.quorum
        election, log = quorum.election, quorum.log
        # It never changes: what was found of this one holds.
        if election is not seen.promise:
            self._quorum.note_epoch(quorum)
            self._quorum.check_election(quorum)
            if seen.promise is not None:
                self._quorum.check_promise(quorum.local, seen.promise, election)
            seen.promise = election
        high_watermark = log.high_watermark
        if high_watermark < seen.high_watermark:
            raise InvariantViolated(
                "watermark-falls", f"{node_id}: {seen.high_watermark} to {high_watermark}"
            )
        if high_watermark != seen.high_watermark:
            try:
                self._read_committed(node_id, driver, seen.high_watermark, high_watermark)
            except StorageError:
                # The node is about to end: it stops, or its disk has failed.
                return
            seen.high_watermark = high_watermark
            for each, host in self.hosts.items():
                self._note_broker(each, host)
            self.truth.advance()
        if isinstance(quorum.role, Leader):
            self._quorum.check_leader(driver)
        if log.start_offset:
            self._quorum.check_log_begins(node_id, log)
        voters = quorum.voters.latest
        if voters is not seen.voters:
            seen.voters = voters
            self._check_voters(quorum)

    def _read_committed(self, node_id: int, driver: RaftDriver, start: int, end: int) -> None:
        start = max(start, driver.log.start_offset)
        while start < end:
            for batch in driver.log.batches(start, end):
                self._quorum.check_batch(node_id, batch)
                start = batch.next_offset

    def _check_voters(self, quorum: Quorum) -> None:
        """When what the leader has committed is known, whoever was looked at first."""
        for node_id, host in self.hosts.items():
            seen = self._seen.get(node_id)
            if host.node is not None and host.node.quorum is not None and seen is not None:
                driver = host.node.quorum.driver
                end = driver.quorum.log.high_watermark
                with suppress(StorageError):
                    self._read_committed(node_id, driver, seen.high_watermark, end)
        self._quorum.check_voters(quorum)

    def _note_broker(self, node_id: int, host: WholeHost) -> None:
        """What the rules of the metadata have to know of a broker's own doing, before it is
        committed, and before the broker forgets it.
        """
        node = host.node
        if node is None or node.broker is None or node.quorum is None:
            return
        image, seen = node.quorum.loader.image, self._seen[node_id]
        if image is not seen.noted_image:
            seen.noted_image = image
            process = (node_id, node.broker.identity.incarnation_id)
            if process not in self._rules.is_unclean:
                self._rules.is_unclean[process] = host.was_up
                host.was_up = False
            self._rules.reached[process] = image.provenance.last_offset
        if node.broker.replicas is not None:
            for topic_id in node.broker.replicas.told_deletions:
                self._rules.deleted[node_id, topic_id] = None

    def _look_at_image(self, node_id: int, image: MetadataImage, seen: _Seen) -> None:
        """A new one."""
        self.truth.check_image(node_id, seen.image, image)
        seen.image = image
        for topic in image.topics.values():
            if topic.topic_id not in self._topics:
                self._topics[topic.topic_id] = None
                policy = image.config(ConfigResourceType.TOPIC, topic.name).get("cleanup.policy")
                if "compact" in (policy or ""):
                    self.data.compacted[topic.topic_id] = topic.name

    def _look_at_partition(
        self, host: WholeHost, partition: Partition, seen: _Seen, state: _State
    ) -> None:
        """Something has changed."""
        log = log_of(partition)
        before = seen.partitions.get(partition)
        seen.partitions[partition] = state
        key, image = key_of(partition), self.truth.image
        host.note_durable(key, log)
        if before is None:
            host.directories[key] = log.directory
        self.data.check_order(key, log)
        if before is None or state.start_offset > before.start_offset:
            self.data.deleted(key, state.start_offset)
        if partition.is_leader:
            is_new = before is None or before.leadership != state.leadership
            if before is None or is_new or before.high_watermark != state.high_watermark:
                # First, because the rules of what is committed must know how far that is.
                self.data.high_watermark_moved(partition, image)
            if is_new:
                self.data.leads(partition.broker_id, partition, image)
                self._check_aborted(key, log)
            self._read_news(key, log)
        if before is not None and state.end_offset < before.end_offset:
            self.data.cut(key, image)

    # Transactions and groups.

    def _read_news(self, key: PartitionKey, log: CheckedLog) -> None:
        """What a leader shows to be committed, for the first time."""
        name = self.truth.created.get(key[0], "")
        is_judged = self.data.is_judged(key)
        if name == TRANSACTION_TOPIC and not is_judged:
            self.transactions.has_lost_records()
        for batch, follows_gap in self._news.of(key, log):
            if name == TRANSACTION_TOPIC:
                if follows_gap:
                    self.transactions.has_lost_records()
                if is_judged:
                    self.transactions.state_committed(batch)
                continue
            if name == OFFSETS_TOPIC:
                self.offsets.setdefault(key, OffsetTruth()).committed(batch)
            if is_judged:
                self._take_batch(key, batch)

    def _take_batch(self, key: PartitionKey, batch: RecordBatch) -> None:
        marker = marker_of(batch)
        if marker is None:
            self.transactions.data_committed(key, batch)
            return
        if not self.transactions.is_decided(marker):
            # Perhaps its coordinator was not looked at since.
            for host in self.hosts.values():
                for partition in host.partitions:
                    if partition.is_leader and partition.topic_partition[0] == TRANSACTION_TOPIC:
                        self._read_news(key_of(partition), log_of(partition))
        self.transactions.marker_committed(key, marker)

    def _check_aborted(self, key: PartitionKey, log: PartitionLog) -> None:
        """Invariant 20."""
        if key[0] in self.data.compacted:
            return
        index = [entry for segment in log.segments for entry in segment.transaction_index.all()]
        wrong = wrong_aborted_index(producer_batches(log), index, log.log_start_offset)
        if wrong is not None:
            raise InvariantViolated("aborted-index-differs", f"{log.directory}: {wrong}")

    def _look_at_groups(self) -> None:
        for host in self.hosts.values():
            node = host.node
            if node is None or node.broker is None or node.broker.coordinators is None:
                continue
            for shard in node.broker.coordinators.groups.runtime.shards():
                if shard.state is ShardState.ACTIVE:
                    check_groups(shard.machine)
                    self._check_offsets(host, shard)

    def _check_offsets(self, host: WholeHost, shard: Shard[GroupMachine]) -> None:
        """Invariant 23, of whoever leads indeed."""
        topic = self.truth.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return
        key = (topic.topic_id, shard.partition)
        partition, known = host.hosted.get(key), self.offsets.get(key)
        if partition is None or known is None or not self.data.is_judged(key):
            return
        if shard.timeline.last_committed == known.end == self._news.ends[key]:
            known.check(shard.machine)

    # Health.

    def _look_at_health(self) -> None:
        for node_id, host in self.hosts.items():
            node, seen = host.node, self._seen.get(node_id)
            if node is None or seen is None:
                continue
            if node.server is not None:
                limit = node.config.current.get_int("socket.request.max.bytes")
                check_server(node_id, node.server, limit)
            needs = host.needs
            if needs is not None:
                needs.check(node_id)
            if host.clock.is_paused:
                seen.health.was_away()
            else:
                seen.health.check_timers(node_id, node, host.clock.monotonic_ms())

    # What happens to nodes.

    def started(self, node_id: int, node: Node) -> None:
        self.hosts[node_id].lives(node)
        self.truth.started(node_id)
        self._seen[node_id] = _Seen()

    def dies(self, node_id: int, *, was_up: bool, policy: CrashPolicy | None) -> None:
        """A node is about to end; without a policy in good order."""
        host = self.hosts[node_id]
        if host.node is None:
            return
        self.look_at(node_id)
        if policy is not None:
            host.was_up = host.was_up or was_up
            if policy is not CrashPolicy.KEEP_ALL:
                for key in host.hosted:
                    self.data.lost(key)
        host.dies()

    # Answers.

    def _find(self, node_id: int, place: Place) -> Partition | None:
        replicas = self.hosts[node_id].replicas
        if replicas is None:
            return None
        if place.topic_id != ZERO_UUID:
            found = replicas.lookup_by_id(place.topic_id, place.partition)
        else:
            found = replicas.lookup((place.topic, place.partition))
        return found if isinstance(found, Partition) else None

    def acknowledged(self, node_id: int, place: Place, first_offset: int, count: int) -> None:
        partition = self._find(node_id, place)
        if partition is not None:
            end = first_offset + count
            self._guarded(lambda: self.data.acked(partition, first_offset, end, self.truth.image))

    def shown(self, node_id: int, place: Place, records: Iterator[tuple[int, TrueRecord]]) -> None:
        partition = self._find(node_id, place)
        if partition is None:
            return
        key = key_of(partition)

        self._guarded(lambda: self.data.shown_all(key, records))

    def begun(self, producer_id: int, epoch: int) -> None:
        ends: dict[PartitionKey, int] = {}
        for host in self.hosts.values():
            for key in host.directories:
                ends[key] = max(ends.get(key, 0), host.logs[key].log_end_offset)
        self.transactions.begun(producer_id, epoch, ends)

    # The end.

    def check_end(self) -> None:
        """All nodes run, and all is quiet."""
        self._guarded(self._check_end)

    def _check_end(self) -> None:
        for node_id, host in self.hosts.items():
            node = host.node
            if node is not None and node.quorum is not None:
                self.truth.check_whole(node_id, node.quorum.loader.image)
            for partition in host.partitions:
                self._check_aborted(key_of(partition), log_of(partition))
        self._look_at_groups()
        self._look_at_health()
        self.data.check_end(self.truth.image, unjudged=tuple(self.data.compacted.values()))
