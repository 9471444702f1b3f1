"""What lies between two simulated hosts: links with their weather, and the timetable of arrivals.

A Link is one direction of one pair of hosts. Its profile says how long bytes take and in what
pieces they arrive; its state says whether they pass at all. All draws come from the link's own
random stream, so that traffic on one link never changes the weather on another.

The Timetable is a heap of (time, sequence, action) served by a single task. Equal times are served
in the order in which they were entered, never by the address of an object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from random import Random

from kraftpy.world.alarms import TRIO_TIME, Alarm, TrueTime
from kraftpy.world.invariants import assert_always

__all__ = ["Hold", "Link", "LinkProfile", "Path", "Timetable"]


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """The character of one direction of a link. The default is a quick local network.

    Latency is `latency_min_seconds` plus an exponential part of mean `latency_mean_seconds`, times
    `tail_factor` for the unlucky share `tail_probability`. Pieces have a size between
    `chunk_min_bytes` and `chunk_max_bytes`, small ones as likely as large ones (logarithmically),
    so that partial reads are common. `reset_probability` is for each piece that arrives,
    `refuse_probability` for each connect. A connection that can't get its bytes acknowledged for
    `stall_timeout_seconds` breaks on the sender's side.
    """

    latency_min_seconds: float = 0.0001
    latency_mean_seconds: float = 0.0002
    tail_probability: float = 0.0
    tail_factor: float = 50.0
    bandwidth_bytes_per_second: float = inf
    chunk_min_bytes: int = 1
    chunk_max_bytes: int = 65_536
    reset_probability: float = 0.0
    refuse_probability: float = 0.0
    connect_delay_seconds: float = 0.0
    connect_timeout_seconds: float = 127.0
    stall_timeout_seconds: float = 120.0
    retransmit_max_seconds: float = 2.0
    send_buffer_bytes: int = 131_072
    receive_buffer_bytes: int = 131_072


class Hold:
    """Keeps what was sent from arriving, and what follows it on its connection, until released."""

    __slots__ = ("_waiting", "is_over")

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self.is_over = False

    def wait(self, action: Callable[[], None]) -> None:
        self._waiting.append(action)

    def release(self) -> None:
        self.is_over = True
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()


class Link:
    """One direction between two hosts."""

    __slots__ = (
        "_blocked",
        "_busy_until",
        "_random",
        "_size_ratio",
        "_true",
        "clogged_until",
        "cut",
        "extra_seconds",
        "hold_back",
        "profile",
    )

    def __init__(
        self, profile: LinkProfile, random: Random, true_time: TrueTime = TRIO_TIME
    ) -> None:
        self._random = random
        self._true = true_time
        self._blocked: list[tuple[float, Callable[[float], None]]] = []
        self._busy_until = 0.0
        self.cut = False
        self.clogged_until = 0.0
        # On top of what the profile has, for as long as somebody says so.
        self.extra_seconds = 0.0
        # Asked about everything that is sent: a Hold for what shall wait.
        self.hold_back: Callable[[bytes], Hold | None] | None = None
        self.set_profile(profile)

    def set_profile(self, profile: LinkProfile) -> None:
        smallest, largest = profile.chunk_min_bytes, profile.chunk_max_bytes
        assert_always(1 <= smallest <= largest, "chunk-sizes-out-of-order", profile=profile)
        self.profile = profile
        self._size_ratio = largest / smallest

    def latency_seconds(self) -> float:
        profile = self.profile
        latency = profile.latency_min_seconds
        if profile.latency_mean_seconds > 0:
            latency += self._random.expovariate(1 / profile.latency_mean_seconds)
        if profile.tail_probability > 0 and self._random.random() < profile.tail_probability:
            latency *= profile.tail_factor
        return latency + self.extra_seconds

    def arrival_time(self, size_bytes: int) -> float:
        """When bytes that are sent now reach the other end, behind those that queue already."""
        start = max(self._true.now, self._busy_until)
        self._busy_until = start + size_bytes / self.profile.bandwidth_bytes_per_second
        return self._busy_until + self.latency_seconds()

    def chunk_size(self) -> int:
        return int(self.profile.chunk_min_bytes * self._size_ratio ** self._random.random())

    def happens(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability

    def block(self, retry: Callable[[float], None]) -> None:
        """Call `retry` when the link lets pass again, with the seconds to wait still."""
        self._blocked.append((self._true.now, retry))

    def heal(self) -> None:
        """Let everything pass again, each stream at its own next attempt to retransmit.

        TCP doubles the time between attempts, so the wait is drawn up to the time already stalled.
        """
        self.cut = False
        self.clogged_until = 0.0
        self.release()

    def release(self) -> None:
        """Have whatever is blocked try again."""
        blocked, self._blocked = self._blocked, []
        now = self._true.now
        for since, retry in blocked:
            longest = min(now - since, self.profile.retransmit_max_seconds)
            retry(self._random.uniform(0, longest))


@dataclass(frozen=True, slots=True)
class Path:
    """Both directions between two hosts, as one of them sees them."""

    out: Link
    back: Link

    def reversed(self) -> Path:
        return Path(self.back, self.out)


class Timetable:
    """Actions at times. `run` must be running in some nursery, exactly once."""

    __slots__ = ("_alarm", "_entries", "_sequence", "_turns", "running", "true_time", "turn")

    def __init__(self, true_time: TrueTime = TRIO_TIME) -> None:
        self.true_time = true_time
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        # Most turns are for one arrival, while everybody waits for it.
        self._alarm = Alarm(self._serve)
        self.running = False
        # What is served in one turn is served at once: no task runs in between. None: between
        # turns, when others do something that had to wait.
        self.turn: int | None = None
        self._turns = 0

    def at(self, time: float, action: Callable[[], None]) -> None:
        heappush(self._entries, (time, self._sequence, action))
        self._sequence += 1
        self._alarm.ring_by(time)

    async def run(self) -> None:
        assert_always(not self.running, "timetable-runs-twice")
        self.running = True
        try:
            while True:
                await self._alarm.wait_until(self._serve())
        finally:
            self.running = False

    def _serve(self) -> float:
        """Do what is due; when the next is."""
        entries = self._entries
        now = self.true_time.now
        self._turns += 1
        self.turn = self._turns
        while entries and entries[0][0] <= now:
            heappop(entries)[2]()
        self.turn = None
        return entries[0][0] if entries else inf
