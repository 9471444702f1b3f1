"""How much clients use of one thing, and how long each must wait after it has used too much.

One for each of producer_byte_rate, consumer_byte_rate and request_percentage. A client that is
above its limit is not refused anything: what it has done counts, and it is delayed for as long as
it takes until its rate is at the limit again (KIP-13).
"""

from __future__ import annotations

from math import inf

from kraftpy.security.accounts import LimitedClients, Use
from kraftpy.security.quota_metrics import QuotaMetrics
from kraftpy.security.windows import ClientRate, QuotaWindow

__all__ = ["ClientQuota"]


class _RatedUse(Use):
    __slots__ = ("rate",)

    def __init__(self, window: QuotaWindow, now_ms: int) -> None:
        super().__init__(now_ms)
        self.rate = ClientRate(window)


class ClientQuota(LimitedClients[_RatedUse]):
    __slots__ = ("_longest_delay_ms", "_window")

    def __init__(
        self,
        window: QuotaWindow,
        metrics: QuotaMetrics,
        *,
        rate_name: str,
        longest_delay_ms: float = inf,
    ) -> None:
        """`rate_name` is what Kafka calls the rate."""
        super().__init__(
            metrics,
            lambda now_ms: _RatedUse(window, now_ms),
            {rate_name: lambda use, now_ms: use.rate.rate(now_ms)},
        )
        self._window = window
        self._longest_delay_ms = longest_delay_ms

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """So much is used; how long the client must wait for that, in ms."""
        found = self._limits.find(user, client_id)
        if found is None:
            return 0
        account, limit = found
        rate = self._accounts.of(account, now_ms).rate
        rate.record(amount, now_ms)
        return int(min(rate.delay_ms(limit, now_ms), self._longest_delay_ms))

    def add(self, user: str, client_id: str, amount: float, now_ms: int) -> None:
        """As `record`, without a delay; less than nothing takes back what was recorded."""
        found = self._limits.find(user, client_id)
        if found is not None:
            self._accounts.of(found[0], now_ms).rate.record(amount, now_ms)

    def most_at_once(self, user: str, client_id: str) -> float:
        """What the client may use without a delay if it has used nothing lately."""
        found = self._limits.find(user, client_id)
        if found is None:
            return inf
        return found[1] * (self._window.count - 1) * self._window.size_ms / 1000
