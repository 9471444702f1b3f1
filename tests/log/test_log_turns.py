"""The lock of a log's changes."""

from __future__ import annotations

import trio
import trio.testing

from kraftpy.log.turns import Turn


async def test_one_at_a_time_and_in_order() -> None:
    turn = Turn()
    seen: list[str] = []

    async def work(name: str) -> None:
        async with turn:
            seen.append(f"{name} in")
            await trio.testing.wait_all_tasks_blocked()
            seen.append(f"{name} out")

    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(work, name)
            await trio.testing.wait_all_tasks_blocked(0.001)
    assert [each for each in seen if each.endswith("in")] == ["a in", "b in", "c in"]
    assert all(first[0] == second[0] for first, second in zip(seen[::2], seen[1::2], strict=True))
    assert not turn.locked()


async def test_who_gives_up_waiting_takes_nothing_along() -> None:
    turn = Turn()

    async def wait() -> None:
        async with turn:
            raise AssertionError

    async with trio.open_nursery() as nursery, turn:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert not turn.locked()


async def test_a_body_that_fails_ends_its_turn() -> None:
    turn = Turn()
    try:
        async with turn:
            raise OSError
    except OSError:
        assert not turn.locked()
    async with turn:
        assert turn.locked()
