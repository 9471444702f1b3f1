"""A client that costs little: frames that were made before, sent over bare sockets.

Where the rate or the time of a server is the question, a client that encodes each request and
decodes each answer on the same two processors would be a large part of the figure.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from typing import Any, cast

from kraftpy.protocol.frames import decode_response, encode_request
from kraftpy.protocol.registry import API
from kraftpy.protocol.tables import Request
from kraftpy.world import Buffer

TIMEOUT_SECONDS = 30.0
_SIZE_BYTES = 4
_READ_BYTES = 1 << 20


def frame_of(request: Request, version: int) -> bytes:
    parts = cast("list[Buffer]", encode_request(request, version, 1, "bench"))
    return b"".join(bytes(part) for part in parts)


def answer_of(request: Request, version: int, frame: bytes) -> Any:
    return decode_response(API[request.KEY].response_class, version, frame)[1]


class Wire:
    """One connection with one request in flight."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def send(self, frame: bytes) -> None:
        self.socket.sendall(frame)

    def receive(self) -> bytes | None:
        """Read what has come; the answer's frame without its size, once it is whole."""
        data = self.socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError("closed by the server")
        self._received = self._received + data if self._received else data
        end = _SIZE_BYTES + int.from_bytes(self._received[:_SIZE_BYTES], "big")
        if len(self._received) < max(end, _SIZE_BYTES + 1):
            return None
        frame, self._received = self._received[_SIZE_BYTES:end], self._received[end:]
        return frame

    def exchange(self, frame: bytes) -> bytes:
        self.send(frame)
        while True:
            answer = self.receive()
            if answer is not None:
                return answer

    def ask(self, request: Request, version: int) -> Any:
        return answer_of(request, version, self.exchange(frame_of(request, version)))

    def close(self) -> None:
        self.socket.close()


def exchange_all(wires: Sequence[Wire], frames: Sequence[bytes]) -> list[bytes]:
    """One request on each connection, all of them at once; the answers in the same order."""
    answers: list[bytes | None] = [None] * len(wires)
    left = len(wires)
    with selectors.DefaultSelector() as selector:
        for number, wire in enumerate(wires):
            selector.register(wire.socket, selectors.EVENT_READ, number)
        for wire, frame in zip(wires, frames, strict=True):
            wire.send(frame)
        while left:
            ready = selector.select(TIMEOUT_SECONDS)
            if not ready:
                raise SystemExit(f"{left} of {len(wires)} requests were not answered")
            for key, _ in ready:
                answers[key.data] = wires[key.data].receive()
                left -= answers[key.data] is not None
    return [answer for answer in answers if answer is not None]


def repeat_for(wires: Sequence[Wire], frames: Sequence[bytes], seconds: float) -> list[list[bytes]]:
    """Each connection sends its frame, again whenever it is answered; the answers of each."""
    answers: list[list[bytes]] = [[] for _ in wires]
    ends = time.perf_counter() + seconds
    with selectors.DefaultSelector() as selector:
        for number, wire in enumerate(wires):
            selector.register(wire.socket, selectors.EVENT_READ, number)
            wire.send(frames[number])
        left = len(wires)
        while left:
            ready = selector.select(TIMEOUT_SECONDS)
            if not ready:
                raise SystemExit(f"{left} of {len(wires)} requests were not answered")
            is_over = time.perf_counter() >= ends
            for key, _ in ready:
                number = key.data
                answer = wires[number].receive()
                if answer is None:
                    continue
                answers[number].append(answer)
                if is_over:
                    left -= 1
                else:
                    wires[number].send(frames[number])
    return answers
