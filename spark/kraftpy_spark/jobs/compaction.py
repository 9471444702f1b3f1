"""Few large files of many small ones.

Every batch leaves a file for each task and folder. A compaction reads the small files of a folder,
writes them anew, and commits that as any other batch: the new ones come and the old ones go in one
commit, so that a crash leaves either. Columns of all files are kept, rows are neither changed nor
sorted. Their number is counted before the commit, because a file that is deleted is gone.

A folder to which rows still come is better left alone: `quiet_ms` is how long before the newest
event of the slowest stream its end must lie.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_state import AddedFile, Commit, Conflict, LakeState
from kraftpy_spark.jobs.staged import look_at_staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Compacted", "closed_before_ms", "compact_lake"]

_TARGET_BYTES = 128_000_000


@dataclass(frozen=True, slots=True)
class Compacted:
    folder: str
    files_before: int
    files_after: int
    rows: int

    def line(self) -> str:
        files = f"{self.files_before} files became {self.files_after}"
        return f"{self.folder}: {files}, {self.rows:,} rows"


def compact_lake(
    spark: SparkSession,
    lake: Lake,
    *,
    target_bytes: int = _TARGET_BYTES,
    quiet_ms: int | None = None,
) -> list[Compacted]:
    """What was done, folder by folder; a folder that another writer changes meanwhile is left."""
    lake.recover()
    state = lake.state()
    limit_ms = None if quiet_ms is None else closed_before_ms(state, quiet_ms)
    folders: dict[str, list[AddedFile]] = {}
    for each in lake.visible_files():
        if each.size < target_bytes // 2 and _is_closed(each.folder, limit_ms):
            folders.setdefault(each.folder, []).append(each)
    done = []
    for _, files in sorted(folders.items()):
        if len(files) > 1:
            try:
                done.append(_compact(spark, lake, state, files, target_bytes))
            except Conflict:
                continue
    return done


def _compact(
    spark: SparkSession,
    lake: Lake,
    state: LakeState,
    files: Sequence[AddedFile],
    target_bytes: int,
) -> Compacted:
    """The files of one folder."""
    folder = files[0].folder
    writer = f"compact-{uuid.uuid4().hex[:12]}"
    rows = sum(each.rows for each in files)
    wanted = max(1, -(-sum(each.size for each in files) // target_bytes))
    staging = lake.staging(writer, 0)
    # The folder's own columns are in its name, so the files are read as they are.
    old = spark.read.option("mergeSchema", "true").parquet(*lake.uris(files))
    old.coalesce(wanted).write.mode("overwrite").parquet(lake.staged_uri(f"{staging}/{folder}"))
    staged = look_at_staged(spark, lake, staging, writer, 0)
    if staged.rows != rows:
        lake.files.delete(staging)
        raise JobFailed(
            f"{folder} has {staged.rows} rows where its files' commits say {rows}: nothing was"
            " changed. `kraftpy-ingest audit` lists what is missing or double."
        )
    commit = Commit(writer, 0, "compact", staged.files, tuple(each.path for each in files))
    lake.commit(commit, state)
    lake.publish(commit)
    return Compacted(folder, len(files), len(staged.files), rows)


def closed_before_ms(state: LakeState, quiet_ms: int) -> int:
    """Events before this time are not expected any more: no stream is so far behind."""
    newest: Mapping[str, int] = {
        name: writer.max_event_ms
        for name, writer in state.writers.items()
        if name.startswith("stream-") and writer.max_event_ms is not None
    }
    return min(newest.values(), default=0) - quiet_ms


def _is_closed(folder: str, limit_ms: int | None) -> bool:
    if limit_ms is None:
        return True
    values = dict(part.split("=", 1) for part in folder.split("/"))
    begin = datetime.fromisoformat(values["event_date"]).replace(tzinfo=UTC)
    hour = values.get("event_hour")
    end = begin + (timedelta(days=1) if hour is None else timedelta(hours=int(hour) + 1))
    return end.timestamp() * 1000 <= limit_ms
