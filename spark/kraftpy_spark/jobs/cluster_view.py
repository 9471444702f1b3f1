"""What a job has to know of the cluster besides its records: topics, their ids, ends of logs.

It is asked by kraftpy's own client, once for each batch. That speaks plain text only; with TLS or
SASL a job runs without this, and then does not know its lag, nor a topic that was made anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import closing

from kraftpy.client.admin_operations import list_topics
from kraftpy.client.blocking_clients import BlockingAdmin
from kraftpy.client.calls import TopicPartition
from kraftpy.client.cluster import TopicInfo
from kraftpy.client.settings import AdminSettings
from kraftpy_spark.jobs.lake_state import Source
from kraftpy_spark.offsets import Ends
from kraftpy_spark.options import SourceOptions
from kraftpy_spark.topics import TopicMissing, Topics, require_reachable

__all__ = ["ClusterView", "find_topics"]


class ClusterView:
    def __init__(self, source_options: Mapping[str, str]) -> None:
        """With the options of the source, of which those of its client count here."""
        ours = {key: value for key, value in source_options.items() if _is_ours(key)}
        self._options = SourceOptions.parse(ours, is_stream=True)

    def check(self) -> None:
        """Raises Unreachable soon: a client tries for a long time what a person wants to hear
        about now.
        """
        require_reachable(self._options.bootstrap, self._options.consumer.client)

    def topics(self) -> dict[str, TopicInfo]:
        """All that there are."""
        settings = AdminSettings(self._options.consumer.client)
        with BlockingAdmin(self._options.bootstrap, settings) as admin:
            return admin.run(list_topics())

    def beginnings(self, topics: Mapping[str, TopicInfo]) -> dict[Source, int]:
        with self._asked() as asked:
            return _by_source(topics, asked.earliest(_partitions(topics)))

    def ends(self, topics: Mapping[str, TopicInfo]) -> dict[Source, int]:
        """The next offset of each partition."""
        with self._asked() as asked:
            return _by_source(topics, asked.latest(_partitions(topics)))

    def at_time(self, topics: Mapping[str, TopicInfo], timestamp_ms: int) -> dict[Source, int]:
        """The first offset of that time or later, or the end."""
        wheres = _partitions(topics)
        with self._asked() as asked:
            ends = asked.latest(wheres)
            found = asked.at_times(dict.fromkeys(wheres, timestamp_ms))
        inside = {where: found[where] if found[where] >= 0 else ends[where] for where in wheres}
        return _by_source(topics, inside)

    def _asked(self) -> closing[Topics]:
        """For one question: batches are minutes apart, and a view has no end of its own."""
        return closing(Topics(self._options))


def find_topics(
    there: Mapping[str, TopicInfo], names: Iterable[str], pattern: str | None
) -> dict[str, TopicInfo]:
    """The topics that a job is to read. Raises TopicMissing for one that is not there."""
    if pattern is not None:
        found = {name: info for name, info in there.items() if re.fullmatch(pattern, name)}
        if not found:
            raise TopicMissing(
                f"no topic matches {pattern!r}; `kraftpy topics list` shows what there is"
            )
        return found
    missing = [name for name in names if name not in there]
    if missing:
        raise TopicMissing(
            f"there is no topic {missing[0]!r}; `kraftpy topics list` shows what there is,"
            f" `kraftpy topics create {missing[0]}` makes it"
        )
    return {name: there[name] for name in names}


def _is_ours(key: str) -> bool:
    return key.startswith("kafka.") or key in ("subscribe", "subscribePattern")


def _partitions(topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    return [
        TopicPartition(name, partition)
        for name, info in topics.items()
        for partition in info.partitions
    ]


def _by_source(topics: Mapping[str, TopicInfo], offsets: Ends) -> dict[Source, int]:
    return {
        Source(where.topic, str(topics[where.topic].topic_id), where.partition): offset
        for where, offset in offsets.items()
    }
