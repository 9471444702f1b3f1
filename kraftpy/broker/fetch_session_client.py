"""A fetch session (KIP-227) from the fetcher's side: what to ask for, told once and not each time.

The first request names every partition, and if the other side has room it remembers them. From then
on a request names what is new, changed or to be forgotten, and an answer what has news; the cost of
both is that of the changes, not of the partitions. The epoch counts the requests, so that both
sides notice when they no longer agree on what was told. Then the session begins anew.

Partitions are told in the order in which they were last put here. Whoever puts a partition here
when it was served thereby puts it behind the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from kraftpy.protocol.errors import ErrorCode
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

_NO_SESSION: Final = 0
_INITIAL_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1


class SessionRequest(NamedTuple):
    """The part of a Fetch request that the session decides."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSessionClient:
    """What a fetcher wants of one broker, and what that broker knows of it."""

    __slots__ = ("_epoch", "_forgotten", "_known", "_session_id", "_unsent", "_wanted")

    def __init__(self) -> None:
        self._session_id = _NO_SESSION
        self._epoch = _INITIAL_EPOCH
        self._wanted: dict[FetchKey, FetchPartition] = {}
        # What the other side has been told of; never iterated.
        self._known: set[FetchKey] = set()
        self._unsent: dict[FetchKey, None] = {}
        self._forgotten: dict[FetchKey, None] = {}

    @property
    def is_incremental(self) -> bool:
        """Whether there is a session, so that a request tells changes only."""
        return self._epoch != _INITIAL_EPOCH

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
        return SessionRequest(self._session_id, self._epoch, topics, forgotten)

    def answered(self, response: FetchResponse) -> bool:
        """Whether what it says about partitions is an answer to what was asked."""
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = _NO_SESSION
            self._epoch = _INITIAL_EPOCH
            return False
        self._session_id = response.session_id
        if response.session_id == _NO_SESSION:
            # There is no room for a session, or no longer.
            self._epoch = _INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """No answer: whether the other side has heard the request is unknown.

        The next one names everything, and the session that it replaces.
        """
        self._epoch = _INITIAL_EPOCH

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
