"""Sample record data that the tests of this room share."""

from __future__ import annotations

import json
from pathlib import Path

from kraftpy.records.batch import RecordBatch
from kraftpy.records.builder import BatchBuilder, build_batch
from kraftpy.records.compression import Codec
from kraftpy.records.reader import Record

CODECS = tuple(Codec)
LEGACY_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
LIMIT_BYTES = 1 << 20
NOW_MS = 1_700_000_000_000

# Bytes that Apache Kafka 4.3.1 wrote; KafkaBatches.java, which lies beside, prints this file.
KAFKA = {
    name: bytes.fromhex(text)
    for name, text in json.loads(
        Path(__file__).with_name("kafka_batches.json").read_text("ascii")
    ).items()
}

# spec/log.md section 3.8: six records key/value.
SIX_RECORDS = bytes.fromhex(
    "0000000000000000 00000090 00000000 02 073fbb9a 0000 00000005"
    "00000163639e4ccc 00000163639e4e7b ffffffffffffffff ffff ffffffff 00000006"
    "1c00000006 6b6579 0a 76616c7565 00"
    "1e00d40602 06 6b6579 0a 76616c7565 00"
    "1e00d80604 06 6b6579 0a 76616c7565 00"
    "1e00da0606 06 6b6579 0a 76616c7565 00"
    "1e00dc0608 06 6b6579 0a 76616c7565 00"
    "1e00de060a 06 6b6579 0a 76616c7565 00"
)

RECORDS = (
    Record(0, NOW_MS, b"key", b"value"),
    Record(1, NOW_MS + 500, None, b"no key", (("trace", b"1"), ("ü", None), ("", b""))),
    Record(2, NOW_MS - 1, b"tombstone", None),
    Record(3, NOW_MS + 100, b"", b"x" * 300),
)
LEGACY_RECORDS = tuple(record._replace(headers=()) for record in RECORDS)


def sample_batch(codec: Codec = Codec.NONE) -> RecordBatch:
    """RECORDS in a batch that may be changed."""
    return RecordBatch(build_batch(RECORDS, BatchBuilder(codec=codec)))
