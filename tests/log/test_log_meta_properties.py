"""meta.properties (LOG-3 in part, LOG-5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.log.errors import MalformedFileError
from kraftpy.log.meta_properties import (
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from kraftpy.protocol.ids import Uuid, parse_uuid

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
DIRECTORY = "LbWaf3qcTM2zxfIuYfLDVw"
META = MetaProperties(CLUSTER, 7, parse_uuid(DIRECTORY))
TEXT = f"version=1\ncluster.id={CLUSTER}\nnode.id=7\ndirectory.id={DIRECTORY}\n"


def test_the_text() -> None:
    assert format_meta_properties(META) == TEXT
    assert parse_meta_properties(TEXT, "file") == META


@given(
    st.from_regex(r"[A-Za-z0-9._-]{1,30}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.none() | st.binary(min_size=16, max_size=16).filter(lambda raw: int.from_bytes(raw) >= 100),
)
def test_round_trip(cluster_id: str, node_id: int, raw: bytes | None) -> None:
    meta = MetaProperties(cluster_id, node_id, None if raw is None else Uuid(raw))
    assert parse_meta_properties(format_meta_properties(meta), "file") == meta


def test_what_kafka_writes() -> None:
    """A comment with the date, keys in any order, keys that we don't know."""
    text = f"#\n#Mon Nov 16 05:00:00 UTC 2026\nnode.id=7\nversion=1\nx.y=1\ncluster.id={CLUSTER}\n"
    assert parse_meta_properties(text, "file") == MetaProperties(CLUSTER, 7, None)


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("version=1\n", "", 1, "version is missing"),
        ("version=1", "version=0", 1, "version '0' is not 1"),
        (f"cluster.id={CLUSTER}\n", "", 1, "cluster.id is missing"),
        (CLUSTER, "", 2, "cluster.id is empty"),
        ("node.id=7\n", "", 1, "node.id is missing"),
        ("node.id=7", "node.id=-1", 3, "no node id"),
        ("node.id=7", "node.id=x", 3, "no node id"),
        ("node.id=7", "node.id=2147483648", 3, "no node id"),
        (DIRECTORY, "short", 4, "not a uuid"),
        (DIRECTORY, "AAAAAAAAAAAAAAAAAAAAAQ", 4, "reserved"),
        ("version=1", "version=\\u12", 1, "line 1"),
    ],
)
def test_malformed_files_are_refused(old: str, new: str, line: int, reason: str) -> None:
    assert old in TEXT
    with pytest.raises(MalformedFileError, match=reason) as caught:
        parse_meta_properties(TEXT.replace(old, new), "/data/meta.properties")
    assert caught.value.line == line


def test_a_cluster_id_that_would_break_the_file_is_not_written() -> None:
    with pytest.raises(ValueError, match="no cluster id"):
        format_meta_properties(MetaProperties("a\nnode.id=9", 7, None))
