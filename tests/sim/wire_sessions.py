"""Sessions on the wire that a seed draws: legal and illegal requests, as they come to a real port.

Requests are made from the tables of the protocol, in every version, with values that are likely to
mean something: names that exist, epochs and offsets around the right ones, numbers at their limits.
Some are cut off, some have bytes changed, some announce a size that can't be; several are sent at a
time; connections end at any moment, in any way.

What is held against the answers: they come in the order of the requests, each with its number, and
can be read to the last byte in the version that was asked for. A connection that is closed is no
answer and no failure.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import trio

from kraftpy.protocol.codec import DecodeError, EncodeError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_response, encode_request
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k00_produce import ProduceRequest
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest
from kraftpy.protocol.tables import Field, Struct, covers, version_bounds
from kraftpy.records.builder import BatchBuilder
from kraftpy.world import Address, Stream, World

# What clients ask for. Requests that would, rightly, turn the cluster upside down are left out.
KEYS: Final = (
    *(0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 22, 23, 24, 25, 26, 28),
    *(32, 47, 60, 61, 65, 66, 68, 69, 75),
)
_API_VERSIONS: Final = 18
_PATIENCE_SECONDS: Final = 30.0
_INTEGERS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32}
_BYTES_MAX: Final = 1 << 20


class WrongAnswerError(AssertionError):
    """An answer that must never be."""


class RequestDrawer:
    def __init__(self, random: Random, names: list[str], ids: list[bytes]) -> None:
        self._random = random
        self._names = [*names, "", "x" * 300, "ünï✓"]
        self._ids = [*ids, bytes(16)]

    def draw(self) -> tuple[Any, int]:
        """A request, and a version that it can be written in."""
        random = self._random
        while True:
            api = API[random.choice(KEYS)]
            first, last = version_bounds(api.request_class.VERSIONS)
            version = random.choice((last, random.randint(first, last)))
            message = self._struct(api.request_class, version, depth=0)
            if isinstance(message, ProduceRequest):
                # Nobody answers to 0.
                message.acks = random.choice((-1, -1, 1, 2))
                message.timeout_ms = random.choice((0, 100, 1_000))
            if hasattr(message, "max_wait_ms"):
                message.max_wait_ms = random.choice((0, 50))
            for name in ("session_timeout_ms", "rebalance_timeout_ms"):
                if hasattr(message, name) and random.random() < 0.8:
                    setattr(message, name, random.choice((1_000, 2_000)))
            return message, version

    def _struct(self, struct_class: type[Struct], version: int, depth: int) -> Any:
        arguments: dict[str, object] = {}
        for field in struct_class.FIELDS:
            if covers(field.versions, version) and self._random.random() < 0.9:
                arguments[field.name] = self._value(field, version, depth)
        return struct_class(**arguments)

    def _value(self, field: Field, version: int, depth: int) -> object:
        random = self._random
        if covers(field.nullable, version) and random.random() < 0.1:
            return None
        if field.is_array:
            count = random.choice((0, 1, 1, 1, 2, 3))
            return [self._element(field, version, depth) for _ in range(count)]
        return self._element(field, version, depth)

    def _element(self, field: Field, version: int, depth: int) -> object:
        random = self._random
        if field.struct is not None:
            return self._struct(field.struct, version, depth + 1)
        assert field.kind is not None
        match field.kind.name:
            case "bool":
                return random.random() < 0.5
            case "float64":
                return random.uniform(-1, 1)
            case "uuid":
                return random.choice(self._ids)
            case "string":
                return random.choice(self._names)
            case "records":
                return self._records()
            case "bytes":
                return random.choice((b"", b"\0", random.randbytes(20)))
            case kind:
                bits = _INTEGERS.get(kind, 7)
                usual = (-1, 0, 0, 1, 1, 2, 3, 5, 100)
                limits = (-(1 << bits), (1 << bits) - 1)
                if kind.startswith("u"):
                    return random.choice((0, 1, (1 << bits) - 1))
                return random.choice(usual if random.random() < 0.85 else limits)

    def _records(self) -> bytes:
        random = self._random
        builder = BatchBuilder(
            producer_id=random.choice((-1, -1, 0, 1, 7)),
            producer_epoch=random.choice((-1, 0, 1)),
            base_sequence=random.choice((-1, 0, 1, 5)),
            is_transactional=random.random() < 0.2,
            is_control=random.random() < 0.05,
        )
        for _ in range(random.choice((1, 1, 3))):
            builder.append(b"k", random.randbytes(5), timestamp_ms=1_767_225_600_000)
        data = builder.build()
        return bytes(damaged(random, data) if random.random() < 0.4 else data)


def damaged(random: Random, data: bytes | bytearray) -> bytes:
    """Some bytes of it changed, or its end cut off, or something behind it."""
    changed = bytearray(data)
    match random.randrange(3):
        case 0:
            for _ in range(random.randint(1, 4)):
                if changed:
                    changed[random.randrange(len(changed))] = random.randrange(256)
        case 1:
            del changed[random.randint(0, len(changed)) :]
        case _:
            changed += random.randbytes(random.randint(1, 9))
    return bytes(changed)


class WireSession:
    """One connection after the other, to any of these addresses."""

    def __init__(
        self, world: World, addresses: list[Address], random: Random, drawer: RequestDrawer
    ) -> None:
        self._world = world
        self._addresses = addresses
        self._random = random
        self._drawer = drawer
        self.answers: dict[int, int] = {}
        self.closed = 0

    async def run(self, connections: int) -> None:
        for _ in range(connections):
            try:
                with trio.fail_after(_PATIENCE_SECONDS):
                    stream = await self._world.network.connect(
                        *self._random.choice(self._addresses)
                    )
            except (OSError, trio.TooSlowError):
                await trio.sleep(0.1)
                continue
            try:
                await self._talk(stream)
            except (OSError, EOFError):
                self.closed += 1
            finally:
                self._end(stream)

    def _end(self, stream: Stream) -> None:
        (stream.close, stream.reset)[self._random.random() < 0.3]()

    async def _talk(self, stream: Stream) -> None:
        random = self._random
        for _ in range(random.choice((1, 2, 6))):
            asked: list[tuple[Any, int, int]] = []
            sound = True
            data = b""
            for number in range(random.choice((1, 1, 4, 20))):
                frame, message, version = self._frame(number)
                if random.random() < 0.08:
                    sound, frame = False, damaged(random, frame)
                data += frame
                asked.append((message, version, number))
            if random.random() < 0.05:
                sound, data = False, data[: random.randrange(len(data))]
            await _send(stream, data)
            if random.random() < 0.1:
                return
            if random.random() < 0.05:
                stream.finish()
                sound = False
            await self._take_answers(stream, asked, sound=sound)
            if not sound:
                # What comes next may be taken for the rest of a frame.
                return

    def _frame(self, number: int) -> tuple[bytes, Any, int]:
        while True:
            message, version = self._drawer.draw()
            if self._random.random() < 0.1:
                message, version = ApiVersionsRequest(), 0
            try:
                parts = encode_request(message, version, number, "wire")
            except EncodeError:
                # A field at a value that it can't have.
                continue
            return b"".join(bytes(part) for part in parts), message, version

    async def _take_answers(
        self, stream: Stream, asked: list[tuple[Any, int, int]], *, sound: bool
    ) -> None:
        """All of them. When a frame was damaged, what is answered to it may be anything or nothing,
        and what follows it need not come.
        """
        for message, version, number in asked:
            with trio.move_on_after(_PATIENCE_SECONDS if sound else 3.0) as scope:
                size = int.from_bytes(await _read(stream, 4), "big")
                if size > _BYTES_MAX:
                    raise WrongAnswerError(f"an answer of {size} bytes")
                frame = await _read(stream, size)
            if scope.cancelled_caught:
                if sound:
                    raise WrongAnswerError(f"no answer to {message} v{version}")
                return
            if not sound:
                continue
            self._check(frame, message, version, number)

    def _check(self, frame: bytes, message: Any, version: int, number: int) -> None:
        api = API[message.KEY]
        found = int.from_bytes(frame[:4], "big", signed=True)
        if found != number:
            raise WrongAnswerError(f"answer {found} to {api.name} where {number} was due")
        try:
            _, answer = decode_response(api.response_class, version, frame)
        except DecodeError as error:
            raise WrongAnswerError(f"{api.name} v{version}: {error}") from error
        self.answers[api.key] = self.answers.get(api.key, 0) + 1
        for code in _codes(answer):
            # Whatever a client sends, it is told what is wrong with it.
            if code == ErrorCode.UNKNOWN_SERVER_ERROR:
                raise WrongAnswerError(f"{message} v{version} is answered with {code.name}")


def _codes(value: Any) -> list[ErrorCode]:
    if isinstance(value, Struct):
        own = [ErrorCode(value.error_code)] if hasattr(value, "error_code") else []
        return own + [code for field in value.FIELDS for code in _codes(getattr(value, field.name))]
    if isinstance(value, list):
        return [code for each in value for code in _codes(each)]
    return []


async def _send(stream: Stream, data: bytes) -> None:
    view = memoryview(data)
    with trio.fail_after(_PATIENCE_SECONDS):
        while view:
            sent = stream.send((view,))
            view = view[sent:]
            if not sent:
                await stream.wait_writable()


async def _read(stream: Stream, length: int) -> bytes:
    buffer = bytearray(length)
    position = 0
    while position < length:
        received = stream.receive_into(memoryview(buffer)[position:])
        if received is None:
            await stream.wait_readable()
        elif received == 0:
            raise EOFError
        else:
            position += received
    return bytes(buffer)
