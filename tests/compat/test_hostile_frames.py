"""Whatever bytes come, on any listener: the node stays up, and only the sender loses anything."""

from __future__ import annotations

import random
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from compat.node_process import NodeProcess, running_node

from kraftpy.client.blocking import BlockingConnection
from kraftpy.protocol.frames import encode_request
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataRequestTopic
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest
from kraftpy.protocol.schema.k60_describe_cluster import DescribeClusterRequest
from kraftpy.protocol.tables import Request

pytestmark = pytest.mark.compat

SEED = 20261116
FRAMES = 10_000
# Fewer than a listener's backlog holds: beyond it the system drops, and repeats after a second.
CONNECTIONS_AT_ONCE = 40
# What an allocator may keep after such a storm; measured are 0.7 to 1.6 MiB. Half a kilobyte that
# each frame leaves behind would be above it.
RESIDENT_GROWTH_BYTES = 4 * 1024 * 1024
MEBIBYTE = 1024 * 1024
# Keys and versions of requests, such as there are and some that there are not.
LABELS = [(key, version) for key in range(-2, 100) for version in range(-2, 20)]


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node of its own: its memory is measured. A topic for each name that a flipped bit makes
    would be in it.
    """
    with running_node(tmp_path, "--set", "auto.create.topics.enable=false") as process:
        yield process
        assert process.stop() == 0, process.log()


def valid_frames() -> list[bytes]:
    """Every served API in every version, with its size in front."""
    messages: list[Request] = [
        ApiVersionsRequest(client_software_name="storm", client_software_version="1"),
        MetadataRequest(topics=[MetadataRequestTopic(name="some-topic")]),
        DescribeClusterRequest(include_cluster_authorized_operations=True),
    ]
    frames = []
    for message in messages:
        api = API[message.KEY]
        for version in range(api.min_version, api.max_version + 1):
            parts = encode_request(message, version, 7, "storm")
            frames.append(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]
    return frames


def hostile_frame(source: random.Random, valid: list[bytes]) -> bytes:
    """Random bytes, or a valid request changed in some bytes, cut, stretched or mislabelled."""
    kind = source.randrange(6)
    if kind == 0:
        body = source.randbytes(source.randrange(0, 200))
        return struct.pack(">i", len(body)) + body
    if kind == 1:
        return source.randbytes(source.randrange(1, 64))
    frame = bytearray(source.choice(valid))
    if kind == 2:
        for _ in range(source.randrange(1, 5)):
            frame[source.randrange(4, len(frame))] = source.randrange(256)
    elif kind == 3:
        # The size tells the truth about what is left.
        del frame[source.randrange(4, len(frame)) :]
        frame[:4] = struct.pack(">i", len(frame) - 4)
    elif kind == 4:
        # The rest never comes.
        del frame[source.randrange(1, len(frame)) :]
    else:
        return labelled(frame, *source.choice(LABELS))
    return bytes(frame)


def labelled(frame: bytes, key: int, version: int) -> bytes:
    return frame[:4] + struct.pack(">hh", key, version) + frame[8:]


def storm(address: tuple[str, int], frames: list[bytes]) -> None:
    """Send each frame on a connection of its own, and wait until the node has closed them all."""
    peers = []
    for frame in frames:
        peer = socket.create_connection(address, timeout=30)
        peer.sendall(frame)
        peer.shutdown(socket.SHUT_WR)
        peers.append(peer)
    for peer in peers:
        try:
            while peer.recv(MEBIBYTE):
                pass
        except ConnectionResetError:
            pass
        peer.close()


@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_storm_of_hostile_frames(own_node: NodeProcess, listener: str) -> None:
    """NET-31, NET-32, NET-33, NET-30: 10,000 frames; a neighbour on the same listener and one on
    the other go on undisturbed, and the memory comes back.
    """
    print(f"seed {SEED}")
    source = random.Random(SEED)
    valid = valid_frames()
    address = own_node.listeners[listener]
    hostile = [hostile_frame(source, valid) for _ in range(FRAMES)]
    with (
        BlockingConnection(own_node.listeners["broker"]) as broker_neighbour,
        BlockingConnection(own_node.listeners["controller"]) as controller_neighbour,
    ):
        # First what is made on first use: for each version of each API the means to read it.
        usual = [labelled(frame, key, version) for frame in valid[:1] for key, version in LABELS]
        usual += [*valid, *hostile[: 5 * CONNECTIONS_AT_ONCE]]
        for start in range(0, len(usual), CONNECTIONS_AT_ONCE):
            storm(address, usual[start : start + CONNECTIONS_AT_ONCE])
        before_bytes = own_node.resident_bytes()
        for start in range(0, FRAMES, CONNECTIONS_AT_ONCE):
            storm(address, hostile[start : start + CONNECTIONS_AT_ONCE])
            for neighbour in (broker_neighbour, controller_neighbour):
                answer = neighbour.request(DescribeClusterRequest(), max_version=0)
                assert answer.error_code in (0, 114)
        growth_bytes = own_node.resident_bytes() - before_bytes
    print(f"{growth_bytes / MEBIBYTE:.2f} MiB grown")
    assert own_node.process.poll() is None
    assert growth_bytes < RESIDENT_GROWTH_BYTES, f"{growth_bytes / MEBIBYTE:.1f} MiB"
    log = own_node.log()
    assert "Traceback" not in log, log[-4000:]
    assert " ERROR " not in log


@contextmanager
def deaf_peer(node: NodeProcess) -> Iterator[socket.socket]:
    deaf = socket.socket()
    # The system shall hold little, so that what is taken is what the node takes.
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    deaf.connect(node.listeners["broker"])
    with deaf:
        yield deaf


def send_all_it_takes(deaf: socket.socket, neighbour: BlockingConnection) -> int:
    """How many bytes the node has taken when it takes no more."""
    requests = valid_frames()[0] * 1000
    deaf.setblocking(False)
    sent_bytes = 0
    rounds_without_progress = 0
    # The neighbour's round trips are the clock: the node has had its turns in between.
    while rounds_without_progress < 200:
        neighbour.request(MetadataRequest())
        ready = select.select((), (deaf,), (), 0)[1]
        rounds_without_progress = 0 if ready else rounds_without_progress + 1
        if ready:
            sent_bytes += deaf.send(requests)
        assert sent_bytes < 8 * MEBIBYTE, "the node reads on and on"
    return sent_bytes


def test_peer_that_never_reads(own_node: NodeProcess) -> None:
    """A connection that never takes its answers is not served further and doesn't grow the node."""
    with (
        deaf_peer(own_node) as first,
        deaf_peer(own_node) as deaf,
        BlockingConnection(own_node.listeners["broker"]) as neighbour,
    ):
        # What is made on first use, and what a node does after its start, is behind it then.
        send_all_it_takes(first, neighbour)
        before_bytes = own_node.resident_bytes()
        sent_bytes = send_all_it_takes(deaf, neighbour)
        growth_bytes = own_node.resident_bytes() - before_bytes
        print(f"{growth_bytes / MEBIBYTE:.2f} MiB grown, {sent_bytes} bytes taken")
        assert growth_bytes < MEBIBYTE, f"{growth_bytes / MEBIBYTE:.1f} MiB"
        # It is a live connection still: who begins to read gets answers.
        deaf.setblocking(True)
        assert deaf.recv(4) != b""
