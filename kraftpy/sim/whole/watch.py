"""Holds every node against the invariants while the simulation runs.

Looked at is a node when something is delivered to it, and all of them 10 ms later,
before one dies, and at the end. What is compared costs the same however long the run is: only what
has changed since the last look.

Quorum (1 to 5) and metadata (8, 9): the committed log is read from whoever shows it first, and
must be the same, byte for byte, wherever it is shown later. It is folded here, by ClusterTruth, and
every image that a node publishes must be what the fold has at that offset.

Replicas (10 to 18): DataRules, with the real logs, running or not. Answers are seen when they are
given (answers.py).

Groups (22): the state of every group of every active coordinator.

The first violation ends the run: it is kept, because it may be found deep inside of the product's
own tasks, which would answer for it as for any other failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from kraftpy.broker.hosted_replicas import log_of
from kraftpy.broker.partition import Partition
from kraftpy.coordinator.shard import ShardState
from kraftpy.log.errors import StorageError
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.metadata.records import ConfigResourceType
from kraftpy.node import Node
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.raft.driver import RaftDriver
from kraftpy.raft.election_state import ElectionState
from kraftpy.sim.cluster_data_rules import DataRules, PartitionKey, TrueRecord
from kraftpy.sim.cluster_producer_rules import CheckedLog
from kraftpy.sim.cluster_rules import ClusterRules
from kraftpy.sim.cluster_truth import ClusterTruth
from kraftpy.sim.coordinator_rules import check_groups
from kraftpy.sim.digest import EventDigest
from kraftpy.sim.quorum_invariants import InvariantViolated, QuorumInvariants
from kraftpy.sim.whole.answers import Place
from kraftpy.sim.whole.hosts import WholeHost, key_of
from kraftpy.world.memory_disk_crash import CrashPolicy

__all__ = ["Watch"]

# Of the looks at all nodes, with which the groups are looked at.
_GROUPS_EVERY = 20


class _WholeQuorum(QuorumInvariants):
    """Whoever shows a committed batch first writes the truth; all others confirm it."""

    __slots__ = ()

    def check_batch(self, node_id: int, base_offset: int, epoch: int, data: bytes) -> None:
        known = self._committed_data.get(base_offset)
        if known is None and base_offset == self.committed_end:
            self._committed[base_offset] = epoch
            self._committed_data[base_offset] = data
        elif known != data:
            raise InvariantViolated(
                "committed-changed", f"{node_id}: another batch at offset {base_offset}"
            )


class _WholeData(DataRules):
    """What is compacted has lost records rightly: nobody can tell from what is left."""

    __slots__ = ("compacted",)

    def __init__(self, *, flushes: bool, has_elr: bool) -> None:
        super().__init__(flushes=flushes, has_elr=has_elr)
        self.compacted: dict[Uuid, str] = {}

    def _check_producers(self, key: PartitionKey, log: CheckedLog) -> None:
        if key[0] not in self.compacted:
            super()._check_producers(key, log)

    def _check_records(self, broker_id: int, key: PartitionKey) -> None:
        if key[0] not in self.compacted:
            super()._check_records(broker_id, key)


class _State(NamedTuple):
    """Of a replica, what something has to be checked for when it changes."""

    end_offset: int
    high_watermark: int
    start_offset: int
    leader_epoch: int
    leader_id: int


class _Seen:
    """What was seen of one process of a node."""

    __slots__ = ("high_watermark", "image", "partitions", "promise")

    def __init__(self) -> None:
        self.high_watermark = 0
        self.image = EMPTY_IMAGE
        self.promise: ElectionState | None = None
        self.partitions: dict[Partition, _State] = {}


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
        self._quorum = _WholeQuorum()
        self._rules = ClusterRules(allows_unclean=False)
        self.data = _WholeData(flushes=flushes, has_elr=has_elr)
        self.data.hosts.update(hosts)
        self.truth = ClusterTruth(self._quorum, self._rules, EventDigest())
        self.truth.data = self.data
        self._seen: dict[int, _Seen] = {}
        self._looks = 0
        self._topics: dict[Uuid, None] = {}
        self.checks = 0

    # Looking.

    def _guarded(self, look: Callable[[], None]) -> None:
        if self.violation is not None:
            return
        self._hold_faults(True)
        try:
            look()
        except InvariantViolated as violation:
            self._fail(violation)
        except Exception as error:
            # Not the product's business, in whose tasks this may be.
            failure = InvariantViolated("watch-failed", repr(error))
            failure.__cause__ = error
            self._fail(failure)
        finally:
            self._hold_faults(False)

    def _hold_faults(self, hold: bool) -> None:
        for host in self.hosts.values():
            host.disk.hold_faults(hold)

    def _fail(self, violation: InvariantViolated) -> None:
        self.violation = violation
        self._failed()

    def look_at(self, node_id: int) -> None:
        self._guarded(partial(self._look_at, node_id))

    def look_at_all(self) -> None:
        self._looks += 1
        for node_id in self.hosts:
            self.look_at(node_id)
        if self._looks % _GROUPS_EVERY == 0:
            self._guarded(self._look_at_groups)

    def _look_at(self, node_id: int) -> None:
        host = self.hosts[node_id]
        node = host.node
        if node is None or node.quorum is None:
            return
        self.checks += 1
        seen = self._seen[node_id]
        self._note_broker(node_id, host)
        self._look_at_quorum(node_id, node, seen)
        self._look_at_image(node_id, node, seen)
        for partition in host.partitions:
            self._look_at_partition(host, partition, seen)

    def _look_at_quorum(self, node_id: int, node: Node, seen: _Seen) -> None:
        assert node.quorum is not None
        driver = node.quorum.driver
        quorum = driver.quorum
        self._quorum.check_election(quorum)
        election = quorum.election
        if election is not seen.promise:
            if seen.promise is not None:
                self._quorum.check_promise(quorum.local, seen.promise, election)
            seen.promise = election
        high_watermark = quorum.log.high_watermark
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

    def _read_committed(self, node_id: int, driver: RaftDriver, start: int, end: int) -> None:
        start = max(start, driver.log.start_offset)
        while start < end:
            for batch in driver.log.batches(start, end):
                data = bytes(batch.data)
                self._quorum.check_batch(node_id, batch.base_offset, batch.leader_epoch, data)
                start = batch.next_offset
                self._quorum.committed_end = max(self._quorum.committed_end, start)

    def _note_broker(self, node_id: int, host: WholeHost) -> None:
        """What the rules of the metadata have to know of a broker's own doing, before it is
        committed, and before the broker forgets it.
        """
        node = host.node
        if node is None or node.broker is None or node.quorum is None:
            return
        process = (node_id, node.broker.identity.incarnation_id)
        if process not in self._rules.is_unclean:
            self._rules.is_unclean[process] = host.was_up
            host.was_up = False
        self._rules.reached[process] = node.quorum.loader.image.provenance.last_offset
        if node.broker.replicas is not None:
            for topic_id in node.broker.replicas.deleted_topics():
                self._rules.deleted[node_id, topic_id] = None

    def _look_at_image(self, node_id: int, node: Node, seen: _Seen) -> None:
        assert node.quorum is not None
        image = node.quorum.loader.image
        if image is seen.image:
            return
        self.truth.check_image(node_id, seen.image, image)
        seen.image = image
        for topic in image.topics.values():
            if topic.topic_id not in self._topics:
                self._topics[topic.topic_id] = None
                policy = image.config(ConfigResourceType.TOPIC, topic.name).get("cleanup.policy")
                if "compact" in (policy or ""):
                    self.data.compacted[topic.topic_id] = topic.name

    def _look_at_partition(self, host: WholeHost, partition: Partition, seen: _Seen) -> None:
        log = log_of(partition)
        state = _State(
            log.log_end_offset,
            log.high_watermark,
            log.log_start_offset,
            partition.leader_epoch,
            partition.leader_id,
        )
        before = seen.partitions.get(partition)
        if before == state:
            return
        seen.partitions[partition] = state
        key, image = key_of(partition), self.truth.image
        if before is None:
            host.directories[key] = log.directory
        self.data.check_order(key, log)
        if before is None or state.start_offset > before.start_offset:
            self.data.deleted(key, state.start_offset)
        if partition.is_leader:
            is_new = before is None or before[3:] != state[3:]
            if before is None or is_new or before.high_watermark != state.high_watermark:
                # First, because the rules of what is committed must know how far that is.
                self.data.high_watermark_moved(partition, image)
            if is_new:
                self.data.leads(partition.broker_id, partition, image)
        if before is not None and state.end_offset < before.end_offset:
            self.data.cut(key, image)

    def _look_at_groups(self) -> None:
        for host in self.hosts.values():
            node = host.node
            if node is None or node.broker is None or node.broker.coordinators is None:
                continue
            for shard in node.broker.coordinators.groups.runtime.shards():
                if shard.state is ShardState.ACTIVE:
                    check_groups(shard.machine)

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

        def look() -> None:
            for offset, record in records:
                self.data.shown(key, offset, record)

        self._guarded(look)

    # The end.

    def check_end(self) -> None:
        """All nodes run, and all is quiet."""
        self._guarded(self._check_end)

    def _check_end(self) -> None:
        for node_id, host in self.hosts.items():
            node = host.node
            if node is not None and node.quorum is not None:
                self.truth.check_whole(node_id, node.quorum.loader.image)
        self.data.check_end(self.truth.image, unjudged=tuple(self.data.compacted.values()))
