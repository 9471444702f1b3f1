"""`kraftpy log dump`: every kind of file, sound and damaged, as text and as JSON.

That its text is what Apache Kafka's tool prints is shown in test_log_compat.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from log_home import TOPIC_ID, Home
from log_rig import batch, legacy, marker

from kraftpy.cli.main import main
from kraftpy.log.index import OffsetIndex
from kraftpy.log.log_config import LogConfig
from kraftpy.protocol.schema.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
    VotersRecordVoter,
)
from kraftpy.records.batch import HEADER_SIZE, RecordBatch
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.compression import Codec
from kraftpy.records.control import build_control_batch
from kraftpy.records.validation import AppendOrigin
from kraftpy.world.real_disk import RealDisk

Captured = pytest.CaptureFixture[str]
BASE = f"{0:020d}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The directory of a partition, with two segments and an aborted transaction."""
    trio.run(write_log, tmp_path)
    return tmp_path / "a" / "t-0"


async def write_log(root: Path) -> None:
    home = Home(RealDisk(), str(root))
    home.config = LogConfig(segment_bytes=3000, index_interval_bytes=100, segment_index_bytes=1200)
    async with home.manager(
        directories=(home.a,), verifies_transactions=False
    ).running() as manager:
        log = await manager.get_or_create(("t", 0), topic_id=TOPIC_ID)
        for number in range(30):
            produced = batch(
                b"%d" % number,
                producer_id=5,
                producer_epoch=1,
                sequence=number,
                is_transactional=True,
                timestamp_ms=1_700_000_000_000 + number,
            )
            log.append_as_leader(produced, 3)
        log.append_as_leader(
            marker(5, 1, is_commit=False),
            3,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=1,
        )
        # There are no snapshots of producers while a marker is not replicated.
        log.update_high_watermark(log.log_end_offset)
        log.append_as_leader(batch(b"x" * 700, timestamp_ms=1_700_000_001_000), 4)


def dump(capsys: Captured, *arguments: object, code: int = 0) -> list[str]:
    assert main(["log", "dump", *map(str, arguments)]) == code
    return capsys.readouterr().out.splitlines()


def objects(capsys: Captured, *arguments: object, code: int = 0) -> list[dict[str, object]]:
    return [json.loads(line) for line in dump(capsys, "--format", "json", *arguments, code=code)]


def problems(lines: list[str]) -> list[str]:
    return [line.removeprefix("problem: ") for line in lines if line.startswith("problem: ")]


def test_sound_files_have_no_problems(folder: Path, capsys: Captured) -> None:
    """LOG-8: of a whole directory, and of the data directory around it."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    assert len(files) >= 11
    assert problems(dump(capsys, "--print-data-log", *files)) == []
    around = [path for path in sorted(folder.parent.iterdir()) if path.is_file()]
    assert len(around) == 7
    lines = dump(capsys, *around)
    assert problems(lines) == []
    assert "topic: t partition: 0 offset: 32" in lines
    assert any(line.startswith("cluster.id: MkU3OEVBNTcwNTJENDM2Qg node.id: 7") for line in lines)
    assert 'content: {"version":0,"brokerEpoch":-1}' in lines


def test_the_lines_of_a_log(folder: Path, capsys: Captured) -> None:
    path = folder / f"{BASE}.log"
    shallow = dump(capsys, path)
    assert shallow[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    assert shallow[2].startswith(
        "baseOffset: 0 lastOffset: 0 count: 1 baseSequence: 0 lastSequence: 0 producerId: 5 "
        "producerEpoch: 1 partitionLeaderEpoch: 3 isTransactional: true isControl: false "
        "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1700000000000 size: "
    )
    assert shallow[2].endswith("isvalid: true")
    deep = dump(capsys, "--deep-iteration", path)
    assert deep[3] == (
        "| offset: 0 CreateTime: 1700000000000 keySize: 1 valueSize: 1 sequence: 0 headerKeys: []"
    )
    assert dump(capsys, "--print-data-log", path)[3] == f"{deep[3]} key: 0 payload: 0"
    assert [line for line in deep if not line.startswith("|")] == shallow
    part = dump(capsys, "--max-bytes", 10, path)
    assert part[:3] == shallow[:3]
    size = path.stat().st_size - RecordBatch(path.read_bytes()).size
    assert part[3:] == [f"note: {size} more bytes were not read"]


def test_the_lines_of_the_other_files(folder: Path, capsys: Captured) -> None:
    lines = dump(capsys, *sorted(folder.glob("*.txnindex")))
    assert lines[1:] == [
        "version: 0 producerId: 5 firstOffset: 0 lastOffset: 30 lastStableOffset: 31"
    ]
    assert dump(capsys, folder / "leader-epoch-checkpoint")[1:] == [
        "epoch: 3 startOffset: 0",
        "epoch: 4 startOffset: 31",
    ]
    assert dump(capsys, folder / "partition.metadata")[1:] == ["topic_id: LbWaf3qcTM2zxfIuYfLDVw"]
    assert dump(capsys, folder / f"{32:020d}.snapshot")[1:] == [
        (
            "producerId: 5 producerEpoch: 1 coordinatorEpoch: 1 currentTxnFirstOffset: "
            "OptionalLong.empty lastTimestamp: 1700000000000 firstSequence: 29 lastSequence: 29 "
            "lastOffset: 29 offsetDelta: 0 timestamp: 1700000000000"
        )
    ]


def test_json(folder: Path, capsys: Captured) -> None:
    path = folder / f"{BASE}.log"
    found = objects(capsys, "--print-data-log", path)
    assert found[0] == {
        "file": str(path),
        "type": "file",
        "path": str(path),
        "size": path.stat().st_size,
        "baseOffset": 0,
    }
    assert {"type": "batch", "timestampType": "CreateTime", "deleteHorizonMs": None}.items() <= (
        found[1].items()
    )
    assert {"type": "record", "offset": 0, "key": "0", "payload": "0"}.items() <= found[2].items()
    strange = folder / "copy.log"
    builder = BatchBuilder()
    builder.append(b"\xff\x00", b"\n\x1b[2J", timestamp_ms=1, headers=(("a\nb", b"x"),))
    strange.write_bytes(builder.build())
    record = objects(capsys, "--print-data-log", strange)[2]
    assert record["key"] == {"base64": "/wA="}
    assert record["payload"] == "\n\x1b[2J"
    # On a terminal it is harmless.
    text = dump(capsys, "--print-data-log", strange)[2]
    assert text.endswith(r"headerKeys: [a\nb] key: �\x00 payload: \n\x1b[2J")
    cut = folder / f"{BASE}.log"
    cut.write_bytes(cut.read_bytes()[:-1])
    assert objects(capsys, cut, code=1)[-1]["type"] == "problem"


def test_records_of_the_metadata_log_and_old_formats(tmp_path: Path, capsys: Captured) -> None:
    voter = VotersRecordVoter(voter_id=3)
    messages = [
        LeaderChangeMessage(version=1, leader_id=3, voters=[LeaderChangeMessageVoter(voter_id=3)]),
        KRaftVersionRecord(kraft_version=1),
        VotersRecord(voters=[voter]),
    ]
    data = legacy(0, 1) + legacy(2, magic=0)
    data += build_control_batch(messages, base_offset=3, leader_epoch=2, timestamp_ms=5)
    unknown = BatchBuilder(base_offset=6, is_control=True)
    unknown.append(b"\0\0\0\x09", b"v", timestamp_ms=5)
    data += unknown.build()
    path = tmp_path / "00000000000000000007-0000000002.checkpoint"
    path.write_bytes(data)
    lines = dump(capsys, "--print-data-log", path)
    assert lines[1].startswith("offset: 0 position: 0 CreateTime: 1700000000000 size: ")
    assert lines[5].startswith("offset: 2 ")
    assert "NoTimestampType: -1" in lines[5]
    assert 'LeaderChange: {"version":1,"leaderId":3,"voters":[{"voterId":3,' in lines[8]
    assert lines[9].endswith('KRaftVersion: {"version":0,"kraftVersion":1}')
    assert '"voters":[{"voterId":3,"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"' in lines[10]
    assert lines[12].endswith("controlType: UNKNOWN(9)")


def damaged(path: Path, position: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


def test_a_damaged_batch_is_named_and_passed(folder: Path, capsys: Captured) -> None:
    path = folder / f"{BASE}.log"
    count = len(dump(capsys, path))
    damaged(path, HEADER_SIZE + 2)
    lines = dump(capsys, "--deep-iteration", path, code=1)
    assert problems(lines) == ["the batch at position 0 has a wrong CRC; its records are not shown"]
    assert lines[2].endswith("isvalid: false")
    assert len([line for line in lines if not line.startswith("|")]) == count + 1


def test_a_torn_tail_is_named(folder: Path, capsys: Captured) -> None:
    path = folder / f"{BASE}.log"
    data = path.read_bytes()
    first = RecordBatch(data).size
    for length in (first + 8, first + 20, first + HEADER_SIZE, first + HEADER_SIZE + 5):
        path.write_bytes(data[:length])
        (problem,) = problems(dump(capsys, path, code=1))
        assert problem.endswith(
            f"and {length - first} bytes are left; a broker that starts with this file cuts it "
            f"off at {first}"
        ), problem
    path.write_bytes(data[:first] + bytes(3_000_000))
    lines = dump(capsys, path)
    assert lines[-1].startswith(f"note: 3000000 zero bytes from position {first} to the end")
    path.write_bytes(data[:first] + bytes(3000) + b"x")
    assert len(problems(dump(capsys, path, code=1))) == 1


def test_a_batch_that_lies_is_named(tmp_path: Path, capsys: Captured) -> None:
    """The CRC is right, the content is not; the next batch is shown."""
    lying = batch(b"a", b"b", codec=Codec.LZ4)
    view = RecordBatch(lying)
    lying[57:61] = (3).to_bytes(4)
    lying[17:21] = view.compute_crc().to_bytes(4)
    path = tmp_path / "copy.log"
    path.write_bytes(lying + batch(b"c", base_offset=2) + batch(b"d", base_offset=1))
    lines = dump(capsys, "--deep-iteration", path, code=1)
    assert len(problems(lines)) == 2
    assert problems(lines)[0].startswith("in the batch at position 0: the batch ends before its 3")
    assert "begins at offset 1, where 3 or more should follow" in problems(lines)[1]


def test_indexes_are_held_against_the_log(folder: Path, capsys: Captured) -> None:
    offsets, times = folder / f"{BASE}.index", folder / f"{BASE}.timeindex"
    aborted = next(folder.glob("*.txnindex"))
    everything = [offsets, times, aborted]
    assert dump(capsys, "--verify-index-only", *everything) == [
        f"Dumping {path}" for path in everything
    ]
    sound = offsets.read_bytes()
    damaged(offsets, 8 + 3)
    (problem,) = problems(dump(capsys, offsets, code=1))
    assert problem == "slot 1: the batch at position 280 ends with 4, not 5"
    offsets.write_bytes(sound)
    damaged(offsets, 8 + 7)
    assert "slot 1: no batch begins at position" in problems(dump(capsys, offsets, code=1))[0]
    offsets.write_bytes(sound[:16] + sound[:8])
    assert "can't follow" in problems(dump(capsys, offsets, code=1))[0]
    offsets.write_bytes((99).to_bytes(4) + (0x7FFFFFFF).to_bytes(4))
    assert "has no batch at position 2147483647" in problems(dump(capsys, offsets, code=1))[0]
    offsets.write_bytes(sound[:-3])
    assert "are no whole number of entries" in problems(dump(capsys, offsets, code=1))[0]
    offsets.write_bytes(sound + bytes(80))
    assert dump(capsys, offsets)[-1] == "note: room for 10 more entries"
    damaged(times, 7)
    (problem,) = problems(dump(capsys, times, code=1))
    assert problem.startswith("slot 0: the batch with offset ")
    entries = aborted.read_bytes()
    aborted.write_bytes(entries[:25] + b"\x07" + entries[26:])
    (problem,) = problems(dump(capsys, aborted, code=1))
    assert problem == "slot 0: the log has no marker at offset 7"
    aborted.write_bytes(entries + b"\x00\x09" + entries[2:])
    lines = dump(capsys, aborted, code=1)
    assert lines[1].startswith("version: 0 producerId: 5"), "what came before is shown"
    assert "version 9 at or after entry" in problems(lines)[0]


def test_an_index_without_its_log(folder: Path, capsys: Captured) -> None:
    (folder / f"{BASE}.log").unlink()
    lines = dump(capsys, folder / f"{BASE}.index")
    assert lines[1].startswith(f"note: {folder}/{BASE}.log is not there to compare with")
    assert lines[2].startswith("offset: ")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("leader-epoch-checkpoint", b"0\n2\n1 1\n", "line 2: 2 entries were announced"),
        ("replication-offset-checkpoint", b"0\n1\nt x 1\n", "line 3: 'x' is no number"),
        ("partition.metadata", b"\xff", "byte 0 is not UTF-8"),
        ("meta.properties", b"version=1\n", "cluster.id is missing"),
        (".kafka_cleanshutdown", b"{", "no JSON"),
        (f"{7:020d}.snapshot", b"\0\1abcd\0\0\0\0", "wrong checksum"),
        (f"{7:020d}.snapshot", b"\0", "1 bytes are no snapshot"),
    ],
)
def test_damaged_small_files(
    tmp_path: Path, capsys: Captured, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    (problem,) = problems(dump(capsys, path, code=1))
    assert said in problem


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x.txt", "'x.txt' is no file of a log; known are .log, .index"),
        ("copy.index", "has no base offset in its name"),
        ("missing.log", "there is no file "),
        ("folder.log", "is a directory; name its files"),
    ],
)
def test_files_that_are_none(tmp_path: Path, capsys: Captured, name: str, said: str) -> None:
    (tmp_path / "folder.log").mkdir()
    if "missing" not in name and "folder" not in name:
        (tmp_path / name).write_bytes(b"")
    assert main(["log", "dump", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err


def test_an_empty_log(tmp_path: Path, capsys: Captured) -> None:
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        (tmp_path / f"{BASE}{suffix}").write_bytes(b"")
    files = sorted(tmp_path.iterdir())
    lines = dump(capsys, *files)
    assert [line for line in lines if not line.startswith("Dumping")] == ["Log starting offset: 0"]


def test_the_number_of_bytes_must_be_one(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["log", "dump", "--max-bytes", "0", "x.log"])
    assert "'0' is no number of bytes" in capsys.readouterr().err


def test_sparse_indexes_of_many_entries(tmp_path: Path, capsys: Captured) -> None:
    """An index alone, without its log, is shown as it is."""
    disk = RealDisk()
    path = tmp_path / f"{100:020d}.index"
    index = OffsetIndex(disk.open(str(path), write=True, create=True), 100, 8000)
    index.create()
    for number in range(1, 900):
        index.append(100 + number, number * 10)
    index.close()
    lines = dump(capsys, path)
    assert lines[2] == "offset: 101 position: 10"
    assert len(lines) == 2 + 899
