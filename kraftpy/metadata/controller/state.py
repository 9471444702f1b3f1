"""The controller's memory: the newest image, what of it is committed, and what follows from it.

The active controller is ahead of the log: it replays its own records when it hands them to Raft.
Images are immutable and share what has not changed, so discarding what was not committed is
nothing more than going back to an older one. Everything else that operations read (which broker
has which partitions, the states of replicas and partitions, deletions) is derived: it is told the
difference between two images, whichever lies further in the log. Going forward, going back and
loading a snapshot are one and the same thing.

What is appended may concern thousands of partitions. It is replayed in steps, and what is derived
follows in steps, when `image` is the new one already: nobody looks, because the controller does
nothing else meanwhile. A commit in between may bring the same image again, and no other. Who wants
to go back takes the steps that are left at once.

Invariants: `stable` is the fold of the committed log up to its provenance; `image` is `stable` with
the records behind it that this controller has appended; every derived part is a function of
`image`, and of heartbeats while this controller is active, between two appends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.records import AbortTransactionRecord, MetadataRecord
from kraftpy.world import InternalInvariant, assert_always

__all__ = ["Derived", "MetadataTimeline"]

_END: Final = object()


class Derived(Protocol):
    """Something that is computed from the image and follows it."""

    def update(self, changes: ImageChanges) -> None:
        """The image is `changes.after` now; it was `changes.before`."""
        ...


class MetadataTimeline:
    """Images by offset: the committed one, and those of records not committed yet."""

    __slots__ = ("_derived", "_drafts", "_move_under_way", "image", "stable")

    def __init__(self, derived: Sequence[Derived]) -> None:
        self._derived = list(derived)
        # Ends of appended batches and the image after each, in the order of the log.
        self._drafts: deque[tuple[int, MetadataImage]] = deque()
        # The rest of the way to `image`, if it isn't over.
        self._move_under_way: Iterator[None] | None = None
        self.image = EMPTY_IMAGE
        self.stable = EMPTY_IMAGE

    @property
    def pending_offset(self) -> int | None:
        """The last offset that is appended and not known to be committed; None if all is."""
        return self._drafts[-1][0] if self._drafts else None

    @property
    def is_amid_append(self) -> bool:
        """Whether what is derived is not all there yet."""
        return self._move_under_way is not None

    def follow(self, derived: Derived) -> None:
        """One more that is computed from the image; it begins with everything there is."""
        derived.update(ImageChanges(EMPTY_IMAGE, self.image))
        self._derived.append(derived)

    def appending(
        self,
        records: Sequence[MetadataRecord],
        place: Callable[[], Provenance],
        at_once: int,
    ) -> Iterator[None]:
        """Let records happen that are being appended as one batch, with a rest between steps.

        `place` is asked for the end of the batch when all of them can happen: from then on they
        have. Committed images don't show an open transaction, so that here an abort which comes
        first has nothing to undo. Raises ReplayError, with nothing changed, if the records
        contradict the image.
        """
        delta = MetadataDelta(self.image)
        is_abort_first = bool(records) and isinstance(records[0], AbortTransactionRecord)
        rest = islice(records, int(is_abort_first), None)
        for number, record in enumerate(rest, 1):
            delta.replay(record)
            if number % at_once == 0:
                yield
        assert_always(not delta.in_transaction, "controller.open_transaction")
        provenance = place()
        assert_always(
            provenance.last_offset > self.image.provenance.last_offset,
            "controller.append_order",
            offset=provenance.last_offset,
        )
        image = delta.apply(provenance)
        self._drafts.append((provenance.last_offset, image))
        # Not a part of this generator: the way has to be gone to its end if this is given up.
        self._move_under_way = self._moving(image, at_once)
        while not self._arrives():
            yield

    def commit(self, image: MetadataImage) -> None:
        """`image` is what all nodes have replayed by now.

        Once it has caught up with what this controller appended, it takes the place of our own.
        """
        self.stable = image
        committed = image.provenance.last_offset
        while self._drafts and self._drafts[0][0] <= committed:
            self._drafts.popleft()
        if not self._drafts:
            self._move(image)

    def revert(self) -> None:
        """Forget everything that is not known to be committed."""
        self._drafts.clear()
        while not self._arrives():
            pass
        self._move(self.stable)

    def _arrives(self) -> bool:
        """Take the next step to what was appended; whether that was the last one."""
        if self._move_under_way is not None and next(self._move_under_way, _END) is not _END:
            return False
        self._move_under_way = None
        return True

    def _move(self, image: MetadataImage) -> None:
        if image is not self.image:
            changes = ImageChanges(self.image, image)
            self.image = image
            self._update(changes)

    def _moving(self, image: MetadataImage, at_once: int) -> Iterator[None]:
        changes = ImageChanges(self.image, image)
        self.image = image
        for number, part in enumerate(changes.in_parts(at_once)):
            if number:
                yield
            self._update(part)

    def _update(self, changes: ImageChanges) -> None:
        for derived in self._derived:
            try:
                derived.update(changes)
            except Exception as error:
                # Nothing that is read from here on could be trusted.
                raise InternalInvariant(f"controller.derived {derived!r}: {error!r}") from error
