"""What only the machine's own sockets do."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from collections.abc import Sequence

import pytest
import trio

from kraftpy.world import FileSlice, SocketOptions
from kraftpy.world.real_network import RealNetwork, RealStream


async def connected() -> tuple[RealStream, RealStream]:
    network = RealNetwork()
    listener = await network.listen("127.0.0.1", 0)
    stream = await network.connect(*listener.address)
    accepted = await listener.accept()
    listener.close()
    return stream, accepted


async def test_small_packets_leave_at_once_and_dead_peers_are_probed() -> None:
    for stream in await connected():
        raw = stream._socket
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        stream.close()


async def test_buffer_sizes_are_set_on_both_ends() -> None:
    network = RealNetwork()
    options = SocketOptions(send_buffer_bytes=50_000, receive_buffer_bytes=60_000)
    listener = await network.listen("127.0.0.1", 0, options=options)
    stream = await network.connect(*listener.address, options=options)
    accepted = await listener.accept()
    for end in (stream, accepted):
        # Linux doubles what it is asked for.
        raw = end._socket
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (50_000, 100_000)
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (60_000, 120_000)
        end.close()
    listener.close()


async def test_every_interface_takes_ipv4_and_shows_it_as_such() -> None:
    network = RealNetwork()
    listener = await network.listen(None, 0)
    stream = await network.connect("127.0.0.1", listener.address[1])
    accepted = await listener.accept()
    assert accepted.remote_address == stream.local_address
    assert accepted.remote_address[0] == "127.0.0.1"
    for end in (stream, accepted, listener):
        end.close()


async def test_ipv6() -> None:
    network = RealNetwork()
    try:
        listener = await network.listen("::1", 0)
    except OSError as error:
        assert error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # noqa: PT017
        return
    stream = await network.connect("::1", listener.address[1])
    accepted = await listener.accept()
    assert accepted.remote_address == stream.local_address
    for end in (stream, accepted, listener):
        end.close()


async def test_a_socket_does_not_connect_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that retries a dead local port is given that very port sooner or later; here it
    is bound to it beforehand.
    """

    class SelfBound(socket.socket):
        def connect_ex(self, address: tuple[str, int]) -> int:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address)
            return super().connect_ex(address)

    network = RealNetwork()
    listener = await network.listen("127.0.0.1", 0)
    listener.close()
    monkeypatch.setattr(socket, "socket", SelfBound)
    with pytest.raises(ConnectionRefusedError):
        await network.connect(*listener.address)


async def test_a_file_without_descriptor_is_read_and_sent() -> None:
    class BareFile:
        path = "bare"

        def pread(self, length: int, position: int) -> bytes:
            return bytes(range(100))[position : position + length]

    stream, accepted = await connected()
    part = FileSlice(BareFile(), 10, 50)  # type: ignore[arg-type]
    assert stream.send_slice(part, 5) == 45
    await accepted.wait_readable()
    buffer = memoryview(bytearray(100))
    assert accepted.receive_into(buffer) == 45
    assert bytes(buffer[:45]) == bytes(range(15, 60))
    with pytest.raises(ConnectionAbortedError, match="bare"):
        stream.send_slice(FileSlice(BareFile(), 90, 20), 0)  # type: ignore[arg-type]
    stream.close()
    accepted.close()


async def test_more_parts_than_the_kernel_takes() -> None:
    stream, accepted = await connected()
    parts: Sequence[bytes] = [b"x"] * 3_000
    sent = stream.send(parts)
    assert 0 < sent <= 3_000
    stream.close()
    received = 0
    while True:
        await accepted.wait_readable()
        size = accepted.receive_into(memoryview(bytearray(10_000)))
        if not size:
            break
        received += size
    assert received == sent
    accepted.close()


OUT_OF_DESCRIPTORS = """
import errno, resource, trio
from kraftpy.world.real_network import RealNetwork

async def main():
    network = RealNetwork()
    listener = await network.listen("127.0.0.1", 0)
    stream = await network.connect(*listener.address)
    await trio.lowlevel.wait_readable(listener._socket)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            held.append(open("/dev/null"))
    except OSError:
        pass

    try:
        await listener.accept()
    except OSError as error:
        print(errno.errorcode[error.errno])
    held.pop().close()
    accepted = await listener.accept()
    print("accepted", accepted.remote_address == stream.local_address)

trio.run(main)
"""


def test_running_out_of_descriptors_is_said_and_loses_no_connection() -> None:
    """In a process of its own, which can have its limit lowered."""
    command = [sys.executable, "-W", "ignore", "-c", OUT_OF_DESCRIPTORS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "EMFILE\naccepted True\n", done.stderr


async def test_no_way_to_a_host_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 14: only a refusal of every address counts as one."""
    outcomes = {
        "127.0.0.1": ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        "127.0.0.2": OSError(errno.EHOSTUNREACH, "no route"),
    }

    class Unreachable(socket.socket):
        def connect_ex(self, address: tuple[str, int]) -> int:
            return outcomes[address[0]].errno or 0

    async def resolve(host: str, port: int, **_: object) -> list[object]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in outcomes
        ]

    monkeypatch.setattr(socket, "socket", Unreachable)
    monkeypatch.setattr(trio.socket, "getaddrinfo", resolve)
    with pytest.raises(ConnectionError, match="two-faced:9092") as caught:
        await RealNetwork().connect("two-faced", 9092)
    assert type(caught.value) is ConnectionError
    outcomes["127.0.0.2"] = outcomes["127.0.0.1"]
    with pytest.raises(ConnectionRefusedError):
        await RealNetwork().connect("two-faced", 9092)


@pytest.mark.parametrize("host", ["x" * 64, "a..b", ".", "\u00fc" * 80])
async def test_what_can_be_no_name_is_not_found(host: str) -> None:
    """Peers tell where others are to be found; a name that can't be one is not our failure."""
    with pytest.raises(OSError, match="no name") as raised:
        await RealNetwork().connect(host, 9)
    assert raised.value.errno == socket.EAI_NONAME
