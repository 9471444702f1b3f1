"""Whole frames: header and body, and the size in front of them.

On the wire every message is an int32 size, a header and a body. What comes in here is a frame
without its size, as the network cuts it; what goes out has it. Headers are read and written by hand
rather than through their tables: there is one with each message, and they have had the same few
fields since the beginning. The tables of the headers are what the tests compare this with.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeVar

from kraftpy.protocol.codec import DecodeError, EncodeError, decode, encode
from kraftpy.protocol.primitives import Malformed, read_unknown_tags
from kraftpy.protocol.registry import API, request_header_version, response_header_version
from kraftpy.protocol.schema.headers import RequestHeader, ResponseHeader
from kraftpy.protocol.tables import Part, Request, Response

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = [
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
    "response_frame",
]

R = TypeVar("R", bound=Response)

_new = object.__new__
_REQUEST_START = struct.Struct(">hhih")
_REQUEST_PREFIX = struct.Struct(">ihhih")
_RESPONSE_PREFIX = struct.Struct(">ii")
_RESPONSE_PREFIX_FLEXIBLE = struct.Struct(">iix")


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a request and the position of its body.

    The version may be one that nobody serves: that is for the caller to say, and ApiVersions has an
    answer to it. DecodeError for an API key that has no table, and for a header that isn't whole.
    """
    try:
        key, version, correlation_id, length = _REQUEST_START.unpack_from(frame, 0)
    except struct.error as failure:
        raise DecodeError(RequestHeader, 1, "", "the bytes end here") from failure
    api = API.get(key)
    if api is None:
        raise DecodeError(RequestHeader, 1, "request_api_key", f"{key} is no live API")
    header = _new(RequestHeader)
    header.request_api_key = key
    header.request_api_version = version
    header.correlation_id = correlation_id
    header.unknown_tags = ()
    position = 10
    if length >= 0:
        position += length
        if position > len(frame):
            raise DecodeError(RequestHeader, 1, "client_id", "the bytes end here")
        try:
            header.client_id = str(frame[10:position], "utf-8")
        except UnicodeDecodeError as failure:
            raise DecodeError(RequestHeader, 1, "client_id", "invalid UTF-8") from failure
    elif length == -1:
        header.client_id = None
    else:
        raise DecodeError(RequestHeader, 1, "client_id", "a negative length")
    if api.is_flexible(version):
        header.unknown_tags, position = _read_tags(frame, position, RequestHeader, 2)
    return header, position


def _read_tags(
    frame: Buffer, position: int, header_class: type[RequestHeader | ResponseHeader], version: int
) -> tuple[tuple[tuple[int, bytes], ...], int]:
    try:
        count = frame[position]
        if count == 0:
            return (), position + 1
        return read_unknown_tags(frame, count, position + 1, len(frame))
    except (Malformed, IndexError) as failure:
        reason = str(failure) if isinstance(failure, Malformed) else "the bytes end here"
        raise DecodeError(header_class, version, "tagged fields", reason) from failure


def encode_request(
    message: Request, version: int, correlation_id: int, client_id: str | None
) -> list[Part]:
    """The frame of a request, its size in front."""
    parts = encode(message, version)
    tags = b"\0" if request_header_version(message.KEY, version) == 2 else b""
    try:
        name = b"" if client_id is None else client_id.encode()
        size = 10 + len(name) + len(tags) + sum(map(len, parts))
        prefix = _REQUEST_PREFIX.pack(
            size, message.KEY, version, correlation_id, -1 if client_id is None else len(name)
        )
    except (UnicodeEncodeError, struct.error) as failure:
        raise EncodeError(type(message), version, "header", str(failure)) from failure
    _put_in_front(prefix + name + tags, parts)
    return parts


def encode_response(message: Response, version: int, correlation_id: int) -> list[Part]:
    """The frame of a response, its size in front."""
    return response_frame(type(message), encode(message, version), version, correlation_id)


def response_frame(
    response_class: type[Response], body: list[Part], version: int, correlation_id: int
) -> list[Part]:
    """The frame of a response of which there are the bytes; they become the frame's."""
    parts = body
    size = 4 + (len(parts[0]) if len(parts) == 1 else sum(map(len, parts)))
    try:
        if response_header_version(response_class.KEY, version) == 1:
            prefix = _RESPONSE_PREFIX_FLEXIBLE.pack(size + 1, correlation_id)
        else:
            prefix = _RESPONSE_PREFIX.pack(size, correlation_id)
    except struct.error as failure:
        raise EncodeError(response_class, version, "header", str(failure)) from failure
    _put_in_front(prefix, parts)
    return parts


def _put_in_front(prefix: bytes, parts: list[Part]) -> None:
    """Join the prefix with the first part, which is never record data."""
    parts[0] = prefix + parts[0]  # type: ignore[operator]


def decode_response(response_class: type[R], version: int, frame: Buffer) -> tuple[int, R]:
    """Correlation id and message of a response whose version is known from its request."""
    view = memoryview(frame)
    if len(view) < 4:
        raise DecodeError(ResponseHeader, 0, "correlation_id", "the bytes end here")
    correlation_id = int.from_bytes(view[:4], "big", signed=True)
    position = 4
    if response_header_version(response_class.KEY, version) == 1:
        _, position = _read_tags(view, 4, ResponseHeader, 1)
    return correlation_id, decode(response_class, version, view[position:])
