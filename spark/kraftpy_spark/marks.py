"""The marks of a query that writes exactly once: offsets of groups that have no members.

    kraftpy-sink-<query>-<task>                 what the task of this number has written last
    kraftpy-sink-taken-<query>-<task>-<place>   which task of a later run those rows belong to
    kraftpy-sink-refused-<query>                the batch that came out differently

The offset is the batch, its metadata the mark. How they are used: exactly_once.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kraftpy.client.admin_groups import alter_group_offsets, group_offsets, list_groups
from kraftpy.client.admin_many_groups import offsets_of_groups, wait_for_decided
from kraftpy.client.blocking import fresh_random
from kraftpy.client.blocking_clients import BlockingAdmin, BlockingProducer
from kraftpy.client.calls import TopicPartition
from kraftpy.client.group_member import GroupMetadata
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.client.settings import AdminSettings
from kraftpy.client.transaction_errors import ProducerFenced
from kraftpy_spark.options import SinkOptions

__all__ = [
    "MAX_EARLIER",
    "Entry",
    "Mark",
    "QueryMarks",
    "TooManyRuns",
    "group_of_task",
    "offsets_with",
]

MAX_EARLIER = 64
"""So many runs may have written for one batch in one group: brokers take 4,096 characters."""


_NUMBERS_AHEAD = 200
_ATTEMPTS = 20
_PAUSE_SECONDS = 0.2


class TooManyRuns(Exception):  # noqa: N818 (it names what is wrong)
    """A batch was begun again so often that what was written for it can't be noted any more."""


class Entry(NamedTuple):
    """Rows that are written: in whose group that is noted, and the how many-th of its digests."""

    partition_id: int
    place: int


@dataclass(frozen=True, slots=True)
class Mark:
    """What the task of this number has written last, and in which run of the query.

    `earlier` has the digests of what it has written for the same batch in runs before, where it had
    other rows. Marks of before there were runs have none of both.
    """

    batch_id: int
    partition_id: int
    digest: str
    run_id: str = ""
    earlier: tuple[str, ...] = ()

    def metadata(self) -> str:
        if len(self.earlier) > MAX_EARLIER:
            raise TooManyRuns(
                f"batch {self.batch_id} was begun again {MAX_EARLIER} times, and task"
                f" {self.partition_id} has written other rows each time. Begin with a new"
                " checkpoint: rows of this batch will then be there twice"
            )
        found = {"batchId": self.batch_id, "partition": self.partition_id, "digest": self.digest}
        if self.run_id:
            found["run"] = self.run_id
        return json.dumps({**found, "earlier": self.earlier} if self.earlier else found)

    @classmethod
    def parse(cls, metadata: str) -> Mark | None:
        try:
            found = json.loads(metadata)
            return cls(
                int(found["batchId"]),
                int(found["partition"]),
                str(found["digest"]),
                str(found.get("run", "")),
                tuple(map(str, found.get("earlier", ()))),
            )
        except (ValueError, KeyError, TypeError):
            return None

    def is_of_same_run(self, other: Mark) -> bool:
        """And of the same batch."""
        return (self.batch_id, self.run_id) == (other.batch_id, other.run_id)

    def entries(self) -> dict[Entry, str]:
        """All that is written for the batch under this number, with the digests."""
        digests = enumerate((*self.earlier, self.digest))
        return {Entry(self.partition_id, place): digest for place, digest in digests}

    def entries_of_others(self, run_id: str) -> dict[Entry, str]:
        """The same without what this run has written: that is the last, if it is there at all."""
        entries = self.entries()
        if self.run_id == run_id:
            entries.popitem()
        return entries


def group_of_task(query_id: str, partition_id: int) -> str:
    """Of the group that has the mark, and of the transactions of the task."""
    return f"{_prefix(query_id)}{partition_id}"


def _prefix(query_id: str) -> str:
    return f"kraftpy-sink-{query_id}-"


class QueryMarks:
    """The marks of a query, as the cluster has them now."""

    def __init__(self, options: SinkOptions, query_id: str) -> None:
        self._options = options
        self._query_id = query_id

    def of_task(self, partition_id: int) -> Mark | None:
        """For a producer of the task's transactional id, which has seen earlier ones end."""
        return self._mark_of(group_of_task(self._query_id, partition_id))

    def of_all_tasks(self, known_tasks: int) -> dict[int, Mark]:
        """By task; there are at least so many. All that was committed before is there, and nothing
        is waited for that is not decided.

        Which numbers there are nobody says for sure: the groups of a coordinator that has just died
        are missing in every list until there is another one. Who asks for a group by its name
        waits for its coordinator. So numbers are asked for, with or without a mark, until many in a
        row have never had one; the list is for those that are still further away.
        """
        found: dict[int, Mark] = {}
        with self._admin() as admin:
            groups = [group.group_id for group in admin.run(list_groups())]
            end, asked = max(known_tasks, *self._numbers(groups), 0) + _NUMBERS_AHEAD, 0
            while asked < end:
                names = [group_of_task(self._query_id, number) for number in range(asked, end)]
                admin.run(wait_for_decided(names))
                offsets = admin.run(offsets_of_groups(names))
                marks = (_newest(of_group) for of_group in offsets.values())
                found |= {mark.partition_id: mark for mark in marks if mark is not None}
                asked, end = end, max(found, default=0) + _NUMBERS_AHEAD
        return found

    def _numbers(self, group_ids: Iterable[str]) -> list[int]:
        prefix = _prefix(self._query_id)
        numbers = (name.removeprefix(prefix) for name in group_ids if name.startswith(prefix))
        return [int(number) for number in numbers if number.isdecimal()]

    def take(self, entry: Entry, claim: Mark, topic: str) -> bool:
        """Whether these rows are those of the task that claims them, and of no other of its run.

        Two tasks may have the same rows, and one mark says that they were written once. The first
        that takes it has it: taking is a transaction, and the transactional id is the entry's, so
        that of two at the same time one is fenced, and then sees what the other has done.
        """
        name = f"kraftpy-sink-taken-{self._query_id}-{entry.partition_id}-{entry.place}"
        for attempt in range(_ATTEMPTS):
            # The more there are, the longer it takes until one is left alone for long enough.
            time.sleep(fresh_random().random() * _PAUSE_SECONDS * attempt)
            try:
                return self._take_once(name, claim, topic)
            except ProducerFenced as failure:
                fenced = failure
        raise fenced

    def _take_once(self, name: str, claim: Mark, topic: str) -> bool:
        settings = replace(self._options.producer, transactional_id=name)
        with BlockingProducer(self._options.bootstrap, settings) as producer:
            producer.init_transactions()
            taken = self._mark_of(name)
            if taken is not None and taken.is_of_same_run(claim):
                return taken.partition_id == claim.partition_id
            producer.begin_transaction()
            producer.send_offsets_to_transaction(offsets_with(claim, topic), GroupMetadata(name))
            producer.commit_transaction()
        return True

    def refused(self) -> Mark | None:
        return self._mark_of(self._refusal)

    def refuse(self, mark: Mark) -> None:
        """No run of the query is to write anything more for this batch."""
        with self._admin() as admin:
            found = admin.run(group_offsets(group_of_task(self._query_id, mark.partition_id)))
            offset = OffsetAndMetadata(mark.batch_id, metadata=mark.metadata())
            outcomes = admin.run(
                alter_group_offsets(self._refusal, dict.fromkeys(list(found)[:1], offset))
            )
        for failure in outcomes.values():
            if failure is not None:
                raise failure

    @property
    def _refusal(self) -> str:
        return f"kraftpy-sink-refused-{self._query_id}"

    def _mark_of(self, group_id: str) -> Mark | None:
        with self._admin() as admin:
            return _newest(admin.run(group_offsets(group_id, is_stable=True)))

    def _admin(self) -> BlockingAdmin:
        return BlockingAdmin(self._options.bootstrap, AdminSettings(self._options.producer.client))


def offsets_with(mark: Mark, topic: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """The mark as what a group commits: an offset must be of some topic that there is."""
    where = TopicPartition(topic, 0)
    return {where: OffsetAndMetadata(mark.batch_id, metadata=mark.metadata())}


def _newest(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Mark | None:
    """Each is an offset of the topic of a task's first row, whichever that was."""
    marks = [Mark.parse(each.metadata) for each in offsets.values()]
    return max(
        (mark for mark in marks if mark is not None),
        key=lambda mark: (mark.batch_id, len(mark.earlier)),
        default=None,
    )
