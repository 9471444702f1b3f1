"""One budget for the logs of a fetch (LOG-91)."""

from __future__ import annotations

from log_rig import Rig, batch

from kraftpy.log.offsets import Isolation
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.read_budget import ReadBudget

PLENTY = 1 << 20
SIZE = len(batch(b"0"))


def sizes(budget: ReadBudget, log: PartitionLog, starts: list[int], max_bytes: int) -> list[int]:
    return [budget.read(log, start, max_bytes, Isolation.LOG_END).size_bytes for start in starts]


async def filled(rig: Rig) -> PartitionLog:
    log = await rig.load()
    for _ in range(4):
        log.append_as_leader(batch(b"0"), 0)
    return log


async def test_the_first_that_has_anything_gives_a_batch_whatever_its_size(rig: Rig) -> None:
    """LOG-91: the privilege passes by logs that are empty, and ends with its use."""
    log = await filled(rig)
    budget = ReadBudget(1)
    assert sizes(budget, log, [4, 0, 0], PLENTY) == [0, SIZE, 0]
    assert budget.remaining_bytes == 0


async def test_the_budget_is_shared(rig: Rig) -> None:
    """LOG-91: what one log gave is missing to the next."""
    log = await filled(rig)
    budget = ReadBudget(3 * SIZE + 1)
    assert sizes(budget, log, [0, 0, 0], 2 * SIZE) == [2 * SIZE, SIZE + 1, 0]
    assert budget.remaining_bytes == 0


async def test_a_hard_limit_has_no_exception(rig: Rig) -> None:
    log = await filled(rig)
    assert sizes(ReadBudget(0, is_hard=True), log, [0], PLENTY) == [0]


async def test_no_log_gives_a_beginning_of_a_batch(rig: Rig) -> None:
    """LOG-91: a consumer of two partitions would take it for a batch that fits into no fetch.

    Found by seed 28 of the simulation of whole clusters.
    """
    log = await filled(rig)
    budget = ReadBudget(SIZE + 1)
    assert sizes(budget, log, [0, 0], PLENTY) == [SIZE + 1, 0]
    budget = ReadBudget(2 * SIZE - 1)
    assert sizes(budget, log, [3, 0, 0], PLENTY) == [SIZE, 0, 0]
    assert budget.remaining_bytes == SIZE - 1
    assert sizes(ReadBudget(1, is_hard=True), log, [0], PLENTY) == [1]
