"""The codecs, their bounds, and what is not theirs."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from record_samples import CODECS

from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.compression import Codec, compress, decompress
from kraftpy.records.errors import InvalidRecord, RecordTooLarge

DATA = b"".join(b"%x %d, " % (index * index, index % 97) for index in range(20_000)) + bytes(70_000)
COMPRESSING = CODECS[1:]


@given(st.binary(max_size=2000), st.integers(1, 50), st.sampled_from(CODECS))
def test_round_trip(data: bytes, times: int, codec: Codec) -> None:
    data *= times
    assert decompress(codec, compress(codec, data), max_bytes=len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: Codec) -> None:
    compressed = compress(codec, DATA)
    assert decompress(codec, compressed, max_bytes=len(DATA)) == DATA
    with pytest.raises(RecordTooLarge) as caught:
        decompress(codec, compressed, max_bytes=len(DATA) - 1)
    assert caught.value.error_code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("size", [0, 1, 5, 17, 30])
def test_garbage(codec: Codec, size: int) -> None:
    with pytest.raises(InvalidRecord):
        decompress(codec, bytes(range(1, size + 1)), max_bytes=1000)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_truncation_is_noticed(codec: Codec) -> None:
    compressed = compress(codec, b"some words, " * 20)
    for size in range(len(compressed)):
        # The Java framing of snappy has no end: cut behind its header it is whole, and empty.
        if codec is Codec.SNAPPY and size == 16:
            continue
        with pytest.raises(InvalidRecord):
            decompress(codec, compressed[:size], max_bytes=100_000)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_behind_the_end_are_an_error(codec: Codec) -> None:
    with pytest.raises(InvalidRecord):
        decompress(codec, compress(codec, b"words") + b"\x00\x01\x02", max_bytes=1000)


def test_gzip_members_and_zstd_frames_may_follow_one_another() -> None:
    for codec in (Codec.GZIP, Codec.ZSTD):
        twice = compress(codec, b"one, ") + compress(codec, b"two")
        assert decompress(codec, twice, max_bytes=8) == b"one, two"
        with pytest.raises(RecordTooLarge):
            decompress(codec, twice, max_bytes=7)


def test_many_gzip_members_are_refused() -> None:
    """Reading them costs the square of their number: 50,000 in 1 MB kept the loop for a second."""
    member = compress(Codec.GZIP, b"x")
    assert decompress(Codec.GZIP, member * 16, max_bytes=100) == b"x" * 16
    with pytest.raises(InvalidRecord, match="more than 16 gzip members"):
        decompress(Codec.GZIP, member * 17, max_bytes=100)


def test_snappy_without_framing() -> None:
    import cramjam

    raw = bytes(cramjam.snappy.compress_raw(DATA))
    assert decompress(Codec.SNAPPY, raw, max_bytes=len(DATA)) == DATA
    with pytest.raises(RecordTooLarge):
        decompress(Codec.SNAPPY, raw, max_bytes=len(DATA) - 1)


XERIAL = (
    b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    b"\x00\x00\x00\x18"
    b"\xac\x02\x14SNAPPY\xfe\x06\x00\xfe\x06\x00\xfe\x06\x00\xfe\x06\x00\x96\x06\x00"
    b"\x00\x00\x00\x18"
    b"\xac\x02\x14XERIAL\xfe\x06\x00\xfe\x06\x00\xfe\x06\x00\xfe\x06\x00\x96\x06\x00"
)


def test_snappy_in_java_framing() -> None:
    """Two blocks, as kafka-python has them among its tests."""
    expected = b"SNAPPY" * 50 + b"XERIAL" * 50
    assert decompress(Codec.SNAPPY, XERIAL, max_bytes=600) == expected
    with pytest.raises(RecordTooLarge):
        decompress(Codec.SNAPPY, XERIAL, max_bytes=599)


def test_snappy_is_written_in_blocks_of_32_kib() -> None:
    compressed = compress(Codec.SNAPPY, bytes(70_000))
    assert compressed[:16] == XERIAL[:16]
    blocks = 0
    position = 16
    while position < len(compressed):
        position += 4 + int.from_bytes(compressed[position : position + 4], "big")
        blocks += 1
    assert (blocks, position) == (3, len(compressed))


def test_lz4_frames_are_those_that_java_reads() -> None:
    """Version 1, independent blocks of 64 KiB, neither content size nor checksums."""
    frame = compress(Codec.LZ4, DATA)
    assert frame[:6] == bytes.fromhex("04224d186040")


def test_lz4_of_magic_0_has_the_old_checksum() -> None:
    """The header's checksum covers the magic number, by mistake; Kafka wrote 0x1a here."""
    spoilt = compress(Codec.LZ4, DATA, magic=0)
    right = compress(Codec.LZ4, DATA)
    assert (spoilt[6], right[6]) == (0x1A, 0x82)
    assert spoilt[:6] + spoilt[7:] == right[:6] + right[7:]
    for frame in (spoilt, right):
        assert decompress(Codec.LZ4, frame, max_bytes=len(DATA), magic=0) == DATA
    with pytest.raises(InvalidRecord):
        decompress(Codec.LZ4, spoilt, max_bytes=len(DATA), magic=1)
    with pytest.raises(InvalidRecord):
        decompress(Codec.LZ4, spoilt[:6], max_bytes=len(DATA), magic=0)


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("block_linked", [False, True])
def test_lz4_frames_of_other_writers(store_size: bool, block_linked: bool) -> None:
    frame = lz4.frame.compress(
        DATA, store_size=store_size, block_linked=block_linked, content_checksum=True
    )
    for magic in (0, 1, 2):
        assert decompress(Codec.LZ4, frame, max_bytes=len(DATA), magic=magic) == DATA
    with pytest.raises(RecordTooLarge):
        decompress(Codec.LZ4, frame, max_bytes=len(DATA) - 1)


@pytest.mark.parametrize("write_content_size", [False, True])
@pytest.mark.parametrize("write_checksum", [False, True])
def test_zstd_frames_of_other_writers(write_content_size: bool, write_checksum: bool) -> None:
    frame = zstandard.ZstdCompressor(
        write_content_size=write_content_size, write_checksum=write_checksum
    ).compress(DATA)
    assert decompress(Codec.ZSTD, frame, max_bytes=len(DATA)) == DATA
    with pytest.raises(RecordTooLarge):
        decompress(Codec.ZSTD, frame, max_bytes=len(DATA) - 1)


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 17), (Codec.ZSTD, -5, 19)]
)
def test_levels(codec: Codec, low: int, high: int) -> None:
    """`compression.<codec>.level`: a higher one makes less; the ends of the range work."""
    sizes = []
    for level in (low, high):
        compressed = compress(codec, DATA, level=level)
        assert decompress(codec, compressed, max_bytes=len(DATA)) == DATA
        sizes.append(len(compressed))
    assert sizes[1] < sizes[0]


def test_lz4_level_9_is_the_fast_one() -> None:
    assert compress(Codec.LZ4, DATA, level=9) == compress(Codec.LZ4, DATA)
    assert len(compress(Codec.LZ4, DATA, level=10)) < len(compress(Codec.LZ4, DATA))


class TestDeclaredSizes:
    """A declared size is compared with the limit before inflating, and never believed."""

    def test_gzip_says_less(self) -> None:
        data = bytearray(compress(Codec.GZIP, bytes(100_000)))
        data[-4:] = (10).to_bytes(4, "little")
        with pytest.raises(RecordTooLarge):
            decompress(Codec.GZIP, data, max_bytes=1000)
        with pytest.raises(InvalidRecord):
            decompress(Codec.GZIP, data, max_bytes=100_000)

    def test_gzip_says_more(self) -> None:
        data = bytearray(compress(Codec.GZIP, b"words"))
        data[-4:] = (2**32 - 1).to_bytes(4, "little")
        with pytest.raises(InvalidRecord):
            decompress(Codec.GZIP, data, max_bytes=1000)
        data[-4:] = (20_000).to_bytes(4, "little")
        with pytest.raises(RecordTooLarge):
            decompress(Codec.GZIP, data, max_bytes=1000)

    def test_zstd_says_more(self) -> None:
        frame = bytearray(zstandard.ZstdCompressor().compress(bytes(100_000)))
        size_at = frame.index((100_000).to_bytes(4, "little"))
        frame[size_at : size_at + 4] = (2**32 - 1).to_bytes(4, "little")
        with pytest.raises(RecordTooLarge):
            decompress(Codec.ZSTD, frame, max_bytes=2**31)
        with pytest.raises(InvalidRecord, match="can't become"):
            decompress(Codec.ZSTD, frame, max_bytes=2**32)

    def test_zstd_says_less(self) -> None:
        frame = bytearray(zstandard.ZstdCompressor().compress(bytes(100_000)))
        size_at = frame.index((100_000).to_bytes(4, "little"))
        frame[size_at : size_at + 4] = (99_999).to_bytes(4, "little")
        with pytest.raises(InvalidRecord):
            decompress(Codec.ZSTD, frame, max_bytes=2**20)

    def test_lz4_says_more(self) -> None:
        context = lz4.frame.create_compression_context()
        header = lz4.frame.compress_begin(context, source_size=2**40)
        with pytest.raises(RecordTooLarge):
            decompress(Codec.LZ4, header + bytes(4), max_bytes=2**40 - 1)
        with pytest.raises(InvalidRecord):
            decompress(Codec.LZ4, header + bytes(4), max_bytes=2**40)

    @pytest.mark.parametrize("size", [-1, 0, 25, 2**31 - 1])
    def test_snappy_framing_says_more(self, size: int) -> None:
        data = XERIAL[:16] + size.to_bytes(4, "big", signed=True) + XERIAL[20:44]
        with pytest.raises(InvalidRecord, match=f"a block of {size} bytes"):
            decompress(Codec.SNAPPY, data, max_bytes=1000)

    def test_snappy_says_more(self) -> None:
        with pytest.raises(InvalidRecord, match="can't become"):
            decompress(Codec.SNAPPY, bytes.fromhex("ffffffff07 0061"), max_bytes=2**31)

    def test_zstd_runs_are_counted_before_inflating(self) -> None:
        run = ((128 * 1024) << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
        end = (1).to_bytes(3, "little")
        frame = bytes.fromhex("28b52ffd0058") + run * 20 + end
        assert decompress(Codec.ZSTD, frame, max_bytes=2621440) == bytes(2621440)
        with pytest.raises(RecordTooLarge, match="of 2621440 bytes"):
            decompress(Codec.ZSTD, frame, max_bytes=2621439)


BOMBS = """
import resource, sys, zlib
import cramjam, lz4.frame, zstandard
from kraftpy.records.compression import Codec, decompress
from kraftpy.records.errors import RecordTooLarge

MEGABYTE = bytes(1 << 20)
MEGABYTES = 256
LIMIT_BYTES = 4 << 20
HEADROOM_BYTES = 48 << 20

deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
gzip = b"".join(deflater.compress(MEGABYTE) for _ in range(MEGABYTES)) + deflater.flush()
block = bytes(cramjam.snappy.compress_raw(bytes(32768)))
snappy = b"\\x82SNAPPY\\0\\0\\0\\0\\1\\0\\0\\0\\1"
snappy += (len(block).to_bytes(4, "big") + block) * (32 * MEGABYTES)
lz4_context = lz4.frame.LZ4FrameCompressor(block_linked=False)
lz4_frame = lz4_context.begin()
lz4_frame += b"".join(lz4_context.compress(MEGABYTE) for _ in range(MEGABYTES))
lz4_frame += lz4_context.flush()
zstds = []
for pattern in (MEGABYTE, b"not a run of one byte, a pattern" * 32768):
    stream = zstandard.ZstdCompressor().compressobj()
    blocks = [stream.compress(pattern) for _ in range(MEGABYTES)]
    zstds.append(b"".join(blocks) + stream.flush())
bombs = {
    Codec.GZIP: [gzip, gzip[:-4] + bytes(4)],
    Codec.SNAPPY: [snappy],
    Codec.LZ4: [lz4_frame],
    Codec.ZSTD: zstds,
}
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + HEADROOM_BYTES,) * 2)
for codec, kinds in bombs.items():
    for data in kinds:
        try:
            decompress(codec, data, max_bytes=LIMIT_BYTES)
        except RecordTooLarge:
            continue
        sys.exit(f"{codec.name} was let through")
try:
    bytes(HEADROOM_BYTES)
except MemoryError:
    print("refused")
"""


def test_bombs_are_refused_within_bounded_memory() -> None:
    """Data that would be 256 MB, for a reader of 4 MB, in a process that has no 48 MB to spare."""
    run = subprocess.run(
        [sys.executable, "-c", BOMBS],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (run.stdout, run.stderr) == ("refused\n", "")


def test_gzip_is_written_as_gzip() -> None:
    assert zlib.decompress(compress(Codec.GZIP, DATA), wbits=31) == DATA


def test_codec_libraries_are_imported_on_first_use() -> None:
    """A node that sees no compressed batch loads none of them."""
    program = (
        "import sys, kraftpy.records.validation, kraftpy.records.control;"
        "print([name for name in ('lz4', 'zstandard', 'cramjam') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdout == "[]\n"
