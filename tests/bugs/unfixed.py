"""Code as it was before a finding of docs/findings.md was fixed: each replaces one method.

A pytest plugin, too: with `-p unfixed` and the name of one in KRAFTPY_UNFIXED, tests run against
it. The test that keeps the finding has to fail then; track_record.py sees to that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kraftpy_spark.marks import Entry, Mark
from seeded_bugs import Bug, named

from kraftpy.client.calls import TopicPartition
from kraftpy.client.consumer_core import ConsumerCore
from kraftpy.client.positions import PartitionState
from kraftpy.faults.unsynced import UnsyncedChanges
from kraftpy.log.log_files import LogFiles
from kraftpy.log.log_reading import ReadableLog
from kraftpy.log.offsets import Isolation, ReadInfo
from kraftpy.log.producers import ProducerState
from kraftpy.log.read_budget import ReadBudget
from kraftpy.log.segment import Segment
from kraftpy.log.watermarks import Watermarks
from kraftpy.world import File
from kraftpy.world.memory_clock import MemoryClock

VARIABLE = "KRAFTPY_UNFIXED"

_take_snapshot = ProducerState.take_snapshot


def snapshots_forget_what_is_not_replicated(self: ProducerState) -> Any:
    kept, self._unreplicated = self._unreplicated, []
    try:
        return _take_snapshot(self)
    finally:
        self._unreplicated = kept


def zeros_that_are_cut_off_are_kept(self: UnsyncedChanges, file: File, size: int) -> None:
    undo = self._undo(file)
    if size < undo.size:
        undo.replaced.append((size, file.pread(undo.size - size, size)))


def a_millisecond_is_a_hair_late(self: MemoryClock) -> int:
    return int(self.monotonic() * 1000)


def a_new_transaction_index_has_no_durable_name(self: LogFiles, segment: Segment) -> None:
    pass


async def a_rebuilt_transaction_index_is_not_synced(self: LogFiles, segment: Segment) -> None:
    pass


_raise_log_start = Watermarks.raise_log_start


def what_is_deleted_counts_as_flushed(self: Watermarks, offset: int) -> bool:
    is_new = _raise_log_start(self, offset)
    self.recovery_point = max(self.recovery_point, self.log_start_offset)
    return is_new


def a_fetch_ends_in_a_part_of_a_batch(
    self: ReadBudget, log: ReadableLog, start_offset: int, max_bytes: int, isolation: Isolation
) -> ReadInfo:
    info = log.read(
        start_offset,
        min(max_bytes, self.remaining_bytes),
        isolation,
        min_one_batch=self._gives_one_batch,
    )
    if info.size_bytes:
        self._gives_one_batch = False
        self.remaining_bytes = max(0, self.remaining_bytes - info.size_bytes)
    return info


def an_earlier_assignment_is_taken_for_this_one(
    self: ConsumerCore, where: TopicPartition, asked: Mapping[TopicPartition, tuple[object, int]]
) -> PartitionState | None:
    state = self._states.get(where)
    if state is None or where not in asked or asked[where][1] != state.generation:
        return None
    return state


def a_task_looks_under_its_own_number_only(self: Mark, run_id: str) -> dict[Entry, str]:
    return {}


@dataclass(frozen=True)
class Finding:
    """`words` are in the symptom that docs/findings.md tells; `kept` is what it is kept as."""

    words: str
    kept: str
    unfixed: Sequence[tuple[Bug, str]]
    """With the test that each must be caught by."""


FINDINGS = (
    Finding(
        "a log lacks records in its middle",
        "tests/sim/test_storage_simulation.py",
        [
            (
                named(Watermarks, "raise_log_start", what_is_deleted_counts_as_flushed),
                "test_logs_of_random_worlds[161297825]",
            )
        ],
    ),
    Finding(
        "a node with 20 MB of data",
        "tests/faults/test_faulty_disk.py",
        [
            (
                named(UnsyncedChanges, "truncates", zeros_that_are_cut_off_are_kept),
                "test_zeros_that_are_cut_off_take_no_memory",
            )
        ],
    ),
    Finding(
        "a simulation stands still",
        "tests/world/test_memory_clock.py",
        [
            (
                named(MemoryClock, "monotonic_ms", a_millisecond_is_a_hair_late),
                "test_at_a_millisecond_that_was_slept_until_both_readings_say_so[1.0]",
            )
        ],
    ),
    Finding(
        "rows of a batch are written twice by Spark's sink",
        "tests/spark/test_exactly_once_reruns.py",
        [
            (
                named(Mark, "entries_of_others", a_task_looks_under_its_own_number_only),
                "test_rows_that_come_to_another_task_are_not_written_again[kraftpy_nodes]",
            )
        ],
    ),
    Finding(
        "a member of a group is not given a record",
        "tests/client/test_client_consumer_core.py",
        [
            (
                named(ConsumerCore, "_still_asked", an_earlier_assignment_is_taken_for_this_one),
                "test_an_answer_to_an_earlier_assignment_is_dropped",
            )
        ],
    ),
    Finding(
        "records of a transaction whose marker is not replicated",
        "tests/log/test_log_undecided.py",
        [
            (
                named(ProducerState, "take_snapshot", snapshots_forget_what_is_not_replicated),
                "test_a_marker_that_is_not_replicated_decides_nothing_after_a_restart",
            )
        ],
    ),
    Finding(
        "after a loss of power aborted records are given",
        "tests/log/test_log_undecided.py",
        [
            (
                named(LogFiles, "_note_new_name", a_new_transaction_index_has_no_durable_name),
                "test_the_transaction_index_survives_a_loss_of_power_after_a_flush",
            ),
            (
                named(LogFiles, "sync_aborted", a_rebuilt_transaction_index_is_not_synced),
                "test_rebuilt_indexes_below_the_recovery_point_are_durable",
            ),
        ],
    ),
    Finding(
        "a consumer fails with MESSAGE_TOO_LARGE",
        "tests/log/test_log_read_budget.py",
        [
            (
                named(ReadBudget, "read", a_fetch_ends_in_a_part_of_a_batch),
                "test_no_log_gives_a_beginning_of_a_batch",
            )
        ],
    ),
)


def pytest_configure() -> None:
    wanted = os.environ.get(VARIABLE)
    for finding in FINDINGS:
        for bug, _ in finding.unfixed:
            if bug.name == wanted:
                setattr(bug.owner, bug.method, bug.broken)
                return
    if wanted is not None:
        raise ValueError(f"{wanted!r} is nothing that was ever fixed")
