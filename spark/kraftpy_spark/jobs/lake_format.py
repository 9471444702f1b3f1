"""What a lake is: plain Parquet, or a Delta table as well. It is decided when a lake is made."""

from __future__ import annotations

import json
import uuid
from typing import Literal, TypeAlias

from kraftpy_spark.jobs.delta_log import DeltaLog
from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LakeFiles

__all__ = ["LakeFormat", "open_lake"]

LakeFormat: TypeAlias = Literal["parquet", "delta"]

_FORMAT_FILE = "_kraftpy/lake.json"


def open_lake(files: LakeFiles, wanted: LakeFormat | None = None) -> Lake:
    """As it was made; a new one as it is wanted. Raises JobFailed if the two differ."""
    plain = Lake(files)
    is_new = plain.state().version < 0
    if wanted == "delta" and is_new:
        made = {"format": "delta", "id": str(uuid.uuid4())}
        files.create(_FORMAT_FILE, json.dumps(made).encode())
    try:
        found = json.loads(files.read(_FORMAT_FILE))
    except FileNotFoundError:
        found = {"format": "parquet"}
    if wanted not in (None, found["format"]):
        raise JobFailed(
            f"the lake {files.root} was made as {found['format']} and stays that, so"
            f" --lake-format {wanted} needs a lake and a checkpoint of its own"
        )
    return Lake(files, delta=DeltaLog(files, found["id"])) if "id" in found else plain
