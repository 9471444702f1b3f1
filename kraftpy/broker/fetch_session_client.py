"""A fetch session (KIP-227) from the fetcher's side: what to ask for, told once and not each time.

In a session (see session_term.py of the client) a request names what is new, changed or to be
forgotten, and an answer what has news; the cost of both is that of the changes, not of the
partitions.

Partitions are told in the order in which they were last put here. Whoever puts a partition here
when it was served thereby puts it behind the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from kraftpy.client.session_term import SessionTerm
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k01_fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

__all__ = ["FetchKey", "FetchSessionClient", "SessionRequest"]

FetchKey: TypeAlias = tuple[Uuid, int]
"""The topic's id and the number of the partition: what is fetched, whatever its name."""


class SessionRequest(NamedTuple):
    """The part of a Fetch request that the session decides."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSessionClient:
    """What a fetcher wants of one broker, and what that broker knows of it."""

    __slots__ = ("_forgotten", "_known", "_term", "_unsent", "_wanted")

    def __init__(self) -> None:
        self._term = SessionTerm()
        self._wanted: dict[FetchKey, FetchPartition] = {}
        # What the other side has been told of; never iterated.
        self._known: set[FetchKey] = set()
        self._unsent: dict[FetchKey, None] = {}
        self._forgotten: dict[FetchKey, None] = {}

    @property
    def is_incremental(self) -> bool:
        """Whether there is a session, so that a request tells changes only."""
        return self._term.is_incremental

    def put(self, key: FetchKey, partition: FetchPartition) -> None:
        """Ask for this from now on, after all others."""
        self._wanted.pop(key, None)
        self._wanted[key] = partition
        self._unsent.pop(key, None)
        self._unsent[key] = None
        self._forgotten.pop(key, None)

    def drop(self, key: FetchKey) -> None:
        """Don't ask for it any more."""
        if self._wanted.pop(key, None) is None:
            return
        self._unsent.pop(key, None)
        if key in self._known:
            self._forgotten[key] = None

    def current(self, key: FetchKey) -> FetchPartition | None:
        """What was asked for, if that is still wanted and has not changed since the last request.

        Otherwise an answer is about the past.
        """
        return None if key in self._unsent else self._wanted.get(key)

    def next_request(self) -> SessionRequest | None:
        """What to send now; None if there is nothing to ask for, nor to take back."""
        if not self._wanted and not (self._forgotten and self.is_incremental):
            return None
        if self.is_incremental:
            topics = self._topics(self._unsent)
            forgotten = _forgotten_topics(self._forgotten)
            self._known.difference_update(self._forgotten)
            self._known.update(self._unsent)
        else:
            topics, forgotten = self._topics(self._wanted), []
            self._known = set(self._wanted)
        self._unsent = {}
        self._forgotten = {}
        return SessionRequest(self._term.session_id, self._term.epoch, topics, forgotten)

    def answered(self, response: FetchResponse) -> bool:
        """Whether what it says about partitions is an answer to what was asked."""
        return self._term.answered(response.error_code, response.session_id)

    def lost(self) -> None:
        """No answer: whether the other side has heard the request is unknown.

        The next one names everything, and the session that it replaces.
        """
        self._term.lost()

    def _topics(self, keys: Iterable[FetchKey]) -> list[FetchTopic]:
        """In order, so that neighbours of one topic share an entry and others don't."""
        topics: list[FetchTopic] = []
        for key in keys:
            topic_id = key[0]
            if not topics or topics[-1].topic_id != topic_id:
                topics.append(FetchTopic(topic_id=topic_id, partitions=[]))
            topics[-1].partitions.append(self._wanted[key])
        return topics


def _forgotten_topics(keys: Iterable[FetchKey]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, index in keys:
        if topic_id not in topics:
            topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
        topics[topic_id].partitions.append(index)
    return list(topics.values())
