"""Tiers, what they add up to, and the report of a release: plans, sums and words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jepsen_tests.cli import main
from jepsen_tests.long import tiers
from jepsen_tests.long.drift import LEAST_SAMPLES, Sample, drifts
from jepsen_tests.long.overload import OverloadOutcome, is_recovered
from jepsen_tests.long.release import report
from jepsen_tests.long.soak import SoakOutcome, bytes_in
from jepsen_tests.long.tiers import ROOT, TIERS, Step, StepResult, Tier, perform
from jepsen_tests.long.totals import Totals, shortfalls
from kraftpy.verify.checkers import Verdict

SIMULATED = [
    {"level": level, "seed": 1, "virtual_seconds": virtual, "processor_seconds": own, "code": code}
    for level, virtual, own, code in (
        ("quorum", 7200.0, 2.0, None),
        ("logs", 3600.0, 4.0, "end-lost"),
        ("whole", 1800.0, 60.0, None),
    )
]
RUN = {
    "workload": "bank",
    "operations": {"ok": 90, "fail": 9, "info": 1},
    "anomalies": [{"name": "lost-write", "bad": True}, {"name": "G0", "bad": False}],
}
POWER = {"kind": "power", "cycles": 40, "bad": []}


@pytest.mark.parametrize("tier", TIERS.values(), ids=lambda each: each.name)
def test_the_steps_of_a_tier_fit_into_its_budget(tier: Tier) -> None:
    """JEP-164: ten minutes for a commit, eight hours for a night, thirty for a week."""
    assert sum(step.seconds for step in tier.steps) <= tier.budget_seconds
    assert len({step.name for step in tier.steps}) == len(tier.steps)
    hours = {"commit": 1 / 6, "night": 8, "week": 30}
    if tier.name in hours:
        assert tier.budget_seconds == hours[tier.name] * 3600
    for step in tier.steps:
        words = step.command(1.0, 5)
        script = words[1]
        assert script == "-m" or (ROOT / script).exists(), words
        assert not any("{" in word for word in words)


def test_a_night_asks_for_what_is_promised() -> None:
    """JEP-151: seeds and simulated hours; JEP-153: losses of power."""
    asked = TIERS["night"].asked
    assert (asked["kernel_seeds"], asked["whole_seeds"]) == (20_000, 700)
    assert (asked["kernel_hours"], asked["whole_hours"]) == (4_000, 120)
    cycles = [step.count for step in TIERS["night"].steps if step.name.startswith("power")]
    assert sum(cycles) == asked["power_cycles"] == 200


def test_totals_are_added_up_from_what_steps_print() -> None:
    """JEP-151: lines of JSON, lists and words between them; failures by their names.

    JEP-150: how much simulated time a processor does in its own.
    """
    lines = "\n".join(json.dumps(each) for each in SIMULATED)
    totals = Totals.of(
        [
            StepResult("sim", (), 1, 60.0, lines),
            StepResult("run", (), 0, 30.0, json.dumps([RUN, RUN], indent=2)),
            StepResult("power", (), 0, 5.0, "words\n" + json.dumps(POWER) + "\nmore words"),
            StepResult("late", (), None, 9.0, ""),
        ]
    )
    assert (totals.kernel_seeds, totals.kernel_hours) == (2, 3.0)
    assert (totals.whole_seeds, totals.whole_hours) == (1, 0.5)
    assert (totals.runs, totals.operations, totals.power_cycles) == (2, 200, 40)
    assert totals.anomalies == {"end-lost": 1, "lost-write": 2}
    assert totals.failures == ["sim: ended with code 1", "late: not over in time"]
    assert totals.seconds == 104.0
    assert (totals.kernel_speed, totals.whole_speed) == (1_800.0, 30.0)
    assert shortfalls(totals, {"kernel_seeds": 4, "runs": 2}, 0.5) == []
    assert shortfalls(totals, {"kernel_seeds": 4, "runs": 2}, 1.0) == [
        "short of kernel seeds: 2.0 of 4.0"
    ]


async def test_a_step_that_is_not_over_in_time_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JEP-164: what it has done counts, and the next one has its turn all the same."""
    monkeypatch.setattr(tiers, "_GRACE_SECONDS", 5.0)
    power = '{{"kind": "power", "cycles": 4, "bad": []}}'
    for_ever = f"import time; print('{power}', flush=True); time.sleep(600)"
    steps = (
        Step("for-ever", ("-c", for_ever), 0.0),
        Step("quick", ("-c", 'print(\'{{"kind": "power", "cycles": 3, "bad": []}}\')'), 60),
    )
    tier = Tier("try", 60, steps, {})
    totals = await perform(tier, steps, tmp_path, scale=1.0, seed=7)
    assert totals.failures == ["for-ever: not over in time"]
    assert totals.power_cycles == 7
    kept = json.loads((tmp_path / "totals.json").read_text())
    assert (kept["tier"], kept["seed"], kept["power_cycles"]) == ("try", 7, 7)
    assert '"cycles": 4' in (tmp_path / "for-ever.out").read_text()
    assert (tmp_path / "quick.out").read_text().startswith("{")


def test_a_part_of_a_night_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JEP-151: one of its steps for a second, from a command to its totals and a report; JEP-150:
    with the commit, and how fast its simulations are.
    """
    words = ["tier", "night", "--only", "sim-requests", "--scale", "1e-4", "--seed", "3"]
    assert main([*words, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert "tier night: 1 of 1, sim-requests: good after" in printed.err
    kept = json.loads((tmp_path / "totals.json").read_text())
    assert kept["kernel_seeds"] >= 1
    assert f"L2: {kept['kernel_seeds']} seeds" in printed.out
    assert kept["kernel_speed"] > 0
    assert kept["whole_speed"] == 0
    assert f"{kept['kernel_speed']:,.0f} times real time" in printed.out
    assert kept["commit"] == tiers.commit()
    assert main(["report", str(tmp_path / "totals.json")]) == 0
    assert f"| L2 seeds | {kept['kernel_seeds']} |" in capsys.readouterr().out


def test_the_report_of_a_release_has_what_is_asked_for() -> None:
    """JEP-171: seeds, hours, runs, operations, what was found and fixed, how soon bugs are."""
    night = {"tier": "night", **Totals(3600.0, 20_000, 4_000.5, 700, 120, 12, 50_000).as_json()}
    night["anomalies"] = {"lost-write": 1}
    night["failures"] = ["run-3-list-append: ended with code 1"]
    text = report([night, night], "v1-3-gabc", ROOT)
    assert "Commit v1-3-gabc; tiers: night; 2 in all." in text
    for line in (
        "| L2 seeds | 40,000 |",
        "| L3 simulated hours | 240 |",
        "| runs on processes | 24 |",
        "| operations in them | 100,000 |",
        "- lost-write: 2",
        "- failed: run-3-list-append: ended with code 1",
    ):
        assert line in text
    assert "MESSAGE_TOO_LARGE" in text
    assert "- simulation: all of " in text
    assert "- processes: " in text
    assert "Nothing." in report([{**night, "anomalies": {}, "failures": []}], "c", ROOT)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tier", "night", "--only", "moon"], "no step has 'moon' in its name"),
        (["tier", "night", "--scale", "0"], "--scale must be more than 0"),
        (["power", "--cycles", "0"], "--cycles must be at least 1"),
        (["soak", "--hours", "0"], "--hours and --window must be more than 0"),
        (["soak", "--nemesis", "flood"], "'flood' is no nemesis"),
        (["soak", "--nemesis", "kill,versions"], "versions needs another version"),
        (["soak", "--workload", "queue-txn,flood"], "there is no workload 'flood'"),
        (["overload", "--seconds", "-1"], "--seconds and --measuring must be more than 0"),
        (["report", "/nowhere"], "these are no totals"),
    ],
)
def test_a_wrong_command_line_is_told(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def series(name: str, values: list[float], *, node: int = 1) -> list[Sample]:
    return [Sample(number / 4, {(node, name): value}) for number, value in enumerate(values)]


GIB = float(1 << 30)


@pytest.mark.parametrize(
    ("samples", "found"),
    [
        (series("memory", [GIB * (1 + 0.02 * n / 4) for n in range(40)]), "memory of node 1 grows"),
        (series("memory", [GIB * (1 + 0.004 * n / 4) for n in range(40)]), None),
        # Warm-up is none.
        (series("memory", [GIB * min(1, (n + 1) / 8) for n in range(40)]), None),
        (series("descriptors", [100.0 + 3 * n for n in range(20)]), "descriptors of node 1"),
        (series("descriptors", [100.0, 140, 100, 101, 99, 100, 160, 100, 101, 100, 102]), None),
        (series("disk", [GIB + n * GIB / 40 for n in range(20)]), "disk of node 1"),
        (series("p99", [0.020 + 0.002 * n for n in range(20)], node=0), "p99 was"),
        (series("p99", [0.020 + 0.0001 * n for n in range(20)], node=0), None),
    ],
)
def test_what_grows_is_told_from_what_is_noise(samples: list[Sample], found: str | None) -> None:
    """JEP-161: after warm-up, against the limits of section 8.4."""
    told = drifts(samples)
    assert told is not None
    assert (found is None and told == []) or (found is not None and told[0].startswith(found))


def test_a_soak_without_its_faults_is_not_good() -> None:
    """JEP-161: whatever became of the load; each kind has to happen in one of the windows."""
    windows = [
        {"state": "valid", "bad": [], "reasons": [], "faults": {name: 2}}
        for name in ("kill", "pause")
    ]
    assert SoakOutcome(("kill", "pause"), windows).is_good
    assert SoakOutcome((), windows[:0]).is_good
    outcome = SoakOutcome(("kill", "hold"), windows)
    assert (outcome.is_good, outcome.bad, outcome.reasons) == (False, [], ["hold never happened"])
    windows[0]["reasons"] = ["0 values were acked"]
    assert not SoakOutcome(("kill", "pause"), windows).is_good


def test_too_few_windows_say_nothing() -> None:
    """JEP-161"""
    assert drifts(series("memory", [1.0] * (LEAST_SAMPLES - 1))) is None


def test_a_cluster_has_recovered_when_it_is_as_quick_as_before() -> None:
    """JEP-162: within 30 s, and nothing may be lost meanwhile."""
    assert is_recovered(0.049, 0.001)
    assert not is_recovered(0.051, 0.001)
    assert is_recovered(0.19, 0.1)
    assert not is_recovered(0.0, 0.1), "nobody was served at all"
    valid, invalid = Verdict("valid"), Verdict("invalid")

    def outcome(seconds: float | None, verdict: Verdict) -> OverloadOutcome:
        return OverloadOutcome(0.01, 500, 510, 1.0, seconds, [valid, verdict], [])

    assert outcome(30, valid).is_good
    assert not outcome(30.1, valid).is_good
    assert not outcome(None, valid).is_good
    assert not outcome(1, invalid).is_good


def test_a_file_that_is_deleted_meanwhile_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "partition").mkdir()
    (tmp_path / "partition" / "a.log").write_bytes(bytes(7))
    (tmp_path / "partition" / "gone").symlink_to(tmp_path / "nowhere")
    assert bytes_in(str(tmp_path)) == 7
