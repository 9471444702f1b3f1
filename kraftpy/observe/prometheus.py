"""The registry as text in Prometheus' exposition format.

| metric | becomes |
| --- | --- |
| Counter, Meter | `<name>_total`, less the `PerSec` of Kafka's name: Prometheus makes the rates |
| Gauge | `<name>` |
| Histogram | a summary: `<name>{quantile="…"}`, `<name>_count`, `<name>_sum` |
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kraftpy.observe.metrics import (
    QUANTILES,
    Counter,
    Gauge,
    Histogram,
    Meter,
    Metric,
    MetricName,
    MetricRegistry,
    Tags,
)

__all__ = ["CONTENT_TYPE", "exposition", "exposition_pieces"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def exposition(registry: MetricRegistry) -> str:
    """Every metric, grouped by family as the format demands."""
    return "".join(exposition_pieces(registry))


def exposition_pieces(registry: MetricRegistry) -> Iterator[str]:
    """The same in pieces, some of them empty, each a tenth of a millisecond of work at most:
    whoever serves others too pauses in between. A node may have thousands of metrics.
    """
    families: dict[tuple[str, str], list[tuple[MetricName, Metric]]] = {}
    for name, metric in registry.unsorted():
        families.setdefault(_family(name, metric), []).append((name, metric))
        yield ""
    for (family, kind), members in sorted(families.items(), key=lambda item: item[0]):
        yield f"# TYPE {family} {kind}\n"
        for name, metric in members:
            yield "".join(f"{line}\n" for line in _samples(family, name.tags, metric))


def _family(name: MetricName, metric: Metric) -> tuple[str, str]:
    match metric:
        case Counter() | Meter():
            return name.prometheus.removesuffix("persec").removesuffix("_total") + "_total", (
                "counter"
            )
        case Gauge():
            return name.prometheus, "gauge"
        case Histogram():
            return name.prometheus, "summary"


def _samples(family: str, tags: Tags, metric: Metric) -> list[str]:
    match metric:
        case Counter() | Meter():
            return [f"{family}{_labels(tags)} {_number(metric.count)}"]
        case Gauge():
            return [f"{family}{_labels(tags)} {_number(metric.read())}"]
        case Histogram():
            values = zip(QUANTILES, metric.quantiles(), strict=True)
            return [
                f"{family}{_labels((*tags, ('quantile', str(quantile))))} {_number(value)}"
                for quantile, value in values
            ] + [
                f"{family}_count{_labels(tags)} {_number(metric.count)}",
                f"{family}_sum{_labels(tags)} {_number(metric.sum)}",
            ]


def _labels(tags: Tags) -> str:
    if not tags:
        return ""
    inside = ",".join(f'{_label_name(key)}="{value.translate(_ESCAPES)}"' for key, value in tags)
    return "{" + inside + "}"


def _label_name(key: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in key.lower())


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
