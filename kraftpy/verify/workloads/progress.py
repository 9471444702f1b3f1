"""An operation while it runs: what is known of it so far, and how it ended.

Values are filled in as answers come, so that what was learned before a failure is in the history
too: an offset of a record whose transaction then failed, say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import groupby
from operator import attrgetter
from typing import Any

from kraftpy.client.calls import TopicPartition
from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.outcomes import ClientError, Effect
from kraftpy.verify.workloads.payload import Damage, decode
from kraftpy.verify.workloads.plans import Plan
from kraftpy.verify.workloads.port import Ack, CommittedOffset, PolledRecord

__all__ = ["Ended", "Progress"]


class Ended(Exception):  # noqa: N818 (it names what happened)
    """The operation is over, and not ok."""

    def __init__(self, effect: Effect, error: str) -> None:
        super().__init__(error)
        self.effect = effect
        self.error = error

    @classmethod
    def by(cls, failure: ClientError) -> Ended:
        return cls(failure.meaning.effect, str(failure))


class Progress:
    def __init__(self, plan: Plan, keys: KeySpace) -> None:
        self.value: Any = deepcopy(plan.value)
        self.extras = dict(plan.extras)
        self.meta: dict[str, Any] = {}
        self.remark: str | None = None
        self.first_polled: dict[TopicPartition, int] = {}
        self.next_offsets: dict[TopicPartition, int] = {}
        self._keys = keys

    def sent(self, index: int, ack: Ack) -> None:
        """Micro-operation `index`, a send, was acknowledged."""
        _, key, value = self.value[index]
        extras = dict(self.extras.get((key, value), {}))
        where = self._keys.where(key)
        if ack.partition != where.partition:
            extras["key"] = self._keys.key_of(where.topic, ack.partition)
        entry: list[Any] = [ack.offset, value]
        self.value[index] = ["send", key, [*entry, extras] if extras else entry]

    def polled(self, index: int, records: Sequence[PolledRecord]) -> dict[int, list[list[Any]]]:
        """Micro-operation `index`, a poll, brought these, perhaps after others."""
        micro = self.value[index]
        if len(micro) == 1:
            micro.append({})
        found: dict[int, list[list[Any]]] = micro[1]
        # Those of a partition mostly follow each other.
        for (topic, partition), of_partition in groupby(records, attrgetter("topic", "partition")):
            key = self._keys.key_of(topic, partition)
            if key is None:
                raise ValueError(f"a record of {topic}-{partition}, unasked for")
            where = TopicPartition(topic, partition)
            entries = found.setdefault(key, [])
            for record in of_partition:
                entries.append(_entry(key, record))
                self.first_polled.setdefault(where, record.offset)
                self.next_offsets[where] = record.offset + 1
        return found

    def offsets_told(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """The group's offsets were committed, or will be with the transaction."""
        self.meta["offsets"] = {
            "group": group,
            "offsets": {
                self._keys.key_of(*where): [each.offset, each.metadata]
                for where, each in offsets.items()
            },
        }


def _entry(key: int, record: PolledRecord) -> list[Any]:
    content = decode(
        record.value, key=record.key, time_ms=record.timestamp_ms, headers=record.headers
    )
    extras: dict[str, Any] = {}
    value: int | None = None
    if isinstance(content, Damage):
        extras["damage"] = content.reason
    else:
        value = content.value
        extras |= content.extras
        if content.key != key:
            extras["key"] = content.key
    if record.leader_epoch is not None:
        extras["epoch"] = record.leader_epoch
    return [record.offset, value, extras] if extras else [record.offset, value]
