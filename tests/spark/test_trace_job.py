"""What the ingestion tells of single messages, and how they are found again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kraftpy_spark.jobs.trace_records import Chain, Tag, Trace, is_sampled
from kraftpy_spark.jobs.trace_search import Wanted, chain_text, search
from kraftpy_spark.jobs.traces import BatchFacts, traces_of
from spark.lake_frames import NOON_MS, Topic, click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGE_ID = bytes(range(16))


FACTS = BatchFacts("w", NOON_MS, 100)


def test_what_a_consumer_tells(spark: SparkSession) -> None:
    """PAT-55, PAT-56, PAT-60: every field, with the id that the producer has given the message."""
    headers = [("msgid", MESSAGE_ID), ("order", b"17"), ("retry.attempt", b"\0\0\0\2")]
    decoded = (
        Topic(spark, end=5)
        .frame([click(1)], headers=headers)
        .selectExpr("*", "'rejected' reason", "'no time' explanation")
    )
    [row] = traces_of(decoded, FACTS, "c:9092").collect()
    assert row["key"] == MESSAGE_ID.hex()
    assert Trace.from_json(row["value"]) == Trace(
        side="consumer",
        message_id=MESSAGE_ID.hex(),
        key="k",
        at_ms=NOON_MS,
        duration_ms=100,
        status="failed",
        cluster="c:9092",
        topic="clicks",
        partition=0,
        offset=5,
        address="127.0.0.1",
        client_id=spark.sparkContext.applicationId,
        tags=(Tag("order", "17"), Tag("retry.attempt", "\0\0\0\2")),
        group="w",
        retries=2,
        reason="no time",
    )


def test_what_a_broker_has_stamped_is_told(spark: SparkSession) -> None:
    """PAT-62, as far as readers can know it: when the leader has appended the record."""
    stamped = (
        Topic(spark)
        .frame([click(1)], at_ms=NOON_MS - 7)
        .selectExpr("* EXCEPT (timestampType)", "1 timestampType", "'' reason", "'' explanation")
    )
    [row] = traces_of(stamped, FACTS, "c:9092").collect()
    trace = Trace.from_json(row["value"])
    assert trace.appended_ms == NOON_MS - 7
    assert "appended 2026-11-16 11:59:59.993+00:00" in chain_text(Chain("m", [trace]))


def test_messages_are_found_by_what_is_known_of_them(spark: SparkSession) -> None:
    """PAT-59, PAT-61: with the whole chain, also if one trace of it alone has what is looked for.

    What is in a sample is what the producer's side would have chosen.
    """
    topic = Topic(spark)
    frame = topic.frame([click(number) for number in range(40)]).selectExpr(
        "*", "IF(offset = 3, 'rejected', NULL) reason", "IF(offset = 3, 'no', NULL) explanation"
    )
    ids = [f"clicks-0@{offset}" for offset in range(40)]
    some = traces_of(frame, FACTS, "c:9092", sample_rate=0.5).collect()
    assert [row["key"] for row in some] == [each for each in ids if is_sampled(each, 0.5)]
    rows = traces_of(frame, FACTS, "c:9092").collect()
    read = [Trace.from_json(row["value"]) for row in rows]
    assert [each.message_id for each in read] == ids
    sent = [
        replace(each, side="producer", at_ms=NOON_MS - 40 + at, key=f"user-{at}", group=None)
        for at, each in enumerate(read)
    ]
    sent[7] = replace(sent[7], tags=(Tag("order", "17"), Tag("city", "Ulm")))
    texts = [(each.to_json().encode(),) for each in (*read, *sent)]
    records = spark.createDataFrame([*texts, (b"no trace",), (None,)], "value BINARY")
    for wanted, numbers in (
        (Wanted(message_id="clicks-0@3", status="failed"), [3]),
        (Wanted(key="user-1", from_ms=NOON_MS - 28, to_ms=NOON_MS - 26), [12, 13]),
        (Wanted(key="user", topic="clicks", limit=2), [0, 1]),
        (Wanted(tags=[("order", "17"), ("city", "Ulm")]), [7]),
        (Wanted(tags=[("order", "17"), ("city", "Bonn")]), []),
    ):
        found = search(records, wanted)
        assert [chain.traces for chain in found] == [[sent[at], read[at]] for at in numbers], wanted
    told = chain_text(Chain("clicks-0@3", [sent[3], read[3]])).splitlines()
    assert told[0] == "message clicks-0@3, key user-3"
    assert told[1].startswith("  2026-11-16 11:59:59.963+00:00 sent to clicks-0@3 of c:9092, by (")
    assert "read from clicks-0@3" in told[2]
    assert "failed: no, 100 ms" in told[2]
