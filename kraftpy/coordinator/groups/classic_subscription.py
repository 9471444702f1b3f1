"""What consumers write into the metadata of the classic protocol, as far as a coordinator reads it.

An int16 of the version stands before it. A newer version begins like the oldest one, so that is the
one that is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraftpy.protocol.codec import DecodeError, decode
from kraftpy.protocol.schema.consumer_protocol import ConsumerProtocolSubscription

__all__ = ["subscribed_topics"]

_VERSION_BYTES: Final = 2


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that somebody subscribes to; None if one can't be read."""
    topics: list[str] = []
    try:
        for each in metadata:
            if len(each) < _VERSION_BYTES:
                return None
            rest = memoryview(each)[_VERSION_BYTES:]
            topics += decode(ConsumerProtocolSubscription, 0, rest, may_have_rest=True).topics
    except DecodeError:
        return None
    return frozenset(topics)
