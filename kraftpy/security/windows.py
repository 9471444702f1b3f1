"""Amounts over time, as Kafka's quotas measure them.

A sampled sum keeps `count` samples, each of which takes what comes within `size_ms` of its start,
and one more that reaches into the window from before it. A sample is forgotten when nothing came
into it for the length of the whole window.

Two rates are made of one:

- of clients: the sum over the time since the oldest sample began, but never over less than
  `count - 1` samples. So a client that comes anew may use as much at once as it may in a window.
- of replicas: over that time, but never over less than one sample. So a burst counts as one.

A bucket holds at most what its rate brings in a window, and is full at first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

__all__ = ["ClientRate", "QuotaWindow", "ReplicationRate", "SampledSum", "TokenBucket", "rounded"]

_LONGEST_DELAY_MS: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """`quota.window.num` and `quota.window.size.seconds`, or their likes."""

    count: int = 11
    size_ms: int = 1000

    @property
    def length_ms(self) -> int:
        return self.count * self.size_ms


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.restart(now_ms)

    def restart(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class SampledSum:
    """Begins with the first that is recorded, or asked."""

    __slots__ = ("_current", "_samples", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._samples: list[_Sample] = []
        self._current = -1

    def record(self, value: float, now_ms: int) -> None:
        if not self._samples:
            self._begin_sample(now_ms)
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= self._window.size_ms:
            sample = self._begin_sample(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def total(self, now_ms: int) -> float:
        self._forget(now_ms)
        return sum(sample.value for sample in self._samples)

    def age_ms(self, now_ms: int) -> int:
        """Since the oldest sample began."""
        if not self._samples:
            self._begin_sample(now_ms)
        self._forget(now_ms)
        return now_ms - min(sample.start_ms for sample in self._samples)

    def _begin_sample(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self._window.count + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].restart(now_ms)
        return self._samples[self._current]

    def _forget(self, now_ms: int) -> None:
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._window.length_ms:
                sample.restart(now_ms)


class ClientRate(SampledSum):
    __slots__ = ()

    def rate(self, now_ms: int) -> float:
        """A second."""
        return self.total(now_ms) * 1000 / self._window_ms(now_ms)

    def delay_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may come until the rate is at its limit; 0 if it isn't above it."""
        window_ms = self._window_ms(now_ms)
        rate = self.total(now_ms) * 1000 / window_ms
        return rounded((rate - limit) / limit * window_ms) if rate > limit else 0

    def _window_ms(self, now_ms: int) -> int:
        age_ms = self.age_ms(now_ms)
        missing = self._window.count - 1 - age_ms // self._window.size_ms
        return max(1, age_ms + max(0, missing) * self._window.size_ms)


class ReplicationRate(SampledSum):
    __slots__ = ()

    def rate(self, now_ms: int) -> float:
        """A second."""
        window_ms = max(self.age_ms(now_ms), self._window.size_ms)
        return self.total(now_ms) * 1000 / window_ms


class TokenBucket:
    """What is in it when the rate changes stays, as far as it fits."""

    __slots__ = ("_tokens", "_updated_ms", "_window", "rate")

    def __init__(self, window: QuotaWindow, rate: float, now_ms: int) -> None:
        self._window = window
        # Tokens a second; may be changed.
        self.rate = rate
        # As many as fit.
        self._tokens = inf
        self._updated_ms = now_ms

    def tokens(self, now_ms: int) -> float:
        """Less than nothing after more were taken than there were."""
        earned = self.rate * (now_ms - self._updated_ms) / 1000
        self._tokens = min(self.rate * self._window.length_ms / 1000, self._tokens + earned)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, now_ms: int) -> None:
        self._tokens = self.tokens(now_ms) - count

    def delay_ms(self, now_ms: int) -> int:
        """Until nothing is owed."""
        return rounded(max(0.0, -self.tokens(now_ms)) / self.rate * 1000)


def rounded(delay_ms: float) -> int:
    """Halves go up, as Java rounds; what is too much for the wire is the most that it can say."""
    return int(min(delay_ms + 0.5, _LONGEST_DELAY_MS))
