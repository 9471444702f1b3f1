"""Who asks what: the test's thread never looks at processes itself, and a report always comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from kraftpy.launch.plan import NodePlan
from kraftpy.testing.cluster import KafkaCluster
from kraftpy.testing.loop_thread import LoopThread


class OfOneLoop:
    """A Backend that can be asked in its loop only, as a process of trio's can."""

    bootstrap = "127.0.0.1:1"
    plans: Sequence[NodePlan] = ()

    def __init__(self) -> None:
        self.is_over = trio.Event()

    @property
    def running(self) -> Sequence[int]:
        assert trio.lowlevel.in_trio_run()
        return [1, 3]

    async def end(self) -> None:
        self.is_over.set()


@asynccontextmanager
async def open_backend() -> AsyncIterator[OfOneLoop]:
    backend = OfOneLoop()

    async def fail() -> None:
        await backend.is_over.wait()
        raise OSError("the loop is broken")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)
        yield backend
        nursery.cancel_scope.cancel()


def test_what_runs_is_asked_in_the_loop() -> None:
    cluster = KafkaCluster(LoopThread(open_backend), "seed")
    assert cluster.running == (1, 3)
    cluster.close()


def test_a_report_comes_also_when_the_loop_is_broken() -> None:
    loop = LoopThread(open_backend)
    cluster = KafkaCluster(loop, "seed")
    loop.call(loop.value.end)
    loop._thread.join()
    assert "the cluster has ended: OSError('the loop is broken')" in cluster.describe()
    with pytest.raises(OSError, match="the loop is broken"):
        cluster.close()
