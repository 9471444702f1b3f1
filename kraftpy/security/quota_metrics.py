"""The metrics of quotas, under Kafka's names.

Each kind of quota is a bean of its own, `kafka.server:type=Produce,user=...,client-id=...`, with
its rate and `throttle-time`; what doesn't matter to an account is not in its name. Without these
two tags it has `queue-size`, the number of connections that are not served for the moment.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from kraftpy.observe.metrics import MetricName, MetricRegistry, Tags
from kraftpy.security.limits import Account

__all__ = ["QuotaKind", "QuotaMetrics"]

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class QuotaKind(Enum):
    """Under Kafka's names."""

    FETCH = "Fetch"
    PRODUCE = "Produce"
    REQUEST = "Request"
    CONTROLLER_MUTATION = "ControllerMutation"
    LEADER_REPLICATION = "LeaderReplication"
    FOLLOWER_REPLICATION = "FollowerReplication"
    ALTER_LOG_DIRS_REPLICATION = "AlterLogDirsReplication"


class QuotaMetrics:
    """Of one kind. Values are computed when somebody looks, for which `now_ms` is needed."""

    __slots__ = ("_kind", "_now_ms", "_registry", "_shown")

    def __init__(
        self, kind: QuotaKind, registry: MetricRegistry, now_ms: Callable[[], int]
    ) -> None:
        self._kind = kind
        self._registry = registry
        self._now_ms = now_ms
        self._shown: dict[Account, list[MetricName]] = {}

    def show(self, name: str, read: Callable[[int], float]) -> None:
        """One that is nobody's own, for ever."""
        self._registry.gauge(self._name(name), lambda: read(self._now_ms()))

    def show_account(self, account: Account, name: str, read: Callable[[int], float]) -> None:
        """Until `hide_account`."""
        tags = (("user", _sanitized(account.user)), ("client-id", account.client_id))
        metric = self._name(name, tuple((key, value) for key, value in tags if value))
        self._shown.setdefault(account, []).append(metric)
        self._registry.gauge(metric, lambda: read(self._now_ms()))

    def hide_account(self, account: Account) -> None:
        for metric in self._shown.pop(account, ()):
            self._registry.remove(metric)

    def _name(self, name: str, tags: Tags = ()) -> MetricName:
        return MetricName("kafka.server", self._kind.value, name, tags, is_attribute=True)


def _sanitized(user: str) -> str:
    """As Kafka has users in the names of metrics: a principal may be made of anything."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in user.encode())
