"""Batches of records into a lake, by real Spark, without a cluster: what becomes of each record."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kraftpy_spark.jobs.compaction import compact_lake
from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LakeFiles, LocalFiles
from kraftpy_spark.jobs.lake_state import Source, Span
from kraftpy_spark.jobs.schema import SchemaMistake
from spark.lake_frames import (
    IDS,
    NOON_MS,
    KeptLetters,
    KeptTraces,
    Topic,
    batch_writer,
    click,
    header_dict,
    lake_rows,
    rules,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000


def test_rows_are_in_the_hour_of_their_events(spark: SparkSession, tmp_path: Path) -> None:
    """The last millisecond of an hour and the first one of the next."""
    topic = Topic(spark)
    times = [NOON_MS - 1, NOON_MS, NOON_MS + HOUR_MS - 1, NOON_MS + HOUR_MS]
    frame = topic.frame([click(number, time) for number, time in enumerate(times)])
    report = batch_writer(spark, tmp_path).write(frame, "w", 0, topic_ids=IDS)
    assert report is not None
    assert (report.records, report.rows, report.bad, report.duplicates) == (4, 4, 0, 0)
    hours = {
        path.parent.relative_to(tmp_path).as_posix()
        for path in tmp_path.glob("event_date=*/event_hour=*/*.parquet")
    }
    assert hours == {f"event_date=2026-11-16/event_hour={hour}" for hour in (11, 12, 13)}
    found = lake_rows(spark, tmp_path, "id", "url", "_topic", "_topic_id", "_partition", "_offset")
    assert found == [(number, f"/{number}", "clicks", "id-1", 0, number) for number in range(4)]


def test_a_batch_that_is_run_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic(spark)
    frame = topic.frame([click(number) for number in range(3)])
    # Nothing hangs on traces.
    writer = batch_writer(spark, tmp_path, traces=KeptTraces(why_lost="nobody listens"))
    report = writer.write(frame, "w", 0, topic_ids=IDS)
    assert report is not None
    assert report.line().endswith("not traced: nobody listens")
    # Also if it were other records: the number alone decides.
    other = topic.frame([click(99)])
    assert writer.write(other, "w", 0, topic_ids=IDS) is None
    assert lake_rows(spark, tmp_path, "id") == [(0,), (1,), (2,)]


BAD = [
    (b"{", "deserialize", "the value is not JSON of the schema"),
    (b"", "deserialize", "the value is not JSON of the schema"),
    (b'{"id": "x"}', "deserialize", "the value is not JSON of the schema"),
    (b'{"id": 1, "at": 1, "url": "\xff"}', "deserialize", "the value is not UTF-8"),
    (None, "rejected", "the record has no value"),
    (b'{"at": 1}', "rejected", "id is required and missing"),
    (b'{"id": 1}', "rejected", "at is no time"),
    (b'{"id": 1, "at": 9223372036854775807}', "rejected", "at is no time"),
    (click(1, NOON_MS + 24 * HOUR_MS + 1), "rejected", "further in the future"),
]


def test_bad_records_become_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """PAT-41, PAT-42, PAT-43: with where they were and why they are here, and the others go on.

    PAT-2: their own headers are as they were. PAT-60: the trace of each says what became of it.
    """
    letters, traces = KeptLetters(), KeptTraces()
    topic = Topic(spark, end=100)
    good = click(7, NOON_MS + 24 * HOUR_MS)
    own = [("own", b"1"), ("msgid", bytes(range(16))), ("own", b"\xff"), ("audit.pid", b"p")]
    frame = topic.frame([*[value for value, _, _ in BAD], good], headers=own)
    writer = batch_writer(spark, tmp_path, letters, traces=traces)
    report = writer.write(frame, "w", 0, topic_ids=IDS)
    assert report is not None
    assert (report.records, report.rows, report.bad) == (len(BAD) + 1, 1, len(BAD))
    assert [(each.offset, each.status) for each in traces.traces] == [
        *((offset, "failed") for offset in range(100, 100 + len(BAD))),
        (100 + len(BAD), "ok"),
    ]
    assert lake_rows(spark, tmp_path, "id") == [(7,)]
    assert len(letters.rows) == len(BAD)
    for offset, ((value, reason, explanation), row) in enumerate(
        zip(BAD, letters.rows, strict=True), 100
    ):
        assert (row["topic"], row["key"], row["value"]) == ("clicks.dlq", b"k", value)
        headers = header_dict(row)
        assert [(each["key"], bytes(each["value"])) for each in row["headers"][: len(own)]] == own
        assert explanation in headers["retry.exception-message"].decode()
        assert headers["dlq.reason"].decode() == reason
        assert headers["retry.origin-topic"] == b"clicks"
        assert headers["retry.origin-partition"] == struct.pack(">i", 0)
        assert headers["retry.origin-offset"] == struct.pack(">q", offset)
        assert headers["retry.origin-timestamp"] == struct.pack(">q", NOON_MS)
        assert headers["retry.attempt"] == struct.pack(">i", 0)


def test_a_letter_that_can_not_be_sent_stops_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    """PAT-45: nothing of the batch counts, and its next attempt does all of it."""
    letters = KeptLetters(fails=True)
    topic = Topic(spark)
    frame = topic.frame([click(1), b"{"])
    writer = batch_writer(spark, tmp_path, letters)
    with pytest.raises(OSError, match="nobody takes letters"):
        writer.write(frame, "w", 0, topic_ids=IDS)
    lake = Lake(LocalFiles(tmp_path))
    assert lake.state().version == -1
    assert not list(tmp_path.glob("event_date=*"))
    letters.fails = False
    writer.write(frame, "w", 0, topic_ids=IDS)
    assert lake_rows(spark, tmp_path, "id") == [(1,)]
    assert len(letters.rows) == 1


def test_without_a_place_for_them_bad_records_stop_the_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = Topic(spark, end=41)
    frame = topic.frame([click(1), b"{"])
    with pytest.raises(JobFailed, match=r"clicks-0 at offset 42: .*\n--dead-letters TOPIC"):
        batch_writer(spark, tmp_path).write(frame, "w", 0, topic_ids=IDS)
    assert Lake(LocalFiles(tmp_path)).state().version == -1


def test_batches_without_a_single_row(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing at all, and nothing good, also behind a comparison that finds nothing to compare."""
    for keys in ((), ("id",)):
        root = tmp_path / str(len(keys))
        letters = KeptLetters()
        writer = batch_writer(spark, root, letters, dedup_keys=keys)
        reports = [
            writer.write(Topic(spark, end=end).frame(values), "w", batch, topic_ids=IDS)
            for batch, (end, values) in enumerate([(0, []), (0, [b"{"]), (1, [click(1)])])
        ]
        counts = [(each.records, each.rows, each.bad) for each in reports if each is not None]
        assert counts == [(0, 0, 0), (1, 0, 1), (1, 1, 0)]
        other = writer.write(Topic(spark).frame([b"{"]), "other", 0, topic_ids=IDS)
        assert other is not None
        assert (other.records, other.rows, other.bad) == (1, 0, 1)
        assert lake_rows(spark, root, "id") == [(1,)]


def test_required_fields_inside_of_others(spark: SparkSession, tmp_path: Path) -> None:
    schema = (
        "id BIGINT, at BIGINT, user STRUCT<name: STRING NOT NULL, city: STRING>,"
        " items ARRAY<STRUCT<sku: STRING NOT NULL>>"
    )
    letters = KeptLetters()
    values = [
        click(0),
        click(1, user={"name": "a"}, items=[{"sku": "x"}, {"sku": "y"}]),
        click(2, user={"city": "b"}),
        click(3, items=[{"sku": "x"}, {}]),
    ]
    batch_writer(spark, tmp_path, letters, schema=schema).write(
        Topic(spark).frame(values), "w", 0, topic_ids=IDS
    )
    assert lake_rows(spark, tmp_path, "id") == [(0,), (1,)]
    said = [header_dict(row)["retry.exception-message"].decode() for row in letters.rows]
    assert said == ["user.name is required and missing", "items[].sku is required and missing"]


def test_late_events_are_kept_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The watermark is that of the batches before; at it, an event is not late."""
    delay = 60_000
    for policy, kept in (("keep", [0, 1, 2]), ("dead-letter", [0, 2])):
        root = tmp_path / policy
        letters = KeptLetters()
        writer = batch_writer(spark, root, letters, watermark_delay_ms=delay, late=policy)
        topic = Topic(spark)
        first = writer.write(topic.frame([click(0)]), "w", 0, topic_ids=IDS)
        frame = topic.frame([click(1, NOON_MS - delay - 1), click(2, NOON_MS - delay)])
        second = writer.write(frame, "w", 1, topic_ids=IDS)
        assert first is not None
        assert second is not None
        assert (first.watermark_ms, first.late) == (None, 0)
        assert (second.watermark_ms, second.late) == (NOON_MS - delay, 1)
        assert lake_rows(spark, root, "id") == [(number,) for number in kept]
        assert len(letters.rows) == 3 - len(kept)


def test_offsets_that_the_lake_has_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """A second writer, as after a lost checkpoint, or a back-fill; a topic made anew is another."""
    writer = batch_writer(spark, tmp_path, KeptLetters())
    writer.write(Topic(spark).frame([click(0), b"{", click(2)]), "w", 0, topic_ids=IDS)
    frame = Topic(spark).frame([click(0), click(1), click(2), click(3)])
    report = writer.write(frame, "again", 0, topic_ids=IDS)
    assert report is not None
    # The bad record of the first time is a good one now.
    assert (report.rows, report.duplicates) == (2, 2)
    assert lake_rows(spark, tmp_path, "id") == [(0,), (1,), (2,), (3,)]
    wanted = {Source("clicks", "id-1", 0): Span(2, 3)}
    report = writer.write(
        Topic(spark, end=2).frame([click(2), click(3)]), "fill", 0, topic_ids=IDS, wanted=wanted
    )
    assert report is not None
    assert report.rows == 0
    anew = Topic(spark).frame([click(100)])
    writer.write(anew, "again", 1, topic_ids={"clicks": "id-2"})
    assert lake_rows(spark, tmp_path, "id")[-1] == (100,)


def test_keys_that_the_same_hour_has_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """In one batch, and in the lake; hours below ten have a nought that must not get lost."""
    early = NOON_MS - 9 * HOUR_MS
    writer = batch_writer(
        spark, tmp_path, dedup_keys=("id",), schema="id BIGINT, url STRING, at BIGINT"
    )
    topic = Topic(spark)
    first = topic.frame(
        [click(1, early, url="first"), click(1, early, url="second"), click(2, early)]
    )
    report = writer.write(first, "w", 0, topic_ids=IDS)
    assert report is not None
    assert (report.rows, report.duplicates) == (2, 1)
    nobody = b'{"at": %d}' % early
    second = topic.frame([click(2, early), click(3, early), click(1, NOON_MS), nobody, nobody])
    report = writer.write(second, "w", 1, topic_ids=IDS)
    assert report is not None
    assert (report.rows, report.duplicates) == (4, 1)
    found = [(row[0] or 0, row[1]) for row in lake_rows_of(spark, tmp_path)]
    assert sorted(found) == [(0, 6), (0, 7), (1, 0), (1, 5), (2, 2), (3, 4)]


def lake_rows_of(spark: SparkSession, root: Path) -> list[tuple[int | None, int]]:
    frame = spark.read.parquet(root.as_uri()).select("id", "_offset")
    return [(row["id"], row["_offset"]) for row in frame.collect()]


def test_compaction_keeps_rows_and_columns(spark: SparkSession, tmp_path: Path) -> None:
    writer = batch_writer(spark, tmp_path)
    topic = Topic(spark)
    for batch in range(3):
        times = [NOON_MS, NOON_MS + HOUR_MS] if batch else [NOON_MS]
        frame = topic.frame([click(10 * batch + at, time) for at, time in enumerate(times)])
        writer.write(frame, "stream-w", batch, topic_ids=IDS)
    wider = batch_writer(spark, tmp_path, schema="id BIGINT, at BIGINT, more STRING")
    wider.write(topic.frame([click(99, more="x")]), "stream-w", 3, topic_ids=IDS)
    columns = ("id", "_offset", "_topic_id", "event_date", "event_hour")
    before = lake_rows(spark, tmp_path, *columns)
    lake = Lake(LocalFiles(tmp_path))
    # The newest event is in the second hour, so that the first one alone is over.
    done = compact_lake(spark, lake, quiet_ms=0)
    assert [(each.folder, each.files_after, each.rows) for each in done] == [
        ("event_date=2026-11-16/event_hour=12", 1, 4)
    ]
    done = compact_lake(spark, lake)
    assert [each.folder for each in done] == ["event_date=2026-11-16/event_hour=13"]
    assert compact_lake(spark, lake) == []
    assert lake_rows(spark, tmp_path, *columns) == before
    merged = spark.read.option("mergeSchema", "true").parquet(tmp_path.as_uri())
    assert [row["id"] for row in merged.filter("more = 'x'").collect()] == [99]
    assert len(list(tmp_path.glob("event_date=*/event_hour=*/*.parquet"))) == 2
    # What a compacted file has is still known.
    report = writer.write(Topic(spark).frame([click(0)]), "again", 0, topic_ids=IDS)
    assert report is not None
    assert report.rows == 0


def test_a_transform_may_change_rows_but_not_their_places(
    spark: SparkSession, tmp_path: Path
) -> None:
    def upper(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("*", "upper(url) AS loud").drop("url")

    frame = Topic(spark).frame([b'{"id": 1, "url": "/a", "at": %d}' % NOON_MS])
    batch_writer(spark, tmp_path, transform=upper).write(frame, "w", 0, topic_ids=IDS)
    assert lake_rows(spark, tmp_path, "id", "loud") == [(1, "/A")]

    def careless(rows: DataFrame) -> DataFrame:
        return rows.drop("_offset")

    with pytest.raises(JobFailed, match="has to leave the column _offset"):
        batch_writer(spark, tmp_path, transform=careless).write(frame, "w", 1, topic_ids=IDS)


def test_a_conflict_begins_the_batch_again(spark: SparkSession, tmp_path: Path) -> None:
    """Two writers of the same records at the same time: each record is in the lake once."""
    other = batch_writer(spark, tmp_path)
    calls: list[str] = []

    def meanwhile(point: str, _batch: int) -> None:
        calls.append(point)
        if calls == ["staged"]:
            other.write(Topic(spark).frame([click(0), click(1)]), "other", 0, topic_ids=IDS)

    writer = batch_writer(spark, tmp_path, reached=meanwhile)
    frame = Topic(spark).frame([click(0), click(1), click(2)])
    report = writer.write(frame, "w", 0, topic_ids=IDS)
    assert report is not None
    assert (report.rows, report.duplicates) == (1, 2)
    assert calls.count("staged") == 2
    assert lake_rows(spark, tmp_path, "id") == [(0,), (1,), (2,)]


def test_both_kinds_of_files_keep_the_contract(files: LakeFiles) -> None:
    assert files.names("a") == []
    assert files.sizes("a") == {}
    assert files.create("a/b", b"one")
    assert not files.create("a/b", b"another")
    assert files.read("a/b") == b"one"
    assert files.names("a") == ["b"]
    for content in (b"new", b"newer"):
        files.replace("a/r", content)
        assert files.read("a/r") == content
    assert [name for name in files.names("a") if not name.endswith(".crc")] == ["b", "r"]
    files.delete("a/r")
    with pytest.raises(FileNotFoundError):
        files.read("a/c")
    files.move("a/b", "d=1/e")
    files.move("a/b", "d=1/e")
    assert files.read("d=1/e") == b"one"
    with pytest.raises(FileNotFoundError):
        files.move("a/b", "d=1/f")
    assert files.create("d=1/g/h", b"four")
    assert files.sizes("d=1") == {"e": 3, "g/h": 4}
    files.delete("d=1")
    files.delete("d=1")
    assert files.names("d=1") == []


def test_rows_that_are_on_another_machine_stop_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A lake that executors have each for themselves: the driver finds its own part of the files.

    Nothing of the batch counts, so that none of its rows is lost.
    """

    def lose(point: str, _: int) -> None:
        if point == "staged":
            next(tmp_path.glob("_kraftpy/staging/**/event_hour=12/*.parquet")).unlink()

    frame = Topic(spark).frame([click(1), click(2, NOON_MS - 1)])
    with pytest.raises(JobFailed, match="written 2 rows, and 1 of them"):
        batch_writer(spark, tmp_path, reached=lose).write(frame, "w", 0, topic_ids=IDS)
    assert Lake(LocalFiles(tmp_path)).state().version == -1
    report = batch_writer(spark, tmp_path).write(frame, "w", 0, topic_ids=IDS)
    assert report is not None
    assert report.rows == 2


def test_mistakes_in_settings_have_words(spark: SparkSession) -> None:
    assert spark is not None
    for more, words in (
        ({"schema": "bigint"}, "not a struct"),
        ({"schema": "id BIGINT,, x"}, "no struct of Spark's"),
        ({"event_time": "when"}, "there is no column 'when'; there are id, url, at"),
        ({"schema": "at BOOLEAN"}, "a boolean is no time"),
        ({"schema": "at BIGINT, _offset BIGINT"}, "a name that the lake uses itself"),
    ):
        with pytest.raises(SchemaMistake, match=words):
            rules(**more)
