"""The codecs of record batches, with inflation that can't be abused.

Whole batches are compressed, never single records. Kafka's variants: gzip; snappy in the framing of
the Java library (raw snappy is read too); lz4 as a frame of independent 64 KiB blocks; zstd.

A few kilobytes may claim to be gigabytes, so `decompress` takes the largest output that the caller
accepts, and:

- a size that the data declares is compared with that limit before anything is inflated;
- no declared size is trusted: room is made only for what the input can become at the codec's best
  ratio (_MAX_RATIO), and inflation stops one byte beyond the limit;
- malformed input is an InvalidRecord, whatever the library raised; too much is a RecordTooLarge.

Libraries are imported when first needed: most nodes never see most codecs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING

from kraftpy.records.errors import InvalidRecord, RecordTooLarge
from kraftpy.records.lz4_frame import fix_legacy_checksum, spoil_checksum

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = ["Codec", "compress", "decompress"]


class Codec(IntEnum):
    """Codecs by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_GZIP_WINDOW_BITS = 31  # 15 bits of window; 16 more ask zlib for the gzip container.
_GZIP_MIN_SIZE = 18
# The library copies what lies behind a member, so many small ones would cost the square of their
# number. Producers write one.
_GZIP_MAX_MEMBERS = 16
_LITTLE_UINT32 = Struct("<I")

_XERIAL_HEADER = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_MAGIC_SIZE = 8
_XERIAL_BLOCK_SIZE = 32 * 1024
_INT32 = Struct(">i")

# compression.lz4.level: Kafka's default, 9, means the fast compressor and not level 9 of the slow
# one. The C library's frames have no slow compressor below 3 and cap it at 16.
_LZ4_FAST_LEVEL = 9
_LZ4_MIN_LEVEL = 3
_LZ4_MAX_LEVEL = 16

_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_BLOCK_HEADER_SIZE = 3
_ZSTD_MAX_BLOCK_SIZE = 128 * 1024
_ZSTD_BLOCK_RLE = 1
_ZSTD_BLOCK_COMPRESSED = 2
_ZSTD_BLOCK_RESERVED = 3
_ZSTD_CHECKSUM_SIZE = 4

# The most bytes that one byte of input can become, by the definition of each format.
_MAX_RATIO = {Codec.GZIP: 1032, Codec.SNAPPY: 22, Codec.LZ4: 255}
# What small inputs may become beyond the ratio: headers and rounding.
_RATIO_SLACK = 64


def compress(codec: Codec, data: Buffer, *, level: int | None = None, magic: int = 2) -> bytes:
    """`data` as Kafka would write it; `level` as in Kafka's `compression.<codec>.level`."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            gzip_level = zlib.Z_DEFAULT_COMPRESSION if level is None else level
            deflater = zlib.compressobj(gzip_level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
            return deflater.compress(data) + deflater.flush()
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data, level, magic)
        case Codec.ZSTD:
            import zstandard

            zstd_level = _ZSTD_DEFAULT_LEVEL if level is None else level
            compressed: bytes = zstandard.ZstdCompressor(level=zstd_level).compress(data)
            return compressed


def decompress(codec: Codec, data: Buffer, *, max_bytes: int, magic: int = 2) -> bytes:
    """What `compress` was given, if that is no more than `max_bytes`.

    Raises InvalidRecord if `data` is not what the codec writes, and RecordTooLarge if there is more
    in it. Bytes behind the end of the compressed data are an error too.
    """
    if codec is Codec.NONE:
        _check_size(len(data), max_bytes)
        return bytes(data)
    inflate = _INFLATERS[codec]
    try:
        return inflate(memoryview(data), max_bytes, magic)
    except (InvalidRecord, RecordTooLarge):
        raise
    except Exception as error:  # Each library has its own, some plain RuntimeError or MemoryError.
        raise InvalidRecord(f"can't inflate {codec.name.lower()} data: {error}") from error


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise RecordTooLarge(f"records of {size} bytes or more, of {max_bytes} allowed")


def _room(codec: Codec, data: memoryview, max_bytes: int) -> int:
    """The most output to make room for: one more than allowed, never more than possible."""
    return min(max_bytes + 1, len(data) * _MAX_RATIO[codec] + _RATIO_SLACK)


def _inflate_gzip(data: memoryview, max_bytes: int, magic: int) -> bytes:
    if len(data) < _GZIP_MIN_SIZE:
        raise InvalidRecord(f"gzip data of {len(data)} bytes")
    (declared_size,) = _LITTLE_UINT32.unpack_from(data, len(data) - _LITTLE_UINT32.size)
    if declared_size <= len(data) * _MAX_RATIO[Codec.GZIP]:  # Otherwise it is no size, but damage.
        _check_size(declared_size, max_bytes)
    parts: list[bytes] = []
    total = 0
    rest: Buffer = data
    while rest:  # Like Java's reader: several gzip members, one after the other.
        if len(parts) == _GZIP_MAX_MEMBERS:
            raise InvalidRecord(f"more than {_GZIP_MAX_MEMBERS} gzip members")
        inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
        part = inflater.decompress(rest, _room(Codec.GZIP, data, max_bytes - total))
        total += len(part)
        _check_size(total, max_bytes)
        if not inflater.eof:
            raise InvalidRecord("gzip data ends early")
        parts.append(part)
        rest = inflater.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE])
        parts.append(_INT32.pack(len(block)))
        parts.append(bytes(block))
    return b"".join(parts)


def _inflate_snappy(data: memoryview, max_bytes: int, magic: int) -> bytes:
    import cramjam

    blocks = _snappy_blocks(data)
    total = 0
    for block in blocks:
        declared_size: int = cramjam.snappy.decompress_raw_len(block)
        total += declared_size
        _check_size(total, max_bytes)
        if declared_size > len(block) * _MAX_RATIO[Codec.SNAPPY] + _RATIO_SLACK:
            raise InvalidRecord(f"{len(block)} bytes of snappy can't become {declared_size}")
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    """The raw snappy blocks in `data`: those of the Java framing, or `data` itself without it."""
    if data[:_XERIAL_MAGIC_SIZE] != _XERIAL_HEADER[:_XERIAL_MAGIC_SIZE]:
        return [data]
    if len(data) < len(_XERIAL_HEADER):
        raise InvalidRecord("snappy framing ends within its header")
    blocks = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if len(data) - position < _INT32.size:
            raise InvalidRecord("snappy framing ends within a length")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 < size <= len(data) - position:
            raise InvalidRecord(f"snappy framing claims a block of {size} bytes")
        blocks.append(data[position : position + size])
        position += size
    return blocks


def _compress_lz4(data: Buffer, level: int | None, magic: int) -> bytes:
    import lz4.frame

    if level is None or level == _LZ4_FAST_LEVEL:
        lz4_level = 0
    else:
        lz4_level = max(_LZ4_MIN_LEVEL, min(level, _LZ4_MAX_LEVEL))
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=lz4_level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,  # Java's reader knows independent blocks only.
        store_size=False,
    )
    return spoil_checksum(frame) if magic == 0 else frame


def _inflate_lz4(data: memoryview, max_bytes: int, magic: int) -> bytes:
    import lz4.frame

    frame: Buffer = fix_legacy_checksum(data) if magic == 0 else data
    _check_size(lz4.frame.get_frame_info(frame)["content_size"], max_bytes)
    inflater = lz4.frame.LZ4FrameDecompressor()
    result: bytes = inflater.decompress(frame, max_length=_room(Codec.LZ4, data, max_bytes))
    _check_size(len(result), max_bytes)
    if not inflater.eof or inflater.unused_data:
        raise InvalidRecord("an lz4 frame ends before or after its data")
    return result


def _inflate_zstd(data: memoryview, max_bytes: int, magic: int) -> bytes:
    import zstandard

    parts: list[bytes] = []
    total = 0
    position = 0
    decompressor = zstandard.ZstdDecompressor()
    while position < len(data) or not parts:  # Frames may follow one another.
        rest = data[position:]
        parameters = zstandard.get_frame_parameters(rest)
        least, most, size = _measure_zstd_frame(
            rest,
            header_size=zstandard.frame_header_size(rest),
            has_checksum=parameters.has_checksum,
        )
        _check_size(total + least, max_bytes)
        declared_size = parameters.content_size
        is_declared = declared_size != zstandard.CONTENTSIZE_UNKNOWN
        if is_declared:
            _check_size(total + declared_size, max_bytes)
            if declared_size > most:
                raise InvalidRecord(f"{size} bytes of zstd can't become {declared_size}")
        # The library makes room for a declared size, otherwise for what we say; 0 would mean any.
        room = max(1, min(most, max_bytes - total))
        try:
            part = decompressor.decompress(rest[:size], max_output_size=room)
        except zstandard.ZstdError as error:
            # The frame is whole, as measured above: only too little room leaves it unfinished.
            if not is_declared and room < most and "full frame" in str(error):
                raise RecordTooLarge(f"records of more than {max_bytes} bytes") from error
            raise
        total += len(part)
        _check_size(total, max_bytes)
        parts.append(part)
        position += size
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _measure_zstd_frame(
    data: memoryview, *, header_size: int, has_checksum: bool
) -> tuple[int, int, int]:
    """Walk the block headers of a frame: the least and most it can inflate to, and its size."""
    least = 0
    most = 0
    position = header_size
    is_last = False
    while not is_last:
        header_end = position + _ZSTD_BLOCK_HEADER_SIZE
        header = int.from_bytes(data[position:header_end], "little")
        if header_end > len(data):
            raise InvalidRecord("a zstd frame ends early")
        is_last = bool(header & 1)
        kind = (header >> 1) & 3
        block_size = header >> 3
        if kind == _ZSTD_BLOCK_RESERVED or block_size > _ZSTD_MAX_BLOCK_SIZE:
            raise InvalidRecord("a zstd frame has a block that can't be")
        if kind == _ZSTD_BLOCK_COMPRESSED:
            most += _ZSTD_MAX_BLOCK_SIZE
        else:
            least += block_size
            most += block_size
        position = header_end + (1 if kind == _ZSTD_BLOCK_RLE else block_size)
    if has_checksum:
        position += _ZSTD_CHECKSUM_SIZE
    if position > len(data):
        raise InvalidRecord("a zstd frame ends early")
    return least, most, position


_INFLATERS: dict[Codec, Callable[[memoryview, int, int], bytes]] = {
    Codec.GZIP: _inflate_gzip,
    Codec.SNAPPY: _inflate_snappy,
    Codec.LZ4: _inflate_lz4,
    Codec.ZSTD: _inflate_zstd,
}
