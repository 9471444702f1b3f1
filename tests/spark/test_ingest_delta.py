"""Lakes that are Delta tables: what their log says at any moment, and what others read by it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kraftpy_spark.jobs.compaction import compact_lake
from kraftpy_spark.jobs.delta_log import DeltaLog
from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LakeFiles, LocalFiles
from kraftpy_spark.jobs.lake_format import open_lake
from kraftpy_spark.jobs.lake_state import Commit, LakeState, Table
from kraftpy_spark.jobs.writing import BatchWriter
from spark.lake_commits import FOLDER, Crash, WatchedFiles, added, crash, write_batch
from spark.lake_frames import IDS, NOON_MS, Topic, click, rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = Table('{"type": "struct", "fields": []}', ("event_date", "event_hour"))


def delta_lake(files: LakeFiles) -> Lake:
    return Lake(files, delta=DeltaLog(files, "table"), fold_every=2)


def actions(root: Path) -> list[list[dict[str, Any]]]:
    """Of each version."""
    paths = sorted((root / "_delta_log").glob("*.json"))
    assert [int(path.stem) for path in paths] == list(range(len(paths)))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def told(root: Path) -> dict[str, int]:
    """The files that Delta's log has in the end, with their rows."""
    found: dict[str, int] = {}
    for action in itertools.chain.from_iterable(actions(root)):
        if "add" in action:
            found[action["add"]["path"]] = json.loads(action["add"]["stats"])["numRecords"]
        elif "remove" in action:
            del found[action["remove"]["path"]]
    return found


def test_a_crash_at_any_change_leaves_whole_batches(tmp_path: Path) -> None:
    """Delta's log never names a file that is not there, nor a part of a commit."""
    commits = [
        Commit("w", 0, "append", (added("a", 0, 9), added("b", 10, 19)), table=TABLE),
        Commit("w", 1, "append", (added("c", 20, 29),)),
        Commit("c", 0, "compact", (added("d", 0, 19),), tuple(added(n, 0, 0).path for n in "ab")),
        Commit("w", 2, "append", (added("e", 30, 39),)),
    ]
    wholes = [0, 20, 30, 30, 40]
    for changes in itertools.count():
        root = tmp_path / str(changes)
        crashed = False
        try:
            lake = delta_lake(WatchedFiles(root, partial(crash, changes)))
            for commit in commits:
                write_batch(lake, commit)
        except Crash:
            crashed = True
        before = told(root)
        assert all((root / path).exists() for path in before)
        assert sum(before.values()) == wholes[len(actions(root))]
        again = delta_lake(LocalFiles(root))
        again.recover()
        assert told(root) == {path: each.rows for path, each in again.state().files.items()}
        for commit in commits:
            write_batch(again, commit)
        assert sum(told(root).values()) == 40
        assert len(actions(root)) == len(commits)
        if not crashed:
            break
    assert changes > 20
    # Who began to read before the compaction can go on.
    assert (root / added("a", 0, 9).path).exists()


def test_a_commit_is_told_after_those_before_it(tmp_path: Path) -> None:
    slow, quick = open_lake(LocalFiles(tmp_path), "delta"), open_lake(LocalFiles(tmp_path), "delta")
    first = Commit("slow", 0, "append", (added("a", 0, 9),), table=TABLE)
    slow.files.create(f"{slow.staging('slow', 0)}/{first.added[0].staged}", b"")
    slow.commit(first, LakeState())
    write_batch(quick, Commit("quick", 0, "append", (added("b", 10, 19),)))
    assert actions(tmp_path) == []
    slow.publish(first)
    assert sum(told(tmp_path).values()) == 20
    assert len(actions(tmp_path)) == 2


def test_what_is_folded_was_told(tmp_path: Path) -> None:
    """Also if its writer died after the files were in their places."""
    died = Lake(LocalFiles(tmp_path))
    write_batch(died, Commit("w", 0, "append", (added("a", 0, 9),), table=TABLE))
    delta_lake(LocalFiles(tmp_path))._fold()
    assert (tmp_path / "_kraftpy" / "log" / f"{0:020d}.state.json").exists()
    assert sum(told(tmp_path).values()) == 10


def test_the_words_of_a_version(tmp_path: Path) -> None:
    lake = open_lake(LocalFiles(tmp_path), "delta")
    write_batch(lake, Commit("w", 0, "append", (added("a b", 0, 9),), table=TABLE))
    gone = added("a b", 0, 9).path
    write_batch(lake, Commit("c", 0, "compact", (added("d", 0, 9),), (gone,)))
    first, second = actions(tmp_path)
    assert [next(iter(each)) for each in first] == [
        "commitInfo",
        "protocol",
        "metaData",
        "txn",
        "add",
    ]
    assert first[2]["metaData"]["partitionColumns"] == ["event_date", "event_hour"]
    assert first[3]["txn"]["appId"] == "w"
    assert first[4]["add"]["path"].endswith("/a%20b.parquet")
    assert first[4]["add"]["partitionValues"] == {"event_date": "2026-11-16", "event_hour": "13"}
    assert first[4]["add"]["dataChange"]
    assert [next(iter(each)) for each in second] == ["commitInfo", "txn", "remove", "add"]
    # Whoever streams from the table need not look at rows that only moved.
    assert not second[2]["remove"]["dataChange"]
    assert not second[3]["add"]["dataChange"]


class InBetween(LocalFiles):
    """Somebody else writes a version just before we do."""

    foreign: bytes | None = None

    def create(self, path: str, content: bytes) -> bool:
        if path.startswith("_delta_log") and self.foreign is not None:
            content_of_other, self.foreign = self.foreign, None
            assert super().create(path, content_of_other)
        return super().create(path, content)


def test_a_change_by_somebody_else_stops_the_job(tmp_path: Path) -> None:
    files = InBetween(tmp_path)
    lake = open_lake(files, "delta")
    write_batch(lake, Commit("w", 0, "append", (added("a", 0, 9),), table=TABLE))
    files.foreign = b'{"commitInfo": {}}\n{"remove": {"path": "%s"}}\n' % FOLDER.encode()
    with pytest.raises(JobFailed, match="Only kraftpy-ingest may change this table"):
        write_batch(lake, Commit("w", 1, "append", (added("b", 10, 19),)))
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    open_lake(LocalFiles(tmp_path)).recover()
    assert sum(told(tmp_path).values()) == 20


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_versions_that_change_nothing_are_passed_over(tmp_path: Path, when: str) -> None:
    """VACUUM leaves two of them, with Delta's engine for their author."""
    files = InBetween(tmp_path)
    lake = open_lake(files, "delta")
    write_batch(lake, Commit("w", 0, "append", (added("a", 0, 9),), table=TABLE))
    vacuum = b'{"commitInfo": {"operation": "VACUUM START", "engineInfo": "Delta"}}\n'
    if when == "before":
        assert files.create(f"_delta_log/{1:020d}.json", vacuum)
    else:
        files.foreign = vacuum
    write_batch(lake, Commit("w", 1, "append", (added("b", 10, 19),)))
    lake.recover()
    assert len(actions(tmp_path)) == 3
    assert sum(told(tmp_path).values()) == 20


def test_two_that_tell_of_the_same_commit(tmp_path: Path) -> None:
    files = InBetween(tmp_path)
    lake = open_lake(files, "delta")
    commit = Commit("w", 0, "append", (added("a", 0, 9),), table=TABLE)
    write_batch(lake, commit)
    files.foreign = (tmp_path / "_delta_log" / f"{0:020d}.json").read_bytes()
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    lake.recover()
    assert len(actions(tmp_path)) == 1


def test_a_lake_stays_what_it_was_made(tmp_path: Path) -> None:
    delta, plain = LocalFiles(tmp_path / "delta"), LocalFiles(tmp_path / "plain")
    commit = Commit("w", 0, "append", (added("a", 0, 9),))
    write_batch(open_lake(delta, "delta"), replace(commit, table=TABLE))
    write_batch(open_lake(plain), commit)
    assert open_lake(delta).is_delta
    assert not open_lake(plain, "parquet").is_delta
    for files, other in ((delta, "parquet"), (plain, "delta")):
        with pytest.raises(JobFailed, match=f"--lake-format {other} needs a lake"):
            open_lake(files, other)  # type: ignore[arg-type]
    assert not (tmp_path / "plain" / "_delta_log").exists()


def test_what_delta_rs_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Another implementation of Delta finds every row, before and after a compaction, with a
    column that came later.
    """
    deltalake = pytest.importorskip("deltalake", reason="missing: deltalake (PyPI)")
    lake = open_lake(LocalFiles(tmp_path), "delta")
    topic = Topic(spark)
    writer = BatchWriter(spark, lake, rules(), None)
    for batch in range(2):
        frame = topic.frame([click(batch * 2 + number, NOON_MS) for number in range(2)])
        writer.write(frame, "w", batch, topic_ids=IDS)
    wider = BatchWriter(
        spark, lake, rules("id BIGINT NOT NULL, url STRING, at BIGINT, x INT"), None
    )
    wider.write(topic.frame([click(4, NOON_MS + 3_600_000, x=7)]), "w", 2, topic_ids=IDS)

    def rows(version: int) -> list[tuple[Any, ...]]:
        table = deltalake.DeltaTable(tmp_path.as_uri(), version=version)
        found = table.to_pyarrow_table(columns=None).to_pylist()
        return sorted((row["id"], row["event_hour"], row.get("x")) for row in found)

    assert rows(1) == [(number, "12", None) for number in range(4)]
    three = [*((number, "12", None) for number in range(4)), (4, "13", 7)]
    assert rows(2) == three
    assert [each.files_after for each in compact_lake(spark, lake)] == [1]
    assert rows(3) == three
    # As it was: the files of that time are still there.
    assert rows(1) == [(number, "12", None) for number in range(4)]
