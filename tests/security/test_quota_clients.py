"""Whose limit holds for whom, how long clients must wait, and what is shown of it."""

from __future__ import annotations

from math import inf

import pytest

from kraftpy.observe.metrics import Gauge, MetricRegistry
from kraftpy.security import accounts
from kraftpy.security.address_quota import AddressQuota, plain_address
from kraftpy.security.client_quota import ClientQuota
from kraftpy.security.limits import ANY, NOT_NAMED, Account, ClientLimits, LimitSubject, Part
from kraftpy.security.mutation_quota import MutationQuota
from kraftpy.security.quota_metrics import QuotaKind, QuotaMetrics
from kraftpy.security.replication_quota import (
    ALL_PARTITIONS,
    UNLIMITED,
    ReplicationQuota,
    throttled_on,
)
from kraftpy.security.windows import QuotaWindow

# The strongest first.
LEVELS: list[tuple[Part, Part, Account]] = [
    ("ann", "app", Account("ann", "app")),
    ("ann", ANY, Account("ann", "app")),
    ("ann", NOT_NAMED, Account("ann", "")),
    (ANY, "app", Account("ann", "app")),
    (ANY, ANY, Account("ann", "app")),
    (ANY, NOT_NAMED, Account("ann", "")),
    (NOT_NAMED, "app", Account("", "app")),
    (NOT_NAMED, ANY, Account("", "app")),
]


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def metrics(kind: QuotaKind, registry: MetricRegistry | None = None) -> QuotaMetrics:
    return QuotaMetrics(kind, registry or MetricRegistry(), Clock())


def shown(registry: MetricRegistry) -> dict[str, float]:
    return {name.jmx: gauge.read() for name, gauge in registry if isinstance(gauge, Gauge)}


def produce_quota(registry: MetricRegistry | None = None) -> ClientQuota:
    return ClientQuota(QuotaWindow(), metrics(QuotaKind.PRODUCE, registry), rate_name="byte-rate")


def test_the_strongest_limit_holds() -> None:
    """All eight are set, and taken away one after the other."""
    limits = ClientLimits()
    assert not limits.is_set
    for number, (user, client_id, _) in enumerate(LEVELS):
        limits.change(LimitSubject(user, client_id), number + 1.0)
    for number, (user, client_id, account) in enumerate(LEVELS):
        assert limits.find("ann", "app") == (account, number + 1.0)
        limits.change(LimitSubject(user, client_id), None)
    assert limits.find("ann", "app") is None
    assert not limits.is_set


def test_others_are_not_concerned() -> None:
    limits = ClientLimits()
    limits.change(LimitSubject("ann", "app"), 1.0)
    limits.change(LimitSubject("ann", NOT_NAMED), 2.0)
    limits.change(LimitSubject(NOT_NAMED, "app"), 3.0)
    assert limits.find("ann", "other") == (Account("ann", ""), 2.0)
    assert limits.find("bob", "app") == (Account("", "app"), 3.0)
    assert limits.find("bob", "other") is None


def test_without_a_client_id_only_users_count() -> None:
    limits = ClientLimits()
    for user, client_id, _ in LEVELS:
        limits.change(LimitSubject(user, client_id), 1.0)
    assert limits.find("ann", "") == (Account("ann", ""), 1.0)
    limits.change(LimitSubject("ann", NOT_NAMED), None)
    assert limits.find("ann", "") == (Account("ann", ""), 1.0)
    limits.change(LimitSubject(ANY, NOT_NAMED), None)
    assert limits.find("ann", "") is None


def test_a_limit_for_any_is_one_for_each() -> None:
    quota = produce_quota()
    quota.change(LimitSubject(NOT_NAMED, ANY), 1_000.0)
    assert quota.record("ann", "a", 15_000, 0) == 5_000
    assert quota.record("ann", "b", 10_000, 0) == 0
    # One client id is one account, whoever uses it.
    assert quota.record("bob", "b", 5_000, 0) == 5_000


def test_a_limit_that_changes_holds_for_what_was_used_before() -> None:
    quota = produce_quota()
    assert not quota.is_set
    assert quota.record("ann", "a", 15_000, 0) == 0
    subject = LimitSubject("ann", NOT_NAMED)
    quota.change(subject, 1_000.0)
    assert quota.is_set
    assert quota.record("ann", "a", 15_000, 0) == 5_000
    quota.change(subject, 3_000.0)
    assert quota.record("ann", "b", 15_000, 0) == 0
    quota.change(subject, None)
    assert not quota.is_set
    assert quota.record("ann", "a", 10**9, 0) == 0


def test_the_longest_delay() -> None:
    quota = ClientQuota(
        QuotaWindow(),
        metrics(QuotaKind.REQUEST),
        rate_name="request-time",
        longest_delay_ms=1_000,
    )
    quota.change(LimitSubject("ann", NOT_NAMED), 50.0)
    assert quota.record("ann", "", 500, 0) == 0
    assert quota.record("ann", "", 50, 0) == 1_000
    quota.add("ann", "", -49, 0)
    assert quota.record("ann", "", 0, 0) == 20


def test_the_most_at_once() -> None:
    quota = produce_quota()
    assert quota.most_at_once("ann", "a") == inf
    quota.change(LimitSubject("ann", NOT_NAMED), 100.0)
    assert quota.most_at_once("ann", "a") == 1_000
    assert quota.record("ann", "a", 1_000, 0) == 0


def test_what_is_shown() -> None:
    registry = MetricRegistry()
    quota = produce_quota(registry)
    assert shown(registry) == {"kafka.server:type=Produce/queue-size": 0}
    quota.change(LimitSubject("a b*", ANY), 100.0)
    quota.change(LimitSubject(NOT_NAMED, "c"), 100.0)
    quota.record("a b*", "x", 2_000, 0)
    quota.note_delay("a b*", "x", 10_000, 0)
    quota.note_delay("a b*", "x", 4_000, 0)
    quota.record("bob", "c", 500, 0)
    assert shown(registry) == {
        "kafka.server:type=Produce/queue-size": 2,
        "kafka.server:type=Produce,user=a%20b%2A,client-id=x/byte-rate": 200,
        "kafka.server:type=Produce,user=a%20b%2A,client-id=x/throttle-time": 7_000,
        "kafka.server:type=Produce,client-id=c/byte-rate": 50,
        "kafka.server:type=Produce,client-id=c/throttle-time": 0,
    }
    assert quota.delayed_count(4_000) == 1
    assert quota.delayed_count(10_000) == 0


def test_who_was_silent_for_an_hour_is_forgotten() -> None:
    registry = MetricRegistry()
    quota = produce_quota(registry)
    quota.change(LimitSubject(NOT_NAMED, ANY), 100.0)
    quota.record("", "a", 1, 0)
    quota.record("", "b", 1, 1)
    quota.record("", "c", 1, accounts.SILENCE_MS)
    names = [name for name in shown(registry) if name.endswith("byte-rate")]
    assert names == [f"kafka.server:type=Produce,client-id={each}/byte-rate" for each in "bc"]


def test_there_are_no_more_accounts_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was silent longest makes room."""
    monkeypatch.setattr(accounts, "MAX_ACCOUNTS", 2)
    registry = MetricRegistry()
    quota = produce_quota(registry)
    quota.change(LimitSubject(NOT_NAMED, ANY), 100.0)
    for client_id in ("a", "b", "a", "c"):
        quota.record("", client_id, 1_000, 0)
    names = [name for name in shown(registry) if name.endswith("byte-rate")]
    assert names == [f"kafka.server:type=Produce,client-id={each}/byte-rate" for each in "ac"]
    assert quota.record("", "a", 1, 0) > 0


# Changes to topics.


def mutation_quota(limit: float, registry: MetricRegistry | None = None) -> MutationQuota:
    quota = MutationQuota(QuotaWindow(10, 1_000), metrics(QuotaKind.CONTROLLER_MUTATION, registry))
    quota.change(LimitSubject("ann", NOT_NAMED), limit)
    return quota


def test_strictly_a_change_is_refused_while_the_bucket_owes() -> None:
    """Ten a second for ten seconds are a hundred at once; the one beyond is the last for now."""
    quota = mutation_quota(10.0)
    permit = quota.permit("ann", "", 0, is_strict=True)
    assert permit is not None
    assert permit.take(100, 0)
    assert permit.take(5, 0)
    assert permit.delay_ms(0) == 0
    assert not permit.take(1, 0)
    assert permit.delay_ms(0) == 500
    # Whoever asks later has less to wait; and a request of its own is told so, too.
    assert permit.delay_ms(200) == 300
    later = quota.permit("ann", "", 499, is_strict=True)
    assert later is not None
    assert not later.take(1, 499)
    assert later.delay_ms(499) == 1
    assert later.take(1, 500)


def test_clients_of_old_are_made_to_wait() -> None:
    quota = mutation_quota(10.0)
    permit = quota.permit("ann", "", 0, is_strict=False)
    assert permit is not None
    assert permit.take(100, 0)
    assert permit.delay_ms(0) == 0
    assert permit.take(1, 0)
    assert permit.delay_ms(0) == 100
    assert permit.take(1, 0)
    assert permit.delay_ms(0) == 200


def test_who_has_no_limit_gets_no_permit() -> None:
    assert mutation_quota(10.0).permit("bob", "", 0, is_strict=True) is None


def test_what_is_shown_of_mutations() -> None:
    registry = MetricRegistry()
    quota = mutation_quota(10.0, registry)
    permit = quota.permit("ann", "", 0, is_strict=True)
    assert permit is not None
    permit.take(18, 0)
    quota.note_delay("ann", "", 30, 0)
    assert shown(registry) == {
        "kafka.server:type=ControllerMutation/queue-size": 1,
        "kafka.server:type=ControllerMutation,user=ann/mutation-rate": 2,
        "kafka.server:type=ControllerMutation,user=ann/tokens": 82,
        "kafka.server:type=ControllerMutation,user=ann/throttle-time": 30,
    }


# Addresses.


def address_quota(shown: dict[str, object] | None = None) -> AddressQuota:
    known: dict[str, object] = {} if shown is None else shown
    return AddressQuota(QuotaWindow(), known.__setitem__, known.__delitem__)


def test_connections_of_an_address() -> None:
    """One a second are ten at once; one beyond is held for a sample at most, and doesn't count."""
    shown: dict[str, object] = {}
    quota = address_quota(shown)
    assert not quota.is_set
    quota.change("10.0.0.1", 1.0)
    assert quota.is_set
    assert [quota.connected("10.0.0.1", 0) for _ in range(12)] == [0] * 10 + [1_000] * 2
    assert quota.connected("10.0.0.2", 0) == 0
    assert list(shown) == ["10.0.0.1"]
    # Eleven in ten seconds and a half are too many by half a one.
    assert quota.connected("10.0.0.1", 500) == 500
    assert quota.connected("10.0.0.1", 999) == 1
    assert quota.connected("10.0.0.1", 11_000) == 0


def test_an_address_of_its_own_and_any() -> None:
    quota = address_quota()
    quota.change(None, 1.0)
    quota.change("10.0.0.1", 2.0)
    assert [quota.connected("10.0.0.1", 0) for _ in range(21)][-2:] == [0, 500]
    assert [quota.connected("10.0.0.2", 0) for _ in range(11)][-2:] == [0, 1_000]
    quota.change("10.0.0.1", None)
    assert quota.connected("10.0.0.1", 0) > 0
    quota.change(None, None)
    assert not quota.is_set
    assert quota.connected("10.0.0.1", 0) == 0


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("host", "host"),
    ],
)
def test_one_spelling_of_an_address(text: str, plain: str) -> None:
    assert plain_address(text) == plain


# Replicas.


def replication_quota(registry: MetricRegistry | None = None) -> ReplicationQuota:
    return ReplicationQuota(QuotaWindow(), metrics(QuotaKind.LEADER_REPLICATION, registry))


def test_which_replicas_are_throttled() -> None:
    assert throttled_on(1, ("*",)) is ALL_PARTITIONS
    assert throttled_on(1, ()) == frozenset()
    assert throttled_on(1, ("",)) == frozenset()
    assert throttled_on(1, ("0:1", "1:2", "", "13:1")) == {0, 13}


def test_throttled_partitions_come_and_go() -> None:
    quota = replication_quota()
    assert not quota.is_used
    quota.change_throttled("t", frozenset((1,)))
    quota.change_throttled("u", ALL_PARTITIONS)
    assert quota.is_used
    assert [quota.is_throttled("t", each) for each in (0, 1)] == [False, True]
    assert quota.is_throttled("u", 7)
    assert not quota.is_throttled("v", 1)
    quota.change_throttled("t", frozenset())
    quota.change_throttled("u", frozenset())
    assert not quota.is_used
    assert not quota.is_throttled("u", 7)


def test_the_rate_of_replication() -> None:
    """REP-70: the limit itself is not beyond it."""
    registry = MetricRegistry()
    quota = replication_quota(registry)
    quota.record(1_000, 0)
    assert shown(registry) == {"kafka.server:type=LeaderReplication/byte-rate": 1_000}
    assert not quota.is_exceeded(0)
    quota.change_limit(1_000)
    assert not quota.is_exceeded(0)
    quota.record(1, 0)
    assert quota.is_exceeded(0)
    assert quota.is_exceeded(1_000)
    assert not quota.is_exceeded(1_001)
    quota.change_limit(0)
    assert quota.is_exceeded(1_001)
    quota.change_limit(UNLIMITED)
    assert not quota.is_exceeded(0)
