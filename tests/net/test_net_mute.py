"""The mute state machine: the table of spec/net.md section 9, row by row."""

from __future__ import annotations

import itertools

import pytest

from kraftpy.net.mute import TRANSITIONS, Mute, MuteEvent, MuteState
from kraftpy.world import InternalInvariant

S, E = MuteState, MuteEvent
BOTH = S.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING

# Written out a second time, so that a slip in the table of the code is seen.
LEGAL = {
    (S.NOT_MUTED, E.MUTE): S.MUTED,
    (S.MUTED, E.REQUEST_RECEIVED): S.MUTED_AND_RESPONSE_PENDING,
    (S.MUTED_AND_RESPONSE_PENDING, E.THROTTLE_STARTED): BOTH,
    (S.MUTED_AND_RESPONSE_PENDING, E.RESPONSE_SENT): S.MUTED,
    (BOTH, E.RESPONSE_SENT): S.MUTED_AND_THROTTLED,
    (BOTH, E.THROTTLE_ENDED): S.MUTED_AND_RESPONSE_PENDING,
    (S.MUTED_AND_THROTTLED, E.THROTTLE_ENDED): S.MUTED,
}


def test_the_table_is_the_specified_one() -> None:
    """NET-43"""
    assert TRANSITIONS == LEGAL


@pytest.mark.parametrize(("state", "event"), [*itertools.product(MuteState, MuteEvent)])
def test_every_event_in_every_state(state: MuteState, event: MuteEvent) -> None:
    """NET-43: legal ones lead on, all others raise and change nothing."""
    mute = Mute()
    mute.state = state
    if (state, event) in LEGAL:
        mute.on(event)
        assert mute.state is LEGAL[state, event]
    else:
        with pytest.raises(InternalInvariant, match=rf"{state.name} event={event.name}"):
            mute.on(event)
        assert mute.state is state


@pytest.mark.parametrize("state", [*MuteState])
def test_only_muted_is_unmuted(state: MuteState) -> None:
    """NET-43"""
    mute = Mute()
    mute.state = state
    is_unmuted = state in (S.NOT_MUTED, S.MUTED)
    assert mute.try_unmute() is is_unmuted
    assert mute.state is (S.NOT_MUTED if is_unmuted else state)


@pytest.mark.parametrize(
    "events", [(E.RESPONSE_SENT, E.THROTTLE_ENDED), (E.THROTTLE_ENDED, E.RESPONSE_SENT)]
)
def test_both_must_be_over_in_either_order(events: tuple[MuteEvent, MuteEvent]) -> None:
    """NET-44"""
    mute = Mute()
    for event in (E.MUTE, E.REQUEST_RECEIVED, E.THROTTLE_STARTED):
        mute.on(event)
    mute.on(events[0])
    assert not mute.try_unmute()
    mute.on(events[1])
    assert mute.try_unmute()
