"""A machine that only remembers what it was told, for the tests of shards and their hosts."""

from __future__ import annotations

from kraftpy.coordinator.outcome import CoordinatorRecord, Outcome
from kraftpy.coordinator.ports import ShardContext
from kraftpy.coordinator.timeline import TimelineMap
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.schema.group_records import OffsetCommitKey, OffsetCommitValue


def record(name: str, number: int | None) -> CoordinatorRecord:
    key = OffsetCommitKey(group="group", topic=name, partition=0)
    if number is None:
        return CoordinatorRecord(key)
    return CoordinatorRecord(key, OffsetCommitValue(offset=number), value_version=3)


class NumberMachine:
    """Numbers by name; a number of -1 can't be replayed."""

    def __init__(self, context: ShardContext) -> None:
        self.context = context
        self.numbers: TimelineMap[str, int] = TimelineMap(context.timeline)
        self.pending: TimelineMap[tuple[int, str], int] = TimelineMap(context.timeline)
        self.offsets: list[int] = []
        self.events: list[str] = []

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord
    ) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        name = record.key.topic
        self.offsets.append(offset)
        if record.value is None:
            self.numbers.pop(name)
            return
        assert isinstance(record.value, OffsetCommitValue)
        if record.value.offset < 0:
            raise ValueError("a number below zero")
        if producer_id >= 0:
            self.pending[producer_id, name] = record.value.offset
        else:
            self.numbers[name] = record.value.offset

    def replay_marker(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        for key in [key for key in self.pending if key[0] == producer_id]:
            number = self.pending.pop(key)
            assert number is not None
            if is_commit:
                self.numbers[key[1]] = number

    def loaded(self) -> None:
        self.events.append("loaded")

    def unloaded(self) -> None:
        self.events.append("unloaded")

    def metadata_changed(self, changes: ImageChanges, image: MetadataImage) -> None:
        self.events.append("metadata")

    # Operations.

    def put(self, *pairs: tuple[str, int | None], atomic: bool = True) -> Outcome[str]:
        records = [record(name, number) for name, number in pairs]
        return Outcome(records, answer="put", is_atomic=atomic)

    def add_one(self, name: str) -> Outcome[int]:
        number = (self.numbers.get(name) or 0) + 1
        return Outcome([record(name, number)], answer=number)

    def look(self) -> Outcome[dict[str, int]]:
        return Outcome(answer=dict(self.numbers.items()))

    def committed(self) -> dict[str, int]:
        return dict(self.numbers.committed_items())
