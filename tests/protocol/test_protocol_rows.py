"""Arrays of rows: quick readers and packers of one shape, and the general way behind them."""

from __future__ import annotations

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
    assert shapes[17, 0, 0] is shapes.last
    assert len(shapes) == 0
    readers = [shapes[number, 0, 0] for number in range(16)]
    readers += [shapes[number, 1, 0] for number in range(16)]
    assert len(set(readers)) == len(shapes) == 32
    assert shapes[1, 1, 1] is shapes[17, 0, 0]
    assert len(shapes) == 32


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
