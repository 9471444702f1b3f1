"""The controller in trio: one task that lets it work, and carries out what it wants.

Everybody reports to the runner, without waiting; its task takes one event after the other and gives
way when it has held the loop for long. Nothing else touches the controller but the loader, which
publishes into it, and both run in one thread between two awaits.

Who asks gets a reply, once: an answer, or a refusal. Also when the runner is cancelled: whoever
waits then is told so, since nobody will be there to serve them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import trio

from kraftpy.metadata.controller.controller import Controller
from kraftpy.metadata.controller.description import ControllerDescription
from kraftpy.metadata.controller.effects import (
    Answer,
    AppendRecords,
    ControllerEffect,
    ProbeBroker,
    Refuse,
    ResignLeadership,
)
from kraftpy.metadata.controller.result import Caller
from kraftpy.metadata.records import NO_LEADER
from kraftpy.raft.effects import ProposalRefused
from kraftpy.world import World

__all__ = ["ControllerRunner", "Quorum", "Reply"]

log = logging.getLogger(__name__)

Reply: TypeAlias = Callable[[Answer | Refuse], None]

SLICE_SECONDS: Final = 0.002
PROBE_TIMEOUT_SECONDS: Final = 1.0
# Later than the millisecond that was asked for by this, because floats are not exact.
_LATER_SECONDS: Final = 1e-6


class Quorum(Protocol):
    """What the controller needs of Raft: the driver is one."""

    @property
    def log_end_offset(self) -> int: ...

    def last_heard_ms(self, node_id: int) -> int | None: ...

    def propose(self, epoch: int, values: tuple[bytes, ...]) -> int | ProposalRefused: ...

    def resign(self, epoch: int) -> None: ...


class ControllerRunner:
    """Give it to the committed feed as the listener for leaders, and `run` it as a task."""

    __slots__ = (
        "_alarm_ms",
        "_bell",
        "_controller",
        "_last_id",
        "_nursery",
        "_predecessor",
        "_quorum",
        "_replies",
        "_world",
    )

    def __init__(self, controller: Controller, quorum: Quorum, world: World) -> None:
        self._controller = controller
        self._quorum = quorum
        self._world = world
        self._replies: dict[int, Reply] = {}
        self._last_id = 0
        # The leader that Raft has named last, and when.
        self._predecessor = (NO_LEADER, 0)
        self._nursery: trio.Nursery | None = None
        self._bell = world.clock.bell()
        # Until when the task sleeps; before that nobody has to be woken.
        self._alarm_ms = -inf
        controller.on_work = self._note_work

    # Facts.

    def submit(self, request: Any, caller: Caller, reply: Reply) -> None:
        """Somebody asks. `reply` is called once, by the runner's task or at its end."""
        self._last_id += 1
        self._replies[self._last_id] = reply
        self._controller.submit(self._last_id, request, caller, self._now_ms)

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        """A paused leader is followed by one who has heard nothing of it for the fetch timeout. Its
        broker's session goes on from there, instead of anew: so it ends as soon as any other's.
        """
        now_ms = self._now_ms
        self._controller.leader_changed(epoch, leader_id, now_ms)
        if leader_id == NO_LEADER:
            return
        predecessor_id, named_ms = self._predecessor
        heard_ms = self._quorum.last_heard_ms(predecessor_id)
        if heard_ms is not None:
            self._controller.note_silence(predecessor_id, max(heard_ms, named_ms), now_ms)
        self._predecessor = (leader_id, now_ms)

    def leadership_lost(self, epoch: int) -> None:
        self._controller.leadership_lost(epoch, self._now_ms)

    def note_contact(self, broker_id: int, broker_epoch: int) -> None:
        """To be called when a heartbeat arrives, before it is submitted."""
        self._controller.note_contact(broker_id, broker_epoch, self._now_ms)

    def note_disconnected(self, broker_id: int) -> None:
        """The connection of a broker's heartbeats broke."""
        self._controller.note_disconnected(broker_id, self._now_ms)

    def resign(self) -> None:
        """Let another node be the controller."""
        self._controller.resign(self._now_ms)

    def describe(self) -> ControllerDescription:
        return self._controller.describe()

    @property
    def _now_ms(self) -> int:
        return self._world.clock.monotonic_ms()

    def _note_work(self) -> None:
        due_ms = self._controller.next_deadline_ms()
        if due_ms is not None and due_ms < self._alarm_ms:
            self._bell.ring()

    # The task.

    async def run(self) -> NoReturn:
        """Until cancelled. Whatever it raises must end the node."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                while True:
                    await self._work()
                    await self._world.dawdle("controller-late")
                    if self._world.buggify("controller-looks-early"):
                        self._poll()
                    await self._sleep()
        finally:
            self._nursery = None
            self._controller.close(self._now_ms)
            self._poll()

    async def _work(self) -> None:
        clock = self._world.clock
        slice_ends = clock.monotonic() + SLICE_SECONDS
        while (due_ms := self._controller.next_deadline_ms()) is not None:
            if due_ms > clock.monotonic_ms():
                return
            self._poll()
            if clock.monotonic() >= slice_ends:
                await trio.lowlevel.checkpoint()
                slice_ends = clock.monotonic() + SLICE_SECONDS

    async def _sleep(self) -> None:
        self._bell.clear()
        due_ms = self._controller.next_deadline_ms()
        self._alarm_ms = inf if due_ms is None else due_ms
        try:
            await self._bell.wait_until(self._alarm_ms / 1000 + _LATER_SECONDS)
        finally:
            self._alarm_ms = -inf

    def _poll(self) -> None:
        clock = self._world.clock
        began = clock.monotonic()
        effects = self._controller.poll(
            clock.monotonic_ms(), clock.wall_ms(), self._quorum.log_end_offset
        )
        self._controller.note_duration((clock.monotonic() - began) * 1000)
        self._carry_out(effects)

    def _carry_out(self, effects: list[ControllerEffect]) -> None:
        # What was to follow a batch that did not get its place must not be appended either.
        refused_epoch: int | None = None
        for effect in effects:
            match effect:
                case AppendRecords():
                    if effect.epoch != refused_epoch and not self._append(effect):
                        refused_epoch = effect.epoch
                case Answer() | Refuse():
                    self._replies.pop(effect.request_id)(effect)
                case ResignLeadership():
                    self._quorum.resign(effect.epoch)
                case ProbeBroker():
                    if self._nursery is not None:
                        self._nursery.start_soon(self._probe, effect)

    def _append(self, effect: AppendRecords) -> bool:
        outcome = self._quorum.propose(effect.epoch, effect.values)
        if outcome == effect.base_offset:
            return True
        log.warning(
            "epoch %d: records for offset %d were not appended there: %s",
            effect.epoch,
            effect.base_offset,
            outcome,
        )
        self._controller.append_refused(effect.epoch, self._now_ms)
        return False

    async def _probe(self, effect: ProbeBroker) -> None:
        """Try to connect. Only a refusal says something; silence doesn't."""
        with self._world.clock.move_on_after(PROBE_TIMEOUT_SECONDS):
            try:
                stream = await self._world.network.connect(effect.host, effect.port)
            except ConnectionRefusedError:
                self._controller.note_refused(effect.broker_id, self._now_ms)
            except OSError:
                log.debug("broker %d can't be probed", effect.broker_id, exc_info=True)
            else:
                stream.close()
                self._controller.note_reachable(effect.broker_id)
