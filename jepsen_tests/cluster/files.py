"""Damage to the files of a node that does not run."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from jepsen_tests.cluster.errors import NotHereError

__all__ = ["active_segments", "cut_tail", "flip_bits", "wipe"]


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
    """
    draw = random.Random(seed)
    done = []
    for _ in range(count):
        path = draw.choice(_some(data_dir))
        with path.open("r+b") as file:
            position = draw.randrange(path.stat().st_size)
            bit = draw.randrange(8)
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ (1 << bit)]))
        done.append(f"{path}:{position * 8 + bit}")
    return done


def cut_tail(data_dir: str, count: int, seed: int) -> str:
    path = random.Random(seed).choice(_some(data_dir))
    with path.open("r+b") as file:
        file.truncate(max(0, path.stat().st_size - count))
    return str(path)


def wipe(data_dir: str) -> None:
    shutil.rmtree(data_dir)


def _some(data_dir: str) -> list[Path]:
    found = active_segments(data_dir)
    if not found:
        raise NotHereError(f"{data_dir} has no log with anything in it")
    return found
