"""How a job fails: one message that says what is wrong and what to do next."""

from __future__ import annotations

import re

from kraftpy_spark.exactly_once import (
    DigestMismatch,
    MarkAhead,
    MarkLost,
    PlanChanged,
    TooManyRuns,
)
from kraftpy_spark.options import OptionMistake
from kraftpy_spark.topics import DataLoss, TopicMissing, Unreachable

__all__ = ["EXPLAINED", "SLOW_START", "JobFailed", "explained_by_spark"]

_LOST = (
    "Records were deleted (retention, or a topic made anew) before they were read. To go on without"
    " them, add --option failOnDataLoss=false; `kraftpy-ingest audit` lists what is missing."
)
_NO_CONNECTOR = (
    "Spark's Kafka connector is not there: `make spark-jars` fetches its jars and --jars takes"
    " them; or read with --source-format kraftpy, which needs none."
)
SLOW_START = "Python worker failed to connect back"
# What Spark's failures contain, and what to do then.
_HINTS = {
    "Partition offset was changed": _LOST,
    "ome data may have been lost": _LOST,
    "offsets are out of range": _LOST,
    "UnknownTopicOrPartition": "A topic is gone; `kraftpy topics list` shows what there is.",
    "data source: kafka": _NO_CONNECTOR,
    SLOW_START: "Spark gives a process of Python ten seconds to start: PYSPARK_PYTHON names another"
    " interpreter, or the machine is too busy.",
}


class JobFailed(Exception):  # noqa: N818 (it names what happened)
    """The job can't go on; the message is for the person at the terminal."""


EXPLAINED = (
    *(JobFailed, OptionMistake, Unreachable, TopicMissing, DataLoss),
    *(DigestMismatch, MarkAhead, MarkLost, PlanChanged, TooManyRuns),
)
"""Failures whose words are enough for a person."""
_NAMED = re.compile(
    rf"^(?:\w+\.)*(?:{'|'.join(each.__name__ for each in EXPLAINED)}): (.*)$", re.MULTILINE
)


def explained_by_spark(error: Exception) -> JobFailed:
    """Spark's failures have pages. One of ours among them says it all; otherwise the first line
    says what, and a hint what to do.
    """
    text = str(error)
    ours = _NAMED.search(text)
    if ours is not None:
        return JobFailed(ours[1])
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    for mark, hint in _HINTS.items():
        if mark in text:
            return JobFailed(f"{first}\n{hint}")
    return JobFailed(first)
