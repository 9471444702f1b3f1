"""TCP behind the Network port: non-blocking sockets, with trio only for the waiting.

Plain sockets and `trio.lowlevel.wait_readable` serve small pipelined requests two to four times
as fast as trio's own sockets and streams (docs of the measurement: bench/). A call that would
block says so (None or 0) and the caller decides when to wait.

Errors. A connection that the peer broke raises ConnectionResetError or BrokenPipeError, and a
refused one ConnectionRefusedError: that is evidence about the peer. What the network between did
(time-outs, no route) becomes a bare ConnectionError with the system's errno, which is none.

TCP_NOTSENT_LOWAT is left alone: answers leave in order and never grow stale, so a full send buffer
only saves wake-ups, and a low mark together with MSG_MORE and sendfile can stall.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Sequence
from typing import NoReturn

import trio

from kraftpy.world.ports import Address, Buffer, FileSlice, SocketOptions

__all__ = ["RealListener", "RealNetwork", "RealStream"]

# More than this in one sendfile gains nothing and keeps the loop.
_SENDFILE_BYTES = 256 * 1024
# POSIX allows the kernel to refuse longer lists of parts.
_PARTS_IN_ONE_CALL = 1024

_HAS_SENDFILE = hasattr(os, "sendfile")
_MORE = getattr(socket, "MSG_MORE", 0)
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

# What a path between two hosts may do to a connection; Python has no class of its own for these.
_PATH_ERRORS = frozenset(
    {
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.EHOSTDOWN,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENOTCONN,
    }
)
# Linux reports errors that befell a connection in the backlog through accept.
_LOST_IN_BACKLOG = _PATH_ERRORS | {
    errno.ECONNABORTED,
    errno.EPROTO,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
    errno.EPERM,
}


def _raise_translated(error: OSError) -> NoReturn:
    """Raise `error` as the port promises it."""
    if error.errno == errno.EBADF:
        raise trio.ClosedResourceError("the stream was closed on this side") from None
    if error.errno in _PATH_ERRORS:
        raise ConnectionError(error.errno, error.strerror) from error
    raise error


def _as_address(name: tuple[object, ...]) -> Address:
    """Host and port of a socket name; IPv4 inside IPv6 is shown as what it is."""
    host, port = str(name[0]), name[1]
    return host.removeprefix("::ffff:") if "." in host else host, int(str(port))


class RealStream:
    """A connected TCP socket. Built by RealNetwork and RealListener only."""

    __slots__ = ("_socket", "local_address", "remote_address")

    local_address: Address
    remote_address: Address

    def __init__(self, connected: socket.socket, remote_name: tuple[object, ...]) -> None:
        self._socket = connected
        self.local_address = _as_address(connected.getsockname())
        self.remote_address = _as_address(remote_name)

    def receive_into(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError as error:
            _raise_translated(error)

    def send(self, parts: Sequence[Buffer], *, more: bool = False) -> int:
        flags = _MORE | _NO_SIGNAL if more else _NO_SIGNAL
        try:
            if len(parts) == 1:
                return self._socket.send(parts[0], flags)
            return self._socket.sendmsg(parts[:_PARTS_IN_ONE_CALL], (), flags)
        except BlockingIOError:
            return 0
        except OSError as error:
            _raise_translated(error)

    def send_slice(self, part: FileSlice, skip: int, *, more: bool = False) -> int:
        """`more` can't be given to sendfile; the kernel joins the pages of one call by itself."""
        position = part.position + skip
        length = min(part.length - skip, _SENDFILE_BYTES)
        descriptor_of = getattr(part.file, "fileno", None)
        if descriptor_of is None or not _HAS_SENDFILE:
            data = part.file.pread(length, position)
            if len(data) < length:
                raise _slice_ended(part)
            return self.send((data,), more=more)
        try:
            sent = os.sendfile(self._socket.fileno(), descriptor_of(), position, length)
        except BlockingIOError:
            return 0
        except OSError as error:
            _raise_translated(error)
        if sent == 0 and length > 0:
            raise _slice_ended(part)
        return sent

    async def wait_readable(self) -> None:
        self._refuse_if_closed()
        await trio.lowlevel.wait_readable(self._socket)

    async def wait_writable(self) -> None:
        self._refuse_if_closed()
        await trio.lowlevel.wait_writable(self._socket)

    def finish(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            _raise_translated(error)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    def reset(self) -> None:
        if self._socket.fileno() >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.close()

    def _refuse_if_closed(self) -> None:
        if self._socket.fileno() < 0:
            raise trio.ClosedResourceError("the stream was closed on this side")


def _slice_ended(part: FileSlice) -> ConnectionAbortedError:
    """The file was truncated under its slice.

    The peer was promised more bytes than there are, so the connection is what has to go.
    """
    return ConnectionAbortedError(
        errno.ECONNABORTED, f"{part.file.path} ended before a slice of it was sent"
    )


class RealListener:
    __slots__ = ("_options", "_socket", "address")

    address: Address

    def __init__(self, listening: socket.socket, options: SocketOptions) -> None:
        self._socket = listening
        self._options = options
        self.address = _as_address(listening.getsockname())

    async def accept(self) -> RealStream:
        while True:
            if self._socket.fileno() < 0:
                raise trio.ClosedResourceError("the listener was closed")
            await trio.lowlevel.wait_readable(self._socket)
            try:
                accepted, remote_name = self._socket.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno in _LOST_IN_BACKLOG:
                    continue
                _raise_translated(error)
            try:
                accepted.setblocking(False)
                _tune(accepted, self._options)
                return RealStream(accepted, remote_name)
            except OSError:
                # It was reset between accept and here.
                accepted.close()

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def _tune(stream_socket: socket.socket, options: SocketOptions) -> None:
    stream_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.send_buffer_bytes is not None:
        stream_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)


def _set_receive_buffer(unconnected: socket.socket, options: SocketOptions) -> None:
    """The window scale is settled in the handshake, so this comes before it; accepted sockets
    inherit the listener's.
    """
    if options.receive_buffer_bytes is not None:
        unconnected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)


class RealNetwork:
    """Stateless; any number of them are the same network."""

    __slots__ = ()

    async def listen(
        self,
        host: str | None,
        port: int,
        *,
        backlog: int = 50,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> RealListener:
        try:
            family, name = await _name_to_bind(host, port)
            listening = socket.socket(family, socket.SOCK_STREAM)
            try:
                listening.setblocking(False)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host is not None)
                _set_receive_buffer(listening, options)
                listening.bind(name)
                listening.listen(backlog)
            except BaseException:
                listening.close()
                raise
        except OSError as error:
            place = f"{'*' if host is None else host}:{port}"
            raise OSError(error.errno, f"cannot listen on {place}: {error.strerror}") from error
        return RealListener(listening, options)

    async def connect(
        self,
        host: str,
        port: int,
        *,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> RealStream:
        """Try each address of `host` in turn.

        Refused means that every one of them refused: a host of which one address did not answer
        may well be alive.
        """
        failures: list[OSError] = []
        try:
            addresses = await _resolve(host, port)
        except OSError as error:
            addresses = []
            failures.append(error)
        for family, name in addresses:
            try:
                return await _connect_to(family, name, options)
            except OSError as error:
                failures.append(error)
        failure = next(
            (error for error in failures if not isinstance(error, ConnectionRefusedError)),
            failures[0],
        )
        message = f"cannot connect to {host}:{port}: {failure.strerror}"
        if failure.errno in _PATH_ERRORS:
            raise ConnectionError(failure.errno, message) from failure
        raise OSError(failure.errno, message) from failure


async def _resolve(host: str, port: int) -> list[tuple[int, tuple[object, ...]]]:
    """Addresses of `host`, IPv4 first as in Java, so that `localhost` means the same to a node
    that listens and to one that connects.
    """
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # A peer may have named it: no host can have such a name.
        raise OSError(socket.EAI_NONAME, f"{host!r} is no name: {error}") from error
    addresses = [(int(family), tuple(name)) for family, _, _, _, name in found]
    return sorted(addresses, key=lambda address: address[0] != socket.AF_INET)


async def _name_to_bind(host: str | None, port: int) -> tuple[int, tuple[object, ...]]:
    await trio.lowlevel.checkpoint()
    if host is not None:
        return (await _resolve(host, port))[0]
    if socket.has_dualstack_ipv6():
        return socket.AF_INET6, ("::", port)
    return socket.AF_INET, ("0.0.0.0", port)


async def _connect_to(family: int, name: tuple[object, ...], options: SocketOptions) -> RealStream:
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        _set_receive_buffer(connecting, options)
        _tune(connecting, options)
        code = connecting.connect_ex(name)
        if code == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(connecting)
            code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        else:
            await trio.lowlevel.checkpoint()
        if code != 0:
            raise OSError(code, os.strerror(code))
        if connecting.getsockname() == connecting.getpeername():
            # TCP lets a socket meet itself when the system picks the sought port as its own.
            # Nobody listens there, and our holding the port would keep the real owner out.
            connecting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return RealStream(connecting, connecting.getpeername())
    except BaseException:
        connecting.close()
        raise
