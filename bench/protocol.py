"""The wire protocol beside kio: cost of importing, of a version's first use, encoding, decoding.

kio's reader is native code, its writer is Python. Both codecs get the same messages in turns, and
what is printed is the median of the rounds' ratios: machine and moment cancel out. kio copies
record data and we pass it on, so its size matters: full batches are the case to look at, and small
ones show what parsing alone costs.
"""

from __future__ import annotations

import io
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kraftpy.protocol.codec import decode, encode, encode_bytes
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k00_produce, k01_fetch, k03_metadata
from kraftpy.protocol.tables import Request, Response

ROUNDS = 60
CALLS = 50
FRESH_STARTS = 7
# A full batch under the default batch.size, and one of a producer that doesn't linger.
FULL_BATCH = 16384
SMALL_BATCH = 512

_IMPORT = """
import time
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""
_FIRST_USE = """
import time
import kraftpy.protocol.frames
from kraftpy.protocol.codec import decode, encode_bytes
from kraftpy.protocol.registry import API
start = time.perf_counter()
message_class = API[{key}].request_class
decode(message_class, {version}, encode_bytes(message_class(), {version}))
print(time.perf_counter() - start)
"""


def produce_request(version: int, batch_bytes: int) -> k00_produce.ProduceRequest:
    """Six partitions with a batch each."""
    partitions = [
        k00_produce.PartitionProduceData(index=index, records=bytes(batch_bytes))
        for index in range(6)
    ]
    topic = k00_produce.TopicProduceData(partition_data=partitions)
    if version < 13:
        topic.name = "orders"
    else:
        topic.topic_id = Uuid(bytes(range(16)))
    return k00_produce.ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])


def fetch_response(version: int, batch_bytes: int) -> k01_fetch.FetchResponse:
    """Six partitions with a batch each."""
    partitions = [
        k01_fetch.PartitionData(
            partition_index=index,
            high_watermark=10_000,
            last_stable_offset=10_000,
            log_start_offset=0,
            aborted_transactions=None,
            records=bytes(batch_bytes),
        )
        for index in range(6)
    ]
    topic = k01_fetch.FetchableTopicResponse(partitions=partitions)
    if version < 13:
        topic.topic = "orders"
    else:
        topic.topic_id = Uuid(bytes(range(16)))
    return k01_fetch.FetchResponse(session_id=7, responses=[topic])


def metadata_response() -> k03_metadata.MetadataResponse:
    """Three brokers, ten topics of six partitions."""
    return k03_metadata.MetadataResponse(
        brokers=[
            k03_metadata.MetadataResponseBroker(node_id=node, host="127.0.0.1", port=9092 + node)
            for node in range(3)
        ],
        cluster_id="jx3wJc0ZQkWl8m9W6vZb3A",
        controller_id=1,
        topics=[
            k03_metadata.MetadataResponseTopic(
                name=f"topic-{number}",
                partitions=[
                    k03_metadata.MetadataResponsePartition(
                        partition_index=index,
                        leader_id=index % 3,
                        leader_epoch=4,
                        replica_nodes=[0, 1, 2],
                        isr_nodes=[0, 1, 2],
                    )
                    for index in range(6)
                ],
            )
            for number in range(10)
        ],
    )


def _seconds(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _fresh(program: str) -> float:
    """Median milliseconds that `program` prints as seconds, each time in a new interpreter."""
    values = []
    for _ in range(FRESH_STARTS):
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True, text=True
        )
        values.append(float(run.stdout) * 1000)
    return statistics.median(values)


def _compare(title: str, message: Request | Response, version: int) -> str:
    message_class = type(message)
    load = load_request_schema if isinstance(message, Request) else load_response_schema
    kio_class = load(message.KEY, version)
    read, write = entity_reader(kio_class), entity_writer(kio_class)
    wire = encode_bytes(message, version)
    kio_message, _ = read(wire, 0)

    def kio_encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, kio_message)
        return buffer.getvalue()

    assert kio_encode() == wire
    contenders: dict[str, Callable[[], object]] = {
        "encode": lambda: encode(message, version),
        "kio encode": kio_encode,
        "decode": lambda: decode(message_class, version, wire),
        "kio decode": lambda: read(wire, 0),
    }
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            rounds[name].append(_seconds(call, CALLS) * 1e6)
    shown = []
    for name in ("encode", "decode"):
        ratios = [
            theirs / ours for ours, theirs in zip(rounds[name], rounds[f"kio {name}"], strict=True)
        ]
        median = statistics.median(rounds[name])
        shown.append(f"{name} {median:.1f} us, {statistics.median(ratios):.2f} x kio")
    return f"protocol: {title} v{version}: {'; '.join(shown)}"


def main() -> None:
    for module, goal in (
        ("kraftpy.protocol.registry", " (goal 25)"),
        ("kraftpy.protocol.frames", ""),
    ):
        cost = _fresh(_IMPORT.format(module=module))
        print(f"protocol: importing {module}: {cost:.1f} ms{goal}")
    for name, key, version in (("Metadata", 3, 12), ("Fetch", 1, 17), ("Produce", 0, 9)):
        cost = _fresh(_FIRST_USE.format(key=key, version=version))
        print(f"protocol: first {name} request v{version}, both ways: {cost:.1f} ms (goal 5)")
    for version in (7, 9, 13):
        request = produce_request(version, FULL_BATCH)
        print(_compare("Produce request, 6 full batches", request, version))
    print(_compare("Produce request, 6 batches of 512 B", produce_request(9, SMALL_BATCH), 9))
    for version in (11, 17):
        response = fetch_response(version, FULL_BATCH)
        print(_compare("Fetch response, 6 full batches", response, version))
    print(_compare("Fetch response, 6 batches of 512 B", fetch_response(17, SMALL_BATCH), 17))
    for version in (8, 12):
        print(_compare("Metadata response, 60 partitions", metadata_response(), version))
    print("protocol: goals: encode at least 4 x kio, decode at least 0.6 x kio")


if __name__ == "__main__":
    main()
