"""Fetch sessions as a fetcher keeps them: everything once, then changes."""

from __future__ import annotations

import pytest

from kraftpy.broker.fetch_session_client import FetchSessionClient, SessionRequest
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k01_fetch import FetchPartition, FetchResponse

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)


def put(session: FetchSessionClient, *keys: tuple[Uuid, int], offset: int = 0) -> None:
    for key in keys:
        session.put(key, FetchPartition(partition=key[1], fetch_offset=offset))


def request(session: FetchSessionClient) -> SessionRequest:
    told = session.next_request()
    assert told is not None
    return told


def sent(told: SessionRequest) -> list[tuple[Uuid, int, int]]:
    return [
        (topic.topic_id, each.partition, each.fetch_offset)
        for topic in told.topics
        for each in topic.partitions
    ]


def forgotten(told: SessionRequest) -> list[tuple[Uuid, int]]:
    return [(topic.topic_id, each) for topic in told.forgotten for each in topic.partitions]


def opened(*keys: tuple[Uuid, int]) -> FetchSessionClient:
    """A session that has these."""
    session = FetchSessionClient()
    put(session, *keys)
    session.next_request()
    assert session.answered(FetchResponse(session_id=7))
    return session


def test_the_first_request_names_everything() -> None:
    """REP-72, REP-59: in the order of the last puts; neighbours share a topic's entry."""
    session = FetchSessionClient()
    put(session, (A, 0), (B, 0), (A, 1), (A, 2))
    put(session, (A, 0), offset=5)
    told = request(session)
    assert (told.session_id, told.session_epoch) == (0, 0)
    assert sent(told) == [(B, 0, 0), (A, 1, 0), (A, 2, 0), (A, 0, 5)]
    assert [topic.topic_id for topic in told.topics] == [B, A]


def test_further_requests_name_changes() -> None:
    """REP-72: what is new, changed, or to be forgotten; and count."""
    session = opened((A, 0), (A, 1), (B, 0))
    told = request(session)
    assert (told.session_id, told.session_epoch) == (7, 1)
    assert (told.topics, told.forgotten) == ([], [])
    assert session.answered(FetchResponse(session_id=7))
    put(session, (A, 1), offset=4)
    put(session, (B, 3))
    session.drop((B, 0))
    session.drop((A, 0))
    told = request(session)
    assert told.session_epoch == 2
    assert sent(told) == [(A, 1, 4), (B, 3, 0)]
    assert forgotten(told) == [(B, 0), (A, 0)]
    assert session.answered(FetchResponse(session_id=7))
    assert request(session).forgotten == []


def test_who_comes_back_before_the_request_is_not_forgotten() -> None:
    """REP-72: but told again."""
    session = opened((A, 0))
    session.drop((A, 0))
    put(session, (A, 0), offset=2)
    told = request(session)
    assert sent(told) == [(A, 0, 2)]
    assert forgotten(told) == []


def test_who_was_never_told_is_not_forgotten() -> None:
    session = opened((A, 0))
    put(session, (A, 1))
    session.drop((A, 1))
    session.drop((A, 9))
    told = request(session)
    assert (sent(told), forgotten(told)) == ([], [])
    # Nor who was, and was told to be forgotten since.
    session.drop((A, 0))
    request(session)
    put(session, (A, 0))
    session.drop((A, 0))
    assert session.next_request() is None


def test_a_topic_made_anew_is_another_topic() -> None:
    """REP-72: the old id is forgotten, the new one told."""
    session = opened((A, 0))
    session.drop((A, 0))
    put(session, (B, 0))
    told = request(session)
    assert (sent(told), forgotten(told)) == ([(B, 0, 0)], [(A, 0)])


def test_nothing_to_ask_for() -> None:
    """REP-71: no request; but one to take back what was asked for."""
    assert FetchSessionClient().next_request() is None
    session = opened((A, 0))
    session.drop((A, 0))
    assert forgotten(request(session)) == [(A, 0)]
    session.answered(FetchResponse(session_id=7))
    assert session.next_request() is None
    session = opened((A, 0))
    session.drop((A, 0))
    session.lost()
    assert session.next_request() is None


def test_an_answer_is_current_until_something_changes() -> None:
    """REP-62: changed, dropped, or dropped and put again as it was."""
    session = FetchSessionClient()
    put(session, (A, 0), (A, 1), (A, 2), (A, 3))
    session.next_request()
    put(session, (A, 1), offset=3)
    session.drop((A, 2))
    session.drop((A, 3))
    put(session, (A, 3))
    assert session.current((A, 0)) is not None
    assert [session.current((A, index)) for index in (1, 2, 3, 4)] == [None] * 4


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_after_an_error_everything_is_told_anew(error: ErrorCode, session_id: int) -> None:
    """REP-72: and the session that may still be there is named, so that it ends."""
    session = opened((A, 0), (A, 1))
    put(session, (A, 0), offset=8)
    session.drop((A, 1))
    session.next_request()
    assert not session.answered(FetchResponse(error_code=error))
    told = request(session)
    assert (told.session_id, told.session_epoch) == (session_id, 0)
    assert (sent(told), forgotten(told)) == ([(A, 0, 8)], [])


def test_after_a_lost_answer_everything_is_told_anew() -> None:
    """REP-63."""
    session = opened((A, 0), (A, 1))
    session.next_request()
    session.lost()
    told = request(session)
    assert (told.session_id, told.session_epoch) == (7, 0)
    assert len(sent(told)) == 2
    assert session.answered(FetchResponse(session_id=8))
    told = request(session)
    assert (told.session_id, told.session_epoch, told.topics) == (8, 1, [])


def test_a_broker_without_room_for_a_session_is_told_everything_each_time() -> None:
    session = FetchSessionClient()
    put(session, (A, 0))
    for _ in range(3):
        told = request(session)
        assert (told.session_id, told.session_epoch, len(sent(told))) == (0, 0, 1)
        assert session.answered(FetchResponse(session_id=0))


def test_a_session_that_the_broker_ends() -> None:
    session = opened((A, 0))
    session.next_request()
    assert session.answered(FetchResponse(session_id=0))
    told = request(session)
    assert (told.session_id, told.session_epoch, len(sent(told))) == (0, 0, 1)


def test_the_epoch_begins_again_at_one() -> None:
    session = opened((A, 0))
    session._term.epoch = 2**31 - 1
    assert request(session).session_epoch == 2**31 - 1
    session.answered(FetchResponse(session_id=7))
    assert request(session).session_epoch == 1
