"""The small text files and their atomic replacement (LOG-5)."""

from __future__ import annotations

from random import Random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from log_place import Place

from kraftpy.log.checkpoints import (
    AtomicFile,
    OffsetCheckpoint,
    format_epochs,
    format_offsets,
    format_partition_metadata,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    read_text,
)
from kraftpy.log.errors import MalformedFileError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid, parse_uuid
from kraftpy.world.memory_disk import MemoryDisk, Recording
from kraftpy.world.memory_disk_crash import CrashPolicy

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)


def test_offset_checkpoint_text() -> None:
    """LOG-5: version, count, one line for each entry."""
    text = format_offsets({("orders", 0): 7, ("a-b.c_d", 12): 9223372036854775807})
    assert text == "0\n2\norders 0 7\na-b.c_d 12 9223372036854775807\n"


def test_epoch_checkpoint_text() -> None:
    assert format_epochs([(0, 0), (3, 17)]) == "0\n2\n0 0\n3 17\n"
    assert format_epochs([]) == "0\n0\n"


@given(st.dictionaries(st.tuples(TOPICS, INT32), INT64))
def test_offset_checkpoints_round_trip(offsets: dict[tuple[str, int], int]) -> None:
    """LOG-5."""
    parsed = parse_offsets(format_offsets(offsets), "file")
    assert parsed == offsets
    assert list(parsed) == list(offsets)


@given(st.lists(st.tuples(INT32, INT64)))
def test_epoch_checkpoints_round_trip(entries: list[tuple[int, int]]) -> None:
    """LOG-5."""
    assert parse_epochs(format_epochs(entries), "file") == entries


def test_an_empty_file_has_no_entries() -> None:
    """Kafka creates checkpoints empty."""
    assert parse_offsets("", "file") == {}
    assert parse_epochs("", "file") == []


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("1\n0\n", 1, "version 1 is not 0"),
        ("zero\n0\n", 1, "no number"),
        ("\n0\n", 1, "no number"),
        ("0\n", 2, "missing"),
        ("0\n-1\n", 2, "no number"),
        ("0\n1_0\n", 2, "no number"),
        ("0\n2147483648\n", 2, "no number"),
        ("0\n2\na 0 1\n", 2, "2 entries were announced, 1 are there"),
        ("0\n1\na 0 1\nb 0 1\n", 2, "1 entries were announced, 2 are there"),
        ("0\n1\na 0\n", 3, "not 3 fields"),
        ("0\n1\na b 0 1\n", 3, "not 3 fields"),
        ("0\n1\n\n", 3, "not 3 fields"),
        ("0\n1\na 0 x\n", 3, "no number"),
        ("0\n1\na -1 0\n", 3, "no number"),
        ("0\n1\na 0 -1\n", 3, "no number"),
        ("0\n1\na 0 9223372036854775808\n", 3, "no number"),
        ("0\n1\na 2147483648 0\n", 3, "no number"),
        ("0\n1\na 0 ٣\n", 3, "no number"),
        ("0\n2\na 0 1\na 0 2\n", 4, "a second entry for a-0"),
    ],
)
def test_a_malformed_checkpoint_is_refused_by_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(MalformedFileError, match=reason) as caught:
        parse_offsets(text, "/data/some-checkpoint")
    assert (caught.value.path, caught.value.line) == ("/data/some-checkpoint", line)
    assert caught.value.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_epochs_have_two_fields() -> None:
    with pytest.raises(MalformedFileError, match="not 2 fields"):
        parse_epochs("0\n1\n0 1 2\n", "file")


@pytest.mark.parametrize("topic", ["a b", "", "a\nb", " a"])
def test_a_topic_that_would_break_the_file_is_not_written(topic: str) -> None:
    with pytest.raises(ValueError, match="topic name"):
        format_offsets({(topic, 0): 1})


def test_partition_metadata_is_kafkas() -> None:
    topic_id = parse_uuid("LbWaf3qcTM2zxfIuYfLDVw")
    text = format_partition_metadata(topic_id)
    assert text == "version: 0\ntopic_id: LbWaf3qcTM2zxfIuYfLDVw"
    assert parse_partition_metadata(text, "file") == topic_id
    # A newer one may say more.
    assert parse_partition_metadata(text.replace("0", "7", 1) + "\nmore: x\n", "file") == topic_id


@given(st.binary(min_size=16, max_size=16).filter(lambda raw: raw != ZERO_UUID))
def test_partition_metadata_round_trips(raw: bytes) -> None:
    assert parse_partition_metadata(format_partition_metadata(Uuid(raw)), "file") == raw


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("version 0\ntopic_id: LbWaf3qcTM2zxfIuYfLDVw", 1),
        ("version: -1\ntopic_id: LbWaf3qcTM2zxfIuYfLDVw", 1),
        ("version: x\ntopic_id: LbWaf3qcTM2zxfIuYfLDVw", 1),
        ("version: 0", 2),
        ("version: 0\ntopic_id: LbWaf3qcTM2zxfIuYfLDV", 2),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
        ("version: 0\ntopic: LbWaf3qcTM2zxfIuYfLDVw", 2),
    ],
)
def test_malformed_partition_metadata_is_refused(text: str, line: int) -> None:
    with pytest.raises(MalformedFileError) as caught:
        parse_partition_metadata(text, "file")
    assert caught.value.line == line


def test_a_zero_topic_id_is_not_written() -> None:
    with pytest.raises(ValueError, match="has an id"):
        format_partition_metadata(ZERO_UUID)


async def test_a_file_is_replaced_as_a_whole(place: Place) -> None:
    """LOG-5: and a longer leftover of a crash does not show through."""
    file = AtomicFile(place.disk, place.path("checkpoint"))
    await file.replace("first, and rather long\n")
    place.put("checkpoint.tmp", b"left behind by a crash, longer than everything else here\n")
    await file.replace("second\n")
    assert await read_text(place.disk, file.path) == "second\n"
    assert await place.disk.list_directory(place.directory) == ["checkpoint"]


async def test_a_file_follows_its_directory(place: Place) -> None:
    await place.disk.make_directory(place.path("a-0"))
    file = AtomicFile(place.disk, place.path("a-0/checkpoint"))
    await file.replace("first\n")
    await place.disk.rename(place.path("a-0"), place.path("b-0"))
    file.moved(place.path("b-0/checkpoint"))
    await file.replace("second\n")
    assert place.get("b-0/checkpoint") == b"second\n"


async def test_a_missing_file_is_none(place: Place) -> None:
    assert await read_text(place.disk, place.path("nothing")) is None


async def test_bytes_that_are_no_text_are_refused(place: Place) -> None:
    path = place.put("checkpoint", b"0\n1\na\xff 0 0\n")
    with pytest.raises(MalformedFileError, match="line 3: not UTF-8"):
        await read_text(place.disk, path)


async def test_replacements_happen_in_order(place: Place) -> None:
    """The last one asked for stays, and none is a mixture."""
    file = AtomicFile(place.disk, place.path("checkpoint"))
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(file.replace, f"{number} " * (1 + number % 7))
            await trio.testing.wait_all_tasks_blocked(0.0)
    text = await read_text(place.disk, file.path)
    assert text == "19 " * 6
    assert await place.disk.list_directory(place.directory) == ["checkpoint"]


class Logs:
    """What a checkpoint is about, and how often somebody looked."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, int], int] = {}
        self.collected_count = 0
        self.is_collected = trio.Event()

    def collect(self) -> dict[tuple[str, int], int]:
        self.collected_count += 1
        self.is_collected.set()
        return dict(self.offsets)


async def test_many_who_ask_at_a_time_share_a_write(place: Place) -> None:
    """And each of them finds its own change in the file."""
    logs = Logs()
    file = AtomicFile(place.disk, place.path("checkpoint"))
    checkpoint = OffsetCheckpoint(file)

    async def change(number: int) -> None:
        logs.offsets["topic", number] = number
        await checkpoint.write(logs.collect)
        text = await read_text(place.disk, file.path)
        assert text is not None
        assert parse_offsets(text, file.path)["topic", number] == number

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(change, number)
    assert logs.collected_count <= 2
    await change(20)


async def test_what_changes_during_a_write_is_in_the_next_one(place: Place) -> None:
    logs = Logs()
    file = AtomicFile(place.disk, place.path("checkpoint"))
    checkpoint = OffsetCheckpoint(file)
    async with trio.open_nursery() as nursery:
        logs.offsets["early", 0] = 1
        nursery.start_soon(checkpoint.write, logs.collect)
        await logs.is_collected.wait()
        logs.offsets["late", 0] = 2
        await checkpoint.write(logs.collect)
        assert place.get("checkpoint") == format_offsets(logs.offsets).encode()


async def test_a_write_that_fails_is_nobody_elses() -> None:
    """Those who waited for their turn behind it write themselves."""
    disk = MemoryDisk()
    file = AtomicFile(disk, "/data/checkpoint")
    checkpoint = OffsetCheckpoint(file)
    logs = Logs()
    logs.offsets["topic", 0] = 1
    failures: list[str] = []

    async def write() -> None:
        try:
            await checkpoint.write(logs.collect)
        except FileNotFoundError as error:
            failures.append(str(error))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(write)
    assert len(failures) == 3
    await disk.make_directory("/data")
    await checkpoint.write(logs.collect)
    assert await read_text(disk, file.path) == format_offsets(logs.offsets)


@pytest.mark.parametrize("policy", list(CrashPolicy))
async def test_a_crash_leaves_the_old_file_or_the_new_one(policy: CrashPolicy) -> None:
    """LOG-5: at every effect of a replacement, whatever survives of what was not synced."""
    disk = MemoryDisk()
    await disk.make_directory("/data")
    await disk.sync_directory("/")
    file = AtomicFile(disk, "/data/checkpoint")
    await file.replace(old := format_offsets({("topic", 0): 1}))
    recording = Recording(disk)
    await file.replace(new := format_offsets({("topic", number): 2 for number in range(200)}))
    assert len(recording.effects) >= 4
    seen = []
    for count in range(len(recording.effects) + 1):
        for seed in range(8):
            crashed = recording.disk_after(count)
            crashed.crash(policy, Random(seed))
            text = await read_text(crashed, "/data/checkpoint")
            assert text in {old, new}, f"after {count} effects, seed {seed}"
            if count == len(recording.effects):
                assert text == new
            seen.append(text)
            # And the next replacement works on what the crash has left.
            await AtomicFile(crashed, "/data/checkpoint").replace("next\n")
            assert await read_text(crashed, "/data/checkpoint") == "next\n"
    assert old in seen
