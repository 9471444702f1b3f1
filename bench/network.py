"""The network layer: round trips with 1 and 16 requests in flight, and idle connections.

The request is ApiVersions v3, which both servers answer without touching a disk. The client is one
blocking socket that keeps its window full; it is the same for both, its cost is in both figures.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import time
from collections.abc import Iterator
from statistics import median

from bench._peers import Server, apache_kafka, kraftpy_node

PASSES = 5
SECONDS_A_PASS = 1.0
IDLE_CONNECTIONS = 2_000

SIZE = struct.Struct(">i")


def api_versions_request() -> bytes:
    header = struct.pack(">hhih", 18, 3, 7, 5) + b"bench" + b"\x00"
    body = b"\x06bench" + b"\x041.0" + b"\x00"
    return SIZE.pack(len(header) + len(body)) + header + body


class Window:
    """A connection that has always the same number of requests under way."""

    def __init__(self, server: Server, in_flight: int) -> None:
        self.socket = socket.create_connection((server.host, server.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.in_flight = in_flight

    def requests_a_second(self, seconds: float) -> float:
        request = api_versions_request()
        pending = b""
        answered = 0
        self.socket.sendall(request * self.in_flight)
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            pending += self.socket.recv(1 << 18)
            position = whole = 0
            while len(pending) - position >= 4:
                end = position + 4 + SIZE.unpack_from(pending, position)[0]
                if end > len(pending):
                    break
                position = end
                whole += 1
            pending = pending[position:]
            answered += whole
            if whole:
                self.socket.sendall(request * whole)
        self._drain(pending)
        return answered / elapsed

    def _drain(self, pending: bytes) -> None:
        for _ in range(self.in_flight):
            while len(pending) < 4 or len(pending) < 4 + SIZE.unpack_from(pending)[0]:
                pending += self.socket.recv(1 << 18)
            pending = pending[4 + SIZE.unpack_from(pending)[0] :]


def rates(servers: list[Server], in_flight: int) -> dict[str, float]:
    """Medians of interleaved passes, so that the machine's moods meet all servers alike."""
    windows = {server.name: Window(server, in_flight) for server in servers}
    samples: dict[str, list[float]] = {name: [] for name in windows}
    for window in windows.values():
        window.requests_a_second(SECONDS_A_PASS)
    for _ in range(PASSES):
        for name, window in windows.items():
            samples[name].append(window.requests_a_second(SECONDS_A_PASS))
    for window in windows.values():
        window.socket.close()
    return {name: median(values) for name, values in samples.items()}


@contextlib.contextmanager
def idle(server: Server, count: int) -> Iterator[None]:
    """Hold connections that have each made one request, as clients do."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            connection = socket.create_connection((server.host, server.port))
            stack.enter_context(connection)
            connection.sendall(api_versions_request())
            while not connection.recv(1 << 16):
                pass
        yield


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    with kraftpy_node() as ours, apache_kafka() as kafka:
        for in_flight in (1, 16):
            found = rates([ours, kafka], in_flight)
            ratio = found["kraftpy"] / found["Kafka"]
            print(
                f"   round trips, {in_flight:2} in flight: kraftpy {found['kraftpy']:8,.0f}/s"
                f"   Kafka {found['Kafka']:8,.0f}/s   {ratio:.2f} x"
            )
        # Kafka takes its heap at the start: what a connection costs it can't be seen.
        before = ours.resident_bytes()
        with idle(ours, IDLE_CONNECTIONS):
            each = (ours.resident_bytes() - before) / IDLE_CONNECTIONS
        print(
            f"   {IDLE_CONNECTIONS:,} idle connections: {each / 1000:.1f} kB each;"
            f" the process without them: kraftpy {before / 1e6:.0f} MB,"
            f" Kafka {kafka.resident_bytes() / 1e6:.0f} MB"
        )
