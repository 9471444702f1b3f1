"""Exactly once while brokers, drivers and tasks fail: four schedules of make spark-faults."""

from __future__ import annotations

from pathlib import Path

from spark.fault_schedules import CLUSTER_FAULTS, READERS, Schedule, open_rig
from support.components import require

SEEDS = range(1, 5)


def test_every_record_is_once_in_lake_and_copy(tmp_path: Path) -> None:
    """PAT-45, PAT-46: both readers, both sinks, dead letters, and all kinds of faults."""
    require("java", "mvn")
    schedules = [Schedule.draw(seed) for seed in SEEDS]
    assert {each.reader for each in schedules} == set(READERS)
    assert {each.cluster_fault for each in schedules} == set(CLUSTER_FAULTS)
    assert len({each.kill_at[0] for each in schedules}) == len(SEEDS)
    with open_rig(tmp_path) as rig:
        rig.run(schedules)
