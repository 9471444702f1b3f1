"""Stateful fuzzing of the wire, against complete nodes under one seed (JEP-158).

Whatever comes to a port is answered in order and in its version, or the connection is closed;
nobody else notices, and every invariant of whole nodes holds meanwhile.
"""

from __future__ import annotations

import pytest
import trio
from directed_stage import TOPIC, Stage, tell
from wire_sessions import RequestDrawer, WireSession

SEEDS = (1,)
SESSIONS = 3
CONNECTIONS = 12


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_comes_is_answered_or_refused(seed: int) -> None:
    async def story(stage: Stage) -> None:
        assert stage.record is not None
        sessions = []
        async with trio.open_nursery() as nursery:
            for number in range(SESSIONS):
                random = stage.simulation.rng.stream(f"wire {number}")
                drawer = RequestDrawer(random, [TOPIC, "g", "x"], [bytes(stage.record.topic_id)])
                session = WireSession(stage.world, stage.bootstrap, random, drawer)
                sessions.append(session)
                nursery.start_soon(session.run, CONNECTIONS)
        assert sum(len(each.answers) for each in sessions) > 20
        # The others have not noticed.
        assert await stage.send(b"after", delivery_timeout_ms=60_000)

    tell(story, seed)
