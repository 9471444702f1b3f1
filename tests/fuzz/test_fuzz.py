"""The fuzzers as commands, in short: `make fuzz` and the nightly tier have them for longer."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import fuzz
import pytest
import targets
from fuzz import main
from mutation import mutate
from targets import TARGETS, Target

SEED = 156
FEW = {"messages": 400, "batches": 200, "segments": 40, "metadata": 30}


@pytest.mark.parametrize("name", ["messages", "batches"])
def test_decoders_take_anything(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """JEP-156: one declared error, or what can be written again; damage is noticed."""
    words = ["--target", name, "--cases", str(FEW[name]), "--seed", str(SEED)]
    assert main(words) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", ["segments", "metadata"])
def test_files_are_opened_or_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """JEP-157: and nothing is given out that nobody wrote."""
    words = ["--target", name, "--cases", str(FEW[name]), "--seed", str(SEED)]
    assert main(words) == 0, capsys.readouterr().out


def test_a_failure_is_had_again_by_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """JEP-156, JEP-157: whatever is not declared is a failure."""

    async def seldom(random: Random) -> None:
        if random.random() < 0.05:
            raise ZeroDivisionError("by chance")

    monkeypatch.setattr(fuzz, "TARGETS", (Target("seldom", "fails by chance", seldom),))
    assert main(["--cases", "200", "--seed", "5", "--format", "json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert len(facts["failures"]) == fuzz.MOST_FAILURES
    number = facts["failures"][0]["case"]
    assert main(["--seed", "5", "--first-case", str(number), "--cases", "1"]) == 1
    assert f"--target seldom --seed 5 --first-case {number} --cases 1" in capsys.readouterr().out
    assert main(["--seed", "5", "--first-case", str(number + 1), "--seconds", "1e-9"]) == 0


def test_a_wrong_target_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "moon"]) == 2
    assert "there is no target 'moon'" in capsys.readouterr().err
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(TARGETS)


def raising(error: Exception) -> Callable[..., object]:
    def fail(*words: object) -> object:
        raise error

    return fail


@pytest.mark.parametrize(
    ("name", "function"), [("messages", "decode"), ("batches", "walk_batches")]
)
def test_an_error_that_is_not_declared_is_found(
    name: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JEP-156"""
    monkeypatch.setattr(targets, function, raising(IndexError("out of range")))
    assert main(["--target", name, "--cases", "1", "--seed", "1"]) == 1


def test_mutants_differ_and_come_from_the_seed() -> None:
    sample = bytes(range(200))
    made = [mutate(Random(seed), sample, [b"other"]) for seed in range(50)]
    assert made == [mutate(Random(seed), sample, [b"other"]) for seed in range(50)]
    assert sum(each != sample for each in made) > 45
