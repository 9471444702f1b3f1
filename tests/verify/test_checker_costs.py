"""What the checkers may cost (JEP-83): 100,000 operations in 15 s of one core, in 2 GiB.

A small history is checked here and the costs are multiplied, which is fair only if they grow with
the history and not with its square: that is counted in calls, which no machine is too slow for.
`make times` checks the large one.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from support.promises import IS_QUIET_MACHINE, promised
from verify.simulated_history import Draw, valid_history

from kraftpy.verify.checkers import Expectations, check
from kraftpy.verify.history import History

PROMISED_OPERATIONS = 100_000
PROMISED_SECONDS = 15
PROMISED_BYTES = 2 << 30
SEED = 83


def history(operations: int) -> History:
    """As many records are polled for each operation as in `python -m bench checkers`."""
    draw = Draw(
        operations=operations,
        processes=12,
        keys=max(10, operations // 100),
        max_assigned=10,
        max_records=200,
        info_probability=0.01,
    )
    return valid_history(draw, SEED)


def count_calls(what: Callable[[], object]) -> int:
    """Of functions, those of the interpreter among them."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with only_our_garbage():
        sys.setprofile(count)
        try:
            what()
        finally:
            sys.setprofile(None)
    return calls


@contextmanager
def only_our_garbage() -> Iterator[None]:
    """The collector passes over what thousands of tests before this one have left."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def test_four_times_the_history_is_four_times_the_work() -> None:
    """JEP-83: no checker compares every operation with every other."""
    small, large = history(500), history(2_000)
    few = count_calls(lambda: check(small, Expectations()))
    many = count_calls(lambda: check(large, Expectations()))
    print(f"{few} calls for 500 operations, {many} for 2,000")
    assert 2 * few < many < 6 * few


def test_a_large_history_fits_into_memory() -> None:
    """JEP-83: less than 2 GiB, with the history itself."""
    operations = 2_000
    tracemalloc.start()
    try:
        made = history(operations)
        check(made, Expectations())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    print(f"{peak / operations:.0f} bytes for each operation")
    assert peak * PROMISED_OPERATIONS / operations < PROMISED_BYTES


def test_a_large_history_is_checked_soon() -> None:
    """JEP-83: 100,000 operations in 15 s of the processor; here as many as fit into a test."""
    operations = PROMISED_OPERATIONS if IS_QUIET_MACHINE else 5_000
    made = history(operations)
    with only_our_garbage():
        # Of this thread: others of this process are no part of it.
        began = time.thread_time()
        verdict = check(made, Expectations())
        seconds = (time.thread_time() - began) * PROMISED_OPERATIONS / operations
    assert verdict.bad == ()
    promised("100,000 operations checked", seconds, most_seconds=PROMISED_SECONDS)
