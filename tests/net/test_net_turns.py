"""No connection keeps the loop: turns are counted with a clock that ticks when it is looked at.

And when answers leave that a turn of another connection has finished.
"""

from __future__ import annotations

import trio
from netkit import Surrounding, WordService, bound, eventually

from kraftpy.net.line import SLICE_SECONDS
from kraftpy.net.service import Answer, Channel
from kraftpy.world.memory_clock import MemoryClock


class TickingClock(MemoryClock):
    """Every look at the clock takes a fifth of a turn, so that a turn has a known length."""

    __slots__ = ("_ticks",)

    def __init__(self) -> None:
        super().__init__()
        self._ticks = 0

    def monotonic(self) -> float:
        self._ticks += 1
        return super().monotonic() + self._ticks * SLICE_SECONDS / 5


class StepCounter(trio.abc.Instrument):
    """How many frames each step of a task served."""

    def __init__(self, service: WordService) -> None:
        self._service = service
        self._before = 0
        self.counts: list[int] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._before = len(self._service.served)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if count := len(self._service.served) - self._before:
            self.counts.append(count)


async def test_a_busy_connection_takes_turns(surrounding: Surrounding) -> None:
    """2,000 frames in hand are served a few at a time, and another's one frame comes between."""
    surrounding.clock = TickingClock()
    service = WordService()
    async with bound(surrounding) as running:
        busy, quiet = await running.connect(), await running.connect()
        await busy.send(*[b"busy"] * 2_000)
        await quiet.send(b"quiet")
        counter = StepCounter(service)
        trio.lowlevel.add_instrument(counter)
        await running.server.enable({"PLAINTEXT": service})
        await eventually(lambda: len(service.served) == 2_001)
        trio.lowlevel.remove_instrument(counter)
        assert max(counter.counts) <= 5
        assert service.served.index(b"quiet") < 100
        assert [await busy.read() for _ in range(2_000)] == [b"busy"] * 2_000
        assert await quiet.read() == b"quiet"


async def test_without_haste_the_frames_of_a_read_are_one_turn(surrounding: Surrounding) -> None:
    """The other side of it: a clock that stands still ends no turn, and one write answers all."""
    surrounding.clock = MemoryClock(rate=1e-9)
    service = WordService()
    async with bound(surrounding) as running:
        client = await running.connect()
        counter = StepCounter(service)
        await client.send(*[b"word"] * 200)
        await eventually(lambda: client.stream)
        await trio.sleep(0.05)
        trio.lowlevel.add_instrument(counter)
        await running.server.enable({"PLAINTEXT": service})
        await eventually(lambda: len(service.served) == 200)
        trio.lowlevel.remove_instrument(counter)
        assert counter.counts == [200]
        assert [await client.read() for _ in range(200)] == [b"word"] * 200


class FinishingService(WordService):
    """`finish` finishes what is held, and fails if it says so; notes what had left by then."""

    def __init__(self) -> None:
        super().__init__()
        self.left_meanwhile: list[list[bytes]] = []

    def serve(self, channel: Channel, frame: memoryview, answer: Answer) -> None:
        word, _, rest = bytes(frame).partition(b" ")
        if word == b"finish":
            while self.held:
                self.release()
            self.left_meanwhile.append(list(self.sent))
            frame = memoryview(rest)
        super().serve(channel, frame, answer)


async def test_others_that_a_frame_answers_are_sent_to_when_it_is_served(
    surrounding: Surrounding,
) -> None:
    """And not in the middle of it: each of them would run, and want the processor. Whatever becomes
    of the frame itself.
    """
    service = FinishingService()
    async with bound(surrounding) as running:
        await running.server.enable({"PLAINTEXT": service})
        clients = [await running.connect() for _ in range(4)]
        for ending in (b"well", b"bad"):
            service.sent.clear()
            service.left_meanwhile.clear()
            for client in clients[:3]:
                await client.send(b"hold")
            await eventually(lambda: len(service.held) == 3)
            await clients[3].send(b"finish " + ending)
            assert [await client.read() for client in clients[:3]] == [b"hold"] * 3
            assert service.left_meanwhile == [[]]
            assert service.sent[:3] == [b"hold"] * 3
        assert await clients[3].read() == b"well"
        assert await clients[3].rest() == b""
