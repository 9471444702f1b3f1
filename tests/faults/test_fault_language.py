"""Faults have one text each, which says what they are, and nonsense is refused with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.faults.language import (
    FAULTS,
    AddVoter,
    BusyMachine,
    CancelReassignments,
    ChangeConfig,
    ClockJump,
    ClockStrobe,
    CutClients,
    CutTail,
    Decommission,
    Delay,
    DiskError,
    DiskFull,
    ElectLeaders,
    FailNext,
    Fault,
    FlipBits,
    Heal,
    Hijack,
    Hold,
    Kill,
    NoDescriptors,
    OneWay,
    Partition,
    Pause,
    PowerLoss,
    Reassign,
    RecreateTopic,
    RemoveVoter,
    Reset,
    Restart,
    Resume,
    RollingRestart,
    SlowDisk,
    Stop,
    StrayWrite,
    SwitchVersion,
    TornWrite,
    Wipe,
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
    "slow-disk node=1 milliseconds=50": SlowDisk(1, 50),
    "slow-disk node=1 milliseconds=50 operation=read": SlowDisk(1, 50, "read"),
    "power-loss node=3": PowerLoss(3),
    "power-loss node=3 policy=torn-last": PowerLoss(3, "torn-last"),
    "clock-jump node=1 milliseconds=-3600000": ClockJump(1, -3_600_000),
    "clock-strobe node=1 milliseconds=200 period_ms=10": ClockStrobe(1, 200, 10),
    "rolling-restart nodes=3,1,2": RollingRestart((3, 1, 2)),
    "no-descriptors node=1": NoDescriptors(1),
    "busy-machine": BusyMachine(),
    "busy-machine processes=4": BusyMachine(4),
    "cut-clients nodes=1,2": CutClients((1, 2)),
    "reset a=1 b=2,3": Reset((1,), (2, 3)),
    "hold node=1 api=EndTxn": Hold(1, "EndTxn"),
    "hold node=1 api=Fetch direction=response times=3 milliseconds=900": Hold(
        1, "Fetch", "response", 3, 900
    ),
    "wipe node=2": Wipe(2),
    "flip-bits node=2 count=9 seed=7": FlipBits(2, 9, 7),
    "cut-tail node=2 count=100": CutTail(2, 100),
    "stray-write node=2 seed=9": StrayWrite(2, 9),
    "switch-version node=3": SwitchVersion(3),
    "elect-leaders": ElectLeaders(),
    "reassign topic=t partition=0 replicas=3,1": Reassign("t", 0, (3, 1)),
    "cancel-reassignments": CancelReassignments(),
    "recreate-topic topic=t": RecreateTopic("t"),
    "change-config topic=t key=min.insync.replicas value=2": ChangeConfig(
        "t", "min.insync.replicas", "2"
    ),
    "change-config topic=t key=retention.ms": ChangeConfig("t", "retention.ms"),
    "decommission node=4": Decommission(4),
    "remove-voter node=3": RemoveVoter(3),
    "add-voter node=3": AddVoter(3),
    "hijack transactional_id=bank-1": Hijack("bank-1"),
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
        ("slow-disk node=1 milliseconds=0", "not slow"),
        ("slow-disk node=1 milliseconds=5 operation=write", "'write' is none"),
        ("power-loss node=1 policy=some", "'some' is none"),
        ("clock-strobe node=1 milliseconds=5 period_ms=0", "is none"),
        ("hold node=1 api=Produced", "'Produced' is no API"),
        ("hold node=1 api=Produce direction=both", "'both' is none"),
        ("hold node=1 api=Produce times=0", "never"),
        ("hold node=1 api=Produce milliseconds=-1", "never"),
        ("reset a=1 b=1", "node 1 can't be on both sides"),
        ("flip-bits node=1 count=0", "none"),
        ("cut-tail node=1 count=0", "none"),
        ("busy-machine processes=0", "nobody busy"),
        ("reassign topic=t partition=0 replicas=1,1", "can't be the replicas"),
    ],
)
def test_nonsense_is_refused_with_a_reason(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_fault(text)


def test_sides_need_nodes() -> None:
    with pytest.raises(ValueError, match="both sides need a node"):
        Partition((), (1,))
