"""What a source decides about offsets, without asking anybody: plans, limits, and what is lost.

Offsets are in two forms: as Spark's checkpoint has them, `{"topic": {"0": 23}}`, the same JSON that
its own connector writes; and as a mapping of TopicPartition, in which all is computed. An end is
always the offset after the last one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kraftpy.client.calls import TopicPartition

__all__ = [
    "Ends",
    "OffsetRange",
    "from_json",
    "losses",
    "ranges_between",
    "split",
    "to_json",
    "within_limit",
]

Ends: TypeAlias = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads: the records from `start` to before `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start


def to_json(ends: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The shape of Spark's checkpoints, in order."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(ends.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> Ends:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, of_topic in offsets.items()
        for partition, offset in of_topic.items()
    }


def ranges_between(starts: Mapping[TopicPartition, int], ends: Ends) -> list[OffsetRange]:
    """The ranges that have something in them, in order; both must know a partition."""
    return [
        OffsetRange(*where, starts[where], end)
        for where, end in sorted(ends.items())
        if where in starts and end > starts[where]
    ]


def losses(starts: Ends, ends: Ends, added: Mapping[TopicPartition, int]) -> list[str]:
    """What the checkpoint says was there, and is not; a sentence for each.

    `added` are the partitions that were not there before, with their first offsets: records before
    those were never read.
    """
    found = [
        f"{where.topic}-{where.partition} is gone (its topic was deleted, or made again with fewer"
        " partitions)"
        for where in sorted(starts)
        if where not in ends
    ]
    found += [
        f"{where.topic}-{where.partition} is new and begins at offset {offset}, not at 0"
        for where, offset in sorted(added.items())
        if offset > 0
    ]
    found += [
        f"{where.topic}-{where.partition} ends at offset {ends[where]}, before the {start} that was"
        " read (its topic was made again, or its log was cut)"
        for where, start in sorted(starts.items())
        if ends.get(where, start) < start
    ]
    return found


def within_limit(starts: Mapping[TopicPartition, int], ends: Ends, limit: int) -> Ends:
    """Ends that are about `limit` records away; each partition gets its share of what waits.

    Small partitions get one record at least, so that none starves: the sum may be a little more.
    """
    waiting = {
        where: end - starts[where]
        for where, end in ends.items()
        if where in starts and end > starts[where]
    }
    total = sum(waiting.values())
    if total <= limit:
        return ends
    limited = dict(ends)
    for where, size in waiting.items():
        share = limit * size / total
        count = math.ceil(share) if share < 1 else math.floor(share)
        limited[where] = min(ends[where], starts[where] + count)
    return limited


def split(
    ranges: list[OffsetRange], *, min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """At least so many ranges, none with more records than allowed; large ones are cut evenly."""
    if max_records is not None:
        ranges = [
            part for each in ranges for part in _cut(each, math.ceil(each.size / max_records))
        ]
    if not ranges or min_partitions is None or len(ranges) >= min_partitions:
        return ranges
    total = sum(each.size for each in ranges)
    # Each has a piece; further pieces go to where pieces are largest.
    pieces = [max(1, math.floor(min_partitions * each.size / total)) for each in ranges]
    while sum(pieces) < min_partitions:
        sizes = [each.size / count for each, count in zip(ranges, pieces, strict=True)]
        largest = sizes.index(max(sizes))
        if sizes[largest] <= 1:
            break
        pieces[largest] += 1
    return [part for each, count in zip(ranges, pieces, strict=True) for part in _cut(each, count)]


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` parts, or fewer if there are not as many records."""
    count = max(1, min(count, whole.size))
    edges = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, edges[number], edges[number + 1])
        for number in range(count)
    ]
