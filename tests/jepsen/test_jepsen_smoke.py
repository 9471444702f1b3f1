"""One run of the process suite: three nodes, a leader that is cut off, nodes that are killed.

Only what must never happen is held against it, and that something happened at all: how quick the
machine is decides nothing here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jepsen_tests.cli import main
from jepsen_tests.clients.table import find_clients
from jepsen_tests.nemeses import nemesis_of
from jepsen_tests.run import RunOptions, perform
from kraftpy.verify.history import read_history
from kraftpy.verify.workloads.catalogue import find_workload

pytestmark = [pytest.mark.compat, pytest.mark.slow, pytest.mark.timeout(1200)]

SEED = 8


class Silence:
    """A RunEvents."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def tick(self, seconds: float, counts: dict[str, int]) -> None:
        pass


async def test_a_run_under_faults_is_safe(tmp_path: Path) -> None:
    """JEP-10, JEP-11, T-commit's smoke: two client libraries, transactions, two nemeses."""
    events = Silence()
    options = RunOptions(
        find_workload("queue-txn"),
        nemesis_of(["isolate-leader", "kill"]),
        tuple(find_clients(["own", "librdkafka"])),
        tmp_path,
        seconds=20,
        seed=SEED,
        network="proxy",
        rate=40,
        slots=4,
        quiet_seconds=0,
        recovery_seconds=1,
        final_read_seconds=600,
        heal_seconds=300,
        in_sync_seconds=300,
        least_kinds=("send", "poll", "txn"),
    )
    print(options.command)
    outcome = await perform(options, events)
    assert outcome.error is None
    assert outcome.verdict is not None
    assert outcome.verdict.bad == ()
    # Not vacuous: clients did something, and so did the nemesis.
    done = [each for each in outcome.history.operations if each.type == "ok"]
    assert {"send", "poll", "txn"} <= {each.f for each in done}
    struck = [each.value for each in outcome.history.nemesis_events if each.value.get("faults")]
    assert {each["name"] for each in struck} <= {"isolate-leader", "kill"}
    assert struck
    assert list(dict.fromkeys(events.phases)) == [
        "boot",
        "main",
        "heal",
        "recovery",
        "drain",
        "final read",
        "audit",
    ]
    with outcome.history_path.open("rb") as stream:
        assert read_history(stream).events == outcome.history.events


def test_a_wrong_command_line_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in [
        (["--workload", "W99"], "there is no workload 'W99'"),
        (["--workload", "W1", "--nemesis", "minority-third"], "needs 4 nodes: run it with --nodes"),
        (
            ["--workload", "W1", "--nemesis", "hold", "--network", "namespaces"],
            "hold needs the proxy: run it with --network proxy",
        ),
        (["--workload", "W1", "--nemesis", "versions"], "versions needs another version: name it"),
        (["--workload", "W1", "--nemesis", "flood"], "'flood' is no nemesis"),
        (["--workload", "W1", "--client", "telnet"], "there is no client 'telnet'"),
        (["--workload", "W1", "--time", "0"], "--time and --rate"),
        (["--workload", "W1", "--slots", "2"], "--slots at least 3"),
    ]:
        with pytest.raises(SystemExit) as ended:
            main(["run", *words])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err
