"""Who may do what: the authorizer beside a naive one, rule by rule, and what it keeps and tells."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.protocol.ids import Uuid
from kraftpy.security import authorizer as authorizer_module
from kraftpy.security.acl_index import AclIndex
from kraftpy.security.acl_terms import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from kraftpy.security.authorizer import Question, StandardAuthorizer

ANN, BOB = "User:ann", "User:bob"
HERE, THERE = "10.0.0.1", "10.0.0.2"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def entry(
    name: str,
    operation: AclOperation = READ,
    permission: AclPermission = ALLOW,
    *,
    kind: ResourceType = TOPIC,
    pattern: PatternType = LITERAL,
    principal: str = ANN,
    host: str = "*",
) -> AclEntry:
    return AclEntry(kind, name, pattern, principal, host, operation, permission)


def numbered(entries: Iterable[AclEntry]) -> list[tuple[Uuid, AclEntry]]:
    return [(Uuid(number.to_bytes(16)), each) for number, each in enumerate(entries)]


def authorizer_of(
    *entries: AclEntry, super_users: Sequence[str] = (), allows_without_entries: bool = False
) -> StandardAuthorizer:
    made = StandardAuthorizer(super_users, allows_without_entries=allows_without_entries)
    made.change((), numbered(entries))
    return made


def may(
    authorizer: StandardAuthorizer,
    name: str,
    operation: AclOperation = READ,
    *,
    principal: str = ANN,
    host: str = HERE,
    kind: ResourceType = TOPIC,
) -> bool:
    return authorizer.allows(Question(principal, host, operation, kind, name))


# The naive one: a list of entries, read from one end to the other for each question.


def _concerns(each: AclEntry, kind: int, name: str) -> bool:
    if each.resource_type != kind:
        return False
    if each.pattern_type == PREFIXED:
        return name.startswith(each.resource_name)
    return each.resource_name in (name, "*")


def _is_for(each: AclEntry, principal: str, host: str) -> bool:
    return each.principal in (principal, "User:*") and each.host in (host, "*")


def naive_verdict(entries: Sequence[AclEntry], question: Question, *, default: bool) -> bool:
    principal, host, wanted, kind, name = question
    concerned = [each for each in entries if _concerns(each, kind, name)]
    if not concerned:
        return default
    mine = [each for each in concerned if _is_for(each, principal, host)]
    denied = [each.operation for each in mine if each.permission_type == DENY]
    allowed = [each.operation for each in mine if each.permission_type == ALLOW]
    if wanted in denied or AclOperation.ALL in denied:
        return False
    enough = {wanted, AclOperation.ALL}
    if wanted is DESCRIBE:
        enough |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if wanted is AclOperation.DESCRIBE_CONFIGS:
        enough.add(AclOperation.ALTER_CONFIGS)
    return any(operation in enough for operation in allowed)


def naive_any(
    entries: Sequence[AclEntry], principal: str, host: str, wanted: AclOperation, *, default: bool
) -> bool:
    """As Kafka's interface defines it: by patterns, not by names that exist."""
    if naive_verdict(
        entries, Question(principal, host, wanted, TOPIC, "hardcode"), default=default
    ):
        return True
    mine = [
        each
        for each in entries
        if each.resource_type == TOPIC
        and _is_for(each, principal, host)
        and each.operation in (wanted, AclOperation.ALL)
    ]
    denies = [each for each in mine if each.permission_type == DENY]
    if any(each.pattern_type == LITERAL and each.resource_name == "*" for each in denies):
        return False
    for each in mine:
        if each.permission_type != ALLOW:
            continue
        if each.pattern_type == LITERAL and each.resource_name == "*":
            return True
        dominated = any(
            each.resource_name.startswith(deny.resource_name)
            if deny.pattern_type == PREFIXED
            else each.pattern_type == LITERAL and deny.resource_name == each.resource_name
            for deny in denies
        )
        if not dominated:
            return True
    return False


# Few of each, so that entries often meet, and a question often meets entries.
OPERATIONS = st.sampled_from(
    [
        READ,
        WRITE,
        DESCRIBE,
        AclOperation.ALL,
        AclOperation.ALTER_CONFIGS,
        AclOperation.DESCRIBE_CONFIGS,
    ]
)
ENTRIES = st.lists(
    st.builds(
        AclEntry,
        st.sampled_from([TOPIC, TOPIC, TOPIC, GROUP]),
        st.sampled_from(["*", "a", "ab"]),
        st.sampled_from([LITERAL, PREFIXED]),
        st.sampled_from([ANN, ANN, BOB, "User:*"]),
        st.sampled_from([HERE, THERE, "*", "*"]),
        OPERATIONS,
        st.sampled_from([ALLOW, ALLOW, DENY]),
    ),
    min_size=1,
    max_size=6,
)
QUESTIONS = [
    Question(principal, host, operation, TOPIC, name)
    for principal in (ANN, BOB)
    for host in (HERE, THERE)
    for operation in (READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    for name in ("", "a", "ab", "abc", "b", "*")
]


@given(ENTRIES, ENTRIES, st.booleans())
def test_decides_as_the_naive_one(
    first: list[AclEntry], second: list[AclEntry], default: bool
) -> None:
    """Also after entries have come and gone, and though decisions are kept."""
    authorizer = StandardAuthorizer(allows_without_entries=default)
    before: list[tuple[Uuid, AclEntry]] = []
    for entries in (first, second, first):
        after = numbered(entries)
        authorizer.change(before, after)
        before = after
        for _ in range(2):
            for question in QUESTIONS:
                assert authorizer.allows(question) is naive_verdict(
                    entries, question, default=default
                ), question


@given(
    ENTRIES,
    st.sampled_from([ANN, BOB]),
    st.sampled_from([HERE, THERE]),
    st.sampled_from([READ, WRITE]),
    st.booleans(),
)
def test_any_resource_as_the_naive_one(
    entries: list[AclEntry], principal: str, host: str, wanted: AclOperation, default: bool
) -> None:
    authorizer = authorizer_of(*entries, allows_without_entries=default)
    assert authorizer.allows_any(principal, host, wanted, TOPIC) is naive_any(
        entries, principal, host, wanted, default=default
    )


def test_super_users_need_no_entry_and_no_denial_stops_them() -> None:
    denied = entry("a", AclOperation.ALL, DENY, principal="User:*")
    authorizer = authorizer_of(denied, super_users=[ANN])
    assert may(authorizer, "a")
    assert not may(authorizer, "a", principal=BOB)
    assert authorizer.allows_any(ANN, HERE, WRITE, TOPIC)


def test_only_super_users_before_the_entries_are_known() -> None:
    authorizer = StandardAuthorizer([ANN], allows_without_entries=True)
    assert may(authorizer, "a")
    assert not may(authorizer, "a", principal=BOB)
    assert not authorizer.allows_any(BOB, HERE, WRITE, TOPIC)
    authorizer.change((), ())
    assert may(authorizer, "a", principal=BOB)


@pytest.mark.parametrize(
    "denial",
    [
        entry("abc", READ, DENY),
        entry("abc", AclOperation.ALL, DENY),
        entry("*", READ, DENY),
        entry("ab", READ, DENY, pattern=PREFIXED),
        entry("abc", READ, DENY, principal="User:*"),
        entry("abc", READ, DENY, host=HERE),
    ],
)
def test_one_denial_outweighs_all_permissions(denial: AclEntry) -> None:
    permissions = (
        entry("abc"),
        entry("abc", AclOperation.ALL, host=HERE),
        entry("*", principal="User:*"),
        entry("a", pattern=PREFIXED),
    )
    assert may(authorizer_of(*permissions), "abc")
    assert not may(authorizer_of(denial, *permissions), "abc")
    assert not may(authorizer_of(*permissions, denial), "abc")


def test_what_implies_an_operation_does_not_deny_it() -> None:
    authorizer = authorizer_of(entry("a", WRITE), entry("a", READ, DENY))
    assert may(authorizer, "a", DESCRIBE)
    assert not may(authorizer, "a", READ)


def test_an_entry_for_somebody_else_ends_the_default() -> None:
    authorizer = authorizer_of(entry("a"), allows_without_entries=True)
    assert may(authorizer, "b", principal=BOB)
    assert not may(authorizer, "a", principal=BOB)


def test_prefixes_of_one_length_come_and_go_one_by_one() -> None:
    both = [entry("ab", pattern=PREFIXED), entry("cd", pattern=PREFIXED)]
    authorizer = authorizer_of(*both)
    authorizer.change(numbered(both)[:1], ())
    assert not may(authorizer, "abc")
    assert may(authorizer, "cde")
    authorizer.change(numbered(both)[1:], ())
    assert not may(authorizer, "cde")


def test_any_resource_but_those_that_a_denied_prefix_begins() -> None:
    denied = entry("a", WRITE, DENY, pattern=PREFIXED)

    def may_any(*entries: AclEntry) -> bool:
        return authorizer_of(*entries).allows_any(ANN, HERE, WRITE, TOPIC)

    assert may_any(entry("ab", WRITE))
    assert not may_any(denied, entry("ab", WRITE), entry("abc", WRITE, pattern=PREFIXED))
    assert may_any(denied, entry("b", WRITE))
    assert may_any(entry("ab", WRITE, DENY, pattern=PREFIXED), entry("a", WRITE))
    assert not may_any(entry("a", WRITE, DENY), entry("a", WRITE))
    assert not may_any(entry("*", WRITE, DENY), entry("a", WRITE))


def test_hosts_are_compared_as_addresses() -> None:
    authorizer = authorizer_of(
        entry("a", host="0:0:0:0:0:0:0:1"), entry("b", host="10.0.0.1"), entry("c", host="::1")
    )
    assert may(authorizer, "a", host="::1")
    assert may(authorizer, "b", host="::ffff:10.0.0.1")
    assert not may(authorizer, "b", host="10.0.0.11")


def test_an_address_in_two_spellings_goes_with_its_last_entry() -> None:
    short, long = entry("a", host="::1"), entry("a", host="0:0:0:0:0:0:0:1")
    authorizer = authorizer_of(short, long)
    authorizer.change([numbered([short, long])[0]], ())
    assert may(authorizer, "a", host="::1")
    authorizer.change([numbered([short, long])[1]], ())
    assert not may(authorizer, "a", host="::1")


def test_what_may_be_done_to_any_resource_is_found_out_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until entries change: to find it out, all entries of the type are read."""
    authorizer = authorizer_of(entry("a", WRITE))
    reads = []
    read = AclIndex.of_type
    monkeypatch.setattr(
        AclIndex, "of_type", lambda index, kind: (reads.append(kind), read(index, kind))[1]
    )
    for _ in range(3):
        assert authorizer.allows_any(ANN, HERE, WRITE, TOPIC)
    assert reads == [TOPIC]
    authorizer.change(numbered([entry("a", WRITE)]), ())
    for _ in range(3):
        assert not authorizer.allows_any(ANN, HERE, WRITE, TOPIC)
    assert reads == [TOPIC, TOPIC]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "_MAX_DECISIONS", 10)
    authorizer = authorizer_of(entry("7"))
    for number in range(11):
        assert may(authorizer, str(number)) is (number == 7)
        assert len(authorizer._decisions) <= 10
        assert len(authorizer._told) <= 10
    assert len(authorizer._decisions) == 1


QUESTION = "Operation = READ from host = 10.0.0.1 on resource = TOPIC:LITERAL"


def test_tells_each_decision_once(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = authorizer_of(entry("a"))
    with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
        for _ in range(3):
            assert may(authorizer, "a")
            assert not may(authorizer, "b")
    told = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert told == [
        (
            "DEBUG",
            f"Principal = User:ann is Allowed {QUESTION}:a",
        ),
        (
            "INFO",
            f"Principal = User:ann is Denied {QUESTION}:b",
        ),
    ]


def test_a_probe_is_not_told_but_who_asks_afterwards_is(caplog: pytest.LogCaptureFixture) -> None:
    authorizer = authorizer_of()
    question = Question(ANN, HERE, READ, TOPIC, "a")
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        assert not authorizer.allows(question, is_probe=True)
        assert not caplog.records
        assert not authorizer.allows(question)
    assert len(caplog.records) == 1
