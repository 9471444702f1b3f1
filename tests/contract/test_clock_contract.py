"""The contract of the Clock port."""

from __future__ import annotations

import pytest
import trio
from both_worlds import Place, in_both_worlds

# Kept short, because one of the clocks is real.
SHORT_SECONDS = 0.02


@in_both_worlds
async def test_monotonic_time_advances_and_its_forms_agree(place: Place) -> None:
    clock = place.world.clock
    before, before_ms = clock.monotonic(), clock.monotonic_ms()
    await clock.sleep(SHORT_SECONDS)
    after, after_ms = clock.monotonic(), clock.monotonic_ms()
    assert after - before >= SHORT_SECONDS * 0.999
    assert abs((after_ms - before_ms) - (after - before) * 1000) <= 2
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
