"""Which anomalies count, and when a run says nothing at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from verify.history_table import Table

from kraftpy.verify.checkers import Anomaly, Audit, Expectations, Vacuity, check
from kraftpy.verify.checkers.check import MAX_LISTED
from kraftpy.verify.checkers.matrix import Matrix
from kraftpy.verify.history import History

UNCLEAN = ["nemesis start name=kill", 'nemesis end name=kill effects=["unclean-election"]']
ALL = [
    *(f"A{number}" for number in range(1, 29)),
    *(f"G{number}" for number in range(1, 11)),
    *(f"T{number}" for number in range(1, 15)),
]


def allowed(lines: list[str], **expected: Any) -> set[str]:
    """Of all anomalies, those that this configuration forgives."""
    matrix = Matrix(Expectations(**expected), Table(lines).history)
    judged = [matrix.judge(Anomaly(name, "", (), "")) for name in ALL]
    return {anomaly.id for anomaly in judged if not anomaly.is_bad}


def test_the_safe_configuration_forgives_nothing() -> None:
    """JEP-80."""
    assert allowed([]) == set()


@pytest.mark.parametrize(
    ("expected", "lines", "forgiven"),
    [
        ({"isolation": "read_uncommitted"}, [], {"A5", "A8", "T3", "T4"}),
        ({"is_idempotent": False}, [], {"A2", "A14", "A19"}),
        ({"acks": "1"}, [], set()),
        ({"acks": "1", "leaders_changed": True}, [], {"A3", "A4", "A20", "A23"}),
        ({"acks": "0", "leaders_changed": True}, [], {"A3", "A4", "A20", "A23"}),
        ({"leaders_changed": True}, [], set()),
        ({"lost_unsynced_data": True}, [], {"A3", "A4", "A20", "A23"}),
        ({"unclean_elections_enabled": True}, [], set()),
        (
            {"unclean_elections_enabled": True},
            UNCLEAN,
            {"A1", "A3", "A4", "A20", "A21", "A23"},
        ),
        ({}, UNCLEAN, set()),
    ],
)
def test_configurations_forgive(
    expected: dict[str, Any], lines: list[str], forgiven: set[str]
) -> None:
    """JEP-80."""
    assert allowed(lines, **expected) == forgiven


def test_topics_that_were_made_again_forgive_what_is_about_their_keys() -> None:
    """JEP-80. Of a bank the accounts are everywhere; of a copy nobody knows the output."""
    expected = Expectations(recreated_keys=frozenset({0, 1}), copy_inputs=(0, 1, 2, 3))
    matrix = Matrix(expected, History([], {}))

    def forgiven(key: int | None) -> set[str]:
        judged = [matrix.judge(Anomaly(name, "", (), "", key)) for name in ALL]
        return {anomaly.id for anomaly in judged if not anomaly.is_bad}

    assert forgiven(1) == {
        *("A1", "A3", "A4", "A12", "A13", "A14", "A15", "A16", "A18", "A19", "A20", "A21"),
        *("A23", "A24", "A25", "A28", "G5", "G7", "T3", "T13", "T14"),
    }
    assert forgiven(2) == forgiven(None) == {"T14"}
    with_output = Matrix(replace(expected, recreated_keys=frozenset({4})), History([], {}))
    assert not with_output.judge(Anomaly("T13", "", (), "", 2)).is_bad


def test_what_is_allowed_stays_allowed() -> None:
    information = Anomaly("A17", "int-send-skip", (), "", is_bad=False)
    assert Matrix(Expectations(), History([], {})).judge(information) == information


def test_a_displaced_ack_of_the_last_leader_counts() -> None:
    """acks=1 may lose what a deposed leader acked, and nothing else."""
    lines = ["0 send +1:5@0~epoch=3", "1 send? +1:6@?", "2 poll -1:0=6~epoch={}"]
    expected = Expectations(acks="1", vacuity=None)
    for epoch, is_bad in (("4", False), ("3", True)):
        table = Table([line.replace("{}", epoch) for line in lines])
        verdict = check(table.history, expected)
        assert [found.is_bad for found in verdict.anomalies if found.id == "A3"] == [is_bad]


ENOUGH = [
    "0 send +1:5@0 +1:6@1",
    "1 assign [1]",
    "nemesis start name=kill",
    "1 poll -1:0=5",
    'nemesis end name=kill effects=["leader changed"]',
    "nemesis start name=kill",
    "nemesis end name=kill",
    "9 assign [1] seek_to_beginning=True",
    "9 poll -1:0=5,1=6 final",
]
LEAST = Vacuity(min_acked_values=2, nemeses=("kill",), required_kinds=("send", "poll"))


def reasons(lines: list[str], least: Vacuity, audit: Audit | None = None) -> tuple[str, ...]:
    verdict = check(Table(lines).history, Expectations(vacuity=least, audit=audit))
    assert verdict.state == ("inconclusive" if verdict.reasons else "valid")
    return verdict.reasons


def test_enough_is_enough() -> None:
    """JEP-87."""
    assert reasons(ENOUGH, LEAST) == ()


@pytest.mark.parametrize(
    ("lines", "least", "reason"),
    [
        (ENOUGH, replace(LEAST, min_acked_values=3), "2 values were acked, and 3"),
        (ENOUGH, replace(LEAST, required_kinds=("commit",)), "no commit was ok"),
        (ENOUGH, replace(LEAST, nemeses=("pause",)), "pause happened 0 times, and 2"),
        (ENOUGH, replace(LEAST, min_fires=3), "kill happened 2 times, and 3"),
        (ENOUGH, replace(LEAST, min_ok_fraction=1.1), "5 of 5 operations were ok"),
        (ENOUGH, replace(LEAST, needs_audit=True), "there was no audit"),
        ([*ENOUGH, "3 committed! [1] group=g"], LEAST, "no committed was ok"),
        (ENOUGH[:7], LEAST, "there was no final read"),
        ([*ENOUGH[:8], "9 poll -1:0=5 final"], LEAST, "came to 0 of 1"),
        ([line for line in ENOUGH if line != "1 poll -1:0=5"], LEAST, "inside a fault"),
        ([line.split(" effects")[0] for line in ENOUGH], LEAST, "no effect of kill"),
    ],
)
def test_too_little(lines: list[str], least: Vacuity, reason: str) -> None:
    """JEP-87: each rule by itself makes a run inconclusive."""
    if "came to" in reason:
        # What the final read missed must not be known otherwise: then it is lost.
        lines = [line.replace("+1:6@1", "") for line in lines]
        lines.insert(3, "3 send? +1:6@?")
        lines.insert(4, "4 poll -1:1=6")
        least = replace(least, min_acked_values=1)
    found = reasons(lines, least)
    assert len(found) == 1
    assert reason in found[0]


def test_a_topic_that_was_made_again_need_not_be_read_to_its_old_end() -> None:
    """JEP-87. Others must be."""
    lines = [line.replace("+1:6@1", "") for line in ENOUGH[:8]]
    lines[3:3] = ["3 send? +1:6@?", "4 poll -1:1=6"]
    history = Table([*lines, "9 poll -1:0=5 final"]).history
    least = replace(LEAST, min_acked_values=1)
    for keys, state in (({0, 1}, "valid"), ({2, 3}, "inconclusive")):
        expected = Expectations(vacuity=least, recreated_keys=frozenset(keys))
        assert check(history, expected).state == state


def test_the_audit_must_have_read_every_replica() -> None:
    """JEP-87, JEP-11."""
    table = Table(["log 1/1* 0=5 1=6", "log 1/2 0=5 1=6", "replicas 1=3"])
    (reason,) = reasons(ENOUGH, LEAST, table.expectations.audit)
    assert reason == "the audit read 2 of 3 replicas of key 1"


def test_a_bad_run_is_bad_however_little_it_did() -> None:
    lines = ["0 send! +1:5@0 tx", "1 poll -1:0=5"]
    verdict = check(Table(lines).history, Expectations())
    assert verdict.state == "invalid"
    assert verdict.reasons


def test_a_search_without_an_end_is_inconclusive() -> None:
    """JEP-82: also where nobody asks whether enough happened."""
    lines = ['0 md_create {"topic":"t","value":0}']
    lines += [f'{number} ( md_write {{"topic":"t","value":{number}}}' for number in range(1, 9)]
    lines += [f"{number} )" for number in range(1, 9)]
    lines += ['0 md_read {"topic":"t"} -> {"topic":"t","exists":True,"value":99}']
    expected = Expectations(vacuity=None, search_limit_steps=100)
    verdict = check(Table(lines).history, expected)
    assert verdict.state == "inconclusive"
    assert verdict.reasons == ("whether topic t is linearizable took too long to find out",)
    times = iter(range(0, 10**9, 10**6))
    hasty = replace(expected, search_limit_steps=10**9, search_limit_ns=10**6)
    assert check(Table(lines).history, hasty, times.__next__).state == "inconclusive"


def test_a_flood_is_counted_and_cut() -> None:
    count = MAX_LISTED + 20
    lines = [f"{number} send! +1:{number}@?" for number in range(count)]
    lines += [f"{count + number} poll -1:{number}={number}" for number in range(count)]
    verdict = check(Table(lines).history, Expectations(vacuity=None))
    assert verdict.statistics["anomalies"]["G1a"] == count
    assert sum(1 for anomaly in verdict.anomalies if anomaly.name == "G1a") == MAX_LISTED


def test_every_ack_says_offset_0() -> None:
    """F8: a broker that answers with a default. One finding for the offset, one for each value."""
    count = 3_000
    lines = [f"0 send +1:{value}@0" for value in range(count)]
    lines.append("1 poll -1:" + ",".join(f"{value}={value}" for value in range(count)))
    verdict = check(Table(lines).history, Expectations(vacuity=None))
    counts = verdict.statistics["anomalies"]
    assert counts["inconsistent-offsets"] == 1
    # Value 0 is at offset 0 for good, and no other is twice anywhere else.
    assert counts["duplicate"] == count - 1
    assert "duplicate-nonzero" not in counts
    (found,) = (anomaly for anomaly in verdict.anomalies if anomaly.id == "A1")
    assert found.text.endswith(f"the values 0, 1, 2, 3, 4, 5, 6, 7 and {count - 8} more")
