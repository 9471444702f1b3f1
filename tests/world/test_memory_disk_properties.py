"""JEP-142: whatever was done, a crash leaves what was synced and invents nothing.

Random histories in one directory, against a model that is a few dictionaries.
"""

from __future__ import annotations

from random import Random
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftpy.world import File
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_effects import (
    Create,
    Remove,
    Rename,
    Resize,
    UnsyncedEffect,
    Write,
)

_NAMES = ["a", "b", "c", "d"]
_name = st.sampled_from(_NAMES)
_operations = st.lists(
    st.one_of(
        st.tuples(st.just("create"), _name),
        st.tuples(st.just("write"), _name, st.binary(min_size=1, max_size=6), st.integers(0, 10)),
        st.tuples(st.just("append"), _name, st.integers(1, 255), st.integers(1, 1500)),
        st.tuples(st.just("truncate"), _name, st.integers(0, 1000)),
        st.tuples(st.just("sync"), _name),
        st.tuples(st.just("rename"), _name, _name),
        st.tuples(st.just("unlink"), _name),
        st.tuples(st.just("sync_names")),
    ),
    min_size=5,
    max_size=60,
)


class Model:
    """One directory: which names lead to which files, and what is in the files."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.contents: dict[int, bytes] = {}
        self.durable_names: dict[str, int] = {}
        self.durable_contents: dict[int, bytes] = {}

    def tree(self) -> dict[str, bytes]:
        return {f"/{name}": self.contents[file] for name, file in self.names.items()}

    def durable_tree(self) -> dict[str, bytes]:
        return {
            f"/{name}": self.durable_contents.get(file, b"")
            for name, file in self.durable_names.items()
        }

    def write(self, file: int, data: bytes, position: int) -> None:
        old = self.contents[file].ljust(position, b"\0")
        self.contents[file] = old[:position] + data + old[position + len(data) :]


async def run(operations: list[tuple[Any, ...]]) -> tuple[MemoryDisk, Model, dict[int, int]]:
    """The disk and the model after the history, and each of the model's files' inode."""
    disk, model = MemoryDisk(), Model()
    handles: dict[int, File] = {}
    inodes: dict[int, int] = {}
    for kind, *arguments in operations:
        file = model.names.get(arguments[0]) if arguments else None
        if kind == "sync_names":
            await disk.sync_directory("/")
            model.durable_names = model.names.copy()
        elif kind == "create":
            if file is None:
                file = len(model.contents)
                model.names[arguments[0]] = file
                model.contents[file] = b""
                inodes[file] = disk.image.next_effect_id
                handles[file] = disk.open(f"/{arguments[0]}", write=True, create=True)
        elif file is not None:
            handle, content = handles[file], model.contents[file]
            match kind, *arguments[1:]:
                case "write", data, position:
                    handle.pwrite([data], position)
                    model.write(file, data, position)
                case "append", byte, length:
                    handle.pwrite([bytes([byte]) * length], len(content))
                    model.write(file, bytes([byte]) * length, len(content))
                case "truncate", size:
                    handle.truncate(size)
                    model.contents[file] = content[:size].ljust(size, b"\0")
                case ("sync",):
                    await handle.sync()
                    model.durable_contents[file] = content
                case "rename", new:
                    await disk.rename(f"/{arguments[0]}", f"/{new}")
                    del model.names[arguments[0]]
                    model.names[new] = file
                case ("unlink",):
                    await disk.unlink(f"/{arguments[0]}")
                    del model.names[arguments[0]]
    return disk, model, inodes


def tree(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: inode.seen.read(inode.seen.size, 0) for path, inode in disk.image.files()}


@settings(max_examples=200)
@given(_operations)
def test_synced_data_is_never_lost_and_keep_all_is_what_was_seen(
    operations: list[tuple[Any, ...]],
) -> None:
    disk, model, _ = trio.run(run, operations)
    assert tree(disk) == model.tree()
    kept = disk.copy()
    kept.crash(CrashPolicy.KEEP_ALL, Random(0))
    assert tree(kept) == model.tree()
    assert kept.effects() == []
    disk.crash(CrashPolicy.DROP_ALL, Random(0))
    assert tree(disk) == model.durable_tree()


@settings(max_examples=150)
@given(_operations, st.integers(0, 1_000_000))
def test_what_a_crash_leaves_can_be_explained(operations: list[tuple[Any, ...]], seed: int) -> None:
    disk, model, inodes = trio.run(run, operations)
    for policy in CrashPolicy:
        for nth in range(4):
            copy = disk.copy()
            copy.crash(policy, Random(seed + nth))
            explain(copy, policy, disk.effects(), model, inodes)


def explain(
    crashed: MemoryDisk,
    policy: CrashPolicy,
    unsynced: list[UnsyncedEffect],
    model: Model,
    inodes: dict[int, int],
) -> None:
    files = {path.removeprefix("/"): inode for path, inode in crashed.image.files()}
    file_of = {inode: file for file, inode in inodes.items()}
    found = {name: file_of[inode.number] for name, inode in files.items()}
    explain_names(found, model, unsynced, file_of)
    for inode in files.values():
        durable = model.durable_contents.get(file_of[inode.number], b"")
        content = inode.seen.read(inode.seen.size, 0)
        own = [
            effect
            for effect in unsynced
            if isinstance(effect, Write | Resize) and effect.inode == inode.number
        ]
        explain_content(content, durable, own, may_be_stale=policy is CrashPolicy.SIZE_FIRST)


def explain_names(
    found: dict[str, int],
    model: Model,
    unsynced: list[UnsyncedEffect],
    file_of: dict[int, int],
) -> None:
    assert len(set(found.values())) == len(found), "a file has two names"
    possible = list(model.durable_names.items())
    moved: list[int] = []
    removed: list[int] = []
    for effect in unsynced:
        if isinstance(effect, Create):
            possible.append((effect.name, file_of[effect.inode]))
        elif isinstance(effect, Rename):
            possible.append((effect.new_name, file_of[effect.inode]))
            moved.append(file_of[effect.inode])
            if effect.replaced is not None:
                removed.append(file_of[effect.replaced])
        elif isinstance(effect, Remove):
            removed.append(file_of[effect.inode])
    assert all(item in possible for item in found.items()), "a name was invented"
    for name, file in model.durable_names.items():
        assert file in found.values() or file in removed, "a synced file is gone"
        assert found.get(name) == file or file in moved + removed, "a synced name is gone"


def explain_content(
    content: bytes, durable: bytes, effects: list[Write | Resize], *, may_be_stale: bool
) -> None:
    sizes = [effect.size if isinstance(effect, Resize) else effect.end for effect in effects]
    assert len(content) <= max([len(durable), *sizes])
    assert len(content) >= min([len(durable), *(e.size for e in effects if isinstance(e, Resize))])
    writes = [effect for effect in effects if isinstance(effect, Write)]
    if may_be_stale and writes:
        return
    for position, byte in enumerate(content):
        may_be = [durable[position]] if position < len(durable) else [0]
        if any(isinstance(effect, Resize) for effect in effects):
            may_be.append(0)
        may_be += [
            write.data[position - write.position]
            for write in writes
            if write.position <= position < write.end
        ]
        assert byte in may_be, position
