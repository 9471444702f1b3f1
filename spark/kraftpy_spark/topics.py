"""What a source asks the cluster before it plans: which partitions, and which offsets they have."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from kraftpy.client.admin_core import Operation
from kraftpy.client.admin_operations import list_topics
from kraftpy.client.blocking import BlockingConnection
from kraftpy.client.blocking_clients import BlockingAdmin, BlockingConsumer
from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError
from kraftpy.client.settings import AdminSettings, ClientSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.world import Address
from kraftpy_spark.offsets import Ends
from kraftpy_spark.options import (
    EARLIEST,
    LATEST,
    ByTimestamp,
    ByTopicTimestamp,
    Edge,
    OptionMistake,
    SourceOptions,
)

__all__ = ["DataLoss", "TopicMissing", "Topics", "Unreachable", "require_reachable"]

T = TypeVar("T")

# A node that has just started, or not heard of a new topic yet, is asked again.
_ATTEMPTS = 10
_PAUSE_SECONDS = 0.3


class Unreachable(ConnectionError):  # noqa: N818 (it names what is wrong)
    """No node answers."""


class TopicMissing(LookupError):  # noqa: N818 (it names what is wrong)
    """A topic that was asked for by name is not there."""


class DataLoss(Exception):  # noqa: N818 (it names what happened)
    """Records that should be read are not there any more."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Records may be lost: they were deleted by retention or by somebody, or the"
            " topic was made again, before this query read them. To go on with what is there, set"
            ' .option("failOnDataLoss", "false"); to begin anew, use a new checkpointLocation.'
        )


def require_reachable(bootstrap: Iterable[Address], client: ClientSettings) -> None:
    """Raise Unreachable, soon and with a hint, unless some node takes a connection."""
    addresses = list(bootstrap)
    failures: dict[str, str] = {}
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        for address in addresses:
            name = f"{address[0]}:{address[1]}"
            try:
                BlockingConnection(address, client).close()
            except OSError as error:
                failures[name] = str(error)
            else:
                return
    raise Unreachable(
        f"no node of kafka.bootstrap.servers={','.join(failures)} can be reached"
        f" ({'; '.join(failures.values())}). Is the cluster running? `kraftpy up` starts one and"
        " prints its address. Executors on other machines must be able to reach it, too."
    )


class Topics:
    """Questions about the topics of a subscription; connections are made when they are needed."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._admin: BlockingAdmin | None = None
        self._consumer: BlockingConsumer | None = None

    def close(self) -> None:
        for client in (self._admin, self._consumer):
            if client is not None:
                client.close()
        self._admin = self._consumer = None

    def partitions(self, *, may_miss: bool = False) -> list[TopicPartition]:
        """All that are subscribed to, in order. A topic's absence is an error, or left out."""
        subscription = self._options.subscription
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            topics = self._ask(list_topics())
            return sorted(
                TopicPartition(name, partition)
                for name, topic in topics.items()
                if pattern.fullmatch(name)
                for partition in topic.partitions
            )
        names = subscription.topics or tuple(subscription.partitions or {})
        found: dict[str, list[int]] = {}
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_SECONDS)
            topics = self._ask(list_topics(include_internal=True))
            found = {name: sorted(topics[name].partitions) for name in names if name in topics}
            if len(found) == len(names):
                break
        missing = [name for name in names if name not in found]
        if missing and not may_miss:
            raise TopicMissing(
                f"there is no topic {missing[0]!r} ({subscription}); create it with `kraftpy topics"
                f" create {missing[0]}`, or look at `kraftpy topics list` for its right name"
            )
        if subscription.partitions is None:
            return [TopicPartition(name, each) for name in found for each in found[name]]
        return self._assigned(subscription.partitions, found, may_miss=may_miss)

    def _assigned(
        self, wanted: dict[str, tuple[int, ...]], found: dict[str, list[int]], *, may_miss: bool
    ) -> list[TopicPartition]:
        wheres = []
        for name, partitions in sorted(wanted.items()):
            for partition in partitions:
                if partition in found.get(name, ()):
                    wheres.append(TopicPartition(name, partition))
                elif not may_miss:
                    raise TopicMissing(
                        f"topic {name!r} has no partition {partition}; it has {len(found[name])}"
                    )
        return wheres

    def earliest(self, wheres: Iterable[TopicPartition]) -> Ends:
        return self._with_consumer(lambda consumer: consumer.beginning_offsets(wheres))

    def latest(self, wheres: Iterable[TopicPartition]) -> Ends:
        """As far as the isolation level lets a consumer read."""
        return self._with_consumer(lambda consumer: consumer.end_offsets(wheres))

    def at_times(self, timestamps_ms: dict[TopicPartition, int]) -> Ends:
        """The first offsets of these times or later; -1 where there is none."""
        found = self._with_consumer(lambda consumer: consumer.offsets_for_times(timestamps_ms))
        return {where: answer.offset for where, answer in found.items()}

    def resolve(self, edge: Edge, wheres: list[TopicPartition], *, is_start: bool) -> Ends:
        """The offsets that an option stands for."""
        name = "startingOffsets" if is_start else "endingOffsets"
        if isinstance(edge, int):
            return self.earliest(wheres) if edge == EARLIEST else self.latest(wheres)
        if isinstance(edge, ByTimestamp):
            times = dict.fromkeys(wheres, edge.timestamp_ms)
            return self._from_times(times, is_start=is_start)
        if isinstance(edge, ByTopicTimestamp):
            times = _of_all(edge.timestamps_ms, wheres, f"{name}ByTimestamp")
            return self._from_times(times, is_start=is_start)
        return self._specific(_of_all(edge, wheres, name), is_start=is_start)

    def _from_times(self, times: dict[TopicPartition, int], *, is_start: bool) -> Ends:
        found = self.at_times(times)
        too_late = [where for where, offset in found.items() if offset < 0]
        if too_late and is_start and self._options.if_no_timestamp == "error":
            [where, *_] = too_late
            raise OptionMistake(
                f"no record of {where.topic}-{where.partition} is of time {times[where]} or later;"
                ' .option("startingOffsetsByTimestampStrategy", "latest") begins at its end then'
            )
        return found | self.latest(too_late) if too_late else found

    def _specific(self, offsets: Ends, *, is_start: bool) -> Ends:
        """Offsets by number; -1 and -2 stand for the ends of the log."""
        earliest = self.earliest(offsets)
        latest = self.latest(offsets)
        words = {EARLIEST: earliest, LATEST: latest}
        resolved = {}
        for where, offset in offsets.items():
            found = words[offset][where] if offset in words else offset
            inside = min(max(found, earliest[where]), latest[where])
            if found != inside and self._options.fails_on_data_loss:
                raise DataLoss(
                    f"{'starting' if is_start else 'ending'} offset {found} of"
                    f" {where.topic}-{where.partition} is not between its first"
                    f" ({earliest[where]}) and its end ({latest[where]})"
                )
            resolved[where] = inside
        return resolved

    def _ask(self, operation: Operation[T]) -> T:
        client = self._options.consumer.client
        if self._admin is None:
            require_reachable(self._options.bootstrap, client)
            self._admin = BlockingAdmin(self._options.bootstrap, AdminSettings(client))
        return self._admin.run(operation)

    def _with_consumer(self, ask: Callable[[BlockingConsumer], T]) -> T:
        if self._consumer is None:
            self._consumer = BlockingConsumer(self._options.bootstrap, self._options.consumer)
        try:
            return ask(self._consumer)
        except KafkaError as failure:
            if failure.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise TopicMissing(
                    f"a topic was deleted while it was looked at: {failure}"
                ) from None
            raise


def _of_all(
    given: dict[str, dict[int, int]], wheres: list[TopicPartition], name: str
) -> dict[TopicPartition, int]:
    found = {
        TopicPartition(topic, partition): number
        for topic, of_topic in given.items()
        for partition, number in of_topic.items()
    }
    missing = [where for where in wheres if where not in found]
    surplus = [where for where in found if where not in wheres]
    if missing or surplus:
        wrong = (missing or surplus)[0]
        raise OptionMistake(
            f"{name} must name exactly the partitions that are read:"
            f" {wrong.topic}-{wrong.partition} is {'missing' if missing else 'not one of them'}"
            " (-2 stands for earliest, -1 for latest)"
        )
    return found
