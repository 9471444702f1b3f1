"""Damage to the files of a node that does not run."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

from jepsen_tests.cluster.errors import NotHereError
from kraftpy.faults.damage import draw_stray
from kraftpy.records.batch import RecordBatch
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.walker import walk_batches

__all__ = ["active_segments", "cut_tail", "flip_bits", "stray_write", "wipe"]


def active_segments(data_dir: str) -> list[Path]:
    """The log files that are written to, of users' topics, those with anything in them."""
    found = []
    for directory in sorted(Path(data_dir).iterdir()):
        is_user_topic = directory.is_dir() and not directory.name.startswith(("__", "."))
        segments = sorted(directory.glob("*.log")) if is_user_topic else []
        if segments and segments[-1].stat().st_size:
            found.append(segments[-1])
    return found


def flip_bits(data_dir: str, count: int, seed: int) -> list[str]:
    """Where, as `path:bit`. Only what a node checks when it starts after a crash is damaged: Kafka
    has no protection for what lies further back.

    Nor has its format any for base offsets and leader epochs, which must be judged by the batches
    around them (docs/format.md). So an offset is flipped only if nothing else in the file is.
    Epochs are spared: what is known of them depends on what a node had saved last.
    """
    draw = random.Random(seed)
    files = _some(data_dir)
    paths = [draw.choice(files) for _ in range(count)]
    done = []
    for path, times in Counter(paths).items():
        content = bytearray(path.read_bytes())
        spared = _unprotected(path, has_offsets=times > 1)
        for _ in range(times):
            position = draw.randrange(len(content))
            while position in spared:
                position = draw.randrange(len(content))
            bit = draw.randrange(8)
            content[position] ^= 1 << bit
            done.append(f"{path}:{position * 8 + bit}")
        path.write_bytes(content)
    return done


def _unprotected(path: Path, *, has_offsets: bool) -> set[int]:
    """The bytes of leader epochs, and of base offsets."""
    found: set[int] = set()
    with suppress(CorruptRecord):
        for batch in walk_batches(path.read_bytes()):
            if isinstance(batch, RecordBatch):
                found.update(range(batch.position + 12, batch.position + 16))
                if has_offsets:
                    found.update(range(batch.position, batch.position + 8))
    return found


def cut_tail(data_dir: str, count: int, seed: int) -> str:
    path = random.Random(seed).choice(_some(data_dir))
    with path.open("r+b") as file:
        file.truncate(max(0, path.stat().st_size - count))
    return str(path)


def stray_write(data_dir: str, seed: int) -> str:
    """Where, as `path:byte`. As with bits: where a node looks when it starts after a crash."""
    draw = random.Random(seed)
    path = draw.choice(_some(data_dir))
    change = draw_stray(path.read_bytes(), draw)
    if change is None:
        raise NotHereError(f"{path} has no two batches that differ")
    with path.open("r+b") as file:
        file.seek(change.position)
        file.write(change.data)
    return f"{path}:{change.position}"


def wipe(data_dir: str) -> None:
    """The directory itself stays: it may be a disk."""
    for path in Path(data_dir).iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _some(data_dir: str) -> list[Path]:
    found = active_segments(data_dir)
    if not found:
        raise NotHereError(f"{data_dir} has no log with anything in it")
    return found
