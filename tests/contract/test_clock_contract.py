"""The contract of the Clock port."""

from __future__ import annotations

from math import inf

import pytest
import trio
import trio.testing
from both_worlds import Place, in_both_worlds

# Kept short, because one of the clocks is real.
SHORT_SECONDS = 0.02


@in_both_worlds
async def test_monotonic_time_advances_and_its_forms_agree(place: Place) -> None:
    clock = place.world.clock
    # One is looked at between two looks at the other: however long we are kept from going on.
    early, before_ms, before = clock.monotonic(), clock.monotonic_ms(), clock.monotonic()
    await clock.sleep(SHORT_SECONDS)
    after, after_ms, late = clock.monotonic(), clock.monotonic_ms(), clock.monotonic()
    assert after - before >= SHORT_SECONDS * 0.999
    assert (after - before) * 1000 - 2 <= after_ms - before_ms <= (late - early) * 1000 + 2
    assert isinstance(after_ms, int)


@in_both_worlds
async def test_sleep_until_reaches_its_deadline(place: Place) -> None:
    clock = place.world.clock
    for step in (0.001, 0.0033, 0.01, 0.0007):
        deadline = clock.monotonic() + step
        await clock.sleep_until(deadline)
        assert clock.monotonic() >= deadline


@in_both_worlds
async def test_a_time_that_is_past_is_a_mere_checkpoint(place: Place) -> None:
    clock = place.world.clock
    for wait in (
        lambda: clock.sleep(0),
        lambda: clock.sleep(-5),
        lambda: clock.sleep_until(clock.monotonic() - 5),
    ):
        with trio.CancelScope() as scope:
            scope.cancel()
            await wait()
        assert scope.cancelled_caught
        await wait()


@in_both_worlds
async def test_move_on_after_is_quiet(place: Place) -> None:
    clock = place.world.clock
    before = clock.monotonic()
    with clock.move_on_after(SHORT_SECONDS) as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught
    assert clock.monotonic() - before >= SHORT_SECONDS * 0.999
    with clock.move_on_after(60) as scope:
        await clock.sleep(0)
    assert not scope.cancelled_caught
    with clock.move_on_after(-1) as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught


@in_both_worlds
async def test_fail_after_raises(place: Place) -> None:
    clock = place.world.clock
    with pytest.raises(trio.TooSlowError), clock.fail_after(SHORT_SECONDS):
        await trio.sleep_forever()
    with pytest.raises(trio.TooSlowError), clock.fail_after(-1):
        await trio.sleep_forever()
    with clock.fail_after(60) as scope:
        await clock.sleep(0)
    assert not scope.cancelled_caught


@in_both_worlds
async def test_wall_time_is_a_time_of_this_century_and_advances(place: Place) -> None:
    clock = place.world.clock
    before = clock.wall_ms()
    assert 1_735_689_600_000 < before < 4_102_444_800_000
    await clock.sleep(SHORT_SECONDS)
    assert clock.wall_ms() - before >= SHORT_SECONDS * 1000 - 1


@in_both_worlds
async def test_a_bell_wakes_at_a_moment_or_when_it_is_rung(place: Place) -> None:
    clock = place.world.clock
    bell = clock.bell()
    deadline = clock.monotonic() + SHORT_SECONDS
    await bell.wait_until(deadline)
    assert clock.monotonic() >= deadline - 0.001
    for until in (clock.monotonic() + 3_600, inf):
        bell.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bell.wait_until, until)
            await trio.lowlevel.checkpoint()
            bell.ring()
        # It was rung, and nobody has cleared it.
        with trio.testing.assert_checkpoints():
            await bell.wait_until(until)
    bell.clear()
    with clock.move_on_after(SHORT_SECONDS) as scope:
        await bell.wait_until(inf)
    assert scope.cancelled_caught
    with trio.testing.assert_checkpoints():
        await bell.wait_until(clock.monotonic() - 5)
