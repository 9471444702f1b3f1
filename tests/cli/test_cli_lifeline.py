"""The end of a pipe is noticed, and nothing before it."""

from __future__ import annotations

import os

import trio
import trio.testing

from kraftpy.cli.lifeline import wait_for_end_of_input


async def test_the_end_and_only_the_end() -> None:
    reading, writing = os.pipe()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_end_of_input, reading)
            os.write(writing, b"words that nobody reads")
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert len(nursery.child_tasks) == 1
            os.close(writing)
            with trio.fail_after(60):
                while nursery.child_tasks:  # noqa: ASYNC110 (the end of a task sets no event)
                    await trio.sleep(0.001)
    finally:
        os.close(reading)
