"""kraftpy sim: what people see of the simulators."""

from __future__ import annotations

import json
import re

import pytest

from kraftpy.cli.main import main
from kraftpy.cli.sim import _LEVELS
from kraftpy.sim import levels
from kraftpy.sim.levels import LEVELS, Level, SeedReport, Size

QUORUM = ["--level", "quorum", "--events", "2000"]


def test_the_levels_of_the_command_are_those_there_are() -> None:
    """Named twice, since `--help` imports no simulator."""
    assert [level.name for level in LEVELS] == list(_LEVELS)


@pytest.mark.parametrize("level", [each for each in _LEVELS if each not in ("whole", "quorum")])
def test_every_level_has_runs(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sim", "run", "--seeds", "1", "--events", "60", "--level", level]
    assert main(arguments) == 0
    assert "1 of 1 seeds" in capsys.readouterr().out


def test_seeds_run_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "run", "--seeds", "3", "--first-seed", "5", *QUORUM]) == 0
    printed = capsys.readouterr().out
    assert "3 of 3 seeds" in printed
    # JEP-150: by the processor's own time.
    assert re.search(r"simulated hours \([\d,]+ times real time\)", printed)
    assert "0 failed" in printed


def test_a_line_of_json_for_each_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "run", "--seeds", "2", "--format", "json", *QUORUM]) == 0
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["seed"], each["level"], each["code"]) for each in reports] == [
        (0, "quorum", None),
        (1, "quorum", None),
    ]


def test_two_processes_find_what_one_finds(capsys: pytest.CaptureFixture[str]) -> None:
    """JEP-140: a seed's digest hangs on nothing else."""
    digests = []
    for jobs in ("1", "2"):
        arguments = ["sim", "run", "--seeds", "3", "--jobs", jobs, "--format", "json", *QUORUM]
        assert main(arguments) == 0
        lines = capsys.readouterr().out.splitlines()
        digests.append({each["seed"]: each["digest"] for each in map(json.loads, lines)})
    assert digests[0] == digests[1]


def test_a_replay_ends_with_the_digest(capsys: pytest.CaptureFixture[str]) -> None:
    """JEP-147: the same run again, and its events in words."""
    assert main(["sim", "run", "--seeds", "1", "--format", "json", *QUORUM]) == 0
    digest = json.loads(capsys.readouterr().out)["digest"]
    assert main(["sim", "replay", "0", "--until", "700", *QUORUM]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == digest
    assert len(lines) == 100 + 3
    assert main(["sim", "replay", "0", "--trace", "nowhere-to-be-found", *QUORUM]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def failing(seed: int, size: Size, window: range) -> SeedReport:
    """Of a run with more than 300 events, the 301st is wrong."""
    events = min(size.events or 1_000, 301)
    code = "something-wrong" if events == 301 else None
    return SeedReport("quorum", seed, code, "it was wrong", events, events, 1.0, 1.0, "d")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    level = Level("quorum", "", Size(events=1_000), failing)
    others = [each for each in LEVELS if each.name != "quorum"]
    monkeypatch.setattr(levels, "LEVELS", (level, *others))


@pytest.mark.usefixtures("broken")
def test_a_failure_is_shown_with_the_way_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    """JEP-165: one line replays it."""
    assert main(["sim", "run", "--seeds", "2", "--level", "quorum"]) == 1
    printed = capsys.readouterr().out
    assert "seed 1 failed: something-wrong" in printed
    assert "kraftpy sim replay 1 --level quorum" in printed
    assert "2 failed" in printed
    assert main(["sim", "run", "--seeds", "9", "--level", "quorum", "--fail-fast"]) == 1
    assert "1 of 9 seeds" in capsys.readouterr().out


@pytest.mark.usefixtures("broken")
def test_shrinking_finds_the_least_number_of_events(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "shrink", "0", "--level", "quorum"]) == 1
    printed = capsys.readouterr().out
    assert "something-wrong" in printed
    limit = int(printed.split("--events ")[1])
    assert 301 <= limit <= 310


def test_what_does_not_fail_can_not_be_made_smaller(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "shrink", "0", *QUORUM]) == 0
    assert "nothing to make smaller" in capsys.readouterr().out


@pytest.mark.parametrize("words", ["run --seeds 0", "run --level moon", "replay", "replay x"])
def test_wrong_command_lines(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["sim", *words.split()])
    assert stopped.value.code == 2
    assert "usage" in capsys.readouterr().err
