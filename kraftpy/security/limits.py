"""Which limit holds for a client, of those that are set for users, client ids, and both.

The first of these that is set, as in Kafka:

| set for | counted together |
| --- | --- |
| this user and this client id | the user's client |
| this user and any client id | the user's client |
| this user | the user |
| any user and this client id | the user's client |
| any user and any client id | the user's client |
| any user | the user |
| this client id | the client, whoever uses it |
| any client id | the client, whoever uses it |

A limit for "any" is one for each. Who gives no client id is not limited by any that is for one.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

__all__ = ["ANY", "NOT_NAMED", "Account", "ClientLimits", "LimitSubject", "Part"]


class _Special(Enum):
    ANY = "any"
    NOT_NAMED = "not named"


ANY: Final = _Special.ANY
NOT_NAMED: Final = _Special.NOT_NAMED

Part: TypeAlias = str | _Special


class LimitSubject(NamedTuple):
    """Whom a limit is set for."""

    user: Part
    client_id: Part


class Account(NamedTuple):
    """Whose use is counted together; what doesn't matter is empty."""

    user: str
    client_id: str


class ClientLimits:
    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[LimitSubject, float] = {}

    @property
    def is_set(self) -> bool:
        """Whether anybody has a limit."""
        return bool(self._limits)

    def change(self, subject: LimitSubject, limit: float | None) -> None:
        """Without a limit, it is taken away."""
        if limit is None:
            self._limits.pop(subject, None)
        else:
            self._limits[subject] = limit

    def find(self, user: str, client_id: str) -> tuple[Account, float] | None:
        """The limit that holds, and with whom it is shared; None if there is none."""
        limits = self._limits
        for subject, account in _levels(user, client_id):
            limit = limits.get(subject)
            if limit is not None:
                return account, limit
        return None


def _levels(user: str, client_id: str) -> tuple[tuple[LimitSubject, Account], ...]:
    of_user = Account(user, "")
    if not client_id:
        return (
            (LimitSubject(user, NOT_NAMED), of_user),
            (LimitSubject(ANY, NOT_NAMED), of_user),
        )
    both, of_client = Account(user, client_id), Account("", client_id)
    return (
        (LimitSubject(user, client_id), both),
        (LimitSubject(user, ANY), both),
        (LimitSubject(user, NOT_NAMED), of_user),
        (LimitSubject(ANY, client_id), both),
        (LimitSubject(ANY, ANY), both),
        (LimitSubject(ANY, NOT_NAMED), of_user),
        (LimitSubject(NOT_NAMED, client_id), of_client),
        (LimitSubject(NOT_NAMED, ANY), of_client),
    )
