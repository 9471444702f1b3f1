"""Changes to topics a second: partitions that are created or deleted (KIP-599).

A client has a bucket of tokens, and a change takes one for each partition, however many there are
in it; the bucket then owes the rest. Strictly, nothing is taken from a bucket that owes, and the
change is refused; clients of old, which don't know that refusal, are only made to wait.
"""

from __future__ import annotations

from kraftpy.security.accounts import LimitedClients, Use
from kraftpy.security.quota_metrics import QuotaMetrics
from kraftpy.security.windows import ClientRate, QuotaWindow, TokenBucket

__all__ = ["MutationPermit", "MutationQuota"]


class _MutationUse(Use):
    __slots__ = ("bucket", "rate")

    def __init__(self, window: QuotaWindow, now_ms: int) -> None:
        super().__init__(now_ms)
        self.rate = ClientRate(window)
        # Its rate is set for each request, before anything is taken.
        self.bucket = TokenBucket(window, 0.0, now_ms)


class MutationPermit:
    """What one request may change."""

    __slots__ = ("_delay_ms", "_delayed_at_ms", "_is_strict", "_use")

    def __init__(self, use: _MutationUse, *, is_strict: bool) -> None:
        self._use = use
        self._is_strict = is_strict
        self._delay_ms = 0
        self._delayed_at_ms = 0

    def take(self, count: int, now_ms: int) -> bool:
        """Whether so many partitions may be changed; they are then counted."""
        bucket = self._use.bucket
        is_refused = self._is_strict and bucket.tokens(now_ms) < 0
        if not is_refused:
            bucket.take(count, now_ms)
            self._use.rate.record(count, now_ms)
        if is_refused or not self._is_strict:
            self._delay_ms = bucket.delay_ms(now_ms)
            self._delayed_at_ms = now_ms
        return not is_refused

    def delay_ms(self, now_ms: int) -> int:
        """How long the client must wait, from now on: some of it may have passed."""
        return max(0, self._delay_ms - (now_ms - self._delayed_at_ms))


class MutationQuota(LimitedClients[_MutationUse]):
    __slots__ = ()

    def __init__(self, window: QuotaWindow, metrics: QuotaMetrics) -> None:
        super().__init__(
            metrics,
            lambda now_ms: _MutationUse(window, now_ms),
            {
                "mutation-rate": lambda use, now_ms: use.rate.rate(now_ms),
                "tokens": lambda use, now_ms: use.bucket.tokens(now_ms),
            },
        )

    def permit(
        self, user: str, client_id: str, now_ms: int, *, is_strict: bool
    ) -> MutationPermit | None:
        """For one request; None if there is no limit for the client."""
        found = self._limits.find(user, client_id)
        if found is None:
            return None
        account, limit = found
        use = self._accounts.of(account, now_ms)
        use.bucket.rate = limit
        return MutationPermit(use, is_strict=is_strict)
