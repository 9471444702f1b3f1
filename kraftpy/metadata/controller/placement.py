"""Where the replicas of new partitions go.

The goals, the strongest first: no broker has two replicas of a partition; the first replica, which
will lead, is on an unfenced broker; replicas are spread over as many racks, as evenly, as there
are; leaders are spread evenly over brokers; within a rack, unfenced brokers come before fenced
ones. A rack counts more than an even load: one broker alone in its rack gets a replica of nearly
everything.

Racks stand in a circle, and so do the brokers of each, both turned by chance. Leaders are dealt
from a deck that holds each unfenced broker once, racks in turn. The other replicas of a partition
go round the racks from the leader's on. When the deck is used up, racks and brokers are shuffled,
so that partitions don't keep having the same neighbours.

Kafka stripes in the same way but takes each leader from the next rack, whatever the sizes of racks,
so that the number of racks and their sizes may have a common factor and most brokers get no leader
at all. The deck is why leaders differ by at most one here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TypeVar

from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import RegisterBrokerRecord
from kraftpy.world import Random

__all__ = ["PlacementError", "ReplicaPlacer", "is_active", "is_cordoned", "usable_brokers"]

T = TypeVar("T")


class PlacementError(Exception):
    """The replication factor can't be had from the brokers there are; the argument says why."""


def is_active(broker: RegisterBrokerRecord | None) -> bool:
    """Whether a broker may be in the ISR of a new partition."""
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def usable_brokers(image: MetadataImage) -> Iterator[RegisterBrokerRecord]:
    """The brokers that may be given new replicas, fenced ones among them."""
    for broker in image.brokers.values():
        if not broker.in_controlled_shutdown and not is_cordoned(broker):
            yield broker


def is_cordoned(broker: RegisterBrokerRecord) -> bool:
    """Whether every directory of the broker is closed for new replicas."""
    cordoned = broker.cordoned_log_dirs or ()
    return bool(broker.log_dirs) and all(each in cordoned for each in broker.log_dirs)


class _Circle:
    """Brokers that take turns."""

    __slots__ = ("brokers", "positions", "turn")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self.positions: dict[int, int] = {}
        self.turn = 0

    def arrange(self, brokers: list[int]) -> None:
        self.brokers = brokers
        self.positions = {broker: position for position, broker in enumerate(brokers)}

    def pick(self, taken: list[int]) -> int | None:
        """The first broker that isn't taken, from whose turn it is on; None if there is none.

        Where the leader comes from here, those behind it follow, and nobody's turn is used up:
        leaders are dealt evenly, and so are then those behind them.
        """
        behind_leader = self.positions.get(taken[0])
        start = self.turn if behind_leader is None else behind_leader
        for position in range(start, start + len(self.brokers)):
            broker = self.brokers[position % len(self.brokers)]
            if broker not in taken:
                if behind_leader is None:
                    self.turn = (position + 1) % len(self.brokers)
                return broker
        return None


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.unfenced = _Circle()
        self.fenced = _Circle()

    def pick(self, taken: list[int]) -> int | None:
        broker = self.unfenced.pick(taken)
        return self.fenced.pick(taken) if broker is None else broker


class ReplicaPlacer:
    """Places one partition after the other, for one request."""

    __slots__ = ("_broker_count", "_deck", "_rack_of", "_racks", "_random")

    def __init__(self, brokers: Iterable[RegisterBrokerRecord], random: Random) -> None:
        by_name: dict[str | None, _Rack] = {}
        self._rack_of: dict[int, _Rack] = {}
        self._random = random
        for broker in brokers:
            rack = by_name.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.broker_id)
            self._rack_of[broker.broker_id] = rack
        names = sorted(by_name, key=lambda name: (name is not None, name or ""))
        self._racks = _turned([by_name[name] for name in names], random)
        for rack in self._racks:
            for circle in (rack.unfenced, rack.fenced):
                circle.arrange(_turned(sorted(circle.brokers), random))
        self._broker_count = len(self._rack_of)
        # Leaders of the partitions to come, the next one last.
        self._deck = self._new_deck()

    def place(self, partition_count: int, replication_factor: int) -> Iterator[tuple[int, ...]]:
        """The replicas of each partition, the preferred leader first; raises PlacementError.

        Each is placed when it is taken, so that one may rest in between.
        """
        if replication_factor <= 0:
            raise PlacementError("the replication factor must be positive")
        if not self._deck:
            raise PlacementError("all brokers are fenced or shutting down")
        if replication_factor > self._broker_count:
            raise PlacementError(
                f"there are only {self._broker_count} brokers that take new replicas"
            )
        return (self._place_one(replication_factor) for _ in range(partition_count))

    def _place_one(self, replication_factor: int) -> tuple[int, ...]:
        leader = self._deck.pop()
        taken = [leader]
        home = self._racks.index(self._rack_of[leader])
        step = 0
        while len(taken) < replication_factor:
            # The leader's own rack comes last in each round, which leaves racks as even as can be.
            step += 1
            broker = self._racks[(home + step) % len(self._racks)].pick(taken)
            if broker is not None:
                taken.append(broker)
        if not self._deck:
            self._shuffle()
            self._deck = self._new_deck()
        return tuple(taken)

    def _new_deck(self) -> list[int]:
        circles = [rack.unfenced.brokers for rack in self._racks]
        rounds = zip_longest(*circles)
        deck = [broker for each in rounds for broker in each if broker is not None]
        deck.reverse()
        return deck

    def _shuffle(self) -> None:
        self._random.shuffle(self._racks)
        for rack in self._racks:
            for circle in (rack.unfenced, rack.fenced):
                self._random.shuffle(circle.brokers)
                circle.arrange(circle.brokers)


def _turned(items: list[T], random: Random) -> list[T]:
    start = random.randrange(len(items)) if items else 0
    return items[start:] + items[:start]
