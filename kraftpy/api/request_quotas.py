"""What clients' requests cost them: the quotas of one node, and the account of one request.

An answer is sent at once, and says how long its connection will not be served: `throttle_time_ms`
(NET-82). That time is the longest that any of these asks for:

- `producer_byte_rate`: the size of Produce requests. With acks=0 there is no answer, and the
  connection waits all the same (NET-85).
- `consumer_byte_rate`: the size of answers to Fetch. One that is too much is not sent: the client
  gets an answer without data, and is not charged for it (NET-84).
- `request_percentage`: the share of time in which this node did nothing but serve the client.
  A hundred is one node's whole time, since it has one loop.
- `controller_mutation_rate`: on controllers (security/mutation_quota.py). A broker that forwards a
  request passes on what the controller has said.

What nodes ask of each other is exempt from all of them (NET-83).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from kraftpy.observe.metrics import MetricRegistry
from kraftpy.security.client_quota import ClientQuota
from kraftpy.security.limits import LimitSubject
from kraftpy.security.mutation_quota import MutationPermit, MutationQuota
from kraftpy.security.quota_metrics import QuotaKind, QuotaMetrics
from kraftpy.security.windows import ClientRate, QuotaWindow
from kraftpy.world import Clock

__all__ = ["RequestCharge", "RequestQuotas"]

_Quota: TypeAlias = ClientQuota | MutationQuota
_USER_PREFIX: Final = "User:"
_PERCENT: Final = 100


class RequestQuotas:
    """Of one node. While nobody has a limit, `are_set` is all that a request asks."""

    __slots__ = (
        "_by_key",
        "_clock",
        "_exempt",
        "are_set",
        "fetch",
        "mutations",
        "produce",
        "request",
    )

    def __init__(
        self,
        registry: MetricRegistry,
        clock: Clock,
        *,
        window: QuotaWindow | None = None,
        mutation_window: QuotaWindow | None = None,
    ) -> None:
        """`quota.window.*` and `controller.quota.window.*`."""
        self._clock = clock
        window = window or QuotaWindow()

        def metrics(kind: QuotaKind) -> QuotaMetrics:
            return QuotaMetrics(kind, registry, clock.monotonic_ms)

        of_requests = metrics(QuotaKind.REQUEST)
        self.produce = ClientQuota(window, metrics(QuotaKind.PRODUCE), rate_name="byte-rate")
        self.fetch = ClientQuota(window, metrics(QuotaKind.FETCH), rate_name="byte-rate")
        self.request = ClientQuota(
            window, of_requests, rate_name="request-time", longest_delay_ms=window.size_ms
        )
        self.mutations = MutationQuota(
            mutation_window or QuotaWindow(), metrics(QuotaKind.CONTROLLER_MUTATION)
        )
        self._exempt = ClientRate(window)
        of_requests.show("exempt-request-time", self._exempt.rate)
        self._by_key: dict[str, _Quota] = {
            "producer_byte_rate": self.produce,
            "consumer_byte_rate": self.fetch,
            "request_percentage": self.request,
            "controller_mutation_rate": self.mutations,
        }
        self.are_set = False

    def change(self, key: str, subject: LimitSubject, limit: float | None) -> None:
        """A limit is set, or taken away. One that this release doesn't know is not its."""
        quota = self._by_key.get(key)
        if quota is not None:
            quota.change(subject, limit)
            self.are_set = any(each.is_set for each in self._by_key.values())

    def charge(self, principal: str, size_bytes: int, *, is_exempt: bool) -> RequestCharge:
        """For a request that is about to be served."""
        user = principal.removeprefix(_USER_PREFIX)
        return RequestCharge(self, self._clock, user, size_bytes, is_exempt=is_exempt)

    def exempt(self, amount: float, now_ms: int) -> None:
        self._exempt.record(amount, now_ms)


class RequestCharge:
    """The account of one request.

    Time is charged while the request is worked on: between `resume` and `pause`, and up to the
    moment at which its answer is judged; what comes then, `left` adds without a delay.
    """

    __slots__ = (
        "_clock",
        "_quotas",
        "_request_delay_ms",
        "_resumed",
        "_spent",
        "_strongest",
        "_user",
        "client_id",
        "is_exempt",
        "is_forwarded",
        "size_bytes",
    )

    def __init__(
        self,
        quotas: RequestQuotas,
        clock: Clock,
        user: str,
        size_bytes: int,
        *,
        is_exempt: bool,
    ) -> None:
        self._quotas = quotas
        self._clock = clock
        self._user = user
        # Known when the request's header is read.
        self.client_id = ""
        self.size_bytes = size_bytes
        # Never delayed; known of a Fetch when it is read.
        self.is_exempt = is_exempt
        # It is another node that makes the client wait.
        self.is_forwarded = False
        self._spent = 0.0
        self._resumed: float | None = clock.monotonic()
        self._request_delay_ms: int | None = None
        # Who asks for more than the time that was spent does.
        self._strongest: _Quota | None = None

    # Time.

    def resume(self) -> None:
        if self._resumed is None:
            self._resumed = self._clock.monotonic()

    def pause(self) -> None:
        if self._resumed is not None:
            self._spent += self._clock.monotonic() - self._resumed
            self._resumed = None

    def _take_spent(self) -> float:
        """What was spent since this was last asked, in percent of a second."""
        is_running = self._resumed is not None
        self.pause()
        spent, self._spent = self._spent, 0.0
        if is_running:
            self.resume()
        return spent * _PERCENT

    def _charge_time(self) -> int:
        """The delay for the time that was spent; the same when asked again."""
        if self._request_delay_ms is None:
            amount, now_ms = self._take_spent(), self._clock.monotonic_ms()
            self._request_delay_ms = 0
            if self.is_exempt:
                self._quotas.exempt(amount, now_ms)
            else:
                self._request_delay_ms = self._quotas.request.record(
                    self._user, self.client_id, amount, now_ms
                )
        return self._request_delay_ms

    # Amounts.

    def produced(self) -> int:
        """A Produce is done; the delay for its size."""
        return self._ask(self._quotas.produce, self.size_bytes)

    def fetched(self, size_bytes: int) -> int:
        """A Fetch has found so much; the delay, if the client can't have it now."""
        quota = self._quotas.fetch
        delay_ms = max(self._ask(quota, size_bytes), self._charge_time())
        if delay_ms > 0:
            quota.add(self._user, self.client_id, -size_bytes, self._clock.monotonic_ms())
        return delay_ms

    def most_to_fetch(self) -> float:
        return self._quotas.fetch.most_at_once(self._user, self.client_id)

    def mutations(self, *, is_strict: bool) -> MutationPermit | None:
        """What the request may change; None if there is no limit."""
        now_ms = self._clock.monotonic_ms()
        return self._quotas.mutations.permit(
            self._user, self.client_id, now_ms, is_strict=is_strict
        )

    def mutated(self, permit: MutationPermit) -> int:
        """The delay for what was changed, or refused."""
        self._strongest = self._quotas.mutations
        return permit.delay_ms(self._clock.monotonic_ms())

    def _ask(self, quota: ClientQuota, amount: float) -> int:
        self._strongest = quota
        return quota.record(self._user, self.client_id, amount, self._clock.monotonic_ms())

    # The end.

    def finish(self, delay_ms: int = 0) -> int:
        """The answer is there; how long the connection must wait, which is `delay_ms` at least."""
        own_ms = self._charge_time()
        longest_ms = max(own_ms, delay_ms)
        if longest_ms > 0 and not self.is_forwarded:
            is_own = own_ms >= delay_ms or self._strongest is None
            quota = self._quotas.request if is_own else self._strongest
            assert quota is not None
            now_ms = self._clock.monotonic_ms()
            quota.note_delay(self._user, self.client_id, longest_ms, now_ms)
        return longest_ms

    def finish_silently(self) -> int:
        """As `finish`, for a Produce without an answer: its time is not judged (NET-85)."""
        self.is_exempt = True
        return self.finish(self.produced())

    def left(self) -> None:
        """The answer was handed over: what that took counts for the next time."""
        amount, now_ms = self._take_spent(), self._clock.monotonic_ms()
        if self.is_exempt:
            self._quotas.exempt(amount, now_ms)
        elif self._quotas.request.is_set:
            self._quotas.request.add(self._user, self.client_id, amount, now_ms)
