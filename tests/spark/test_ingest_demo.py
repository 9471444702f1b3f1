"""`make spark`, with few clicks: from three nodes to an audit that finds nothing wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kraftpy_spark.jobs.ingest import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_demonstration_ends_with_a_clean_audit(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PAT-64, from a producer that counts to a lake."""
    assert spark is not None
    assert main(["demo", "--clicks", "400", "--directory", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "lag after each batch, in records" in told
    assert told.endswith("everything that was sent is there, once\n")
    # One file for each hour that the clicks are in.
    hours = list((tmp_path / "lake").glob("event_date=*/event_hour=*"))
    assert all(len(list(hour.glob("*.parquet"))) == 1 for hour in hours)
    assert hours
