"""Lakes that are Delta tables: what their log says at any moment, and what others read by it."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kraftpy_spark.jobs.compaction import compact_lake
from kraftpy_spark.jobs.delta_checkpoint import TableState, checkpoint_facts
from kraftpy_spark.jobs.delta_log import DeltaLog
from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LakeFiles, LocalFiles
from kraftpy_spark.jobs.lake_format import open_lake
from kraftpy_spark.jobs.lake_state import Commit, LakeState, Table
from kraftpy_spark.jobs.writing import BatchWriter
from pyspark.sql.types import StructType
from spark.lake_commits import FOLDER, Crash, WatchedFiles, added, crash, write_batch
from spark.lake_frames import IDS, NOON_MS, Topic, click, rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = Table('{"type": "struct", "fields": []}', ("event_date", "event_hour"))


def delta_lake(files: LakeFiles) -> Lake:
    return Lake(files, delta=DeltaLog(files, "table", checkpoint_every=2), fold_every=2)


def actions(root: Path) -> list[list[dict[str, Any]]]:
    """Of each version."""
    paths = sorted((root / "_delta_log").glob("*.json"))
    assert [int(path.stem) for path in paths] == list(range(len(paths)))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def told(root: Path) -> dict[str, int]:
    """The files that Delta's log has in the end, with their rows."""
    return files_after({}, itertools.chain.from_iterable(actions(root)))


def files_after(found: dict[str, int], later: Iterable[dict[str, Any]]) -> dict[str, int]:
    for action in later:
        if "add" in action:
            found[action["add"]["path"]] = json.loads(action["add"]["stats"])["numRecords"]
        elif "remove" in action:
            del found[action["remove"]["path"]]
    return found


def told_from_checkpoint(root: Path) -> tuple[dict[str, int], int]:
    """The same, as a reader finds it that begins where it is pointed to; and where that is."""
    pointer = root / "_delta_log" / "_last_checkpoint"
    if not pointer.exists():
        return told(root), -1
    begin = json.loads(pointer.read_text())
    path = root / "_delta_log" / f"{begin['version']:020d}.checkpoint.parquet"
    rows = pq.read_table(path).to_pylist()
    assert len(rows) == begin["size"]
    assert all(sum(each is not None for each in row.values()) == 1 for row in rows)
    found = {
        row["add"]["path"]: json.loads(row["add"]["stats"])["numRecords"]
        for row in rows
        if row["add"] is not None
    }
    assert len(found) == begin["numOfAddFiles"]
    later = itertools.chain.from_iterable(actions(root)[begin["version"] + 1 :])
    return files_after(found, later), begin["version"]


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
        assert told_from_checkpoint(root)[0] == before
        again = delta_lake(LocalFiles(root))
        again.recover()
        made = sorted((root / "_delta_log").glob("*.checkpoint.parquet"))
        assert told_from_checkpoint(root)[1] == (int(made[-1].name[:20]) if made else -1)
        assert told(root) == {path: each.rows for path, each in again.state().files.items()}
        for commit in commits:
            write_batch(again, commit)
        assert sum(told(root).values()) == 40
        assert len(actions(root)) == len(commits)
        found, version = told_from_checkpoint(root)
        assert found == told(root)
        if not crashed:
            assert version == 2
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


DAY_MS = 24 * 3600 * 1000


def test_a_checkpoint_survives_its_writing_and_reading() -> None:
    """With what was taken away in the last seven days, and not a millisecond before."""
    state = TableState()
    add = {"path": "a", "partitionValues": {"event_hour": "13"}, "size": 7, "modificationTime": 1}
    add |= {"stats": '{"numRecords": 1}', "dataChange": True}
    state.apply([{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}])
    described = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": "{}"}
    described |= {"partitionColumns": ["event_hour"], "configuration": {}}
    state.apply([{"metaData": described}, {"txn": {"appId": "w", "version": 0, "lastUpdated": 1}}])
    state.apply([{"commitInfo": {}}, {"add": add}, {"add": {**add, "path": "gone"}}])
    state.apply([{"txn": {"appId": "w", "version": 1, "lastUpdated": 2}}])
    for path, at_ms in (("gone", DAY_MS), ("long gone", DAY_MS - 1)):
        removed = {"path": path, "deletionTimestamp": at_ms, "dataChange": True}
        state.apply([{"remove": removed}])
    content = state.to_parquet(8 * DAY_MS - 1)
    found = TableState.from_parquet(content)
    facts = checkpoint_facts(content)
    assert (facts["size"], facts["numOfAddFiles"], facts["sizeInBytes"]) == (5, 1, len(content))
    # Spark's Delta fails without it.
    named = StructType.fromJson(facts["checkpointSchema"])
    assert named["add"].dataType.simpleString() == (
        "struct<path:string,partitionValues:map<string,string>,size:bigint,"
        "modificationTime:bigint,dataChange:boolean,stats:string>"
    )
    assert found.protocol == state.protocol
    assert found.description == described
    assert found.writers == {"w": {"appId": "w", "version": 1, "lastUpdated": 2}}
    # Whoever begins here has not to look at them as news.
    assert found.files == {"a": {**add, "dataChange": False}}
    assert list(found.removed) == ["gone"]
    # What others write has more columns, and may lack some.
    wide = pq.read_table(pa.BufferReader(content)).drop_columns(["remove"])
    stream = pa.BufferOutputStream()
    pq.write_table(wide.append_column("sidecar", pa.nulls(wide.num_rows)), stream)
    again = TableState.from_parquet(stream.getvalue().to_pybytes())
    assert (again.files, again.removed) == (found.files, {})


def many_commits(lake: Lake, numbers: range) -> None:
    for number in numbers:
        files = (added(f"f{number}", number, number),)
        table = TABLE if number == 0 else None
        write_batch(lake, Commit("w", number, "append", files, table=table))


def test_a_checkpoint_every_ten_versions(tmp_path: Path) -> None:
    """Each is made from the one before it: what lies before that may be gone."""
    log = tmp_path / "_delta_log"
    many_commits(open_lake(LocalFiles(tmp_path), "delta"), range(10))
    assert not (log / "_last_checkpoint").exists()
    many_commits(open_lake(LocalFiles(tmp_path)), range(10, 20))
    assert told_from_checkpoint(tmp_path) == (told(tmp_path), 10)
    for version in range(10):
        (log / f"{version:020d}.json").unlink()
    many_commits(open_lake(LocalFiles(tmp_path)), range(20, 25))
    pointer = json.loads((log / "_last_checkpoint").read_text())
    assert (pointer["version"], pointer["numOfAddFiles"]) == (20, 21)
    assert len(list(log.glob("*.checkpoint.parquet"))) == 2


def test_a_log_that_begins_elsewhere_gets_no_checkpoint(tmp_path: Path) -> None:
    """Its beginning was cleaned up behind a checkpoint of a form that is not ours."""
    many_commits(open_lake(LocalFiles(tmp_path), "delta"), range(10))
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    many_commits(open_lake(LocalFiles(tmp_path)), range(10, 12))
    assert not (tmp_path / "_delta_log" / "_last_checkpoint").exists()


@pytest.mark.parametrize("content", [b"", b'{"vers', b"{}", b"[1]", b"\xff"])
def test_a_pointer_that_says_nothing_is_written_again(tmp_path: Path, content: bytes) -> None:
    """It is a short cut, which nobody has to have."""
    many_commits(open_lake(LocalFiles(tmp_path), "delta"), range(12))
    pointer = tmp_path / "_delta_log" / "_last_checkpoint"
    before = pointer.read_bytes()
    pointer.write_bytes(content)
    many_commits(open_lake(LocalFiles(tmp_path)), range(12, 13))
    assert pointer.read_bytes() == before


def test_a_pointer_that_hadoop_has_written_is_replaced_with_its_checksum(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.replace("_delta_log/_last_checkpoint", b"{}")
    checksum = tmp_path / "_delta_log" / "._last_checkpoint.crc"
    checksum.touch()
    files.replace("_delta_log/_last_checkpoint", b"[]")
    assert files.names("_delta_log") == ["_last_checkpoint"]


def test_what_delta_rs_reads(spark: SparkSession, tmp_path: Path) -> None:
    """Another implementation of Delta finds every row, before and after a compaction, with a
    column that came later; and by a checkpoint, if there is nothing else.
    """
    deltalake = pytest.importorskip("deltalake", reason="missing: deltalake (PyPI)")
    files = LocalFiles(tmp_path)
    lake = Lake(files, delta=DeltaLog(files, str(uuid.uuid4()), checkpoint_every=3))
    topic = Topic(spark)
    writer = BatchWriter(spark, lake, rules(), None)
    for batch in range(2):
        frame = topic.frame([click(batch * 2 + number, NOON_MS) for number in range(2)])
        writer.write(frame, "w", batch, topic_ids=IDS)
    wider = BatchWriter(
        spark, lake, rules("id BIGINT NOT NULL, url STRING, at BIGINT, x INT"), None
    )
    wider.write(topic.frame([click(4, NOON_MS + 3_600_000, x=7)]), "w", 2, topic_ids=IDS)

    def rows(version: int | None) -> list[tuple[Any, ...]]:
        table = deltalake.DeltaTable(tmp_path.as_uri(), version=version)
        found = table.to_pyarrow_table(columns=None).to_pylist()
        return sorted((row["id"], row["event_hour"], row.get("x")) for row in found)

    assert rows(1) == [(number, "12", None) for number in range(4)]
    three = [*((number, "12", None) for number in range(4)), (4, "13", 7)]
    assert rows(2) == three
    [compacted] = compact_lake(spark, lake)
    assert compacted.files_after == 1
    assert rows(3) == three
    # As it was: the files of that time are still there.
    assert rows(1) == [(number, "12", None) for number in range(4)]
    for version in range(3):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    assert rows(None) == three
    table = deltalake.DeltaTable(tmp_path.as_uri())
    assert table.transaction_version("w") == 2
    # The files that the compaction has replaced are known to be gone, and may be read for a while.
    assert table.vacuum(dry_run=True) == []
    at_once = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
    assert len(at_once) == compacted.files_before
