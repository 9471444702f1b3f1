"""The page of a run: complete in itself, escaped, readable at any size, and true to the history."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from jepsen_tests.report import summary_table, write_report
from jepsen_tests.report.drawing import ticks
from jepsen_tests.report.facts import BINS, facts_of
from jepsen_tests.report.orders import conflicts_of
from kraftpy.verify.checkers import Anomaly, Verdict
from kraftpy.verify.history import Event, History, Recorder

SECOND = 1_000_000_000
EVIL = "</script><script>alert('1')</script>&\"'<img src=x onerror=alert(2)>"
RUN: dict[str, Any] = {
    "workload": "queue-assign",
    "nemesis": ["kill", "partition"],
    "seed": 7,
    "command": f"python -m jepsen_tests run --seed 7 # {EVIL}",
    "note": EVIL,
}


class Story:
    """A history with a clock in the test's hand."""

    def __init__(self) -> None:
        self.now = SECOND
        self.recorder = Recorder(lambda: self.now)
        self._process = 0

    def operation(self, f: str, value: Any, outcome: str, result: Any = None, ms: float = 5) -> int:
        self._process += 1
        invocation = self.recorder.invoke(self._process, f, value)
        self.now += int(ms * 1_000_000)
        if outcome == "ok":
            invocation.ok(result)
        elif outcome == "fail":
            invocation.fail(EVIL, result)
        else:
            invocation.info(EVIL, result)
        return invocation.event.index

    def send(self, key: int, value: int, offset: int | None, outcome: str = "ok") -> int:
        result = [["send", key, [offset, value]]] if outcome == "ok" else None
        return self.operation("send", [["send", key, value]], outcome, result)

    def poll(self, key: int, records: list[list[int]]) -> int:
        return self.operation("poll", [["poll"]], "ok", [["poll", {key: records}]])

    def wait(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    def history(self, **run: Any) -> History:
        return self.recorder.history(run)


class Page(HTMLParser):
    """What a browser would see of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def written(tmp_path: Path, history: History, verdict: Verdict) -> str:
    path = tmp_path / "report.html"
    write_report(path, history, verdict, RUN)
    return path.read_text()


def eventful() -> tuple[History, Verdict]:
    story = Story()
    story.recorder.nemesis({"name": EVIL, "phase": "start"})
    first = story.send(1, 10, 0)
    story.poll(1, [[0, 10]])
    story.send(2, 11, None, "info")
    story.send(2, 12, None, "fail")
    story.wait(3)
    end = {"name": EVIL, "phase": "end", "faults": [EVIL], "effects": [EVIL]}
    story.recorder.nemesis(end)
    anomaly = Anomaly("A1", "lost-write", (first,), EVIL, 1)
    timeline = [[SECOND, f"events-{EVIL}", 1, 0, [1, 2, 3]], [SECOND, "controller", -1, 1, []]]
    history = story.history(timeline=timeline)
    return history, Verdict("invalid", (anomaly,), (EVIL,), {"figure": EVIL})


def test_nothing_is_loaded_from_outside(tmp_path: Path) -> None:
    """JEP-88"""
    text = written(tmp_path, *eventful())
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "href", "action", "xlink:href"} & attributes.keys()
    assert "http" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_what_comes_from_the_run_is_escaped(tmp_path: Path) -> None:
    """Names of faults, effects, errors, anomalies, facts: none of them becomes markup."""
    text = written(tmp_path, *eventful())
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert EVIL in page.text
    copied = [attributes["data-copy"] for _, attributes in page.tags if "data-copy" in attributes]
    assert copied == [RUN["command"]]


def test_the_charts_are_well_formed(tmp_path: Path) -> None:
    """JEP-88: faults, rates, latency, availability, leaders, readers."""
    text = written(tmp_path, *eventful())
    charts = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    labels = [ET.fromstring(chart).get("aria-label") for chart in charts]
    assert labels == [
        "Faults over time",
        "Operations a second, by outcome",
        "Latency of operations, by outcome",
        "Times without a write, by key",
        "Leaders over time",
        "Acknowledged values not read yet, and lag of readers",
    ]


def test_an_anomaly_shows_the_operations_that_are_involved(tmp_path: Path) -> None:
    history, verdict = eventful()
    text = Page(written(tmp_path, history, verdict)).text
    assert "lost-write" in text
    assert "p1 invoke send [['send', 1, 10]]" in text
    assert "p1 ok     send [['send', 1, [0, 10]]]" in text


def test_an_empty_run_has_a_page_too(tmp_path: Path) -> None:
    text = written(tmp_path, Story().history(), Verdict("inconclusive", (), ("nothing happened",)))
    assert "nothing happened" in Page(text).text


def test_a_hundred_thousand_operations_make_a_small_page(tmp_path: Path) -> None:
    """It is put together in tiles; a page that grew with the run could not be opened."""
    events = []
    for number in range(100_000):
        key, at = number % 10, number * 1_000_000
        value = [["send", key, [number // 10, number]]]
        events.append(Event(2 * number, at, key, "invoke", "send", [["send", key, number]]))
        events.append(Event(2 * number + 1, at + number * 7 % 999_999, key, "ok", "send", value))
    text = written(tmp_path, History(events, {}), Verdict("valid"))
    assert len(text) < 2_000_000
    assert "100,000" in Page(text).text


def test_latencies_rates_and_counts() -> None:
    story = Story()
    for milliseconds in (1, 10, 100):
        story.operation("send", [], "ok", [], ms=milliseconds)
    story.operation("txn", [], "fail", [])
    story.operation("txn", [], "info", [])
    facts = facts_of(story.history())
    assert facts.counts == {"send": {"ok": 3}, "txn": {"fail": 1, "info": 1}}
    assert {name: sum(bins) for name, bins in facts.rates.items()} == {
        "ok": 3,
        "fail": 1,
        "info": 1,
    }
    assert facts.quantiles["p50"] == pytest.approx(10)
    assert facts.quantiles["max"] == pytest.approx(100)
    assert (facts.total, facts.ok) == (5, 3)


def test_a_gap_is_a_time_in_which_a_write_was_tried_in_vain_or_waited() -> None:
    """JEP-88: not one in which nobody wrote."""
    story = Story()
    story.send(1, 1, 0)
    story.send(2, 1, 0)
    story.wait(5)
    story.send(2, 2, 1)
    assert facts_of(story.history()).gaps == []
    story.send(1, 2, None, "fail")
    story.wait(2)
    story.send(1, 3, 1)
    [tried] = facts_of(story.history()).gaps
    assert (tried.key, tried.start, tried.end) == pytest.approx((1, 5.015, 7.025))
    value = [["send", 2, [2, 3]]]
    story.operation("send", [["send", 2, 3]], "ok", value, ms=1_500)
    [_, waited] = facts_of(story.history()).gaps
    assert (waited.key, waited.start, waited.end) == pytest.approx((2, 7.025, 8.525))


def test_unseen_values_and_the_lag_of_readers() -> None:
    """JEP-88"""
    story = Story()
    story.send(1, 10, 0)
    story.send(1, 11, 1)
    story.wait(10)
    story.poll(1, [[0, 10]])
    story.wait(10)
    story.poll(1, [[1, 11]])
    facts = facts_of(story.history())
    assert facts.acked == 2
    assert facts.unseen[BINS // 4] == 2
    assert facts.unseen[3 * BINS // 4] == 1
    assert facts.unseen[-1] == 0
    assert max(facts.lag) == pytest.approx(10, abs=0.1)


def test_bands_of_faults_pair_starts_and_ends() -> None:
    story = Story()
    story.recorder.nemesis({"name": "kill", "phase": "start"})
    story.wait(1)
    story.recorder.nemesis({"name": "pause", "phase": "start"})
    story.wait(1)
    story.recorder.nemesis({"name": "kill", "phase": "end", "faults": ["kill node=1"]})
    story.recorder.nemesis({"name": "hold", "phase": "start"})
    story.recorder.nemesis({"name": "hold", "phase": "end", "skipped": "no proxy"})
    story.wait(1)
    story.send(1, 1, 0)
    bands = {band.name: band for band in facts_of(story.history()).bands}
    assert (bands["kill"].start, bands["kill"].end) == (0, 2)
    assert bands["kill"].note == ""
    assert bands["hold"].note == "no proxy"
    assert bands["pause"].end == pytest.approx(3.005)
    assert "no end" in bands["pause"].note


def test_reigns_of_leaders_follow_each_other() -> None:
    story = Story()
    story.send(1, 0, 0)
    story.wait(9.99)
    story.send(1, 1, 1)
    samples = [[SECOND, "t-0", 1, 0, [1, 2]], [5 * SECOND, "t-0", 2, 1, [2]]]
    first, second = facts_of(story.history(timeline=samples)).reigns["t-0"]
    assert (first.leader, first.start, first.end) == (1, 0, 4)
    assert (second.leader, second.epoch, second.isr) == (2, 1, (2,))
    assert second.end == pytest.approx(10.0)


def test_conflicting_offsets_are_found_and_shown(tmp_path: Path) -> None:
    """Section 10.2: the order chart of a key, with conflicting values marked."""
    story = Story()
    story.send(1, 10, 0)
    story.poll(1, [[0, 10], [1, 11]])
    index = story.poll(1, [[0, 10], [1, 99]])
    story.poll(2, [[1, 99]])
    history = story.history()
    assert conflicts_of(history.operations, 1) == [1]
    assert conflicts_of(history.operations, 2) == []
    verdict = Verdict("invalid", (Anomaly("A9", "inconsistent-offset", (index,), "two", 1),))
    text = written(tmp_path, history, verdict)
    assert "Order of key 1" in text
    assert text.count("<td class=conflict>") == 2


def test_ticks_are_round_and_not_too_many() -> None:
    assert ticks(0, 60, 10) == [0, 10, 20, 30, 40, 50, 60]
    assert ticks(0, 1, 4) == pytest.approx([0, 0.5, 1])
    assert all(len(ticks(0, span, 10)) <= 11 for span in (0.1, 1, 7, 33, 300, 86_400))


def test_the_table_for_the_terminal() -> None:
    history, verdict = eventful()
    lines = summary_table([(history, verdict, RUN)]).splitlines()
    assert lines[0].split() == [
        *("workload", "nemesis", "seed", "verdict"),
        *("ops", "ok", "acked", "p50", "p99", "faults", "bad"),
    ]
    assert lines[2].split()[:5] == ["queue-assign", "kill,", "partition", "7", "invalid"]
    assert any("A1 lost-write" in line for line in lines[3:])
