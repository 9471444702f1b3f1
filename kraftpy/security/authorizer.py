"""Who may do what: Kafka's StandardAuthorizer, by the access control entries of the cluster.

A super user may do everything. For all others the entries that concern a resource decide:

- One that denies the operation, or ALL, to the principal from its host settles it.
- Otherwise one that allows it does: the operation itself, ALL, or one that implies it.
- Otherwise it is denied, with one exception: where no entry concerns the resource, whoever it be
  for, `allow.everyone.if.no.acl.found` decides.

Entries for `User:*` are for everybody. Before the entries are known, only super users may do
anything: what an entry would have denied must not slip through while a node starts.

Decisions are kept until an entry comes or goes, so that the usual question costs one lookup. What
is kept is bounded: clients may invent names.

Each denial is a line in Kafka's log of the authorizer, at INFO, and each permission one at DEBUG;
once for each decision that is kept, not for each question, for a client may ask a thousand times a
second. Probes are not logged: questions of which another one decides if the answer is no.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from kraftpy.protocol.ids import Uuid
from kraftpy.security.acl_index import AclIndex
from kraftpy.security.acl_terms import (
    IMPLIED_BY,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from kraftpy.security.address_quota import plain_address

__all__ = ["Question", "StandardAuthorizer"]

# Kafka's name, by which people set its level.
log = logging.getLogger("kafka.authorizer.logger")

_MAX_DECISIONS: Final = 20_000
# A name that nobody has: whether it would be allowed says what holds for all.
_NO_NAME_IN_PARTICULAR: Final = "hardcode"


class Question(NamedTuple):
    """May this principal, from this host, do that?"""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str


class StandardAuthorizer:
    """Of one node."""

    __slots__ = (
        "_allows_without_entries",
        "_any_decisions",
        "_decisions",
        "_index",
        "_is_loaded",
        "_super_users",
        "_told",
    )

    def __init__(
        self, super_users: Iterable[str] = (), *, allows_without_entries: bool = False
    ) -> None:
        """`super.users` and `allow.everyone.if.no.acl.found`."""
        self._super_users = frozenset(super_users)
        self._allows_without_entries = allows_without_entries
        self._index = AclIndex()
        self._is_loaded = False
        self._decisions: dict[Question, bool] = {}
        # About any name; never more than of the others, which are asked first.
        self._any_decisions: dict[Question, bool] = {}
        # The questions whose answers stand in the log.
        self._told: set[Question] = set()

    def change(
        self, removed: Iterable[tuple[Uuid, AclEntry]], added: Iterable[tuple[Uuid, AclEntry]]
    ) -> None:
        """Entries have gone and come. The first time, what comes is all that there is."""
        for acl_id, entry in removed:
            self._index.remove(acl_id, entry)
        for acl_id, entry in added:
            self._index.add(acl_id, entry)
        self._is_loaded = True
        self._forget()

    def allows(self, question: Question, *, is_probe: bool = False) -> bool:
        allowed = self._decisions.get(question)
        if allowed is None:
            allowed = self._decide(question)
            if len(self._decisions) >= _MAX_DECISIONS:
                self._forget()
            self._decisions[question] = allowed
        if not is_probe and question not in self._told:
            self._tell(question, allowed)
        return allowed

    def allows_any(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether there is a name, be it of a resource that exists or not, for which this is so.

        Operations that imply others don't count here, as in Kafka.
        """
        unnamed = Question(principal, host, operation, resource_type, _NO_NAME_IN_PARTICULAR)
        if self.allows(unnamed, is_probe=True):
            return True
        allowed = self._any_decisions.get(unnamed)
        if allowed is None:
            allowed = self._any_decisions[unnamed] = self._is_loaded and self._decide_any(unnamed)
        return allowed

    def _decide_any(self, unnamed: Question) -> bool:
        """Reads all entries of the type."""
        patterns: dict[tuple[int, int], set[str]] = {
            (permission, pattern): set()
            for permission in (AclPermission.ALLOW, AclPermission.DENY)
            for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
        }
        host, operations = plain_address(unnamed.host), (unnamed.operation, AclOperation.ALL)
        for entry in self._index.of_type(unnamed.resource_type):
            if entry.operation in operations and _is_for(entry, unnamed.principal, host):
                patterns[entry.permission_type, entry.pattern_type].add(entry.resource_name)
        denied = patterns[AclPermission.DENY, PatternType.LITERAL]
        denied_prefixes = patterns[AclPermission.DENY, PatternType.PREFIXED]
        allowed = patterns[AclPermission.ALLOW, PatternType.LITERAL]
        if WILDCARD in denied:
            return False
        if WILDCARD in allowed:
            return True
        candidates = (allowed - denied) | patterns[AclPermission.ALLOW, PatternType.PREFIXED]
        return any(
            not any(name[:length] in denied_prefixes for length in range(1, len(name) + 1))
            for name in candidates
        )

    def _decide(self, question: Question) -> bool:
        if question.principal in self._super_users:
            return True
        if not self._is_loaded:
            return False
        host = plain_address(question.host)
        has_entries = is_allowed = False
        for entry in self._index.about(question.resource_type, question.resource_name):
            has_entries = True
            if not _is_for(entry, question.principal, host):
                continue
            if entry.permission_type == AclPermission.DENY:
                if entry.operation in (question.operation, AclOperation.ALL):
                    return False
            elif _allows(entry.operation, question.operation):
                is_allowed = True
        return is_allowed or (self._allows_without_entries and not has_entries)

    def _forget(self) -> None:
        self._decisions.clear()
        self._any_decisions.clear()
        self._told.clear()

    def _tell(self, question: Question, allowed: bool) -> None:
        self._told.add(question)
        level = logging.DEBUG if allowed else logging.INFO
        if log.isEnabledFor(level):
            log.log(
                level,
                "Principal = %s is %s Operation = %s from host = %s on resource = %s:LITERAL:%s%s",
                question.principal,
                "Allowed" if allowed else "Denied",
                question.operation.name,
                question.host,
                question.resource_type.name,
                question.resource_name,
                "" if self._is_loaded else ", the access control entries are not loaded yet",
            )


def _is_for(entry: AclEntry, principal: str, host: str) -> bool:
    """Whether an entry is about a principal that comes from a host."""
    return entry.principal in (principal, WILDCARD_PRINCIPAL) and entry.host in (host, WILDCARD)


def _allows(given: int, wanted: AclOperation) -> bool:
    return given in (wanted, AclOperation.ALL) or given in IMPLIED_BY.get(wanted, ())
