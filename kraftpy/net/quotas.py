"""How many connections there may be, and how quickly new ones may come. No I/O, no waiting.

Admission of an accepted connection (spec/net.md section 7), in one go without an await between:

1. While its listener is full it waits, and while the node is full too, unless the listener is
   protected. Waiting means that its acceptor stands still; nobody is refused.
2. The same for the rate at which connections are made.
3. It is counted: by address, by listener, in total.
4. If its address had its share already, TooManyConnections is raised, it is not counted, and the
   caller closes it.

A protected listener (the controllers', and the brokers' own if clients have another one) may so
bring the total above the limit; `excess_count` says by how much, and the server closes as many
connections of other listeners, least recently used first.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from kraftpy.net.limits import UNLIMITED, NetworkLimits
from kraftpy.world import assert_always

__all__ = ["ConnectionQuotas", "TooManyConnections"]


class TooManyConnections(Exception):  # noqa: N818 (it names what there are)
    """An address has all the connections it may have."""


class _TokenBucket:
    """A token for each connection; they come at `rate` a second and at most that many are kept."""

    __slots__ = ("_rate", "_tokens", "_updated")

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._tokens = float(rate)
        self._updated = now

    def change_rate(self, rate: int, now: float) -> None:
        self._fill(now)
        # Who was below the old rate's burst starts with the new one's, not with nothing.
        self._tokens = min(float(rate), self._tokens + max(0, rate - self._rate))
        self._rate = rate

    def seconds_to_wait(self, now: float) -> float:
        """Until the next token is there; 0 if one is. The next one may be taken by another."""
        if self._rate >= UNLIMITED:
            return 0.0
        self._fill(now)
        # Counting in floats, a bucket may stand a hair below the token that is due now.
        missing = 1.0 - self._tokens
        if missing <= 1e-9:
            return 0.0
        return missing / self._rate if self._rate > 0 else inf

    def take(self) -> None:
        self._tokens = max(0.0, self._tokens - 1.0)

    def _fill(self, now: float) -> None:
        earned = (now - self._updated) * self._rate
        self._tokens = min(float(self._rate), self._tokens + earned)
        self._updated = now


class ConnectionQuotas:
    """The counts of one server, and its limits on them."""

    __slots__ = (
        "_by_address",
        "_by_listener",
        "_limits",
        "_listener_rates",
        "_protected",
        "_rate",
        "_total",
    )

    def __init__(
        self,
        limits: NetworkLimits,
        listeners: Collection[str],
        protected: Collection[str],
        now: float,
    ) -> None:
        self._limits = limits
        self._protected = frozenset(protected)
        self._total = 0
        self._by_listener = dict.fromkeys(listeners, 0)
        self._by_address: dict[str, int] = {}
        self._rate = _TokenBucket(limits.max_connection_creation_rate, now)
        self._listener_rates = {
            name: _TokenBucket(limits.creation_rate_of_listener(name), now) for name in listeners
        }

    @property
    def total(self) -> int:
        return self._total

    def count_of_listener(self, listener: str) -> int:
        return self._by_listener[listener]

    def count_of_address(self, address: str) -> int:
        return self._by_address.get(address, 0)

    def is_protected(self, listener: str) -> bool:
        return listener in self._protected

    @property
    def excess_count(self) -> int:
        return max(0, self._total - self._limits.max_connections)

    def has_room(self, listener: str) -> bool:
        """Step 1 of the admission."""
        limits = self._limits
        if self._by_listener[listener] >= limits.max_connections_of_listener(listener):
            return False
        return listener in self._protected or self._total < limits.max_connections

    def seconds_to_wait(self, listener: str, now: float) -> float:
        """Step 2 of the admission; 0 means: go on."""
        own = self._listener_rates[listener].seconds_to_wait(now)
        if listener in self._protected:
            return own
        return max(own, self._rate.seconds_to_wait(now))

    def add(self, listener: str, address: str) -> None:
        """Steps 3 and 4 of the admission."""
        self._listener_rates[listener].take()
        self._rate.take()
        count = self._by_address.get(address, 0)
        limit = self._limits.max_connections_of_ip(address)
        if count >= limit:
            raise TooManyConnections(f"{address} has {count} connections of at most {limit}")
        self._by_address[address] = count + 1
        self._by_listener[listener] += 1
        self._total += 1

    def remove(self, listener: str, address: str) -> None:
        """A connection that was added is closed. Removing one that wasn't is our own bug."""
        count = self._by_address.get(address, 0)
        assert_always(count > 0, "quotas.unknown-address", address=address)
        assert_always(self._by_listener[listener] > 0, "quotas.unknown-listener", name=listener)
        if count == 1:
            del self._by_address[address]
        else:
            self._by_address[address] = count - 1
        self._by_listener[listener] -= 1
        self._total -= 1

    def change_limits(self, limits: NetworkLimits, now: float) -> None:
        self._limits = limits
        self._rate.change_rate(limits.max_connection_creation_rate, now)
        for name, bucket in self._listener_rates.items():
            bucket.change_rate(limits.creation_rate_of_listener(name), now)
