"""Arrays of rows: quick readers and packers of one shape, and the general way behind them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_cases import quick

from kraftpy.protocol.codec import DecodeError, EncodeError, decode, encode_bytes
from kraftpy.protocol.layout import layout
from kraftpy.protocol.rows import NumberPackers, RowPackers, RowShapes, is_row
from kraftpy.protocol.schema.k03_metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kraftpy.protocol.schema.k37_create_partitions import CreatePartitionsAssignment
from kraftpy.protocol.schema.k75_describe_topic_partitions import (
    DescribeTopicPartitionsResponsePartition,
)

VERSIONS = [8, 12]


def _response(partitions: list[MetadataResponsePartition]) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(name="t", partitions=partitions),
            MetadataResponseTopic(name="u", partitions=partitions[:1]),
        ]
    )


def _row(replicas: int, in_sync: int, offline: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=replicas,
        leader_epoch=7,
        replica_nodes=list(range(replicas)),
        isr_nodes=list(range(1000, 1000 + in_sync)),
        offline_replicas=list(range(-offline, 0)),
    )


_LENGTHS = st.sampled_from([0, 1, 3, 3, 3, 7, 8, 16, 17, 130])


@pytest.mark.parametrize("version", VERSIONS)
@quick
@given(st.lists(st.builds(_row, _LENGTHS, _LENGTHS, st.sampled_from([0, 0, 0, 1])), max_size=12))
def test_shapes_may_change_from_row_to_row(
    version: int, rows: list[MetadataResponsePartition]
) -> None:
    message = _response(rows)
    assert decode(MetadataResponse, version, encode_bytes(message, version)) == message


@pytest.mark.parametrize("version", VERSIONS)
def test_more_shapes_than_are_kept(version: int) -> None:
    """Twice, so that the second time meets a full table."""
    message = _response([_row(replicas, in_sync) for replicas in range(8) for in_sync in range(8)])
    for _ in range(2):
        assert decode(MetadataResponse, version, encode_bytes(message, version)) == message


def test_the_number_and_size_of_shapes_is_bounded() -> None:
    parts = layout(MetadataResponsePartition, 12, is_flexible=True)
    assert is_row(parts)
    shapes = RowShapes(MetadataResponsePartition, parts, is_flexible=True)
    nothing = shapes.last.loop
    assert shapes[17, 0, 0].loop is nothing
    assert len(shapes) == 0
    loops = [shapes[number, 0, 0].loop for number in range(16)]
    loops += [shapes[number, 1, 0].loop for number in range(16)]
    assert len(set(loops)) == len(shapes) == 32
    assert shapes[1, 1, 1].loop is nothing
    assert len(shapes) == 32


class _Copied(bytes):
    """Counts how many bytes are copied out of it."""

    copied = 0

    def __getitem__(self, key: object) -> object:  # type: ignore[override]
        found = super().__getitem__(key)  # type: ignore[call-overload]
        self.copied += len(found) if isinstance(found, bytes) else 1
        return found


def test_the_rest_of_an_array_is_not_copied_with_every_row() -> None:
    """Shapes that take turns are left after a row: what is to come must cost nothing then, or a
    request of a megabyte keeps the loop for seconds."""
    parts = layout(CreatePartitionsAssignment, 2, is_flexible=True)
    shapes = RowShapes(CreatePartitionsAssignment, parts, is_flexible=True)
    rows = [struct.pack(f">B{count}iB", count + 1, *range(count), 0) for count in (1, 2, 3)]
    data = _Copied(b"".join(rows * 1000))
    position = 0
    for index in range(3000):
        read = 1 + index % 3
        position += len(rows[index % 3])
        assert shapes.read_on((read,), data, position, len(data), 2999 - index) == ([], position)
    assert data.copied <= len(data)


@pytest.fixture
def fresh_decoders() -> Iterator[None]:
    """Decoders that have met no rows yet."""
    kept = dict(MetadataResponse.decoders)
    MetadataResponse.decoders.clear()
    yield
    MetadataResponse.decoders.clear()
    MetadataResponse.decoders.update(kept)


def _outcome(version: int, data: bytes) -> object:
    try:
        return decode(MetadataResponse, version, data)
    except DecodeError as error:
        return str(error)


@pytest.mark.parametrize("version", VERSIONS)
def test_all_ways_to_read_rows_give_the_same(
    version: int, fresh_decoders: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any change to alike rows, and any cut, is read or refused as without readers of shapes."""
    data = encode_bytes(_response([_row(3, 3) for _ in range(5)]), version)
    frames = [data[:length] for length in range(len(data))]
    for position in range(len(data)):
        head, tail = data[:position], data[position + 1 :]
        frames += [head + bytes([byte]) + tail for byte in (0, 1, 2, 3, 4, 5, 127, 128, 255)]
    with monkeypatch.context() as patch:
        patch.setattr("kraftpy.protocol.rows._MOST_SHAPES", 0)
        expected = [_outcome(version, frame) for frame in frames]
    for _ in range(20):
        decode(MetadataResponse, version, data)
    for frame, outcome in zip(frames, expected, strict=True):
        assert _outcome(version, frame) == outcome
        # The shape and the number of rows to try first are again those of all the frames.
        decode(MetadataResponse, version, data)


# Error code and index, which `_row` sets to the number of replicas.
_ROW_START = struct.pack(">hi", 0, 3)


def _shapes(version: int) -> RowShapes:
    is_flexible = version >= 9
    parts = layout(MetadataResponsePartition, version, is_flexible=is_flexible)
    return RowShapes(MetadataResponsePartition, parts, is_flexible=is_flexible)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_loop_is_written_out_for_a_number_of_rows_that_comes_up_often(version: int) -> None:
    shapes = _shapes(version)
    readers = shapes[3, 3, 0]
    # A loop that reads nothing shows what is read without it.
    readers.loop = shapes.last.loop
    assert all(readers[4] is readers.loop for _ in range(15))
    assert readers[4] is not readers.loop
    assert readers[4] is readers[4]
    assert readers[5] is readers.loop
    data = encode_bytes(_response([_row(3, 3) for _ in range(4)]), version)
    start = data.index(_ROW_START)
    stop = data.index(b"u") - 8
    assert readers[4](data, start, stop, 4) == ([_row(3, 3) for _ in range(4)], stop)
    assert readers[4](data, start, stop - 1, 4) == ([], start)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_row_of_another_shape_in_between(version: int) -> None:
    """Behind it rows of its own shape are looked for first, then those of the shape before."""
    shapes = _shapes(version)
    data = encode_bytes(_response([_row(3, 2), _row(3, 3), _row(3, 3), _row(3, 2)]), version)
    second = data.index(_ROW_START, data.index(_ROW_START) + 1)
    assert shapes.read_on((3, 2, 0), data, second, len(data), 3) == ([], second)
    shapes.last = shapes[3, 3, 0]
    rows, position = shapes.read_on((3, 2, 0), data, second, len(data), 3)
    assert rows == [_row(3, 3), _row(3, 3)]
    assert shapes.last is shapes[3, 3, 0]
    rows, _ = shapes.read_on((3, 2, 0), data, position, len(data), 1)
    assert rows == [_row(3, 2)]
    assert shapes.last is shapes[3, 2, 0]


def test_how_much_is_written_out_is_bounded() -> None:
    """To 12 rows, to 128 numbers, and to 32 times for one kind of row."""
    shapes = _shapes(12)

    def is_written_out(lengths: tuple[int, ...], count: int) -> bool:
        return [shapes[lengths][count] for _ in range(16)][-1] is not shapes[lengths].loop

    assert not is_written_out((3, 3, 0), 0)
    assert is_written_out((3, 3, 0), 12)
    assert not is_written_out((1, 1, 0), 13)
    assert is_written_out((14, 14, 0), 4)
    assert not is_written_out((14, 14, 1), 4)
    assert [is_written_out((1, 1, 0), count) for count in range(1, 13)] == [True] * 12
    assert [is_written_out((2, 2, 0), count) for count in range(1, 13)] == [True] * 12
    assert [is_written_out((3, 3, 0), count) for count in range(1, 13)] == [True] * 6 + [
        False
    ] * 5 + [True]


def test_rows_without_any_number() -> None:
    """Lists without elements are nothing but counts, and stay in their loop."""
    parts = layout(CreatePartitionsAssignment, 2, is_flexible=True)
    readers = RowShapes(CreatePartitionsAssignment, parts, is_flexible=True)[(0,)]
    for _ in range(20):
        rows, position = readers[3](b"\1\0" * 3, 0, 6, 3)
        assert (len(rows), position) == (3, 6)


def test_the_number_and_size_of_packers_is_bounded() -> None:
    packers = RowPackers(layout(MetadataResponsePartition, 12, is_flexible=True), is_flexible=True)
    assert packers[17, 0, 0] is None
    assert len(packers) == 0
    assert all(packers[number, 0, 0] for number in range(16))
    assert all(packers[number, 1, 0] for number in range(16))
    assert packers[1, 1, 1] is None
    assert len(packers) == 32
    numbers = NumberPackers("h")
    assert numbers[17](*range(17)) == b"".join(number.to_bytes(2, "big") for number in range(17))
    assert len(numbers) == 0
    assert numbers[16] is numbers[16]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_does_not_fit_in_a_row_is_named(version: int) -> None:
    """By its field and its value, in lists too, whether rows of that shape are known or not."""
    good = _row(3, 3)
    place = f"MetadataResponse v{version}, topics\\[\\].partitions\\[\\]"
    for replicas in (3, 17):
        too_large, not_a_number = _row(replicas, 3), _row(replicas, 3)
        too_large.isr_nodes[1] = 2**31
        not_a_number.leader_epoch = "four"  # type: ignore[assignment]
        with pytest.raises(EncodeError, match=f"{place}.isr_nodes: 2147483648 does not fit"):
            encode_bytes(_response([good, too_large]), version)
        with pytest.raises(EncodeError, match=f"{place}.leader_epoch: 'four' does not fit"):
            encode_bytes(_response([good, not_a_number]), version)


def test_tags_of_a_row_in_a_version_without_them() -> None:
    row = _row(3, 3)
    row.unknown_tags = ((9, b"nine"),)
    with pytest.raises(EncodeError, match="no tags in this version"):
        encode_bytes(_response([_row(3, 3), row]), 8)


def test_lists_that_may_be_null_make_no_rows() -> None:
    assert not is_row(layout(DescribeTopicPartitionsResponsePartition, 0, is_flexible=True))
    assert not is_row(layout(MetadataResponseTopic, 12, is_flexible=True))
    assert not is_row(layout(MetadataResponsePartition, 0, is_flexible=False))


def test_tags_between_alike_rows() -> None:
    rows = [_row(3, 3) for _ in range(6)]
    rows[2].unknown_tags = ((9, b"nine"),)
    rows[5].unknown_tags = ((1, b""),)
    message = _response(rows)
    assert decode(MetadataResponse, 12, encode_bytes(message, 12)) == message


@pytest.mark.parametrize("version", VERSIONS)
def test_alike_rows_cut_short(version: int) -> None:
    data = encode_bytes(_response([_row(3, 3) for _ in range(5)]), version)
    decode(MetadataResponse, version, data)
    for length in range(len(data)):
        with pytest.raises(DecodeError) as caught:
            decode(MetadataResponse, version, data[:length])
        assert caught.value.field


def test_rows_are_objects_of_their_own() -> None:
    data = encode_bytes(_response([_row(3, 3) for _ in range(5)]), 12)
    first, second = (decode(MetadataResponse, 12, data).topics[0].partitions for _ in range(2))
    first[3].replica_nodes.append(99)
    assert second[3].replica_nodes == [0, 1, 2]
    assert first[2].replica_nodes == [0, 1, 2]
