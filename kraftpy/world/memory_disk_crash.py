"""Power loss: which unsynced effects reached the medium, and what of them.

A policy is a function from the unsynced effects, in the order of issue, to the survivors among
them; what it draws comes from the Random given. Some survivors are less than was issued: a write
cut short, single sectors of it, or its length with other bytes. An effect on names among the
survivors that builds on a lost one is lost as well (see memory_disk_image).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from random import Random
from typing import assert_never

from kraftpy.world.memory_disk_effects import (
    Create,
    NameEffect,
    Remove,
    Rename,
    UnsyncedEffect,
    Write,
)

__all__ = ["SECTOR_SIZES_BYTES", "CrashPolicy", "draw_crash_policy", "sectors", "survivors"]

SECTOR_SIZES_BYTES = (512, 4096)


class CrashPolicy(Enum):
    DROP_ALL = "drop-all"
    """Everything unsynced is lost."""

    KEEP_ALL = "keep-all"
    """Nothing is lost: the process was killed, the machine lives on."""

    PREFIX = "prefix"
    """A random number of effects survives, the first ones over all files and directories."""

    SUBSET = "subset"
    """Each sector of each write survives by chance, and so does each other effect; later ones may
    survive earlier ones.
    """

    TORN_LAST = "torn-last"
    """The last write stops at a random byte; what was issued before it is whole, what was issued
    after it is lost.
    """

    SIZE_FIRST = "size-first"
    """Sizes and names survive, written bytes don't: where a file grew there are zeros or bytes that
    were once written elsewhere.
    """

    DIR_LAG = "dir-lag"
    """File data is whole, but each directory stayed behind by at least one effect. Or the reverse:
    names are whole, and each file stayed behind.
    """


def draw_crash_policy(random: Random) -> CrashPolicy:
    return random.choice(list(CrashPolicy))


def survivors(
    policy: CrashPolicy, effects: Sequence[UnsyncedEffect], random: Random
) -> list[UnsyncedEffect]:
    match policy:
        case CrashPolicy.DROP_ALL:
            return []
        case CrashPolicy.KEEP_ALL:
            return list(effects)
        case CrashPolicy.PREFIX:
            return list(effects[: random.randint(0, len(effects))])
        case CrashPolicy.SUBSET:
            return _subset(effects, random)
        case CrashPolicy.TORN_LAST:
            return _torn_last(effects, random)
        case CrashPolicy.SIZE_FIRST:
            return _size_first(effects, random)
        case CrashPolicy.DIR_LAG:
            return _directory_lag(effects, random)
    assert_never(policy)


def sectors(write: Write, sector_bytes: int) -> list[Write]:
    """The write in parts, cut where the file's sectors begin."""
    first = write.position // sector_bytes * sector_bytes
    return [
        write.between(start, start + sector_bytes)
        for start in range(first, write.end, sector_bytes)
    ]


def _subset(effects: Sequence[UnsyncedEffect], random: Random) -> list[UnsyncedEffect]:
    sector_bytes = random.choice(SECTOR_SIZES_BYTES)
    chance = random.random()
    pieces: list[UnsyncedEffect] = []
    for effect in effects:
        pieces += sectors(effect, sector_bytes) if isinstance(effect, Write) else [effect]
    return [piece for piece in pieces if random.random() < chance]


def _torn_last(effects: Sequence[UnsyncedEffect], random: Random) -> list[UnsyncedEffect]:
    for index in reversed(range(len(effects))):
        last = effects[index]
        if isinstance(last, Write):
            cut = last.position + random.randrange(len(last.data))
            return [*effects[:index], last.between(last.position, cut)]
    return list(effects)


def _size_first(effects: Sequence[UnsyncedEffect], random: Random) -> list[UnsyncedEffect]:
    written = [effect.data for effect in effects if isinstance(effect, Write)]
    kept: list[UnsyncedEffect] = []
    for effect in effects:
        if not isinstance(effect, Write):
            kept.append(effect)
        elif effect.end > effect.size_before:
            grown = effect.between(effect.size_before, effect.end)
            length = len(grown.data)
            if random.random() < 0.5:
                content = bytes(length)
            else:
                stale = random.choice(written)
                start = random.randrange(len(stale))
                content = (stale[start:] + stale * (length // len(stale) + 1))[:length]
            kept.append(replace(grown, data=content))
    return kept


def _directory_lag(effects: Sequence[UnsyncedEffect], random: Random) -> list[UnsyncedEffect]:
    names_lag = random.random() < 0.5
    # Of each directory, or each file, that lags: how many effects it has and how many it keeps.
    counts: dict[int, int] = {}
    for effect in effects:
        if isinstance(effect, NameEffect) is names_lag:
            inode = _inode_changed(effect)
            counts[inode] = counts.get(inode, 0) + 1
    left = {inode: random.randrange(count) for inode, count in counts.items()}
    kept = []
    for effect in effects:
        if isinstance(effect, NameEffect) is names_lag:
            inode = _inode_changed(effect)
            left[inode] -= 1
            if left[inode] < 0:
                continue
        kept.append(effect)
    return kept


def _inode_changed(effect: UnsyncedEffect) -> int:
    return effect.directory if isinstance(effect, Create | Remove | Rename) else effect.inode
