"""A partition log, crashed wherever it can be (LOG-114, JEP-152).

In `make test` a sample is drawn by KRAFTPY_CRASH_SEED; `make crash` tries everything.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from log_crash_explorer import EVERYTHING, SEED, Explorer
from log_crash_workloads import WORKLOADS, played

SAMPLE = 40


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", list(WORKLOADS))
async def test_every_crash_leaves_a_sound_log(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    """JEP-152, LOG-114: nothing flushed is lost, nothing is invented, and all is consistent."""
    print(f"seed {SEED}")
    scene = await played(name)
    tally = await Explorer(scene, None if EVERYTHING else SAMPLE).explore()
    record_property("crash_states", tally.states)
    assert tally.states > 10
