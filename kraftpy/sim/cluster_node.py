"""The metadata of one simulated node: the product's committed feed and loader above its core.

The feed is the one that runs in trio, with the same news in the same order; here it moves one
step at a time, each an event of the heap, so that everything else can happen in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from random import Random
from typing import Any, Final, cast

from kraftpy.log.pacing import Pace
from kraftpy.metadata.committed_feed import CommittedFeed, LeadershipListener
from kraftpy.metadata.publisher import LoaderFault, MetadataLoader
from kraftpy.metadata.replay_error import ReplayError
from kraftpy.raft import effects as fx
from kraftpy.raft.core import RaftCore
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.snapshot_content import SnapshotHead, data_batches, read_snapshot_head
from kraftpy.records.batch import RecordBatch
from kraftpy.records.walker import walk_batches
from kraftpy.sim.cluster_truth import ClusterTruth, shared_records
from kraftpy.sim.kernel import EventHeap
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.quorum_node import QuorumNode
from kraftpy.world import Clock

__all__ = ["MetadataNode", "NodeLog"]

# What the feed is told of.
_NEWS: Final = (fx.HighWatermarkAdvanced, fx.LeaderChanged, fx.LeadershipLost, fx.InstallSnapshot)


class _Unpaced(Pace):
    """Nothing waits on the heap."""

    def __init__(self) -> None:
        """It has no slices."""

    async def rest(self, done_bytes: int) -> None:
        """Go on at once."""


_UNPACED: Final = _Unpaced()


def _run_now(steps: Coroutine[Any, Any, bool]) -> bool:
    """The result of a coroutine that never has to wait."""
    try:
        steps.send(None)
    except StopIteration as stopped:
        return bool(stopped.value)
    raise InvariantViolated("feed-waits", "the feed waited where nothing can wake it")


class NodeLog:
    """The log of a simulated node as its feed sees it."""

    __slots__ = ("_core", "_node", "_truth")

    def __init__(self, node: QuorumNode, core: RaftCore, truth: ClusterTruth) -> None:
        self._node = node
        self._core = core
        self._truth = truth

    @property
    def start_offset(self) -> int:
        return self._core.quorum.log.start_offset

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        latest = self._core.quorum.log.latest_snapshot
        return latest if latest in self._node.storage.log.snapshots else None

    def batches(self, start_offset: int, end_offset: int) -> Iterator[RecordBatch]:
        log = self._node.storage.log
        for position in range(log.position(start_offset), len(log.batches)):
            batch = log.batches[position]
            if batch.base_offset >= end_offset:
                break
            yield self._truth.view_of(batch.data)

    def snapshot_head(self, snapshot_id: SnapshotId) -> SnapshotHead:
        return read_snapshot_head(self._node.storage.log.snapshots[snapshot_id])

    def snapshot_batches(self, snapshot_id: SnapshotId) -> Iterator[RecordBatch]:
        return data_batches(walk_batches(self._node.storage.log.snapshots[snapshot_id]))


class MetadataNode(ABC):
    """A state machine of a QuorumNode; controllers and brokers add theirs."""

    __slots__ = (
        "_feed",
        "_is_awake",
        "_task_mean_us",
        "heap",
        "loader",
        "node",
        "node_id",
        "random",
        "truth",
    )

    def __init__(
        self,
        node: QuorumNode,
        *,
        heap: EventHeap,
        truth: ClusterTruth,
        random: Random,
        task_mean_us: int,
    ) -> None:
        self.node = node
        self.node_id = node.node_id
        self.heap = heap
        self.truth = truth
        self.random = random
        self._task_mean_us = task_mean_us
        self._is_awake = False
        self.loader: MetadataLoader | None = None
        self._feed: CommittedFeed | None = None
        node.machine = self

    @abstractmethod
    def prepare(self, loader: MetadataLoader) -> LeadershipListener:
        """A new process: install publishers, and say who hears of leaders."""

    # Life.

    def started(self, core: RaftCore) -> None:
        self.loader = MetadataLoader(
            self._on_fault, is_strict=True, decoder=self.truth.decoder, read=shared_records
        )
        self.truth.started(self.node_id)
        # Only the feed's own task looks at a clock, and there is none.
        clock = cast("Clock", None)
        listener = self.prepare(self.loader)
        log = NodeLog(self.node, core, self.truth)
        self._feed = CommittedFeed(log, self.loader, listener, node_id=self.node_id, clock=clock)
        self._is_awake = False
        self._wake()

    def stopped(self) -> None:
        self.loader = None
        self._feed = None

    def resumed(self) -> None:
        self._is_awake = False
        self._wake()

    def _on_fault(self, fault: LoaderFault) -> None:
        raise InvariantViolated("publisher-fault", f"{self.node_id}: {fault}") from fault.error

    def follow(self, effects: list[fx.Effect]) -> None:
        feed = self._feed
        if feed is None:
            return
        for effect in effects:
            if not isinstance(effect, _NEWS):
                continue
            match effect:
                case fx.HighWatermarkAdvanced():
                    feed.committed(effect.offset)
                case fx.LeaderChanged():
                    feed.leader_changed(effect.epoch, effect.leader_id)
                case fx.LeadershipLost():
                    feed.leadership_lost(effect.epoch)
                case fx.InstallSnapshot():
                    feed.snapshot_installed()
            self._wake()

    # The feed's task.

    def plan(self, delay_us: int, event: Callable[[], None]) -> None:
        """Have `event` called unless the process is another one by then, or paused."""
        self.heap.plan(delay_us, partial(self._run, self.node.incarnation, event))

    def _run(self, incarnation: int, event: Callable[[], None]) -> None:
        if incarnation == self.node.incarnation and not self.node.paused:
            event()

    def task_delay_us(self) -> int:
        return 1 + int(self.random.expovariate(1 / self._task_mean_us))

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self.plan(self.feed_delay_us(), self._advance)

    def feed_delay_us(self) -> int:
        """From the news that something is committed until it is read."""
        return self.task_delay_us()

    def _advance(self) -> None:
        self._is_awake = False
        feed, loader = self._feed, self.loader
        if feed is None or loader is None:
            return
        before = loader.image
        try:
            has_more = _run_now(feed.advance(_UNPACED))
        except ReplayError as error:
            raise InvariantViolated("replay-fails", f"{self.node_id}: {error}") from error
        if has_more:
            self._wake()
        if loader.image is not before:
            self.truth.check_image(self.node_id, before, loader.image)
            self.published()
        self.truth.note_event(self.heap.now_us, "feed", self.node_id, loader.end_offset)

    @abstractmethod
    def published(self) -> None:
        """The node has a newer image."""
