"""Messages to bytes and back, for any message class and version.

`decode` and `encode` look up the function for a (class, version), have it generated the first time,
and turn whatever it raises into one error that names message, version and field. Nothing else
escapes them, whatever the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from kraftpy.protocol.decoder import write_decoder
from kraftpy.protocol.encoder import write_encoder
from kraftpy.protocol.layout import Run, Source
from kraftpy.protocol.primitives import Malformed, Unwritable
from kraftpy.protocol.tables import Message, Part, covers

if TYPE_CHECKING:
    from kraftpy.world import Buffer

__all__ = ["CodecError", "DecodeError", "EncodeError", "decode", "encode", "encode_bytes"]

M = TypeVar("M", bound=Message)

# A generated function, and the source that tells which of its lines deals with which field.
Generated: TypeAlias = tuple[Callable[..., Any], Source]

_DECODER_FAILURES = (Malformed, IndexError, UnicodeDecodeError, struct.error)
_ENCODER_FAILURES = (Unwritable, AttributeError, TypeError, UnicodeEncodeError, struct.error)


class CodecError(Exception):
    """A message and its bytes don't go together; says which message, version and field."""

    def __init__(self, message_class: type[Message], version: int, field: str, reason: str) -> None:
        place = f"{message_class.__name__} v{version}"
        super().__init__(f"{place}, {field}: {reason}" if field else f"{place}: {reason}")
        self.message_name = message_class.__name__
        self.version = version
        self.field = field
        self.reason = reason


class DecodeError(CodecError):
    """These bytes are not that message."""


class EncodeError(CodecError):
    """This message can't be written in that version."""


def decode(
    message_class: type[M], version: int, buffer: Buffer, *, may_have_rest: bool = False
) -> M:
    """The message that `buffer` holds from its first byte to its last.

    Record data in it are slices of `buffer`; everything else is a copy. With `may_have_rest` bytes
    behind the message are passed over, as Kafka's brokers do: some clients send them.
    """
    generated = message_class.decoders.get(version)
    if generated is None:
        generated = _make_decoder(message_class, version)
    function, source = generated
    try:
        message: M = function(buffer, may_have_rest)
    except _DECODER_FAILURES as failure:
        field, reason = _why_undecodable(source, function, failure)
        raise DecodeError(message_class, version, field, reason) from failure
    return message


def encode(message: Message, version: int) -> list[Part]:
    """The bytes of `message`, with record data as parts of their own, by reference."""
    generated = message.encoders.get(version)
    if generated is None:
        generated = _make_encoder(type(message), version)
    function, source = generated
    try:
        parts: list[Part] = function(message)
    except _ENCODER_FAILURES as failure:
        field, reason = _why_unencodable(source, function, failure)
        raise EncodeError(type(message), version, field, reason) from failure
    return parts


def encode_bytes(message: Message, version: int) -> bytes:
    """The bytes of `message` in one piece; its record data must be in memory."""
    return b"".join(cast("list[Buffer]", encode(message, version)))


def _make_decoder(message_class: type[Message], version: int) -> Generated:
    if not covers(message_class.VERSIONS, version):
        raise DecodeError(message_class, version, "", "there is no such version")
    source = write_decoder(message_class, version)
    generated = message_class.decoders[version] = source.compile("decode"), source
    return generated


def _make_encoder(message_class: type[Message], version: int) -> Generated:
    if not covers(message_class.VERSIONS, version):
        raise EncodeError(message_class, version, "", "there is no such version")
    source = write_encoder(message_class, version)
    generated = message_class.encoders[version] = source.compile("encode"), source
    return generated


def _why_undecodable(
    source: Source, function: Callable[..., Any], failure: Exception
) -> tuple[str, str]:
    """Field and reason. Of a run that was cut short, the field in which the bytes ended."""
    label, local_names = source.place_of(failure, function)
    if isinstance(failure, UnicodeDecodeError):
        return str(label), f"invalid UTF-8: {failure.reason}"
    reason = str(failure) if isinstance(failure, Malformed) else "the bytes end here"
    if isinstance(label, str):
        return label, reason
    remaining = local_names["end"] - local_names["position"]
    for code, _, path in label.values:
        remaining -= struct.calcsize(">" + code)
        if remaining < 0:
            return path, reason
    return "", reason


def _why_unencodable(
    source: Source, function: Callable[..., Any], failure: Exception
) -> tuple[str, str]:
    """Field and reason. Of a run that can't be packed, the first value that can't be by itself."""
    label, local_names = source.place_of(failure, function)
    if isinstance(label, Run):
        for code, expression, path in label.values:
            try:
                # In brackets, because of "*items": a list whose numbers are all of this code.
                values = eval(f"[{expression}]", source.names, local_names)
            except AttributeError as cause:
                return path, str(cause)
            for value in values:
                try:
                    struct.pack(">" + code, value)
                except struct.error as cause:
                    return path, f"{value!r} does not fit: {cause}"
        return "", str(failure)
    return label, str(failure)
