"""A lake of Parquet files with a log of commits: every batch is in it whole, and once.

    lake/
      event_date=2026-11-16/event_hour=13/<writer>-<batch>-<number>.parquet
      _kraftpy/log/00000000000000000012.json         one commit
      _kraftpy/log/00000000000000000100.state.json   all commits up to this one, in one
      _kraftpy/staging/<writer>-<batch>/...          what a batch is writing

The way of a batch:

1. Spark writes its files into the staging folder, which readers don't see (it begins with `_`).
2. The commit is put into the log, under the next free number. This is the moment that counts.
   Before it, a crash leaves a folder that the batch's next attempt empties. After it, the batch is
   done, and its next attempt does nothing but step 3.
3. The files are moved to their places and files that the commit takes away are deleted, then the
   staging folder. A crash in between is made good by whoever opens the lake next (`recover`).

So `spark.read.parquet(lake)`, or DuckDB, or pandas, sees no record twice and loses none, but for a
moment it may see a part of a batch, and a compaction half done. `visible_files` is exact: a commit
counts from when its staging folder is gone. So is a reader of Delta, if the lake was made as a
Delta table (delta_log.py): it is told of commits that are finished, in their order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from kraftpy_spark.jobs.delta_log import DeltaLog
from kraftpy_spark.jobs.lake_files import LakeFiles
from kraftpy_spark.jobs.lake_state import AddedFile, Commit, LakeState

__all__ = ["Lake"]

_LOG = "_kraftpy/log"
_STAGING = "_kraftpy/staging"
_COMMIT = re.compile(r"(\d{20})\.json")
_STATE = re.compile(r"(\d{20})\.state\.json")
_FOLD_EVERY = 100


class Lake:
    def __init__(
        self, files: LakeFiles, *, delta: DeltaLog | None = None, fold_every: int = _FOLD_EVERY
    ) -> None:
        self.files = files
        self._delta = delta
        self._fold_every = fold_every
        self._state = LakeState()
        # Commits since the last fold, by number: those that may be to be finished, or told of.
        self._commits: dict[int, Commit] = {}

    @property
    def is_delta(self) -> bool:
        return self._delta is not None

    def state(self) -> LakeState:
        """What is committed now; reads no more of the log than is new."""
        while True:
            try:
                return self._read_on()
            except FileNotFoundError:
                # Folded between the listing and the reading: the state's file is there by now.
                continue

    def recover(self) -> list[str]:
        """Finish commits whose writers did not; their staging folders."""
        self.state()
        left = self._unfinished()
        for commit in left:
            self._publish(commit)
        self._tell()
        return [commit.staging for commit in left]

    def staging(self, writer: str, batch: int) -> str:
        """An empty folder for a batch; where it is, within the lake."""
        folder = f"{_STAGING}/{Commit(writer, batch, 'append', ()).staging}"
        self.files.delete(folder)
        return folder

    def commit(self, commit: Commit, planned: LakeState) -> LakeState:
        """Have it count; `planned` is the state that it was made from. Raises Conflict.

        The staging folder is the caller's to `publish` then.
        """
        text = commit.to_json().encode()
        while True:
            state = self.state()
            if state.is_done(commit.writer, commit.batch):
                return state
            state.check(commit, planned)
            path = f"{_LOG}/{state.version + 1:020d}.json"
            if self.files.create(path, text) and not self.state().is_done(
                commit.writer, commit.batch
            ):
                # The number was folded away meanwhile, so nobody reads it: it does not count.
                self.files.delete(path)

    def publish(self, commit: Commit) -> None:
        """Move a commit's files to their places. Idempotent."""
        self._publish(commit)
        self._tell()
        if (self._state.version + 1) % self._fold_every == 0:
            self._fold()

    def visible_files(self) -> list[AddedFile]:
        """What a reader may read: whole commits, each file at its place."""
        state = self.state()
        # In this order: a commit that was read and has no staging folder afterwards is finished.
        hidden = {each.path for commit in self._unfinished() for each in commit.added}
        return [each for path, each in state.files.items() if path not in hidden]

    def uris(self, files: Iterable[AddedFile]) -> list[str]:
        return [f"{self.files.root}/{each.path}" for each in files]

    def staged_uri(self, folder: str) -> str:
        return f"{self.files.root}/{folder}"

    def _publish(self, commit: Commit) -> None:
        folder = f"{_STAGING}/{commit.staging}"
        try:
            for each in commit.added:
                self.files.move(f"{folder}/{each.staged}", each.path)
        except FileNotFoundError:
            if commit.staging in self.files.names(_STAGING):
                raise
            # Another process has finished it, and may have taken files of it away since.
            return
        if not self.is_delta:
            for path in commit.removed:
                self.files.delete(path)
        self.files.delete(folder)

    def _unfinished(self) -> list[Commit]:
        """Of the commits that were read, those whose files are not all at their places."""
        staged = frozenset(self.files.names(_STAGING))
        return [commit for commit in self._commits.values() if commit.staging in staged]

    def _tell(self) -> None:
        """Tell Delta's readers of commits, up to the first one that is not finished."""
        if self._delta is None:
            return
        # In this order: a commit that was told before is in what is read then, or folded away.
        told = self._delta.last_told()
        self.state()
        unfinished = self._unfinished()
        commits = list(self._commits.values())
        places = [at for at, each in enumerate(commits) if (each.writer, each.batch) == told]
        for commit in commits[places[0] + 1 if places else 0 :]:
            if commit in unfinished:
                return
            self._delta.tell(commit, time.time_ns() // 1_000_000)

    def _read_on(self) -> LakeState:
        names = self.files.names(_LOG)
        folded = [int(found[1]) for name in names if (found := _STATE.fullmatch(name))]
        if folded and max(folded) > self._state.version:
            text = self.files.read(f"{_LOG}/{max(folded):020d}.state.json")
            self._state = LakeState.from_json(text)
            self._commits = {}
        numbers = sorted(int(found[1]) for name in names if (found := _COMMIT.fullmatch(name)))
        for number in numbers:
            if number != self._state.version + 1:
                continue
            commit = Commit.from_json(self.files.read(f"{_LOG}/{number:020d}.json"))
            self._state = self._state.after(commit)
            self._commits[number] = commit
        return self._state

    def _fold(self) -> None:
        """Put the log into one file, unless a commit in it is still to be finished."""
        state = self.state()
        if self._unfinished():
            return
        self._tell()
        folded = f"{state.version:020d}.state.json"
        self.files.create(f"{_LOG}/{folded}", state.to_json().encode())
        for name in self.files.names(_LOG):
            found = _COMMIT.fullmatch(name) or _STATE.fullmatch(name)
            if found and int(found[1]) <= state.version and name != folded:
                self.files.delete(f"{_LOG}/{name}")
        self._commits = {}
