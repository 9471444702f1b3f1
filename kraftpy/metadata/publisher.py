"""From committed batches to published images: the loader, one on each node, and its publishers.

The loader replays every committed batch, in order and once, into a delta; at the end of a run of
batches it hands the new image, with what has changed, to the publishers in the order in which
they were installed. Whoever drives it may let others run between two batches, and between the steps
of one: nothing is seen before `publish`, and of half a batch nothing at all.

- Nothing is published before the node has caught up with the high watermark that it knew first,
  and has seen a record. From then on every publisher gets, as its first changes, everything there
  is; later ones are relative to what it was given last.
- An open transaction holds the visible image back; see delta.py.
- A snapshot is folded from nothing and then takes the place of the image. Publishers are told the
  difference, as always.
- A publisher that raises is reported by its name, and keeps no other from the news.
- A record that can't be replayed is fatal where `is_strict`, on controllers: the caller gets the
  error. A broker reports it, goes on without the record, and makes no snapshot any more.

Invariant: but for such a skipped record, the image is the fold of the log up to its provenance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from kraftpy.metadata.batches import log_records, metadata_record
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.record_format import MetadataRecordError, RecordDecoder
from kraftpy.metadata.replay_error import ReplayError
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import RecordDataError
from kraftpy.records.reader import Record
from kraftpy.world import InternalInvariant, assert_always, quickly_made

__all__ = ["LoaderFault", "Manifest", "MetadataLoader", "Publisher", "Source"]

# About a millisecond's work.
_RECORDS_OF_A_STEP: Final = 100


class Source(Enum):
    LOG = "log"
    SNAPSHOT = "snapshot"


@quickly_made
@dataclass(frozen=True, slots=True)
class Manifest:
    """How an image came to be: what has been read since the one published before."""

    source: Source
    provenance: Provenance
    batch_count: int
    record_count: int
    size_bytes: int


class Publisher(Protocol):
    """Somebody who acts on new images. Synchronous; called by one loader only."""

    @property
    def name(self) -> str: ...

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None: ...


@dataclass(frozen=True, slots=True)
class LoaderFault:
    """Something that should not happen and did not stop the loader."""

    where: str
    offset: int
    error: Exception


class _Installed:
    """A publisher and the image that it was given last."""

    __slots__ = ("publisher", "seen")

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.seen = EMPTY_IMAGE


class MetadataLoader:
    __slots__ = (
        "_batch_count",
        "_catch_up_offset",
        "_decoder",
        "_delta",
        "_end_offset",
        "_has_caught_up",
        "_has_news",
        "_has_seen_record",
        "_has_skipped",
        "_image",
        "_is_amid_batch",
        "_is_strict",
        "_manifest",
        "_on_fault",
        "_publishers",
        "_read",
        "_record_count",
        "_size_bytes",
        "_snapshot",
        "_source",
        "_visible",
    )

    def __init__(
        self,
        on_fault: Callable[[LoaderFault], None],
        *,
        is_strict: bool,
        decoder: RecordDecoder | None = None,
        read: Callable[[RecordBatch], Iterable[Record]] = log_records,
    ) -> None:
        """Loaders of one log may have one `decoder`, and then share what their records hold.

        `read` takes a batch apart, as `log_records` does.
        """
        self._on_fault = on_fault
        self._is_strict = is_strict
        self._publishers: list[_Installed] = []
        self._image = EMPTY_IMAGE
        self._decoder = decoder or RecordDecoder()
        self._read = read
        self._delta = MetadataDelta(EMPTY_IMAGE)
        # The end of what was replayed, and of what a reader may see of it.
        self._end_offset = 0
        self._visible = EMPTY_IMAGE.provenance
        # The snapshot that is being loaded: where it ends.
        self._snapshot: Provenance | None = None
        self._catch_up_offset: int | None = None
        self._has_caught_up = False
        self._has_seen_record = False
        self._has_news = False
        self._has_skipped = False
        self._is_amid_batch = False
        self._manifest = Manifest(Source.LOG, self._visible, 0, 0, 0)
        self._start_manifest(Source.LOG)

    def _start_manifest(self, source: Source) -> None:
        self._source = source
        self._batch_count = 0
        self._record_count = 0
        self._size_bytes = 0

    @property
    def image(self) -> MetadataImage:
        """The image published last; empty before the first. Heartbeats report its offset."""
        return self._image

    @property
    def end_offset(self) -> int:
        """The offset of the next batch to replay."""
        return self._end_offset

    @property
    def unpublished_count(self) -> int:
        """How many records were replayed since the image published last."""
        return self._record_count

    @property
    def may_snapshot(self) -> bool:
        """Whether the published image is one that a snapshot may be made of."""
        return not self._has_skipped and self._image.provenance.is_batch_aligned

    def open_transaction(self) -> MetadataImage | None:
        """The image before the transaction that the log leaves open so far; None if it doesn't.

        A new controller must abort it, and may never have been given what came before.
        """
        return self._delta.apply(self._visible) if self._delta.in_transaction else None

    def install(self, publisher: Publisher) -> None:
        """Add a publisher behind the others. It hears first at the next `publish`."""
        names = [installed.publisher.name for installed in self._publishers]
        assert_always(publisher.name not in names, "metadata.publisher_twice", name=publisher.name)
        self._publishers.append(_Installed(publisher))

    def remove(self, publisher: Publisher) -> None:
        self._publishers = [
            installed for installed in self._publishers if installed.publisher is not publisher
        ]

    def note_high_watermark(self, offset: int) -> None:
        """The first one known says how far the log must be replayed before anything is seen."""
        if self._catch_up_offset is None:
            self._catch_up_offset = offset

    def replay(self, batch: RecordBatch) -> None:
        """Replay the next committed batch, or the next one of the snapshot that was begun."""
        for _ in self.replay_in_steps(batch):
            pass

    def replay_in_steps(self, batch: RecordBatch) -> Iterator[None]:
        """The same, with a rest between steps; all of them before anything else is replayed."""
        if self._snapshot is None and batch.base_offset != self._end_offset:
            raise InternalInvariant(
                f"metadata.batch_order {batch.base_offset} where {self._end_offset} is next"
            )
        self._batch_count += 1
        self._size_bytes += batch.size
        offset = batch.base_offset
        self._is_amid_batch = True
        try:
            for number, record in enumerate(self._read(batch), 1):
                self._replay_record(batch, record)
                offset = record.offset + 1
                if number % _RECORDS_OF_A_STEP == 0:
                    yield
        except RecordDataError as error:
            self._skip(offset, error)
        self._is_amid_batch = False
        if self._snapshot is None:
            last_offset = batch.last_offset
            self._end_offset = last_offset + 1
            if not self._delta.in_transaction:
                self._show(Provenance(last_offset, batch.leader_epoch, batch.max_timestamp_ms))

    def _replay_record(self, batch: RecordBatch, record: Record) -> None:
        self._record_count += 1
        self._has_seen_record = True
        delta = self._delta
        was_in_transaction = delta.in_transaction
        try:
            delta.replay(metadata_record(record, self._decoder))
        except (MetadataRecordError, ReplayError) as error:
            self._skip(record.offset, error)
            return
        begins = delta.in_transaction and not was_in_transaction
        if begins and record.offset > batch.base_offset:
            self._show(
                Provenance(
                    record.offset - 1,
                    batch.leader_epoch,
                    batch.max_timestamp_ms,
                    is_batch_aligned=False,
                )
            )

    def _show(self, provenance: Provenance) -> None:
        self._visible = provenance
        self._has_news = True

    def _skip(self, offset: int, error: Exception) -> None:
        if self._is_strict:
            raise error
        self._has_skipped = True
        self._on_fault(LoaderFault("replay", offset, error))

    def begin_snapshot(self, provenance: Provenance) -> None:
        """The batches that follow are those of a snapshot which ends here; see `end_snapshot`."""
        self._snapshot = provenance
        self._delta = MetadataDelta(EMPTY_IMAGE, is_snapshot=True)
        self._has_skipped = False
        self._start_manifest(Source.SNAPSHOT)

    def end_snapshot(self) -> None:
        """The snapshot is complete; batches from its end on may follow."""
        if self._snapshot is None:
            raise InternalInvariant("metadata.no_snapshot_begun")
        self._show(self._snapshot)
        self._end_offset = self._snapshot.end_offset
        self._delta = MetadataDelta(self._delta.apply(self._snapshot))
        self._snapshot = None

    def publish(self) -> None:
        """Give what is new to every publisher, unless it is too early for that."""
        if self._snapshot is not None or self._is_amid_batch or not self._is_caught_up():
            return
        before = self._image
        if self._has_news:
            self._image = self._delta.apply(self._visible)
            self._manifest = Manifest(
                self._source,
                self._visible,
                self._batch_count,
                self._record_count,
                self._size_bytes,
            )
            self._has_news = False
            self._start_manifest(Source.LOG)
        shared = ImageChanges(before, self._image)
        for installed in tuple(self._publishers):
            if installed.seen is self._image:
                continue
            changes = shared
            if installed.seen is not before:
                changes = ImageChanges(installed.seen, self._image)
            installed.seen = self._image
            try:
                installed.publisher.publish(changes, self._image, self._manifest)
            except InternalInvariant:
                raise
            except Exception as error:
                offset = self._image.provenance.last_offset
                self._on_fault(LoaderFault(installed.publisher.name, offset, error))

    def _is_caught_up(self) -> bool:
        """Once true, true for ever.

        An open transaction is waited for as well: the image before it may lack what makes a
        cluster one, and a broker that took it for the truth would delete all its logs as strays.
        """
        if not self._has_caught_up:
            self._has_caught_up = (
                self._catch_up_offset is not None
                and self._end_offset >= self._catch_up_offset
                and self._has_seen_record
                and not self._delta.in_transaction
            )
        return self._has_caught_up
