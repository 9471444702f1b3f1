"""What a driver leaves in the checkpoint when it dies around its first batch, and what the next
one makes of it: by real Spark, without a cluster.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast
from unittest.mock import Mock

import pytest
from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LakeFiles, LocalFiles
from kraftpy_spark.jobs.streaming import Ingestion, Pace, clear_unfinished_plan, writer_of

if TYPE_CHECKING:
    from kraftpy_spark.jobs.writing import BatchWriter
    from pyspark.sql import DataFrame, SparkSession

LINES = ["one", "two", "three"]
UNFINISHED = "offsets/.0.df0191f8-54c7-4f07-a92e-e30bab47236f.tmp"


class KeptBatches:
    """In place of a lake's writer."""

    def __init__(self) -> None:
        self.written: list[tuple[int, list[str]]] = []

    def write(
        self, records: DataFrame, _name: str, batch: int, *, topic_ids: Mapping[str, str]
    ) -> None:
        del topic_ids
        self.written.append((batch, sorted(row["value"] for row in records.collect())))


def run_job(spark: SparkSession, folder: Path) -> list[tuple[int, list[str]]]:
    """One driver's life, to the end of the lines; the batches that it wrote."""
    batches = KeptBatches()
    lake = Lake(LocalFiles(folder / "lake"))
    checkpoint = folder / "checkpoint"
    job = Ingestion(
        spark=spark,
        lake=lake,
        batches=cast("BatchWriter", batches),
        name=writer_of(LocalFiles(checkpoint), lake.files.root),
        view=None,
        reporter=Mock(),
    )
    job.run("text", {"path": str(folder / "lines")}, str(checkpoint), Pace(None))
    return batches.written


def checkpoint_of_one_batch(spark: SparkSession, folder: Path) -> Path:
    (folder / "lines").mkdir()
    (folder / "lines" / "a.txt").write_text("\n".join(LINES))
    assert run_job(spark, folder) == [(0, sorted(LINES))]
    return folder / "checkpoint"


def forget_commit(checkpoint: Path) -> None:
    """As if the driver had died before the end of the batch."""
    shutil.rmtree(checkpoint / "commits")
    (checkpoint / "commits").mkdir()


def unfinish_plan(checkpoint: Path) -> None:
    """As if it had died before the rename that makes the batch's offsets known."""
    (checkpoint / "offsets/0").rename(checkpoint / UNFINISHED)
    (checkpoint / "offsets/.0.crc").unlink()


def begun(checkpoint: Path) -> None:
    """The file is made, and nothing is written to it."""
    forget_commit(checkpoint)
    unfinish_plan(checkpoint)
    (checkpoint / UNFINISHED).write_bytes(b"")


def written(checkpoint: Path) -> None:
    """It is whole, with the checksum that Hadoop's local file system adds."""
    forget_commit(checkpoint)
    unfinish_plan(checkpoint)
    path = checkpoint / UNFINISHED
    path.with_name(f".{path.name}.crc").write_bytes(b"crc")


@pytest.mark.parametrize("leave", [begun, written, forget_commit])
def test_a_driver_that_died_in_its_first_batch(
    spark: SparkSession, tmp_path: Path, leave: Callable[[Path], None]
) -> None:
    """Spark refuses to begin while the plan of batch 0 is there and not finished."""
    checkpoint = checkpoint_of_one_batch(spark, tmp_path)
    writer = (checkpoint / "kraftpy-writer.json").read_bytes()
    leave(checkpoint)
    assert run_job(spark, tmp_path) == [(0, sorted(LINES))]
    assert (checkpoint / "kraftpy-writer.json").read_bytes() == writer
    assert run_job(spark, tmp_path) == []


@pytest.mark.parametrize(
    ("kept", "said"),
    [("commits", "assertion failed"), ("state", "state should be empty on batch 0")],
)
def test_a_checkpoint_that_has_lost_its_offsets_is_refused(
    spark: SparkSession, tmp_path: Path, kept: str, said: str
) -> None:
    """By Spark. The lake would take another batch 0 for the one that it has, and drop its rows."""
    checkpoint = checkpoint_of_one_batch(spark, tmp_path)
    unfinish_plan(checkpoint)
    if kept == "state":
        forget_commit(checkpoint)
    there = checkpoint / kept / "0"
    there.parent.mkdir(exist_ok=True)
    there.touch()
    with pytest.raises(JobFailed, match=said):
        run_job(spark, tmp_path)
    assert there.exists()


def test_only_the_unfinished_plan_of_a_first_batch_is_removed(files: LakeFiles) -> None:
    others = ("kraftpy-writer.json", "metadata", "offsets/else", "commits/0", "state/0/0/1.delta")
    for path in (*others, UNFINISHED):
        files.create(path, b"x")
    clear_unfinished_plan(files)
    assert UNFINISHED not in paths(files)
    assert set(others) <= paths(files)


@pytest.mark.parametrize("batch", [0, 17])
def test_a_query_that_has_planned_a_batch_is_left_alone(files: LakeFiles, batch: int) -> None:
    for path in (f"offsets/{batch}", UNFINISHED, "state/0/0/1.delta"):
        files.create(path, b"x")
    before = paths(files)
    clear_unfinished_plan(files)
    assert paths(files) == before


def test_a_checkpoint_that_is_new_stays_as_it_is(files: LakeFiles) -> None:
    clear_unfinished_plan(files)
    assert paths(files) == set()


def paths(files: LakeFiles) -> set[str]:
    return set(files.sizes(""))
