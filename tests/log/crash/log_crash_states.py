"""Which states a loss of power can leave, as lists of the unsynced effects that reached the medium.

Of all subsets there are too many. Those that find nearly every mistake are few: everything up to
some moment, everything but one effect, any combination of the last eight, and a last write that is
torn, or that made its file longer and left no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random

from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_crash import SECTOR_SIZES_BYTES
from kraftpy.world.memory_disk_effects import ROOT, UnsyncedEffect, Write
from kraftpy.world.memory_disk_image import FileInode

SUBSET_EFFECTS = 8
_RANDOM_CUTS = 2


@dataclass(frozen=True)
class Survival:
    """One way to lose power. `label` says which, to people."""

    label: str
    survivors: tuple[UnsyncedEffect, ...]
    # Deserves a crash at every effect of its recovery; of the others a few do.
    is_plain: bool


def survivals(effects: Sequence[UnsyncedEffect], random: Random) -> Iterator[Survival]:
    """The states in which power can be lost while `effects` are unsynced. Some are equal."""
    whole = tuple(effects)
    count = len(whole)
    for kept in range(count + 1):
        yield Survival(f"the first {kept} of {count}", whole[:kept], is_plain=True)
    for omitted in range(count - 1):
        survivors = whole[:omitted] + whole[omitted + 1 :]
        yield Survival(f"all of {count} but number {omitted}", survivors, is_plain=True)
    yield from _torn(whole, random)
    early, late = whole[:-SUBSET_EFFECTS], whole[-SUBSET_EFFECTS:]
    for mask in range(1 << len(late)):
        chosen = tuple(effect for bit, effect in enumerate(late) if mask >> bit & 1)
        label = f"of the last {len(late)} of {count}: {mask:0{len(late)}b} (last bit first)"
        yield Survival(label, early + chosen, is_plain=False)


def _torn(whole: tuple[UnsyncedEffect, ...], random: Random) -> Iterator[Survival]:
    for index in reversed(range(len(whole))):
        last = whole[index]
        if isinstance(last, Write):
            break
    else:
        return
    size = len(last.data)
    cuts = {1, size - 1, *(random.randrange(size) for _ in range(_RANDOM_CUTS))}
    for sector in SECTOR_SIZES_BYTES:
        first = last.position // sector * sector + sector
        cuts |= {end - last.position for end in range(first, last.end, sector)}
    before, after = whole[:index], whole[index + 1 :]
    for cut in sorted(cuts - {0, size}):
        torn = last.between(last.position, last.position + cut)
        yield Survival(f"number {index} cut to {cut} bytes", (*before, torn), is_plain=True)
        if after:
            label = f"number {index} cut to {cut} bytes, and what follows"
            yield Survival(label, (*before, torn, *after), is_plain=False)
    empty = replace(last, data=bytes(size))
    yield Survival(f"number {index} as zeros", (*before, empty, *after), is_plain=True)


def fingerprint(disk: MemoryDisk) -> bytes:
    """Equal for disks with equal content."""
    image = disk.image
    digest = blake2b(digest_size=16)
    waiting = [("", ROOT)]
    while waiting:
        path, number = waiting.pop()
        inode = image.inodes[number]
        if isinstance(inode, FileInode):
            digest.update(f"F{path}\0{inode.seen.size}\0{len(inode.seen.data)}\0".encode())
            digest.update(inode.seen.data)
        else:
            digest.update(f"D{path}\0{len(inode.seen)}\0".encode())
            children = sorted(inode.seen.items(), reverse=True)
            waiting += [(f"{path}/{name}", child) for name, child in children]
    return digest.digest()


def files_on(disk: MemoryDisk) -> dict[str, bytes]:
    """Every file with its content, but for those on their way out."""
    found = {}
    for path, inode in disk.image.files():
        content = inode.seen.read(inode.seen.size, 0)
        if path.endswith("-offset-checkpoint"):
            # The order of entries is that in which logs happened to be loaded.
            content = b"".join(sorted(content.splitlines(keepends=True)))
        if not path.endswith(".deleted") and "-delete/" not in path:
            found[path] = content
    return found
