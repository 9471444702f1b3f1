"""Every message, version and direction beside kio: the same bytes out, the same values in."""

from __future__ import annotations

import pytest
from hypothesis import given
from protocol_cases import RECORD_MESSAGES, all_messages, messages, quick, versions_of
from protocol_kio import kio_class_of, kio_decode, kio_encode, kio_limits, to_kio

from kraftpy.protocol.codec import decode, encode_bytes
from kraftpy.protocol.tables import Message

CLASSES = list(all_messages())


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda each: each.__name__)
def test_same_bytes_and_values_as_kio(message_class: type[Message]) -> None:
    """NET-81, NET-86, NET-88, NET-90, NET-93 and NET-98, for every version that there is."""
    for version in versions_of(message_class):
        _compare_with_kio(message_class, version)


def _compare_with_kio(message_class: type[Message], version: int) -> None:
    kio_class = kio_class_of(message_class, version)

    @quick
    @given(messages(message_class, version, kio_limits(message_class, version)))
    def compare(message: Message) -> None:
        kio_message = to_kio(message, kio_class, version)
        ours = encode_bytes(message, version)
        assert ours == kio_encode(kio_message), f"v{version}: bytes differ"
        assert kio_decode(kio_class, ours) == kio_message, f"v{version}: kio reads ours otherwise"
        assert decode(message_class, version, ours) == message, f"v{version}: values differ"

    compare()


@pytest.mark.parametrize(
    "message_class", [*CLASSES, *RECORD_MESSAGES], ids=lambda each: each.__name__
)
def test_round_trip_without_limits(message_class: type[Message]) -> None:
    """NET-86, JEP-155: what kio can't express comes back too, at the limits of every type."""
    for version in versions_of(message_class):
        _round_trip(message_class, version)


def _round_trip(message_class: type[Message], version: int) -> None:
    @quick
    @given(messages(message_class, version))
    def round_trip(message: Message) -> None:
        assert decode(message_class, version, encode_bytes(message, version)) == message

    round_trip()
