"""JEP-159: the data directories of every release open, and clients find in them what was there."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from golden_directories import HERE, KINDS, facts, on_a_node
from support.simulated_nodes import SimulatedNodes

from kraftpy import __version__
from kraftpy.world import World

ARCHIVES = sorted(HERE.glob("*/*.tar.xz"))


def test_this_version_has_its_archives() -> None:
    """JEP-159: a release without them would be forgotten."""
    found = {path.name for path in ARCHIVES if path.parent.name == __version__}
    assert found == {f"{kind}.tar.xz" for kind in KINDS}, "tests/golden/golden_directories.py"


def read(archive: Path) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    async def look(rig: SimulatedNodes, world: World) -> None:
        found.append(await facts(world))
        # And it can be written to.
        result = await rig.produce("plain", rig.batch(b"new"))
        assert (result.error_code, result.base_offset > 0) == (0, True)

    on_a_node(look, archive)
    return found[0]


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda each: f"{each.parent.name}-{each.stem}")
def test_the_directory_of_a_release_opens(archive: Path) -> None:
    """JEP-159: topics with their settings, records, what was aborted, and a group's offsets."""
    expected = json.loads(archive.with_suffix("").with_suffix(".json").read_text())
    assert read(archive) == expected
    # Not vacuous: something of each kind is in it.
    assert set(expected["topics"]) >= {"plain", "compacted", "exact"}
    values = [record[2] for record in expected["records"]["exact-0"]]
    assert values == ["commit-0", "commit-1", "commit-2"] * 2
    assert expected["committed"] == [7, "seven"]


def test_a_directory_that_lacks_something_is_not_taken_for_whole(tmp_path: Path) -> None:
    """JEP-159: the comparison notices what a format that is no longer read would lose."""
    archive = next(path for path in ARCHIVES if path.name == "unclean.tar.xz")
    shorter = tmp_path / "unclean.tar.xz"
    with tarfile.open(archive) as whole, tarfile.open(shorter, "w:xz") as kept:
        for entry in whole:
            content = whole.extractfile(entry)
            assert content is not None
            data = content.read()
            if "/exact-0/" in f"/{entry.name}" and entry.name.endswith(".log"):
                data = data[: len(data) // 2]
                entry.size = len(data)
            kept.addfile(entry, io.BytesIO(data))
    expected = json.loads(archive.with_suffix("").with_suffix(".json").read_text())
    assert read(shorter) != expected
