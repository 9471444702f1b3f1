"""Brokers that were lost a moment ago, and what clients are told of what they lead."""

from __future__ import annotations

from kraftpy.api.partition_view import ListenerView
from kraftpy.broker.suspects import SuspectedBrokers
from kraftpy.metadata.delta import MetadataDelta
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.metadata.records import Endpoint, PartitionRecord, RegisterBrokerRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.world import Clock
from kraftpy.world.memory_clock import MemoryClock

LISTENER = "PLAINTEXT"


class Hands(MemoryClock):
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 50

    def monotonic_ms(self) -> int:
        return self.now_ms


def image_of(*broker_ids: int) -> MetadataImage:
    delta = MetadataDelta(EMPTY_IMAGE)
    for each in broker_ids:
        endpoint = Endpoint(LISTENER, f"b{each}", 9092, 0)
        delta.replay(RegisterBrokerRecord(each, ZERO_UUID, 5, (endpoint,), fenced=False))
    return delta.apply(EMPTY_IMAGE.provenance)


def test_a_lost_broker_is_suspected_for_a_second() -> None:
    clock = Hands()
    suspects = SuspectedBrokers(_as_clock(clock))
    assert suspects.current() == ()
    suspects.lost(2)
    assert suspects.current() == (2,)
    clock.now_ms += 999
    suspects.lost(2)
    assert suspects.current() == (2,)
    clock.now_ms += 1
    assert suspects.current() == ()


def test_only_who_has_answered_can_be_suspected_again() -> None:
    """Two brokers that can't reach each other must not keep clients from both."""
    clock = Hands()
    suspects = SuspectedBrokers(_as_clock(clock))
    suspects.lost(2)
    clock.now_ms += 5_000
    suspects.lost(2)
    assert suspects.current() == ()
    suspects.answered(2)
    suspects.lost(2)
    assert suspects.current() == (2,)
    suspects.answered(2)
    assert suspects.current() == ()


def test_clients_are_told_to_ask_again() -> None:
    partition = PartitionRecord(0, ZERO_UUID, (1, 2), (1, 2), leader=2)
    image = image_of(1, 2)
    assert ListenerView(image, LISTENER).of(partition).leader_id == 2
    seen = ListenerView(image, LISTENER, suspected=(2,)).of(partition)
    assert (seen.error_code, seen.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert ListenerView(image, LISTENER, suspected=(1,)).of(partition).leader_id == 2


def _as_clock(clock: Hands) -> Clock:
    return clock
