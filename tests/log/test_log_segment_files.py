"""Names of files and directories (LOG-1)."""

from __future__ import annotations

import pytest

from kraftpy.log.segment_files import (
    FileKind,
    PartitionDirectory,
    SegmentFile,
    deleting_directory_name,
    directory_name,
    file_name,
    future_directory_name,
    parse_directory_name,
    parse_file_name,
)

UNIQUE = "0123456789abcdef0123456789abcdef"


def test_file_names_have_20_digits() -> None:
    """LOG-1."""
    assert file_name(12345, FileKind.LOG) == "00000000000000012345.log"
    assert (
        file_name(2**63 - 1, FileKind.TIME_INDEX, ".swap") == "09223372036854775807.timeindex.swap"
    )


@pytest.mark.parametrize("kind", FileKind)
@pytest.mark.parametrize("suffix", ["", ".deleted", ".cleaned", ".swap"])
def test_file_names_are_parsed_back(kind: FileKind, suffix: str) -> None:
    """LOG-1."""
    file = SegmentFile(77, kind, suffix)
    assert parse_file_name(file.name) == file


@pytest.mark.parametrize(
    "name",
    [
        "1.log",
        "000000000000000000001.log",
        "0000000000000000000.log",
        "00000000000000000001.log.gone",
        "00000000000000000001",
        "00000000000000000001.logx",
        "x00000000000000000001.log",
        "99999999999999999999.log",
        "partition.metadata",
        "leader-epoch-checkpoint",
        "٠0000000000000000001.log",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert parse_file_name(name) is None


@pytest.mark.parametrize("topic", ["t", "a-b", "a-1", "a.b-2", "x-delete", "-", "a-0.b"])
def test_directory_names_are_cut_at_the_last_hyphen(topic: str) -> None:
    """LOG-1."""
    assert parse_directory_name(directory_name(topic, 12)) == PartitionDirectory(topic, 12)


def test_moving_directories() -> None:
    """LOG-6: their names."""
    deleting = deleting_directory_name("a-b", 3, UNIQUE)
    assert deleting == f"a-b-3.{UNIQUE}-delete"
    parsed = parse_directory_name(deleting)
    assert parsed == PartitionDirectory("a-b", 3, "-delete")
    assert parsed is not None
    assert parsed.is_deleting
    assert not parsed.is_future
    future = parse_directory_name(future_directory_name("a-b", 3, UNIQUE))
    assert future is not None
    assert future.is_future
    assert (future.topic, future.partition) == ("a-b", 3)


def test_a_long_topic_is_cut_to_what_a_file_system_takes() -> None:
    name = deleting_directory_name("t" * 249, 2**31 - 1, UNIQUE)
    assert len(name) == 255
    parsed = parse_directory_name(name)
    assert parsed is not None
    assert parsed.partition == 2**31 - 1


@pytest.mark.parametrize(
    "name", ["topic", "-1", "topic-", "topic-x", "topic-2147483648", "topic--1x", "lost+found"]
)
def test_other_directories(name: str) -> None:
    assert parse_directory_name(name) is None


def test_the_unique_part_is_32_hexadecimal_digits() -> None:
    with pytest.raises(ValueError, match="hexadecimal"):
        deleting_directory_name("t", 0, UNIQUE[:-1])
