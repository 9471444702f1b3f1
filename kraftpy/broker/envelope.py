"""The Envelope (58): a client's request on its way to the controller, with who sent it and whence.

The request travels as its own bytes, header and all, so that the controller reads what the client
wrote; the answer comes back the same way, with the client's correlation id in it. The principal is
in the form that Kafka's default serializer gives it, the host an address of 4 or 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from kraftpy.protocol.codec import DecodeError, decode, encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k58_envelope import EnvelopeRequest
from kraftpy.protocol.schema.principal import DefaultPrincipalData
from kraftpy.protocol.tables import Part
from kraftpy.world import Buffer, FileSlice

__all__ = ["BadEnvelope", "Sender", "joined", "open_envelope", "seal"]

_PRINCIPAL_VERSION: Final = 0
_VERSION_BYTES: Final = 2
_SIZE_BYTES: Final = 4
_ADDRESS_LENGTHS: Final = (4, 16)


class Sender(NamedTuple):
    """The client that a broker speaks for."""

    principal: str
    """Type and name, as in User:ann."""
    client_host: str


class BadEnvelope(Exception):  # noqa: N818 (it names what came)
    """The envelope can't be opened; the code is for the broker that sent it."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def joined(parts: Sequence[Part]) -> bytes:
    """An encoded message, header included, without its size. It has no file slices in it."""
    return b"".join(part for part in parts if not isinstance(part, FileSlice))[_SIZE_BYTES:]


def seal(frame: Buffer, sender: Sender) -> EnvelopeRequest:
    """Wrap a request's bytes, without their size, which are copied."""
    kind, _, name = sender.principal.partition(":")
    principal = encode_bytes(DefaultPrincipalData(type=kind, name=name), _PRINCIPAL_VERSION)
    return EnvelopeRequest(
        request_data=bytes(frame),
        request_principal=_PRINCIPAL_VERSION.to_bytes(_VERSION_BYTES) + principal,
        client_host_address=ip_address(sender.client_host).packed,
    )


def open_envelope(envelope: EnvelopeRequest) -> Sender:
    """Who sent the request; BadEnvelope if that can't be read."""
    address = envelope.client_host_address
    if len(address) not in _ADDRESS_LENGTHS:
        raise BadEnvelope(ErrorCode.INVALID_REQUEST, f"an address of {len(address)} bytes")
    data = envelope.request_principal
    if data is None or data[:_VERSION_BYTES] != _PRINCIPAL_VERSION.to_bytes(_VERSION_BYTES):
        raise BadEnvelope(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "no principal of a known version"
        )
    try:
        principal = decode(DefaultPrincipalData, _PRINCIPAL_VERSION, data[_VERSION_BYTES:])
    except DecodeError as error:
        raise BadEnvelope(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    return Sender(f"{principal.type}:{principal.name}", str(ip_address(address)))
