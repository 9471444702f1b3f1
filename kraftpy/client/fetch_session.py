"""The fetcher's side of a fetch session (KIP-227): name to a node only what has changed.

In a session (see session_term.py) a request carries the partitions that are new or whose wishes
differ from those sent last, and the names of those no longer wanted; the node remembers the rest,
and answers with what has news.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kraftpy.client.calls import TopicPartition
from kraftpy.client.session_term import SessionTerm
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

__all__ = ["FetchSession", "Wish"]


class Wish(NamedTuple):
    """What to fetch of one partition."""

    topic_id: Uuid
    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class _Slice:
    """The partitions of one request by topic."""

    wanted: dict[str, FetchTopic]
    forgotten: dict[tuple[str, Uuid], ForgottenTopic]


class FetchSession:
    """One fetcher's session with one node; one request is under way at a time."""

    __slots__ = ("_term", "_told")

    def __init__(self) -> None:
        self._term = SessionTerm()
        # What the node knows of our wishes, once it has answered.
        self._told: dict[TopicPartition, Wish] = {}

    def fill(self, request: FetchRequest, wishes: Mapping[TopicPartition, Wish]) -> None:
        """Put session and partitions into `request`."""
        told = self._told if self._term.is_incremental else {}
        parts = _Slice({}, {})
        for where, wish in wishes.items():
            known = told.get(where)
            if known != wish:
                _add_wanted(parts, where, wish)
        for where, known in told.items():
            wish_now = wishes.get(where)
            # A topic made anew has another id: to the node its partitions are others.
            if wish_now is None or wish_now.topic_id != known.topic_id:
                _add_forgotten(parts, where, known)
        request.session_id = self._term.session_id
        request.session_epoch = self._term.epoch
        request.topics = list(parts.wanted.values())
        request.forgotten_topics_data = list(parts.forgotten.values())
        self._told = dict(wishes)

    def answered(self, code: ErrorCode, session_id: int) -> None:
        """The node answered with this code and session id."""
        self._term.answered(code, session_id)

    def lost(self) -> None:
        """Nobody knows what the node knows: begin anew, in place of the old session."""
        self._term.lost()


def _add_wanted(parts: _Slice, where: TopicPartition, wish: Wish) -> None:
    topic = parts.wanted.get(where.topic)
    if topic is None:
        topic = parts.wanted[where.topic] = FetchTopic(topic=where.topic, topic_id=wish.topic_id)
    topic.partitions.append(
        FetchPartition(
            partition=where.partition,
            current_leader_epoch=wish.current_leader_epoch,
            fetch_offset=wish.fetch_offset,
            last_fetched_epoch=wish.last_fetched_epoch,
            partition_max_bytes=wish.max_bytes,
        )
    )


def _add_forgotten(parts: _Slice, where: TopicPartition, wish: Wish) -> None:
    key = (where.topic, wish.topic_id)
    topic = parts.forgotten.get(key)
    if topic is None:
        topic = parts.forgotten[key] = ForgottenTopic(topic=where.topic, topic_id=wish.topic_id)
    topic.partitions.append(where.partition)
