"""The examples of docs/spark.md run as they are printed, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from spark.spark_brokers import SparkBroker

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"
DOCUMENTED_ADDRESS = "127.0.0.1:9092"


def test_examples_work_as_printed(
    spark: SparkSession,
    kraftpy_nodes: SparkBroker,
    tmp_path: Path,
) -> None:
    first, second = re.findall(r"```py\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[:2]
    kraftpy_nodes.topic(4, name="clicks")
    kraftpy_nodes.topic(1, name="enriched")
    kraftpy_nodes.produce("clicks", [b"%d" % number for number in range(1_000)])
    # Spark's own idea of the current directory is that of its start.
    places = {"lake/": f"{tmp_path}/lake/", "checkpoints/": f"{tmp_path}/checkpoints/"}
    names: dict[str, Any] = {}
    for example in (first, second):
        here = example.replace(DOCUMENTED_ADDRESS, kraftpy_nodes.bootstrap)
        for printed, place in places.items():
            here = here.replace(f'"{printed}', f'"{place}')
        exec(compile(here, str(DOCUMENT), "exec"), names)
        names["enriched"] = names["clicks"]
    assert spark.read.parquet(f"{tmp_path}/lake/clicks").count() == 1_000
    assert len(kraftpy_nodes.values("enriched")) == 1_000
