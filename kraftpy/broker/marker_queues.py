"""Which markers have to be written where: the core of marker_sender.py. No I/O.

A job is a decided transaction; it is done when each of its partitions has its marker. Partitions
are queued for the broker that leads them, and leave in requests together with those of other
transactions. Whatever does not succeed is looked up again after a pause, or at once when the
metadata has changed, until it does:

| answer | then |
| --- | --- |
| success | the partition is done |
| the partition's log can't hold markers | it is done, for no marker is needed |
| the producer or the coordinator is known to be older | the whole job is given up |
| anything else, or none | again |

A partition that the metadata does not know is deleted, and done: the coordinator's own broker knew
of it before the transaction could use it. Writing a marker twice does no harm, so that a job may be
given up and begun again by another coordinator at any moment.

Invariants: a partition of a job is in one place: queued, under way, waiting or done. `done` is
called once, and not after `cancel`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kraftpy.coordinator.transactions.ports import MarkerJob
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.metadata.records import NO_LEADER
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["MarkerBatch", "MarkerQueues"]

log = logging.getLogger(__name__)

_RETRY_MS: Final = 100
# Of one request, so that neither end is busy for longer than some milliseconds.
_MAX_PARTITIONS: Final = 64
# More are sent to a broker when one of these is answered, and then together.
_MAX_UNDER_WAY: Final = 4
_DONE: Final = (
    ErrorCode.NONE,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
_OVERTAKEN: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
)


class _Open:
    """A job under way."""

    __slots__ = ("done", "is_over", "job", "remaining_count")

    def __init__(self, job: MarkerJob, done: Callable[[], None]) -> None:
        self.job = job
        self.done = done
        self.remaining_count = sum(map(len, job.partitions.values()))
        # Done, given up or cancelled: what is left of it somewhere is passed over.
        self.is_over = False


class MarkerBatch:
    """What one request to one broker carries."""

    __slots__ = ("_markers", "broker_id")

    def __init__(self, broker_id: int, markers: dict[_Open, list[TopicPartition]]) -> None:
        self.broker_id = broker_id
        self._markers = markers

    @property
    def request(self) -> WriteTxnMarkersRequest:
        return WriteTxnMarkersRequest(
            markers=[_marker(each.job, partitions) for each, partitions in self._markers.items()]
        )

    def items(self) -> Iterator[tuple[_Open, TopicPartition]]:
        for each, partitions in self._markers.items():
            for name in partitions:
                yield each, name


class MarkerQueues:
    """`leader_of` a partition, -1 if it has none at present; None if there is no such partition."""

    def __init__(self, leader_of: Callable[[TopicPartition], int | None]) -> None:
        self._leader_of = leader_of
        # By shard and transactional id.
        self._jobs: dict[tuple[int, str], _Open] = {}
        self._queued: dict[int, dict[_Open, list[TopicPartition]]] = {}
        self._under_way: dict[int, list[MarkerBatch]] = {}
        # When to look again, and for what; in the order of their times.
        self._waiting: list[tuple[int, _Open, TopicPartition]] = []

    @property
    def job_count(self) -> int:
        return len(self._jobs)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    # Jobs.

    def add(self, job: MarkerJob, done: Callable[[], None], now_ms: int) -> None:
        key = (job.shard, job.transactional_id)
        self._end(self._jobs.get(key))
        added = self._jobs[key] = _Open(job, done)
        for topic, indexes in job.partitions.items():
            for index in indexes:
                self._route(added, (topic, index), now_ms)

    def cancel(self, shard: int) -> None:
        for key, each in list(self._jobs.items()):
            if key[0] == shard:
                self._end(each)

    # Requests.

    def take(self) -> list[MarkerBatch]:
        """One for each broker that can be sent to; to be answered by `answered` or `failed`."""
        batches = []
        for broker_id in list(self._queued):
            if self._has_room(broker_id) and (batch := self._fill(broker_id)) is not None:
                self._under_way.setdefault(broker_id, []).append(batch)
                batches.append(batch)
        return batches

    @property
    def has_more(self) -> bool:
        """Whether `take` would give something now."""
        return any(map(self._has_room, self._queued))

    def answered(self, batch: MarkerBatch, answer: WriteTxnMarkersResponse, now_ms: int) -> None:
        codes = {
            (marker.producer_id, topic.name, result.partition_index): result.error_code
            for marker in answer.markers
            for topic in marker.topics
            for result in topic.partitions
        }
        self._end_batch(batch)
        for each, name in batch.items():
            if not each.is_over:
                code = codes.get((each.job.producer_id, *name), ErrorCode.UNKNOWN_SERVER_ERROR)
                self._answered(each, name, code, now_ms)

    def failed(self, batch: MarkerBatch, now_ms: int) -> None:
        """No answer came; what became of the markers is unknown."""
        self._end_batch(batch)
        for each, name in batch.items():
            self._wait(each, name, now_ms)

    def retry_due(self, now_ms: int) -> None:
        """Look again for the leaders of those that have waited long enough."""
        count = 0
        while count < len(self._waiting) and self._waiting[count][0] <= now_ms:
            count += 1
        self._retry(count, now_ms)

    def next_retry_ms(self) -> int | None:
        return self._waiting[0][0] if self._waiting else None

    def metadata_changed(self, now_ms: int) -> list[MarkerBatch]:
        """Look again for all leaders; the batches under way that wait for somebody in vain."""
        queued, self._queued = self._queued, {}
        for markers in queued.values():
            for each, names in markers.items():
                for name in names:
                    self._route(each, name, now_ms)
        self._retry(len(self._waiting), now_ms)
        return [
            batch
            for batches in self._under_way.values()
            for batch in batches
            if any(
                not each.is_over and self._leader_of(name) != batch.broker_id
                for each, name in batch.items()
            )
        ]

    # One partition of one job.

    def _route(self, each: _Open, name: TopicPartition, now_ms: int) -> None:
        if each.is_over:
            return
        leader_id = self._leader_of(name)
        if leader_id is None:
            log.info("no marker for a partition that is gone %s-%d", *name)
            self._partition_done(each)
        elif leader_id == NO_LEADER:
            self._wait(each, name, now_ms)
        else:
            self._queued.setdefault(leader_id, {}).setdefault(each, []).append(name)

    def _wait(self, each: _Open, name: TopicPartition, now_ms: int) -> None:
        if not each.is_over:
            self._waiting.append((now_ms + _RETRY_MS, each, name))

    def _retry(self, count: int, now_ms: int) -> None:
        due, self._waiting = self._waiting[:count], self._waiting[count:]
        for _, each, name in due:
            self._route(each, name, now_ms)

    def _answered(self, each: _Open, name: TopicPartition, code: int, now_ms: int) -> None:
        if code in _DONE:
            self._partition_done(each)
        elif code in _OVERTAKEN:
            log.warning(
                "markers given up error=%s partition=%s-%d transactional_id=%r producer_id=%d"
                " epoch=%d coordinator_epoch=%d",
                ErrorCode(code).name,
                *name,
                each.job.transactional_id,
                each.job.producer_id,
                each.job.producer_epoch,
                each.job.coordinator_epoch,
            )
            self._end(each)
        else:
            self._wait(each, name, now_ms)

    def _partition_done(self, each: _Open) -> None:
        each.remaining_count -= 1
        if each.remaining_count == 0:
            self._end(each)
            each.done()

    def _end(self, each: _Open | None) -> None:
        if each is not None and not each.is_over:
            each.is_over = True
            del self._jobs[each.job.shard, each.job.transactional_id]

    # Batches.

    def _has_room(self, broker_id: int) -> bool:
        return len(self._under_way.get(broker_id, ())) < _MAX_UNDER_WAY

    def _fill(self, broker_id: int) -> MarkerBatch | None:
        queued = self._queued[broker_id]
        markers: dict[_Open, list[TopicPartition]] = {}
        space = _MAX_PARTITIONS
        for each, names in list(queued.items()):
            if space == 0:
                break
            del queued[each]
            if each.is_over:
                continue
            markers[each] = names[:space]
            if len(names) > space:
                queued[each] = names[space:]
            space -= len(markers[each])
        if not queued:
            del self._queued[broker_id]
        return MarkerBatch(broker_id, markers) if markers else None

    def _end_batch(self, batch: MarkerBatch) -> None:
        under_way = self._under_way[batch.broker_id]
        under_way.remove(batch)
        if not under_way:
            del self._under_way[batch.broker_id]


def _marker(job: MarkerJob, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, WritableTxnMarkerTopic(name=name, partition_indexes=[]))
        topic.partition_indexes.append(index)
    return WritableTxnMarker(
        producer_id=job.producer_id,
        producer_epoch=job.producer_epoch,
        transaction_result=job.is_commit,
        topics=list(topics.values()),
        coordinator_epoch=job.coordinator_epoch,
        transaction_version=job.transaction_version,
    )
