"""The manager and its data directories, crashed wherever they can be (JEP-152).

In `make test` a sample is drawn by KRAFTPY_CRASH_SEED; `make crash` tries everything.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_crash_explorer import EVERYTHING, SEED, Explorer
from log_crash_home_workloads import HOME_WORKLOADS, played_at_home

SAMPLE = 20


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", list(HOME_WORKLOADS))
async def test_every_crash_leaves_sound_directories(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """JEP-152: nothing flushed is lost, nothing deleted comes back, and every log is found once."""
    print(f"seed {SEED}")
    scene = await played_at_home(name)
    tally = await Explorer(scene, None if EVERYTHING else SAMPLE, extremes=0.3).explore()
    record_property("crash_states", tally.states)
    assert tally.states > 10
