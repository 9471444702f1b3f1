"""Small workloads for crash tests of the manager and its directories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio
from log_crash_home import OTHER_ID, TOPIC_ID, HomeScene

HomeWorkload = Callable[[HomeScene], Awaitable[None]]


async def first_start(scene: HomeScene) -> None:
    """Directories, identities and checkpoints appear."""
    await scene.start()


async def create(scene: HomeScene) -> None:
    await scene.start()
    await scene.create("x")
    await scene.fill("x", 1)
    scene.record()
    await scene.create("y", OTHER_ID)
    await scene.fill("y", 2)


async def create_quickly(scene: HomeScene) -> None:
    """A log of several segments that is not durable until it is flushed, and is from then on."""
    await scene.start()
    await scene.create("x")
    scene.record()
    await scene.create_quickly("y", OTHER_ID)
    await scene.fill("y", 5, flush=False)
    await scene.checkpoint()
    await scene.fill("y", 1)
    await scene.checkpoint()


async def flush_quickly(scene: HomeScene) -> None:
    """Of two segments, of which neither has a durable name, the first must not be lost alone."""
    await scene.start()
    await scene.create_quickly("x", TOPIC_ID)
    await scene.fill("x", 4, flush=False)
    scene.record()
    await scene.fill("x", 0)


async def settle(scene: HomeScene) -> None:
    """New logs, empty or not, become durable without a flush; another is deleted before."""
    await scene.start()
    scene.record()
    await scene.create_quickly("x", TOPIC_ID)
    await scene.create_quickly("y", OTHER_ID)
    await scene.create_quickly("z", OTHER_ID)
    await scene.fill("y", 1, flush=False)
    await scene.delete("z")
    await scene.settle()


async def truncate_quickly(scene: HomeScene) -> None:
    """A log that is truncated before anything in it was flushed."""
    await scene.start()
    scene.record()
    await scene.create_quickly("x", TOPIC_ID)
    await scene.fill("x", 5, flush=False)
    await scene.truncate("x", 2)
    await scene.fill("x", 1, epoch=1, letter=b"b")


async def stop_quickly(scene: HomeScene) -> None:
    await scene.start()
    scene.record()
    await scene.create_quickly("x", TOPIC_ID)
    await scene.create_quickly("y", OTHER_ID)
    await scene.fill("y", 2, flush=False)
    await scene.stop()


async def checkpoint(scene: HomeScene) -> None:
    """Recovery points and high watermarks are rewritten while the log grows."""
    await scene.start()
    await scene.create("x")
    await scene.fill("x", 2)
    await scene.checkpoint()
    scene.record()
    await scene.fill("x", 3, epoch=1)
    await scene.checkpoint()
    await scene.fill("x", 1, epoch=1, flush=False)


async def truncate(scene: HomeScene) -> None:
    """A recovery point beyond the end must not outlive the truncation."""
    await scene.start()
    await scene.create("x")
    await scene.fill("x", 5)
    await scene.checkpoint()
    scene.record()
    await scene.truncate("x", 2)
    await scene.fill("x", 4, epoch=1, letter=b"b")


async def delete_records(scene: HomeScene) -> None:
    await scene.start()
    await scene.create("x")
    await scene.fill("x", 4)
    await scene.checkpoint()
    scene.record()
    await scene.delete_records("x", 2)
    await scene.fill("x", 1)


async def delete(scene: HomeScene) -> None:
    """And another of that name, which must not inherit anything."""
    await scene.start()
    await scene.create("x")
    await scene.fill("x", 4)
    await scene.checkpoint()
    scene.record()
    await scene.delete("x")
    await scene.create("x", OTHER_ID)
    await scene.fill("x", 1, letter=b"b")


async def move(scene: HomeScene) -> None:
    await scene.start()
    await scene.create("x", TOPIC_ID, "a")
    await scene.fill("x", 4, epoch=1)
    await scene.checkpoint()
    await scene.fill("x", 1, epoch=2, flush=False)
    scene.record()
    await scene.move("x", "b")
    await scene.fill("x", 1, epoch=2)


async def stop(scene: HomeScene) -> None:
    await scene.start()
    await scene.create("x")
    await scene.create("y", OTHER_ID, "b")
    await scene.fill("x", 4, flush=False)
    scene.record()
    await scene.stop()


async def start_again(scene: HomeScene) -> None:
    """After an orderly stop: from the first moment a crash is one again."""
    await scene.start()
    await scene.create("x")
    await scene.fill("x", 2)
    await scene.stop()
    scene.record()
    await scene.start()
    await scene.fill("x", 2)


HOME_WORKLOADS: dict[str, HomeWorkload] = {
    workload.__name__: workload
    for workload in (
        first_start,
        create,
        create_quickly,
        flush_quickly,
        settle,
        truncate_quickly,
        stop_quickly,
        checkpoint,
        truncate,
        delete_records,
        delete,
        move,
        stop,
        start_again,
    )
}


async def played_at_home(name: str) -> HomeScene:
    """The scene of a workload; its manager is gone, like a process that was killed."""
    async with trio.open_nursery() as nursery:
        scene = HomeScene(nursery)
        await HOME_WORKLOADS[name](scene)
        nursery.cancel_scope.cancel()
    return scene
