"""What a job has to know of the cluster besides its records: topics, their ids, ends of logs.

It is asked by kraftpy's own client, once for each batch. That speaks plain text only; with TLS or
SASL a job runs without this, and then does not know its lag, nor a topic that was made anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from kraftpy.cli.bootstrap import connect_to_any, parse_servers
from kraftpy.client.admin_operations import list_topics
from kraftpy.client.blocking_clients import BlockingAdmin, BlockingConsumer
from kraftpy.client.calls import TopicPartition
from kraftpy.client.cluster import TopicInfo
from kraftpy.client.errors import KafkaError
from kraftpy.client.settings import ConsumerSettings, IsolationLevel
from kraftpy_spark.jobs.failure import JobFailed
from kraftpy_spark.jobs.lake_state import Source

__all__ = ["ClusterView", "find_topics"]

T = TypeVar("T")
_ATTEMPTS = 5


class ClusterView:
    def __init__(self, bootstrap: str, *, reads_committed: bool = False) -> None:
        self._servers = parse_servers(bootstrap)
        level = (
            IsolationLevel.READ_COMMITTED if reads_committed else IsolationLevel.READ_UNCOMMITTED
        )
        self._settings = ConsumerSettings(isolation_level=level)

    def check(self) -> None:
        """Raises CommandFailed if nobody answers: a client tries for a long time what a person
        wants to hear about now.
        """
        connect_to_any(self._servers).close()

    def topics(self) -> dict[str, TopicInfo]:
        with BlockingAdmin(self._servers) as admin:
            return admin.run(list_topics())

    def ends(self, topics: Mapping[str, TopicInfo]) -> dict[Source, int]:
        """The next offset of each partition."""
        wheres = _partitions(topics)
        found = self._ask(lambda consumer: consumer.end_offsets(wheres))
        return _by_source(topics, found)

    def at_time(self, topics: Mapping[str, TopicInfo], timestamp_ms: int) -> dict[Source, int]:
        """The first offset of that time or later, or the end."""
        wheres = dict.fromkeys(_partitions(topics), timestamp_ms)
        found = self._ask(lambda consumer: consumer.offsets_for_times(wheres))
        ends = self.ends(topics)
        offsets = _by_source(topics, {where: answer.offset for where, answer in found.items()})
        return {where: offset if offset >= 0 else ends[where] for where, offset in offsets.items()}

    def beginnings(self, topics: Mapping[str, TopicInfo]) -> dict[Source, int]:
        wheres = _partitions(topics)
        found = self._ask(lambda consumer: consumer.beginning_offsets(wheres))
        return _by_source(topics, found)

    def _ask(self, question: Callable[[BlockingConsumer], T]) -> T:
        """Leaders change; a few failures of that kind are no reason to give up."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(KafkaError, ConnectionError), self._consumer() as consumer:
                return question(consumer)
        with self._consumer() as consumer:
            return question(consumer)

    def _consumer(self) -> BlockingConsumer:
        return BlockingConsumer(self._servers, self._settings)


def find_topics(
    there: Mapping[str, TopicInfo], names: Iterable[str], pattern: str | None
) -> dict[str, TopicInfo]:
    """The topics that a job is to read. Raises JobFailed for one that is not there."""
    if pattern is not None:
        found = {name: info for name, info in there.items() if re.fullmatch(pattern, name)}
        if not found:
            raise JobFailed(
                f"no topic matches {pattern!r}; `kraftpy topics list` shows what there is"
            )
        return found
    missing = [name for name in names if name not in there]
    if missing:
        raise JobFailed(
            f"there is no topic {missing[0]}; `kraftpy topics list` shows what there is,"
            f" `kraftpy topics create {missing[0]}` makes it"
        )
    return {name: there[name] for name in names}


def _partitions(topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    return [
        TopicPartition(name, partition)
        for name, info in topics.items()
        for partition in info.partitions
    ]


def _by_source(
    topics: Mapping[str, TopicInfo], offsets: Mapping[TopicPartition, int]
) -> dict[Source, int]:
    return {
        Source(where.topic, str(topics[where.topic].topic_id), where.partition): offset
        for where, offset in offsets.items()
    }
