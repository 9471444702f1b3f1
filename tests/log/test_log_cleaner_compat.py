"""Apache Kafka's own tool reads what the cleaner has written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cleaning_rig import COMPACTED, CompactedRig, keyed, records_in
from log_rig import NOW_MS, batches_in, marker
from support.kafka_jars import run_java

from kraftpy.records.batch import RecordBatch
from kraftpy.records.compression import Codec
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.real_disk import RealDisk

pytestmark = [pytest.mark.java, pytest.mark.slow]


def write(rig: CompactedRig) -> None:
    """Every codec, tombstones, an aborted and a committed transaction, a producer's last batch."""
    for codec in Codec:
        name = codec.name.encode()
        rig.append(
            keyed((name, b"old"), (b"shared", name), (name + b" deleted", None), codec=codec)
        )
        rig.append(keyed((name, b"new"), timestamp_ms=NOW_MS + 77, codec=codec))
    for producer_id, is_commit in ((7, False), (8, True)):
        rig.append(
            keyed(
                (b"shared", b"%d" % producer_id),
                (b"of %d" % producer_id, b"1"),
                producer_id=producer_id,
                producer_epoch=0,
                sequence=0,
                is_transactional=True,
            )
        )
        rig.append(marker(producer_id, 0, is_commit=is_commit), origin=AppendOrigin.COORDINATOR)
    rig.put(b"shared", b"last")


async def test_kafka_reads_cleaned_segments(tmp_path: Path) -> None:
    """LOG-8, LOG-107: deep iteration, checksums, indexes, delete horizons."""
    config = replace(COMPACTED, segment_bytes=100_000, segment_index_bytes=10_000)
    rig = CompactedRig(RealDisk(), str(tmp_path), config)
    await rig.start()
    write(rig)
    assert await rig.clean()
    rig.put(b"more", b"more")
    assert await rig.clean()
    batches = [batch for batch in batches_in(rig.log) if isinstance(batch, RecordBatch)]
    records = records_in(rig.log)
    await rig.log.close()
    files = [f"{rig.directory}/{0:020d}{kind}" for kind in (".log", ".index", ".timeindex")]
    done = run_java(
        "org.apache.kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--files",
        ",".join(files),
    )
    assert done.returncode == 0, done.stderr
    assert "isvalid: false" not in done.stdout
    assert "Exception" not in done.stderr
    bases = re.findall(r"^baseOffset: (\d+)", done.stdout, re.MULTILINE)
    assert [int(base) for base in bases] == [batch.base_offset for batch in batches]
    horizons = re.findall(r"deleteHorizonMs: OptionalLong(?:\[(\d+)\]|\.empty)", done.stdout)
    assert [int(horizon) if horizon else None for horizon in horizons] == [
        batch.delete_horizon_ms for batch in batches
    ]
    assert sum(batch.delete_horizon_ms is not None for batch in batches) == len(Codec)
    printed = re.findall(r"^\| offset: (\d+) \w+: (\d+)", done.stdout, re.MULTILINE)
    controls = [batch.base_offset for batch in batches if batch.is_control and batch.records_count]
    assert sorted([record.offset for record in records] + controls) == [
        int(offset) for offset, _ in printed
    ]
    times = {record.offset: record.timestamp_ms for record in records}
    assert [int(time) for offset, time in printed if int(offset) in times] == [
        record.timestamp_ms for record in records
    ]
