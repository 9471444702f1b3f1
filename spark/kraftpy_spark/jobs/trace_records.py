"""Traces of single messages: who sent it, who has read it, when, and what became of it.

A message is known by its id: the header `msgid` that its producer gave it (16 bytes, a UUID of
version 7), or without one its place, `topic-partition@offset`. Everybody who handles a message
tells the trace topic, in JSON; all traces of one id are the message's chain. Somebody who reads it
twice is in the chain twice.

Whether a message is in a sample hangs on its id alone, so that a chain is traced whole or not at
all. Without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, TypeAlias
from zlib import crc32

__all__ = [
    "MESSAGE_ID",
    "SAMPLE_RANGE",
    "Chain",
    "Side",
    "Tag",
    "Trace",
    "chains",
    "id_text",
    "is_sampled",
    "new_message_id",
]

Side: TypeAlias = Literal["producer", "consumer"]

MESSAGE_ID = "msgid"
SAMPLE_RANGE = 1 << 32
"""Of the hash of an id."""
_ID_BYTES = 16


class Tag(NamedTuple):
    """A header of the user's, as text."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Trace:
    side: Side
    message_id: str
    key: str | None
    at_ms: int
    """When it was sent or received, by the clock of whoever did."""
    duration_ms: int
    """Until the cluster's answer; or until it was in the lake, or among the dead letters."""
    status: Literal["ok", "failed"]
    cluster: str
    topic: str
    partition: int
    offset: int | None
    """None of a message that was not acknowledged."""
    address: str
    client_id: str
    tags: tuple[Tag, ...] = ()
    group: str | None = None
    """Of consumers, as the number of retries is."""
    retries: int | None = None
    reason: str | None = None
    """Why it failed."""
    appended_ms: int | None = None
    """When the leader took it: consumers know it of topics with LogAppendTime."""

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"tags": [each._asdict() for each in self.tags]})

    @classmethod
    def from_json(cls, text: str | bytes) -> Trace:
        value: dict[str, Any] = json.loads(text)
        # Spark leaves out what is null.
        tags = tuple(Tag(each["key"], each.get("value", "")) for each in value.pop("tags", ()))
        return cls(key=value.pop("key", None), offset=value.pop("offset", None), tags=tags, **value)


class Chain(NamedTuple):
    """All that is known of one message, in the order of time, senders first."""

    message_id: str
    traces: Sequence[Trace]


def chains(traces: Iterable[Trace]) -> list[Chain]:
    """A trace that was told twice is one; a message that was handled twice has two."""
    found: dict[str, set[Trace]] = {}
    for each in traces:
        found.setdefault(each.message_id, set()).add(each)
    made = [
        Chain(message_id, sorted(of_it, key=lambda each: (each.side != "producer", each.at_ms)))
        for message_id, of_it in found.items()
    ]
    return sorted(made, key=lambda chain: (chain.traces[0].at_ms, chain.message_id))


def new_message_id(now_ms: int, random_bits: Callable[[int], int]) -> bytes:
    """A UUID of version 7: later ones are larger."""
    number = now_ms << 80 | 7 << 76 | random_bits(12) << 64 | 2 << 62 | random_bits(62)
    return number.to_bytes(_ID_BYTES, "big")


def id_text(message_id: bytes | None, topic: str, partition: int, offset: int | None) -> str:
    if message_id is not None and len(message_id) == _ID_BYTES:
        return message_id.hex()
    return f"{topic}-{partition}@{offset}"


def is_sampled(message_id: str, rate: float) -> bool:
    return crc32(message_id.encode()) < rate * SAMPLE_RANGE
