"""Connections a second from one address: `connection_creation_rate` (KIP-612).

A connection above the limit is not served and doesn't count; it is held for the time after which
another one could be, so that who tries again at once doesn't keep the node busy, and then closed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from kraftpy.security.accounts import Accounts, Silent
from kraftpy.security.windows import ClientRate, QuotaWindow

__all__ = ["AddressQuota", "plain_address"]


class _AddressUse(Silent):
    __slots__ = ("rate",)

    def __init__(self, window: QuotaWindow, now_ms: int) -> None:
        super().__init__(now_ms)
        self.rate = ClientRate(window)


class AddressQuota:
    __slots__ = ("_accounts", "_default", "_limits", "_window", "is_set")

    def __init__(
        self,
        window: QuotaWindow,
        shown: Callable[[str, ClientRate], None],
        hidden: Callable[[str], None],
    ) -> None:
        """`shown` and `hidden` are told of addresses that are counted, and are no longer."""
        self._window = window
        self._default: float | None = None
        self._limits: dict[str, float] = {}
        # While this is so, it is all that anybody asks.
        self.is_set = False
        self._accounts = Accounts[str, _AddressUse](
            lambda now_ms: _AddressUse(window, now_ms),
            lambda address, use: shown(address, use.rate),
            hidden,
        )

    def change(self, address: str | None, limit: float | None) -> None:
        """The limit of one address, or of each that has none of its own; None takes it away."""
        if address is None:
            self._default = limit
        elif limit is None:
            self._limits.pop(plain_address(address), None)
        else:
            self._limits[plain_address(address)] = limit
        self.is_set = self._default is not None or bool(self._limits)

    def connected(self, address: str, now_ms: int) -> int:
        """How long a new connection is to be held before it is closed; 0 if it may be served."""
        address = plain_address(address)
        limit = self._limits.get(address, self._default)
        if limit is None:
            return 0
        rate = self._accounts.of(address, now_ms).rate
        rate.record(1, now_ms)
        delay_ms = min(rate.delay_ms(limit, now_ms), self._window.size_ms)
        if delay_ms > 0:
            rate.record(-1, now_ms)
        return delay_ms


def plain_address(text: str) -> str:
    """One spelling for each address; what is none stays as it is."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
