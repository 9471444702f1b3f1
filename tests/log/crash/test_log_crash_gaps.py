"""Offsets that are missing between two segments: the end of a log, or the cleaner's work?"""

from __future__ import annotations

import pytest
from log_crash_scene import COMPACTED, CRASH, LogScene
from log_rig import Rig

from kraftpy.log.log_config import LogConfig


async def scene_without(offset: int, config: LogConfig) -> LogScene:
    """Three segments of three batches, and one of the batches gone from its file."""
    scene = LogScene(config)
    await scene.prepare()
    await scene.open()
    await scene.fill(9)
    assert [segment.base_offset for segment in scene.log.segments] == [0, 3, 6]
    base_offset = offset - offset % 3
    file = scene.disk.open(f"/data/t-0/{base_offset:020d}.log", write=True)
    left = [data for data in scene.batches[base_offset:][:3] if data != scene.batches[offset]]
    file.truncate(0)
    file.pwrite(left, 0)
    return scene


@pytest.mark.parametrize(
    ("offset", "recovery_point", "config", "end"),
    [
        pytest.param(2, 0, CRASH, 2, id="the end of an unflushed segment is lost"),
        pytest.param(5, 3, CRASH, 5, id="and of a later one"),
        pytest.param(2, 3, CRASH, 9, id="what was flushed is not judged"),
        pytest.param(2, 0, COMPACTED, 9, id="a compacted topic may have gaps"),
        pytest.param(1, 0, CRASH, 9, id="within a segment a gap is the cleaner's"),
    ],
)
async def test_a_gap_ends_the_log_where_nobody_has_cleaned(
    offset: int, recovery_point: int, config: LogConfig, end: int
) -> None:
    """LOG-62: in any order files reach the medium."""
    scene = await scene_without(offset, config)
    log = await Rig(scene.disk, "/data", config).load(recovery_point=recovery_point)
    assert log.log_end_offset == end
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [base for base in (0, 3, 6) if base <= end]
