"""Small workloads for the crash tests: each a few steps, since that finds nearly everything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from cleaning_rig import keyed
from log_crash_model import parsed
from log_crash_scene import COMPACTED, CRASH, LogScene
from log_rig import NOW_MS

from kraftpy.log.log_config import LogConfig
from kraftpy.world.memory_disk_effects import Write

Workload = Callable[[LogScene], Awaitable[None]]


async def create(scene: LogScene) -> None:
    """A new partition directory, the first batch, and a flush."""
    await scene.crash([])
    await scene.fill(1)
    await scene.flush()


async def append(scene: LogScene) -> None:
    await scene.flush()
    scene.record()
    await scene.fill(2)
    await scene.flush()
    await scene.fill(2)


async def roll(scene: LogScene) -> None:
    """Two rolls before the owner gets round to a flush."""
    await scene.flush()
    scene.record()
    await scene.fill(5, epoch=1)
    await scene.work()
    await scene.fill(1, epoch=2)


async def roll_and_flush_each(scene: LogScene) -> None:
    scene.record()
    for _ in range(3):
        await scene.fill(2)
        await scene.flush()


async def roll_when_flushed(scene: LogScene) -> None:
    """The segment is completed after its last batch was flushed."""
    await scene.fill(1)
    await scene.flush()
    scene.record()
    await scene.fill(1)
    await scene.flush()
    await scene.fill(1)


async def epochs(scene: LogScene) -> None:
    """The checkpoint of leader epochs is rewritten."""
    await scene.flush()
    scene.record()
    await scene.fill(1, epoch=3)
    await scene.work()
    await scene.fill(1, epoch=5)
    await scene.flush()


async def producers(scene: LogScene) -> None:
    """Snapshots at each roll, and what follows them."""
    scene.record()
    for number in range(5):
        await scene.produce(7 + number % 2)
    await scene.flush()
    await scene.produce(7)


async def transactions(scene: LogScene) -> None:
    await scene.flush()
    scene.record()
    await scene.produce(7, transactional=True)
    await scene.produce(8, transactional=True)
    await scene.finish(7, is_commit=False)
    await scene.work()
    await scene.finish(8, is_commit=False)
    await scene.produce(7, transactional=True)
    await scene.flush()


async def truncate(scene: LogScene) -> None:
    """Within a segment, and what is appended next has the size of what was there."""
    await scene.fill(1)
    await scene.flush()
    await scene.fill(1)
    scene.record()
    await scene.truncate(scene.end - 2)
    await scene.fill(1, epoch=2, letter=b"b")
    await scene.flush()


async def truncate_segments(scene: LogScene) -> None:
    await scene.fill(7)
    await scene.flush()
    await scene.produce(7)
    scene.record()
    await scene.truncate(scene.end - 7)
    await scene.fill(3, epoch=2, letter=b"b")
    await scene.flush()


async def truncate_producers(scene: LogScene) -> None:
    """The log ends where an old snapshot was, and none of its producers has ever been."""
    await scene.fill(1)
    for producer_id in (7, 8, 7):
        await scene.produce(producer_id)
    await scene.fill(1)
    await scene.flush()
    scene.record()
    await scene.truncate(3)
    for _ in range(3):
        await scene.produce(9, epoch=2)
    await scene.flush()


async def truncate_fully(scene: LogScene) -> None:
    await scene.fill(3)
    await scene.flush()
    scene.record()
    await scene.truncate_fully(50)
    await scene.fill(2, epoch=2, letter=b"b")
    await scene.flush()


async def truncate_fully_again(scene: LogScene) -> None:
    """The log is empty already, so there are no epochs to be saved."""
    await scene.truncate_fully(50)
    scene.record()
    await scene.truncate_fully(70)
    await scene.fill(1, epoch=2)


async def truncate_fully_below(scene: LogScene) -> None:
    """The log begins anew at an offset that it has passed long ago."""
    await scene.truncate_fully(50)
    await scene.fill(5)
    await scene.flush()
    scene.record()
    await scene.truncate_fully(48)
    await scene.fill(4, epoch=2, letter=b"b")
    await scene.flush()


async def delete_records(scene: LogScene) -> None:
    await scene.fill(4, epoch=1)
    await scene.flush()
    scene.record()
    await scene.delete_records(4)
    await scene.retain(1)
    await scene.fill(1, epoch=1)


async def retention(scene: LogScene) -> None:
    """Several segments at once."""
    await scene.fill(8)
    await scene.flush()
    scene.record()
    scene.log.config = replace(scene.config, retention_bytes=scene.config.segment_bytes)
    await scene.retain(2)
    await scene.fill(1, epoch=1)
    await scene.unlink()


async def retention_of_everything(scene: LogScene) -> None:
    await scene.fill(3)
    await scene.flush()
    scene.record()
    scene.log.config = replace(scene.config, retention_ms=0)
    scene.rig.clock.now_ms += 100_000
    await scene.retain(len(scene.log.segments))
    await scene.fill(1)
    await scene.flush()


async def retention_of_the_only_segment(scene: LogScene) -> None:
    await scene.flush()
    scene.record()
    scene.log.config = replace(scene.config, retention_ms=0)
    scene.rig.clock.now_ms += 100_000
    await scene.retain(1)
    await scene.fill(1)


async def swap(scene: LogScene) -> None:
    """LOG-114: two segments become one."""
    await scene.fill(6)
    await scene.flush()
    scene.record()
    await scene.replace_segments(2, (0, (1, 4)))
    await scene.fill(1, epoch=1)
    await scene.unlink()


async def swap_after_swap(scene: LogScene) -> None:
    """LOG-114: a segment of that name was replaced before, and its files are still there."""
    await scene.fill(6)
    await scene.flush()
    await scene.replace_segments(2, (0, (0, 1, 4)))
    scene.record()
    await scene.replace_segments(1, (0, (0, 4)))
    await scene.flush()


async def swap_into_two(scene: LogScene) -> None:
    """LOG-114: as when a segment is split."""
    await scene.fill(3)
    await scene.flush()
    scene.record()
    await scene.replace_segments(1, (0, (0,)), (1, (1, 2)))


async def swap_and_lose_the_last(scene: LogScene) -> None:
    """LOG-114: nothing of the second segment stays.

    So a recovery that finds the new one can't tell that the second was to go, and keeps it.
    """
    await scene.fill(6)
    await scene.flush()
    scene.record()
    both = tuple(data for data in scene.batches if parsed(data).base_offset != 1)
    also = replace(scene.now(), batches=both)
    await scene.replace_segments(2, (0, (0, 2)), also=[also])


async def clean(scene: LogScene) -> None:
    """LOG-114: the cleaner, with its checkpoint."""
    for number in range(6):
        value = b"%d%03d" % (number % 2, scene.end)
        await scene.append(keyed((value[:1], value), timestamp_ms=NOW_MS + number))
    await scene.flush()
    scene.record()
    await scene.clean()
    kept = [parsed(data).base_offset for data in scene.batches]
    assert kept[-3:] == [5, 6, 7]
    assert len(kept) < 8
    await scene.fill(1)


async def recover_and_append(scene: LogScene) -> None:
    """What a recovery has cut off does not come back behind what was appended since."""
    await scene.fill(1)
    await scene.flush()
    scene.record()
    await scene.fill(3)
    unsynced = scene.disk.effects()
    first = next(each for each in unsynced if isinstance(each, Write) and ".log" in each.path)
    await scene.crash([each for each in unsynced if each is not first])
    assert scene.end == 3
    await scene.fill(1, epoch=1, letter=b"b")
    await scene.flush()


async def recover_and_drop_segments(scene: LogScene) -> None:
    """A batch is lost in one segment, and later segments are there."""
    await scene.flush()
    scene.record()
    await scene.fill(7)
    unsynced = scene.disk.effects()
    first = next(each for each in unsynced if isinstance(each, Write) and ".log" in each.path)
    await scene.crash([each for each in unsynced if each is not first])
    await scene.fill(3, epoch=1, letter=b"b")


async def close(scene: LogScene) -> None:
    await scene.produce(7)
    scene.record()
    await scene.close()


async def close_rolled(scene: LogScene) -> None:
    """With an empty active segment, and one before it that was not flushed."""
    await scene.fill(2)
    scene.log.roll()
    scene.record()
    await scene.close()


PREALLOCATED = replace(CRASH, preallocate=True)
WORKLOADS: dict[str, tuple[Workload, LogConfig]] = (
    {
        workload.__name__: (workload, CRASH)
        for workload in (
            create,
            append,
            roll,
            roll_and_flush_each,
            roll_when_flushed,
            epochs,
            producers,
            transactions,
            truncate,
            truncate_segments,
            truncate_producers,
            truncate_fully,
            truncate_fully_again,
            truncate_fully_below,
            delete_records,
            retention,
            retention_of_everything,
            retention_of_the_only_segment,
            recover_and_append,
            recover_and_drop_segments,
            close,
            close_rolled,
        )
    }
    | {
        workload.__name__: (workload, COMPACTED)
        for workload in (swap, swap_after_swap, swap_into_two, swap_and_lose_the_last, clean)
    }
    | {
        "preallocated": (roll, PREALLOCATED),
        "preallocated_when_flushed": (roll_when_flushed, PREALLOCATED),
        "preallocated_truncate": (truncate, PREALLOCATED),
    }
)


async def played(name: str) -> LogScene:
    """The scene of a workload: two batches first, not flushed."""
    workload, config = WORKLOADS[name]
    scene = LogScene(config)
    await scene.prepare()
    if workload is not create:
        await scene.open()
        await scene.fill(2)
    await workload(scene)
    return scene
