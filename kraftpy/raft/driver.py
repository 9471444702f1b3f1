"""The shell of a Raft core in a node: it brings facts in and carries effects out, and decides
nothing.

Every fact is given to the core at once, by whoever learns it: a handler with a request, a task with
an answer, the state machine with a proposal, the disk, the timer. All of them live in one loop, so
no two steps meet. The effects of all steps form one queue, which is worked off before the loop goes
on; a step that happens while an effect is carried out (an answer makes somebody ask again) adds its
own at the end and leaves them to whoever is at work. Thus effects are carried out in the order of
the steps, on a flat stack, and nobody waits in a queue of inputs.

Durability. Appends go into the storage's page cache at once. One task syncs, again and again while
there is work; whatever is performed during a sync is the next one's, so under load many promises
share an fsync (group commit). A message that depends on a promise is held until the sync that
covers it has returned.

The state machine hears of commits, snapshots and leaders through a RaftListener, in order, and must
not wait in there; `kraftpy.metadata.committed_feed` is one.

An error of the storage and a broken invariant are final, in whatever call they come up: nothing is
said or written from then on, and `run` raises the error, which ends the node. A `run` that is
cancelled ends like a process that is killed: what was promised is on the disk.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Protocol, TypeAlias, assert_never

import trio

from kraftpy.log.log_config import LogConfig
from kraftpy.log.pacing import Pace
from kraftpy.protocol.errors import ErrorCode
from kraftpy.raft import effects as fx
from kraftpy.raft import inputs
from kraftpy.raft.committed_log import CommittedLog
from kraftpy.raft.core import RaftCore
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.membership import UpgradeRefusal
from kraftpy.raft.peers import Peers, peer_settings
from kraftpy.raft.quorum import Quorum, RaftConfig, RecoveredState
from kraftpy.raft.snapshot_content import snapshot_foot, snapshot_head
from kraftpy.raft.snapshots import SnapshotRefusal
from kraftpy.raft.storage import RaftStorage
from kraftpy.raft.storage_opening import open_storage
from kraftpy.records.batch import RecordBatch
from kraftpy.world import Address, Buffer, World, assert_always

__all__ = ["RaftDriver", "RaftListener", "open_driver"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _SnapshotReady:
    """The state machine may be told of an installed snapshot when the disk is done with it."""

    after: int


# What is told to others, or to the state machine, when a sync has covered it.
_Held: TypeAlias = fx.Send | fx.Reply | _SnapshotReady


class RaftListener(Protocol):
    """Whoever follows the log. Called in the order of events, and never to wait."""

    def committed(self, end_offset: int) -> None:
        """Everything below this offset is committed."""
        ...

    def snapshot_installed(self) -> None:
        """The log begins anew behind a snapshot, which can be read from now on."""
        ...

    def leader_changed(self, epoch: int, leader_id: int) -> None: ...

    def leadership_lost(self, epoch: int) -> None: ...


async def open_driver(
    world: World, config: RaftConfig, metadata_directory: str, log_config: LogConfig
) -> RaftDriver:
    """Open the storage and make the driver that owns it.

    Raises what `open_storage` raises: such a node must not start.
    """
    storage, recovered = await open_storage(
        metadata_directory,
        log_config,
        config.static_voters,
        disk=world.disk,
        clock=world.clock,
        jitter=world.rng.stream("metadata log"),
    )
    return RaftDriver(world, config, storage, recovered)


class RaftDriver:
    """`run` it as a task. Everything else is for the same loop."""

    __slots__ = (
        "_armed_ms",
        "_config",
        "_core",
        "_effects",
        "_failure",
        "_held",
        "_is_carrying_out",
        "_is_down",
        "_is_leader_known",
        "_leader_watchers",
        "_listener",
        "_next_id",
        "_peers",
        "_replies",
        "_seen_election",
        "_storage",
        "_timer",
        "_work",
        "_world",
        "log",
    )

    def __init__(
        self, world: World, config: RaftConfig, storage: RaftStorage, recovered: RecoveredState
    ) -> None:
        clock = world.clock
        self._world = world
        self._config = replace(config, wall_offset_ms=clock.wall_ms() - clock.monotonic_ms())
        self._storage = storage
        self._core = RaftCore(self._config, recovered, world.rng.stream("election"))
        self.log = CommittedLog(self._core, storage)
        self._listener: RaftListener | None = None
        self._peers: Peers | None = None
        self._effects: deque[fx.Effect | _SnapshotReady] = deque()
        self._is_carrying_out = False
        self._held: list[_Held] = []
        self._replies: dict[int, Callable[[inputs.RaftResponse], None]] = {}
        self._next_id = 0
        self._armed_ms: int | None = None
        self._timer = clock.bell()
        # Set, and replaced by a new one, when the disk has something to do.
        self._work = trio.Event()
        self._is_down = trio.Event()
        self._failure: Exception | None = None
        self._leader_watchers: list[Callable[[], None]] = []
        self._seen_election: ElectionState | None = None
        self._is_leader_known = False

    def listen(self, listener: RaftListener) -> None:
        """Tell this one what happens; before `run`."""
        assert_always(self._listener is None and self._peers is None, "raft-second-listener")
        self._listener = listener

    def watch_leader(self, changed: Callable[[], None]) -> None:
        """Call this when it is known who leads, and where that node is, and it may be another."""
        self._leader_watchers.append(changed)

    # What can be seen.

    @property
    def node_id(self) -> int:
        return self._config.local.node_id

    @property
    def quorum(self) -> Quorum:
        """The core's state, to be looked at."""
        return self._core.quorum

    @property
    def log_end_offset(self) -> int:
        """Where the next proposal begins, as long as this node leads."""
        return self._core.quorum.log.end_offset

    @property
    def election(self) -> ElectionState:
        """Epoch, leader and vote, as promised."""
        return self._core.quorum.election

    @property
    def leader_address(self) -> Address | None:
        """Where the leader is reached, if there is one and it is known."""
        quorum = self._core.quorum
        if not quorum.election.has_leader:
            return None
        endpoint = quorum.address(quorum.leader_endpoints())
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def last_heard_ms(self, node_id: int) -> int | None:
        """When another node has last answered this one, if it ever did."""
        return self._core.quorum.connections.last_heard_ms(node_id)

    @property
    def kraft_version(self) -> int:
        return self._core.quorum.kraft_versions.latest

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return self._core.quorum.voters.latest.ids

    def describe(self) -> dict[str, object]:
        return self._core.describe()

    # Life.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part in the quorum until `shut_down` is through; `started` when others may ask.

        Raises StorageError, or InternalInvariant, when the node can't go on.
        """
        try:
            async with trio.open_nursery() as disk_nursery:
                disk_nursery.start_soon(self._keep_durable, name="raft-sync")
                async with trio.open_nursery() as nursery:
                    settings = peer_settings(self._config)
                    self._peers = Peers(self._world, nursery, settings, self._step)
                    nursery.start_soon(self._keep_time, name="raft-timer")
                    self._start()
                    task_status.started()
                    await self._is_down.wait()
                    nursery.cancel_scope.cancel()
            if self._failure is None:
                await self._storage.close()
        finally:
            self._is_down.set()
            self._storage.abandon()
        if self._failure is not None:
            raise self._failure

    async def wait_down(self) -> None:
        """Until this node takes no more part, for whatever reason; `run` is about to return."""
        await self._is_down.wait()

    async def shut_down(self, timeout_ms: int) -> None:
        """Leave in good order: a leader hands over first. Returns when `run` is about to."""
        self._step(inputs.ShutDown(self._world.clock.monotonic_ms() + timeout_ms))
        await self._is_down.wait()

    def _start(self) -> None:
        now_ms = self._world.clock.monotonic_ms()
        self._take_in(lambda: self._core.start(now_ms))

    # Facts.

    def submit(
        self, request: inputs.RaftRequest, reply: Callable[[inputs.RaftResponse], None]
    ) -> bool:
        """Somebody asks. `reply` is called once, perhaps before this returns, perhaps much later.

        False: this node takes no more requests, and `reply` will not be called.
        """
        if self._peers is None or self._is_down.is_set():
            return False
        self._next_id += 1
        self._replies[self._next_id] = reply
        self._step(inputs.RequestReceived(self._next_id, request))
        return True

    def propose(self, epoch: int, values: tuple[bytes, ...]) -> int | fx.ProposalRefused:
        """Append these record values as one batch: the offset of the first, or why not.

        The batch is in the leader's log when this returns; commit will tell the rest.
        """
        self._next_id += 1
        for effect in self._step(inputs.Propose(self._next_id, epoch, values)):
            if isinstance(effect, fx.Proposed):
                return effect.last_offset - len(values) + 1
            if isinstance(effect, fx.ProposalRefused):
                return effect
        # There is nobody left to say more.
        return fx.ProposalRefused(self._next_id, ErrorCode.BROKER_NOT_AVAILABLE)

    def upgrade_kraft_version(self, epoch: int, kraft_version: int) -> int | fx.ProposalRefused:
        """Let the quorum keep its voters in the log: the offset to wait for, or why not."""
        self._next_id += 1
        event = inputs.UpgradeKraftVersion(self._next_id, epoch, kraft_version)
        for effect in self._step(event):
            if isinstance(effect, fx.Proposed):
                return effect.last_offset
            if isinstance(effect, fx.ProposalRefused):
                return effect
        return fx.ProposalRefused(self._next_id, ErrorCode.BROKER_NOT_AVAILABLE)

    def upgrade_refusal(self, kraft_version: int) -> UpgradeRefusal | None:
        """Why `upgrade_kraft_version` would be refused now, for those who only want to know."""
        return self._core.upgrade_refusal(kraft_version)

    def resign(self, epoch: int) -> None:
        """The state machine can't lead in this epoch any longer."""
        self._step(inputs.Resign(epoch))

    def _step(self, event: inputs.Input) -> list[fx.Effect]:
        """Give the core one fact and carry out what follows; nothing once the node is down."""
        if self._is_down.is_set():
            return []
        now_ms = self._world.clock.monotonic_ms()
        return self._take_in(lambda: self._core.step(event, now_ms))

    def _take_in(self, step: Callable[[], list[fx.Effect]]) -> list[fx.Effect]:
        try:
            effects = step()
            self._effects.extend(effects)
            self._carry_out()
        except Exception as error:
            # Not the caller's business, who may be a connection of which many may fail.
            self._fail(error)
            return []
        return effects

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._effects.clear()
        self._held.clear()
        self._is_down.set()
        self._work.set()

    # Effects.

    def _carry_out(self) -> None:
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while self._effects:
                self._perform(self._effects.popleft())
        finally:
            self._is_carrying_out = False
        if self._storage.has_work:
            self._work.set()
        due_ms = self._core.next_deadline_ms()
        if due_ms is not None and (self._armed_ms is None or due_ms < self._armed_ms):
            self._timer.ring()
        self._note_leader()

    def _note_leader(self) -> None:
        election = self.election
        if election is self._seen_election and self._is_leader_known:
            return
        self._seen_election = election
        self._is_leader_known = self.leader_address is not None
        if self._is_leader_known:
            for changed in self._leader_watchers:
                changed()

    def _perform(self, effect: fx.Effect | _SnapshotReady) -> None:
        listener = self._listener
        match effect:
            case fx.Send() | fx.Reply() | _SnapshotReady():
                if effect.after > self._storage.durable_token:
                    self._held.append(effect)
                else:
                    self._say(effect)
            case fx.InstallSnapshot():
                self._storage.perform(effect)
                self._held.append(_SnapshotReady(effect.token))
            case (
                fx.PersistElection()
                | fx.AppendLog()
                | fx.TruncateLog()
                | fx.TrimLog()
                | fx.WriteSnapshotChunk()
                | fx.DropDownload()
                | fx.DeleteSnapshots()
            ):
                self._storage.perform(effect)
            case fx.HighWatermarkAdvanced():
                if listener is not None:
                    listener.committed(effect.offset)
            case fx.LeaderChanged():
                if listener is not None:
                    listener.leader_changed(effect.epoch, effect.leader_id)
            case fx.LeadershipLost():
                if listener is not None:
                    listener.leadership_lost(effect.epoch)
            case fx.Proposed() | fx.ProposalRefused():
                # `propose` has taken it out of the step's effects.
                pass
            case fx.PeerFault():
                _log.error("node %d: %s", effect.node_id, effect.reason)
            case fx.ShutdownFinished():
                self._is_down.set()
                self._work.set()
            case _:
                assert_never(effect)

    def _say(self, effect: _Held) -> None:
        """Let something out that is covered by the disk."""
        if isinstance(effect, fx.Reply):
            self._replies.pop(effect.request_id)(effect.response)
        elif isinstance(effect, _SnapshotReady):
            if self._listener is not None:
                self._listener.snapshot_installed()
        elif self._peers is not None:
            self._peers.send(effect)

    # The disk and the timer.

    async def _keep_durable(self) -> None:
        """Sync while there is something to sync; the only task that does."""
        while not self._is_down.is_set():
            if not self._storage.has_work:
                self._work = trio.Event()
                await self._work.wait()
                continue
            await self._world.dawdle("raft-sync-late")
            try:
                persisted = await self._storage.sync()
            except Exception as error:
                self._fail(error)
                return
            token = persisted.token
            self._effects.extend(held for held in self._held if held.after <= token)
            self._held = [held for held in self._held if held.after > token]
            self._step(persisted)

    async def _keep_time(self) -> None:
        clock = self._world.clock
        while True:
            self._timer.clear()
            self._armed_ms = self._core.next_deadline_ms()
            deadline = inf
            if self._armed_ms is not None:
                # As long as the milliseconds say, which were counted by what the clock shows.
                rest_ms = self._armed_ms - clock.monotonic_ms()
                deadline = clock.monotonic() + rest_ms / 1000
            await self._timer.wait_until(deadline)
            await self._world.dawdle("raft-timer-late")
            if self._peers is not None:
                self._peers.expire()
            due_ms = self._core.next_deadline_ms()
            is_due = due_ms is not None and clock.monotonic_ms() >= due_ms
            if is_due or self._world.buggify("raft-timer-early"):
                self._step(inputs.TimeAdvanced())

    # Snapshots of the state machine.

    def snapshot_refusal(self, snapshot_id: SnapshotId) -> SnapshotRefusal | None:
        """Why the state machine should not make this snapshot; None if it may."""
        return self._core.snapshot_refusal(snapshot_id)

    async def freeze_snapshot(
        self,
        snapshot_id: SnapshotId,
        batches: Callable[[int], Iterable[Buffer]],
        *,
        timestamp_ms: int,
    ) -> SnapshotRefusal | None:
        """Write a snapshot: the batches that `batches(base_offset)` gives, and what goes around.

        Returns when it is durable and served to others, or why it was not made. `timestamp_ms` is
        that of the last record covered. Raises OSError; then there is no snapshot.
        """
        refusal = self._core.snapshot_refusal(snapshot_id)
        if refusal is not None:
            return refusal
        quorum = self._core.quorum
        end_offset, epoch = snapshot_id
        head, offset = snapshot_head(
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            voters=quorum.voters.at_end(end_offset),
            kraft_version=quorum.kraft_versions.at_end(end_offset),
        )
        writer = self._storage.create_snapshot(snapshot_id)
        pace = Pace(self._world.clock)
        try:
            writer.append(head)
            for data in batches(offset):
                writer.append(data)
                offset = RecordBatch(data).next_offset
                await pace.rest(len(data))
                await self._world.dawdle("raft-snapshot-slow")
            writer.append(snapshot_foot(base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms))
            await writer.freeze()
        except Exception:
            await writer.abandon()
            raise
        except BaseException:
            writer.close()
            raise
        self._step(inputs.SnapshotFrozen(snapshot_id))
        return None

    def expire_snapshots(self, oldest_kept: SnapshotId) -> None:
        """Let the log begin where this snapshot ends; older ones go."""
        self._step(inputs.SnapshotsExpired(oldest_kept))
