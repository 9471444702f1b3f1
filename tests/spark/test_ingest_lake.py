"""The lake's log: what counts, what a crash leaves, and who notices whom. Without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from kraftpy_spark.jobs.lake import Lake
from kraftpy_spark.jobs.lake_files import LocalFiles
from kraftpy_spark.jobs.lake_state import Commit, Conflict, LakeState, Span
from spark.lake_commits import CLICKS, FOLDER, Crash, WatchedFiles, added, crash, seen, write_batch


def test_a_commit_survives_its_writing_and_reading() -> None:
    commit = Commit("w", 3, "append", (added("a", 0, 9),), ("b",), 17, {CLICKS: 9})
    assert Commit.from_json(commit.to_json()) == commit
    before = LakeState(files={"b": added("b", 0, 1)}, version=4)
    state = before.after(commit)
    assert LakeState.from_json(state.to_json()) == state
    assert state.version == 5
    assert list(state.files) == [f"{FOLDER}/a.parquet"]


def test_a_batch_counts_once(tmp_path: Path) -> None:
    lake = Lake(LocalFiles(tmp_path))
    commit = Commit("w", 0, "append", (added("a", 0, 9),))
    write_batch(lake, commit)
    write_batch(lake, commit)
    assert lake.state().version == 0
    assert seen(tmp_path) == [f"{FOLDER}/a.parquet"]
    with pytest.raises(ValueError, match="in the lake already"):
        lake.state().after(commit)


def test_a_crash_at_any_change_leaves_every_batch_once(tmp_path: Path) -> None:
    """Every point of three batches, of which the last compacts the others, and of folding."""
    commits = [
        Commit("w", 0, "append", (added("a", 0, 9),)),
        Commit("w", 1, "append", (added("b", 10, 19),)),
        Commit("c", 0, "compact", (added("c", 0, 19),), tuple(added(n, 0, 0).path for n in "ab")),
        Commit("w", 2, "append", (added("d", 20, 29),)),
    ]
    for changes in itertools.count():
        root = tmp_path / str(changes)
        crashed = False
        files = WatchedFiles(root, partial(crash, changes))
        try:
            lake = Lake(files, fold_every=2)
            for commit in commits:
                write_batch(lake, commit)
        except Crash:
            crashed = True
        if crashed:
            held = Lake(LocalFiles(root)).visible_files()
            # A reader of the log sees whole commits, also while nobody has recovered it.
            assert {each.path for each in held} <= set(seen(root))
            again = Lake(LocalFiles(root), fold_every=2)
            again.recover()
            for commit in commits:
                write_batch(again, commit)
        assert seen(root) == [added(name, 0, 0).path for name in "cd"], changes
        assert Lake(LocalFiles(root)).files.names("_kraftpy/staging") == []
        assert sum(each.rows for each in Lake(LocalFiles(root)).visible_files()) == 30
        if not crashed:
            return


def test_two_writers_of_the_same_offsets_find_each_other(tmp_path: Path) -> None:
    one, other = Lake(LocalFiles(tmp_path)), Lake(LocalFiles(tmp_path))
    planned = other.state()
    write_batch(one, Commit("stream", 0, "append", (added("a", 0, 9),)))
    with pytest.raises(Conflict, match="some of the same offsets"):
        other.commit(Commit("backfill", 0, "append", (added("b", 9, 12),)), planned)
    # Neighbours, other partitions and a topic made anew are no reason.
    for number, (first, source) in enumerate(
        [(10, CLICKS), (0, CLICKS._replace(partition=1)), (0, CLICKS._replace(topic_id="id-2"))]
    ):
        commit = Commit("backfill", number, "append", (added(f"c{number}", first, 20, source),))
        other.commit(commit, planned)
    assert one.state() == other.state()


def test_a_compaction_of_files_that_are_gone_is_refused(tmp_path: Path) -> None:
    lake = Lake(LocalFiles(tmp_path))
    write_batch(lake, Commit("w", 0, "append", (added("a", 0, 9),)))
    planned = lake.state()
    gone = (added("a", 0, 9).path,)
    write_batch(lake, Commit("c1", 0, "compact", (added("b", 0, 9),), gone))
    with pytest.raises(Conflict, match="no longer in the lake"):
        lake.commit(Commit("c2", 0, "compact", (added("c", 0, 9),), gone), planned)


def test_a_number_that_was_folded_away_does_not_count(tmp_path: Path) -> None:
    """A writer that sleeps between reading the log and writing to it loses nothing."""

    class Sleepy(LocalFiles):
        dream: Callable[[], None] | None = None

        def create(self, path: str, content: bytes) -> bool:
            dream, self.dream = self.dream, None
            if dream is not None:
                dream()
            return super().create(path, content)

    files = Sleepy(tmp_path)
    sleeper, busy = Lake(files), Lake(LocalFiles(tmp_path), fold_every=2)

    def meanwhile() -> None:
        for number in range(4):
            name, first = f"busy{number}", 100 + number
            write_batch(busy, Commit("busy", number, "append", (added(name, first, first),)))

    files.dream = meanwhile
    sleeper.commit(Commit("sleeper", 0, "append", (added("s", 0, 9),)), sleeper.state())
    fresh = Lake(LocalFiles(tmp_path)).state()
    assert fresh.is_done("sleeper", 0)
    assert fresh.is_done("busy", 3)
    assert fresh.version == 4


def test_another_process_may_finish_a_commit_and_go_on(tmp_path: Path) -> None:
    slow, quick = Lake(LocalFiles(tmp_path)), Lake(LocalFiles(tmp_path))
    commit = Commit("w", 0, "append", (added("a", 0, 9),))
    folder = slow.staging("w", 0)
    assert slow.files.create(f"{folder}/{commit.added[0].staged}", b"rows")
    slow.commit(commit, LakeState())
    assert quick.recover() == [commit.staging]
    write_batch(quick, Commit("c", 0, "compact", (added("b", 0, 9),), (commit.added[0].path,)))
    slow.publish(commit)
    assert seen(tmp_path) == [f"{FOLDER}/b.parquet"]


class Meeting:
    """A writer, one who recovers the lake in the middle of that, and a third in the middle of both.

    The third recovers the lake, too, and compacts what it finds.
    """

    def __init__(self, root: Path, when: tuple[int, int]) -> None:
        self._when = when
        self.met = [False, False]
        self._third = Lake(LocalFiles(root))
        self._second = Lake(WatchedFiles(root, self._during_recovery))
        self.first = Lake(WatchedFiles(root, self._during_writing))

    def _during_writing(self, number: int) -> None:
        if number == self._when[0]:
            self.met[0] = True
            self._second.recover()

    def _during_recovery(self, number: int) -> None:
        if number == self._when[1]:
            self.met[1] = True
            self._third.recover()
            paths = tuple(each.path for each in self._third.visible_files())
            write_batch(self._third, Commit("c", 0, "compact", (added("c", 0, 19),), paths))


def test_who_recovers_beside_a_live_writer_does_no_harm(tmp_path: Path) -> None:
    """As an audit does: at any change, and with a third one at any change of that."""
    files = (added("a", 0, 9), replace(added("b", 10, 19), staged=f"{FOLDER}/part-1.parquet"))
    meetings = []
    for at in itertools.count():
        for then in itertools.count():
            root = tmp_path / f"{at}-{then}"
            meeting = Meeting(root, (at, then))
            write_batch(meeting.first, Commit("w", 0, "append", files))
            names = "c" if meeting.met[1] else "ab"
            assert seen(root) == [added(name, 0, 0).path for name in names], (at, then)
            for path in seen(root):
                assert (root / path).read_text() == path
            fresh = Lake(LocalFiles(root))
            assert fresh.recover() == []
            assert sum(each.rows for each in fresh.visible_files()) == 20
            meetings.append(meeting.met)
            if not meeting.met[1]:
                break
        if not meeting.met[0]:
            break
    # To publish it, two files are moved and a folder is deleted; and so is it by the second one.
    assert meetings.count([True, True]) == 3 * 3


def test_a_commit_that_is_not_finished_is_not_folded_away(tmp_path: Path) -> None:
    """Otherwise nobody would know what its staging folder is for."""
    slow, busy = Lake(LocalFiles(tmp_path)), Lake(LocalFiles(tmp_path), fold_every=2)
    commit = Commit("slow", 0, "append", (added("a", 0, 9),))
    folder = slow.staging("slow", 0)
    assert slow.files.create(f"{folder}/{commit.added[0].staged}", b"rows")
    slow.commit(commit, LakeState())
    for number in range(4):
        name, first = f"busy{number}", 100 + number
        write_batch(busy, Commit("busy", number, "append", (added(name, first, first),)))
    assert commit.added[0].path not in seen(tmp_path)
    fresh = Lake(LocalFiles(tmp_path))
    assert fresh.recover() == [commit.staging]
    assert commit.added[0].path in seen(tmp_path)
    assert len(fresh.visible_files()) == 5


def test_spans_meet_at_their_ends() -> None:
    assert Span(0, 5).meets(Span(5, 9))
    assert not Span(0, 5).meets(Span(6, 9))
    assert not Span(3, 2).meets(Span(5, 9))
