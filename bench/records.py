"""Record batches: what a produced batch costs beyond its CRC, and records beside the peers.

The hot path (header view, Produce's rule, header validation, offset and epoch patched) is printed
as a ratio to the bare CRC-32C of the same bytes, which any implementation must compute. Building
and iterating 1,000 records is printed as a ratio to kafka-python, aiokafka in Python and aiokafka's
C extension: above 1 we are faster. All take turns, and the best rounds are compared, which a busy
machine disturbs least.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import aiokafka.record.default_records as aiokafka_records

from kraftpy.records.batch import RecordBatch, crc32c
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.reader import read_records
from kraftpy.records.validation import AppendOrigin, TopicRules, prepare_batch, single_batch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records as kafka_records

ROUNDS = 15
RECORD_COUNT = 1_000
NOW_MS = 1_700_000_000_000
MAX_BYTES = 16 << 20
KEY = b"customer-4711"
VALUE = bytes(100)
HEADER_ONLY = TopicRules(max_message_bytes=MAX_BYTES, max_inflated_bytes=MAX_BYTES)
FULL = TopicRules(max_message_bytes=MAX_BYTES, max_inflated_bytes=MAX_BYTES, validates_fully=True)


def main() -> None:
    measure_validation()
    measure_building()
    for codec in (Codec.NONE, Codec.LZ4):
        measure_iterating(codec)


def in_turns(actions: dict[str, Callable[[], object]], calls: int) -> dict[str, float]:
    """Seconds a call of each action, in the best of the rounds in which all take their turn."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(ROUNDS):
        for name, action in actions.items():
            start = time.perf_counter()
            for _ in range(calls):
                action()
            times[name].append((time.perf_counter() - start) / calls)
    return {name: min(rounds) for name, rounds in times.items()}


def batch_of(size: int) -> bytearray:
    builder = BatchBuilder()
    while builder.size < size:
        builder.append(KEY, VALUE, timestamp_ms=NOW_MS)
    return builder.build()


def validate(data: bytearray, rules: TopicRules) -> None:
    batch = single_batch(data, produce_version=13)
    batch = prepare_batch(batch, rules, origin=AppendOrigin.CLIENT, now_ms=NOW_MS)
    batch.stamp(0, 5)


def measure_validation() -> None:
    for size, calls in ((1_000, 2_000), (10_000, 2_000), (1_000_000, 20)):
        data = batch_of(size)
        covered = memoryview(data)[21:]
        times = in_turns(
            {
                "crc": lambda covered=covered: crc32c(covered),  # type: ignore[misc]
                "header": lambda data=data: validate(data, HEADER_ONLY),  # type: ignore[misc]
            },
            calls,
        )
        full = in_turns({"full": lambda data=data: validate(data, FULL)}, max(1, calls // 100))  # type: ignore[misc]
        rate = len(data) / times["header"] / 1e6
        print(
            f"   validate {len(data):>9,} bytes: {times['header'] * 1e6:.1f} us, {rate:,.0f} MB/s,"
            f" {times['crc'] / times['header']:.2f} of the bare CRC ({times['crc'] * 1e6:.1f} us);"
            f" every record looked at: {full['full'] * 1e6:,.0f} us"
        )


def build_ours() -> bytearray:
    builder = BatchBuilder()
    for _ in range(RECORD_COUNT):
        builder.append(KEY, VALUE, timestamp_ms=NOW_MS)
    return builder.build()


def builder_of(builder_class: Any, codec: Codec = Codec.NONE) -> Callable[[], Any]:
    def build() -> Any:
        builder = builder_class(
            magic=2,
            compression_type=int(codec),
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=MAX_BYTES,
        )
        for offset in range(RECORD_COUNT):
            builder.append(offset=offset, timestamp=NOW_MS, key=KEY, value=VALUE, headers=[])
        return builder.build()

    return build


def measure_building() -> None:
    times = in_turns(
        {
            "ours": build_ours,
            "kafka-python": builder_of(kafka_records.DefaultRecordBatchBuilder),
            "aiokafka, Python": builder_of(aiokafka_records._DefaultRecordBatchBuilderPy),
            "aiokafka, C": builder_of(aiokafka_records.DefaultRecordBatchBuilder),
        },
        3,
    )
    report("build", times)


def measure_iterating(codec: Codec) -> None:
    data = bytes(builder_of(aiokafka_records.DefaultRecordBatchBuilder, codec)())

    def iterate(batch_class: Any) -> Callable[[], object]:
        def run() -> None:
            for record in batch_class(data):
                assert record.value is not None

        return run

    def iterate_ours() -> None:
        for record in read_records(RecordBatch(data), max_bytes=MAX_BYTES):
            assert record.value is not None

    times = in_turns(
        {
            "ours": iterate_ours,
            "kafka-python": iterate(kafka_records.DefaultRecordBatch),
            "aiokafka, Python": iterate(aiokafka_records._DefaultRecordBatchPy),
            "aiokafka, C": iterate(aiokafka_records.DefaultRecordBatch),
        },
        3,
    )
    report(f"iterate ({codec.name.lower()})", times)


def report(what: str, times: dict[str, float]) -> None:
    ours = times.pop("ours")
    ratios = "; ".join(f"{seconds / ours:.2f} x {name}" for name, seconds in times.items())
    print(f"   {what} {RECORD_COUNT:,} records: {ours * 1e3:.2f} ms; {ratios}")
