"""From the quorum to the state machines: one ordered stream of commits, snapshots and leaders.

The feed is told what happened, without waiting, and makes up for it in its own task: it replays
committed batches into the loader in slices that leave the loop free, and publishes when it has
come to where it was told to go, or has read so much that the publishers have enough to do. News of
a leader stands behind the commits that preceded it:

    committed to 80, leader 2, committed to 90    ->    replay to 80, publish, leader 2, replay ...

so that a controller which hears of its own leadership has seen everything that was committed
before its epoch. It reads the log by itself and only notes how far it may go, hence many commits
cost one walk.

Snapshots. The newest one is loaded at the start, and again when the log begins behind the place
that the feed has come to. What it covers need not be replayed, and news that waited for an offset
below its end is due. A state machine that was told it leads is never made to load one (KRF-93): if
the node lost its leadership and installed a snapshot before the feed was done, the loss is told
first. What was committed in between is then part of the snapshot, and the answers for it were in
doubt anyway.

Invariants: the loader gets every committed batch once and in order; nothing beyond the high
watermark; a leader's news when everything committed before it was published, and not later than
anything committed after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import trio

from kraftpy.log.pacing import Pace
from kraftpy.metadata.image import Provenance
from kraftpy.metadata.publisher import MetadataLoader
from kraftpy.raft.committed_log import SnapshotGoneError
from kraftpy.raft.election_state import NO_LEADER
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.snapshot_content import SnapshotHead
from kraftpy.records.batch import RecordBatch
from kraftpy.world import LATE_SECONDS, Buggify, Clock, InternalInvariant, never

__all__ = ["CommittedFeed", "FeedLog", "LeadershipListener"]

# A publisher needs some 10 us for a record, and all of them work in one go.
_RECORDS_OF_AN_IMAGE: Final = 200


class FeedLog(Protocol):
    """Where batches and snapshots come from: CommittedLog, or a simulation's."""

    @property
    def start_offset(self) -> int: ...

    @property
    def latest_snapshot(self) -> SnapshotId | None: ...

    def batches(self, start_offset: int, end_offset: int) -> Iterator[RecordBatch]: ...

    def snapshot_head(self, snapshot_id: SnapshotId) -> SnapshotHead: ...

    def snapshot_batches(self, snapshot_id: SnapshotId) -> Iterator[RecordBatch]: ...


class LeadershipListener(Protocol):
    """Whoever acts on leaders: the controller."""

    def leader_changed(self, epoch: int, leader_id: int) -> None: ...

    def leadership_lost(self, epoch: int) -> None: ...


class _LeaderNews(NamedTuple):
    """Who leads an epoch; or, with `is_lost`, that this node no longer does."""

    # What was committed when it happened.
    end_offset: int
    epoch: int
    leader_id: int
    is_lost: bool


class CommittedFeed:
    """Give it to `RaftDriver.listen`, and `run` it as a task."""

    __slots__ = (
        "_buggify",
        "_clock",
        "_has_begun",
        "_high_watermark",
        "_leads",
        "_listener",
        "_loader",
        "_log",
        "_news",
        "_node_id",
        "_wake",
    )

    def __init__(
        self,
        log: FeedLog,
        loader: MetadataLoader,
        listener: LeadershipListener,
        *,
        node_id: int,
        clock: Clock,
        buggify: Buggify = never,
    ) -> None:
        """The loader is new; the publishers may be installed later."""
        self._log = log
        self._loader = loader
        self._listener = listener
        self._node_id = node_id
        self._clock = clock
        self._buggify = buggify
        self._news: deque[_LeaderNews] = deque()
        self._high_watermark = 0
        self._has_begun = False
        # Whether the listener was told that this node leads, and nothing else since.
        self._leads = False
        self._wake = trio.Event()

    # What the driver tells.

    def committed(self, end_offset: int) -> None:
        self._loader.note_high_watermark(end_offset)
        self._high_watermark = end_offset
        self._wake.set()

    def snapshot_installed(self) -> None:
        self._wake.set()

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        self._news.append(_LeaderNews(self._high_watermark, epoch, leader_id, is_lost=False))
        self._wake.set()

    def leadership_lost(self, epoch: int) -> None:
        self._news.append(_LeaderNews(self._high_watermark, epoch, NO_LEADER, is_lost=True))
        self._wake.set()

    # The task.

    async def run(self) -> None:
        """Follow the log for ever. Whatever it raises must end the node."""
        pace = Pace(self._clock)
        while True:
            self._wake = trio.Event()
            # It has just been given the loop.
            pace.begin()
            while await self.advance(pace):
                pass
            await self._wake.wait()

    async def advance(self, pace: Pace) -> bool:
        """Do what is next; whether there was anything."""
        loader = self._loader
        if not self._has_begun or loader.end_offset < self._log.start_offset:
            snapshot_id = self._log.latest_snapshot
            self._has_begun = True
            if snapshot_id is not None:
                await self._load(snapshot_id, pace)
                return True
            if loader.end_offset < self._log.start_offset:
                # It is on its way to the disk.
                return False
        goal = self._high_watermark
        if self._news:
            goal = min(goal, self._news[0].end_offset)
        if loader.end_offset < goal:
            if self._buggify("metadata-replayed-late"):
                await self._clock.sleep(LATE_SECONDS)
            await self._replay(goal, pace)
            loader.publish()
            return True
        if self._news:
            self._tell(self._news.popleft())
            return True
        return False

    async def _replay(self, goal: int, pace: Pace) -> None:
        """As far as `goal`, or until the log begins behind the place where it would go on."""
        loader = self._loader
        while self._log.start_offset <= loader.end_offset < goal:
            for batch in self._log.batches(loader.end_offset, goal):
                for _ in loader.replay_in_steps(batch):
                    await pace.rest(0)
                is_enough = loader.unpublished_count >= _RECORDS_OF_AN_IMAGE
                if is_enough or self._buggify("metadata-published-early"):
                    loader.publish()
                await pace.rest(batch.size)

    async def _load(self, snapshot_id: SnapshotId, pace: Pace) -> None:
        loader = self._loader
        if self._leads:
            if not self._news or not self._news[0].is_lost:
                raise InternalInvariant(f"metadata.leader-loads-snapshot {snapshot_id}")
            self._tell(self._news.popleft())
        head = self._log.snapshot_head(snapshot_id)
        loader.begin_snapshot(
            Provenance(snapshot_id.end_offset - 1, snapshot_id.epoch, head.last_contained_ms)
        )
        try:
            for batch in self._log.snapshot_batches(snapshot_id):
                for _ in loader.replay_in_steps(batch):
                    await pace.rest(0)
                await pace.rest(batch.size)
        except SnapshotGoneError:
            # A newer one took its place, and the log begins behind it: that one is loaded next.
            return
        loader.end_snapshot()
        loader.publish()

    def _tell(self, news: _LeaderNews) -> None:
        self._leads = news.leader_id == self._node_id
        if news.is_lost:
            self._listener.leadership_lost(news.epoch)
        else:
            self._listener.leader_changed(news.epoch, news.leader_id)
