"""Varints of records: ZigZag, seven bits a byte, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.records.errors import InvalidRecord
from kraftpy.records.varint import append_varint, read_varint, read_varlong


def encode(value: int) -> bytes:
    buffer = bytearray()
    append_varint(buffer, value)
    return bytes(buffer)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (65, "8201"),
        (-65, "8101"),
        (300, "d804"),
        (426, "d406"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_vectors(value: int, expected: str) -> None:
    """LOG-13."""
    assert encode(value).hex() == expected
    read = read_varint if -(2**31) <= value < 2**31 else read_varlong
    assert read(bytes.fromhex("aa" + expected), 1) == (value, 1 + len(expected) // 2)


@pytest.mark.parametrize(
    ("largest", "size"), [(63, 1), (8191, 2), (1048575, 3), (2**31 - 1, 5), (2**63 - 1, 10)]
)
def test_sizes(largest: int, size: int) -> None:
    """LOG-14: each size ends where the next begins."""
    assert len(encode(largest)) == size
    assert len(encode(-largest - 1)) == size
    if size < 5:
        assert len(encode(largest + 1)) == size + 1


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_varint, "ffffffffff00"),  # LOG-14: a sixth byte
        (read_varint, "ffffffff1f"),  # five bytes, 33 bits
        (read_varlong, "ffffffffffffffffffff00"),  # an eleventh byte
        (read_varlong, "ffffffffffffffffff02"),  # ten bytes, 65 bits
    ],
)
def test_too_long_is_refused(read, data: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidRecord):
        read(bytes.fromhex(data), 0)


def test_the_end_of_the_buffer_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        read_varint(b"\x80\x80", 0)


@given(st.integers(-(2**31), 2**31 - 1))
def test_round_trip_of_32_bits(value: int) -> None:
    data = encode(value)
    assert read_varint(data, 0) == (value, len(data))
    assert read_varlong(data, 0) == (value, len(data))


@given(st.integers(-(2**63), 2**63 - 1))
def test_round_trip_of_64_bits(value: int) -> None:
    data = encode(value)
    assert read_varlong(data, 0) == (value, len(data))
