"""One HTML page for a run. Whatever comes from the run is escaped: a broker's words are not ours.

The run's facts that are shown in their own places: `command` (how to repeat it), `workload`,
`nemesis`, `client`, `seed`, `nodes`, `network`, `commit`, and `timeline` (see `facts`). The rest is
listed at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from jepsen_tests.report import charts
from jepsen_tests.report.facts import Facts, facts_of
from jepsen_tests.report.orders import conflicts_of, order_table
from jepsen_tests.report.style import SCRIPT, STYLE
from jepsen_tests.report.words import joined, milliseconds
from kraftpy.verify.checkers import Anomaly, Verdict
from kraftpy.verify.history import Event, History, Operation

__all__ = ["render", "write_report"]

# Of one kind; more of them say nothing new.
_MAX_ANOMALIES: Final = 50
_MAX_OPERATIONS: Final = 12
_MAX_TEXT: Final = 2_000
_MAX_ORDERS: Final = 5
_HEADINGS: Final = ("workload", "nemesis", "client", "nodes", "network", "seed", "commit")


def write_report(
    path: str | Path, history: History, verdict: Verdict, run: Mapping[str, Any]
) -> None:
    Path(path).write_text(render(history, verdict, run), encoding="utf-8")


def render(history: History, verdict: Verdict, run: Mapping[str, Any]) -> str:
    shown = History(history.events, {**history.run, **run})
    facts = facts_of(shown)
    title = f"{joined(shown.run.get('workload', 'run'))}: {verdict.state}"
    parts = [
        _header(verdict, shown.run),
        _tiles(facts, verdict),
        _command(shown.run.get("command")),
        _anomalies(shown, verdict),
        *_charts(facts),
        _faults(facts),
        _outcomes(facts),
        _rest(shown.run, verdict),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main><script>{SCRIPT}</script></body></html>\n"
    )


def _header(verdict: Verdict, run: Mapping[str, Any]) -> str:
    words = [f"{key} {joined(run[key])}" for key in _HEADINGS if run.get(key) not in (None, "")]
    reasons = "".join(f"<p>{escape(reason)}</p>" for reason in verdict.reasons)
    return (
        f"<header><h1>{escape(joined(run.get('workload', 'Run')))}</h1>"
        f'<span class="verdict {escape(verdict.state)}">{escape(verdict.state)}</span></header>'
        f"<p>{escape(' · '.join(words))}</p>{reasons}"
    )


def _tiles(facts: Facts, verdict: Verdict) -> str:
    longest = max((gap.end - gap.start for gap in facts.gaps), default=0.0)
    tiles = [
        (f"{facts.total:,}", "operations"),
        (f"{100 * facts.ok / max(facts.total, 1):.1f} %", "ok"),
        (f"{facts.acked:,}", "acknowledged values"),
        (f"{facts.total / facts.seconds:,.0f}/s", f"over {facts.seconds:,.0f} s"),
        (milliseconds(facts.quantiles.get("p50")), "median latency"),
        (milliseconds(facts.quantiles.get("p99")), "99th percentile"),
        (f"{longest:.1f} s", "longest gap of a key"),
        (str(sum(not band.note for band in facts.bands)), "faults"),
        (f"{len(verdict.bad):,}", "bad anomalies"),
    ]
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _command(command: object) -> str:
    if not command:
        return ""
    text = escape(str(command))
    button = f'<button type="button" data-copy="{text}">copy</button>'
    return f'<h2>Again</h2><div class="card repeat"><code>{text}</code>{button}</div>'


def _charts(facts: Facts) -> Iterable[str]:
    outcomes = _legend([(name, name) for name in charts.OUTCOMES])
    nodes = sorted(
        {reign.leader for reigns in facts.reigns.values() for reign in reigns if reign.leader > 0}
    )
    colours = [(f"node{(node - 1) % charts.NODE_COLOURS}", f"node {node}") for node in nodes]
    shaded = "Faults shade all charts below; point at a mark to read what it is."
    sections: Sequence[tuple[str, str, str, Callable[[Facts], str]]] = [
        ("Faults", shaded, "", charts.fault_chart),
        ("Operations", "Completed in each moment, by outcome.", outcomes, charts.rate_chart),
        ("Latency", "From the question to its answer.", outcomes, charts.latency_chart),
        (
            "Availability",
            "Times of a second and longer in which writes of a key were tried and none was ok.",
            "",
            charts.availability_chart,
        ),
        (
            "Leaders, epochs and in-sync replicas",
            "Numbers are leader and epoch; a line beneath says that replicas are missing.",
            _legend(colours),
            charts.leader_chart,
        ),
        (
            "Readers",
            "Acknowledged values that nobody has read yet, and how far readers were behind.",
            "",
            charts.unseen_chart,
        ),
    ]
    for name, text, legend, chart in sections:
        yield f'<h2>{name}</h2><p>{text}</p>{legend}<div class="card">{chart(facts)}</div>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    items = "".join(
        f'<span><i class="{colour}"></i>{escape(name)}</span>' for colour, name in entries
    )
    return f'<div class="legend">{items}</div>' if entries else ""


def _anomalies(history: History, verdict: Verdict) -> str:
    if not verdict.anomalies:
        return "<h2>Anomalies</h2><p>None.</p>"
    operations = {operation.index: operation for operation in history.operations}
    origin = history.events[0].time_ns if history.events else 0
    ordered = sorted(verdict.anomalies, key=lambda each: not each.is_bad)
    rows = "".join(_anomaly(each, operations, origin) for each in ordered[:_MAX_ANOMALIES])
    left = len(ordered) - _MAX_ANOMALIES
    more = f"<p>{left:,} more are in the history's verdict.</p>" if left > 0 else ""
    head = "<tr><th></th><th>anomaly</th><th>key</th><th>what</th></tr>"
    table = f'<div class="card"><table>{head}{rows}</table>{more}</div>'
    return f"<h2>Anomalies</h2>{table}{_orders(history, ordered)}"


def _anomaly(anomaly: Anomaly, operations: Mapping[int, Operation], origin: int) -> str:
    tag = (
        '<span class="tag bad">bad</span>'
        if anomaly.is_bad
        else ('<span class="tag allowed">allowed</span>')
    )
    lines = []
    for index in anomaly.operations[:_MAX_OPERATIONS]:
        operation = operations.get(index)
        if operation is not None:
            lines.append(_event(operation.invoke, origin))
            if operation.completion is not None:
                lines.append(_event(operation.completion, origin))
    involved = ""
    if lines:
        count = len(anomaly.operations)
        body = escape("\n".join(lines))
        involved = f"<details><summary>{count} operations</summary><pre>{body}</pre></details>"
    key = "" if anomaly.key is None else str(anomaly.key)
    name = f"<b>{escape(anomaly.id)}</b> {escape(anomaly.name)}"
    text = escape(_short(anomaly.text))
    return f"<tr><td>{tag}</td><td>{name}</td><td>{key}</td><td>{text}{involved}</td></tr>"


def _orders(history: History, anomalies: Sequence[Anomaly]) -> str:
    """Of keys with an anomaly whose offsets hold different values."""
    parts = []
    keys = dict.fromkeys(each.key for each in anomalies if each.is_bad and each.key is not None)
    for key in list(keys)[:_MAX_ORDERS]:
        conflicts = conflicts_of(history.operations, key)
        if conflicts:
            table = order_table(history.operations, key, conflicts[0])
            parts.append(f'<h2>Order of key {key}</h2><div class="card">{table}</div>')
    return "".join(parts)


def _event(event: Event, origin: int) -> str:
    seconds = (event.time_ns - origin) / 1_000_000_000
    error = f"  error {event.error}" if event.error else ""
    what = f"p{event.process} {event.type:<6} {event.f} {_short(repr(event.value))}"
    return f"{event.index:>7} {seconds:10.3f} s  {what}{error}"


def _faults(facts: Facts) -> str:
    rows = []
    for band in facts.bands:
        done = "<br>".join(f"<code>{escape(each)}</code>" for each in band.faults)
        seen = "<br>".join(escape(each) for each in band.effects)
        note = f'<span class="soft">{escape(band.note)}</span>' if band.note else ""
        rows.append(
            f'<tr><td class="number">{band.start:.1f} s</td><td class="number">{band.end:.1f} s'
            f"</td><td>{escape(band.name)}</td><td>{done}</td><td>{seen}{note}</td></tr>"
        )
    if not rows:
        return ""
    head = (
        "<tr><th>from</th><th>to</th><th>kind</th><th>what was done</th><th>what was seen</th></tr>"
    )
    table = f"<table>{head}{''.join(rows)}</table>"
    return f'<h2>What was done to the cluster</h2><div class="card">{table}</div>'


def _outcomes(facts: Facts) -> str:
    rows = []
    for name, counts in sorted(facts.counts.items()):
        cells = "".join(
            f'<td class="number">{counts[outcome]:,}</td>' for outcome in charts.OUTCOMES
        )
        rows.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    head = "<tr><th>operation</th><th>ok</th><th>fail</th><th>info</th></tr>"
    return f'<h2>Outcomes</h2><div class="card"><table>{head}{"".join(rows)}</table></div>'


def _rest(run: Mapping[str, Any], verdict: Verdict) -> str:
    hidden = ("timeline", "command")
    facts = {key: value for key, value in run.items() if key not in hidden}
    facts |= {f"checked: {key}": value for key, value in verdict.statistics.items()}
    rows = "".join(
        f"<tr><td>{escape(str(key))}</td><td>{escape(_short(joined(value)))}</td></tr>"
        for key, value in facts.items()
    )
    return f'<h2>The run</h2><div class="card"><table>{rows}</table></div>'


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} … ({len(text):,} characters)"
