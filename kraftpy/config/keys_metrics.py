"""Metrics and their reporters."""

from __future__ import annotations

from typing import Final

from kraftpy.config.checks import at_least, distinct
from kraftpy.config.table import CLUSTER_WIDE, INT, LIST, LONG, LOW, METRICS, STRING, define

__all__ = ["KEYS"]

# A table, kept to three lines a key.
# fmt: off
KEYS: Final = (
    define("metric.reporters",
           "Classes that are given the metrics.",
           LIST, ("org.apache.kafka.common.metrics.JmxReporter",), LOW, distinct(empty=True),
           CLUSTER_WIDE, no_effect=METRICS),
    define("metrics.num.samples",
           "Samples over which a rate is computed.",
           INT, 2, LOW, at_least(1)),
    define("metrics.sample.window.ms",
           "Length of one of these samples.",
           LONG, 30_000, LOW, at_least(1)),
    define("metrics.recording.level",
           "How detailed the metrics are: INFO, DEBUG or TRACE.",
           STRING, "INFO", LOW),
    define("kafka.metrics.reporters",
           "Classes that are given the older kind of metrics.",
           LIST, (), LOW, distinct(empty=True), no_effect=METRICS),
    define("kafka.metrics.polling.interval.secs",
           "Pause between two reports of these.",
           INT, 10, LOW, at_least(1), no_effect=METRICS),
)
