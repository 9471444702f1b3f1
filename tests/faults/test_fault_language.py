"""Faults have one text each, which says what they are, and nonsense is refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.faults.language import (
    FAULTS,
    Delay,
    DiskError,
    DiskFull,
    FailNext,
    Fault,
    Heal,
    Kill,
    OneWay,
    Partition,
    Pause,
    Restart,
    Resume,
    Stop,
    TornWrite,
    format_fault,
    parse_fault,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.registry import API

TEXTS = {
    "kill node=2": Kill(2),
    "stop node=2": Stop(2),
    "restart node=1": Restart(1),
    "pause node=3": Pause(3),
    "resume node=3": Resume(3),
    "partition a=1,2 b=3": Partition((1, 2), (3,)),
    "one-way senders=1 receivers=2,3": OneWay((1,), (2, 3)),
    "delay a=1 b=2 milliseconds=50": Delay((1,), (2,), 50),
    "fail-next api=Produce error=NOT_LEADER_OR_FOLLOWER": FailNext(
        "Produce", "NOT_LEADER_OR_FOLLOWER"
    ),
    "fail-next api=Fetch error=UNKNOWN_SERVER_ERROR times=2 node=1": FailNext(
        "Fetch", "UNKNOWN_SERVER_ERROR", 2, 1
    ),
    "disk-full node=2": DiskFull(2),
    "disk-error node=2": DiskError(2, "write"),
    "disk-error node=2 operation=sync": DiskError(2, "sync"),
    "torn-write node=1": TornWrite(1),
    "heal": Heal(),
}


@pytest.mark.parametrize(("text", "fault"), TEXTS.items(), ids=list(TEXTS))
def test_the_text_of_every_fault(text: str, fault: Fault) -> None:
    assert format_fault(fault) == text
    assert parse_fault(text) == fault


def test_every_name_is_tried_above() -> None:
    assert {fault.name for fault in TEXTS.values()} == set(FAULTS)


ids = st.integers(0, 99)


@st.composite
def link_faults(draw: st.DrawFn) -> Fault:
    nodes = draw(st.lists(ids, min_size=2, max_size=6, unique=True))
    middle = draw(st.integers(1, len(nodes) - 1))
    a, b = tuple(nodes[:middle]), tuple(nodes[middle:])
    milliseconds = draw(st.integers(0, 10_000))
    return draw(st.sampled_from([Partition(a, b), OneWay(a, b), Delay(a, b, milliseconds)]))


failures = st.builds(
    FailNext,
    st.sampled_from([spec.name for spec in API.values()]),
    st.sampled_from([code.name for code in ErrorCode if code != ErrorCode.NONE]),
    st.integers(1, 1000),
    st.none() | ids,
)


@given(link_faults() | failures)
def test_what_is_formatted_is_parsed_again(fault: Fault) -> None:
    assert parse_fault(format_fault(fault)) == fault


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is no fault"),
        ("explode node=1", "'explode' is no fault"),
        ("kill", "kill needs node"),
        ("kill node", "no parameter 'node'"),
        ("kill node=one", "'one' is no node"),
        ("kill node=1 node=2", "given twice"),
        ("kill node=1 hard=yes", "no parameter 'hard=yes'"),
        ("partition a=1 b=", "'' is no b"),
        ("partition a=1,2 b=2", "node 2 can't be on both sides"),
        ("delay a=1 b=2 milliseconds=-1", "before it is sent"),
        ("fail-next api=Produced error=UNKNOWN_SERVER_ERROR", "'Produced' is no API"),
        ("fail-next api=Produce error=OOPS", "'OOPS' is no error"),
        ("fail-next api=Produce error=NONE", "'NONE' is no error"),
        ("fail-next api=Produce error=UNKNOWN_SERVER_ERROR times=0", "never"),
        ("disk-error node=1 operation=spin", "'spin' is none"),
        ("heal node=1", "no parameter"),
    ],
)
def test_nonsense_is_refused_with_a_reason(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_fault(text)


def test_sides_need_nodes() -> None:
    with pytest.raises(ValueError, match="both sides need a node"):
        Partition((), (1,))
