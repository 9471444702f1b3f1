"""What is known of those who have a limit, for as long as they are heard of.

Clients name themselves, so that there may be any number of them: who was silent for an hour is
forgotten, as in Kafka, and whoever was silent longest when there are too many.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

from kraftpy.security.limits import Account, ClientLimits, LimitSubject
from kraftpy.security.quota_metrics import QuotaMetrics
from kraftpy.security.windows import QuotaWindow, SampledSum

__all__ = ["MAX_ACCOUNTS", "SILENCE_MS", "Accounts", "LimitedClients", "Silent", "Use"]

MAX_ACCOUNTS: Final = 10_000
SILENCE_MS: Final = 3_600_000
# Kafka's defaults for what is measured and not limited.
_MEASURING: Final = QuotaWindow(2, 30_000)


class Silent:
    """Who may be forgotten one day."""

    __slots__ = ("last_ms",)

    def __init__(self, now_ms: int) -> None:
        self.last_ms = now_ms


Key = TypeVar("Key")
Kept = TypeVar("Kept", bound=Silent)


class Accounts(Generic[Key, Kept]):
    """`opened` and `closed` are told of those that come and go."""

    __slots__ = ("_closed", "_make", "_opened", "_uses")

    def __init__(
        self,
        make: Callable[[int], Kept],
        opened: Callable[[Key, Kept], None],
        closed: Callable[[Key], None],
    ) -> None:
        self._make = make
        self._opened = opened
        self._closed = closed
        # Who was silent longest comes first.
        self._uses: dict[Key, Kept] = {}

    def __len__(self) -> int:
        return len(self._uses)

    def of(self, key: Key, now_ms: int) -> Kept:
        use = self._uses.pop(key, None)
        if use is None:
            self._make_room(now_ms)
            use = self._make(now_ms)
            self._opened(key, use)
        self._uses[key] = use
        use.last_ms = now_ms
        return use

    def _make_room(self, now_ms: int) -> None:
        while self._uses:
            key, oldest = next(iter(self._uses.items()))
            if len(self._uses) < MAX_ACCOUNTS and now_ms - oldest.last_ms < SILENCE_MS:
                return
            del self._uses[key]
            self._closed(key)


class Use(Silent):
    """What is kept for an account: here, the delays that there were lately."""

    __slots__ = ("_delay_counts", "_delays")

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self._delays = SampledSum(_MEASURING)
        self._delay_counts = SampledSum(_MEASURING)

    def note_delay(self, delay_ms: int, now_ms: int) -> None:
        self._delays.record(delay_ms, now_ms)
        self._delay_counts.record(1, now_ms)

    def average_delay_ms(self, now_ms: int) -> float:
        """0 if there were none."""
        count = self._delay_counts.total(now_ms)
        return self._delays.total(now_ms) / count if count else 0.0


KeptUse = TypeVar("KeptUse", bound=Use)


class LimitedClients(Generic[KeptUse]):
    """The limits of one kind, and the accounts of those who have one."""

    __slots__ = ("_accounts", "_ends_of_delays", "_limits", "is_set")

    def __init__(
        self,
        metrics: QuotaMetrics,
        make: Callable[[int], KeptUse],
        shown: dict[str, Callable[[KeptUse, int], float]],
    ) -> None:
        """`shown` are metrics of each account, by Kafka's names."""
        self._limits = ClientLimits()
        # Whether anybody has a limit: while nobody has, this is all that anybody asks.
        self.is_set = False
        self._ends_of_delays: list[int] = []
        metrics.show("queue-size", self.delayed_count)

        def opened(account: Account, use: KeptUse) -> None:
            metrics.show_account(account, "throttle-time", use.average_delay_ms)
            for name, read in shown.items():
                metrics.show_account(account, name, partial(read, use))

        self._accounts = Accounts[Account, KeptUse](make, opened, metrics.hide_account)

    def change(self, subject: LimitSubject, limit: float | None) -> None:
        """Without a limit, the one that was set is taken away."""
        self._limits.change(subject, limit)
        self.is_set = self._limits.is_set

    def note_delay(self, user: str, client_id: str, delay_ms: int, now_ms: int) -> None:
        """The client is made to wait, by this quota."""
        self.delayed_count(now_ms)
        heappush(self._ends_of_delays, now_ms + delay_ms)
        found = self._limits.find(user, client_id)
        if found is not None:
            self._accounts.of(found[0], now_ms).note_delay(delay_ms, now_ms)

    def delayed_count(self, now_ms: int) -> int:
        """How many wait at the moment."""
        while self._ends_of_delays and self._ends_of_delays[0] <= now_ms:
            heappop(self._ends_of_delays)
        return len(self._ends_of_delays)
