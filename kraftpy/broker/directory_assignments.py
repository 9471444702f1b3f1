"""Tells the controller which data directory holds which replica: AssignReplicasToDirs.

The controller chooses brokers, a broker chooses among its directories. When one of them fails, only
the controller can move leaderships away, and only if it knows what was in there. So whatever is put
somewhere else than the metadata says is reported, until the metadata says the same.

One request is under way at a time. What can't be assigned, because the topic or the replica is gone
by now, is forgotten; everything else is asked for again, after pauses that double.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Final, TypeAlias

import trio

from kraftpy.broker.controller_channel import ControllerChannel, ControllerUnreachable
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k73_assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from kraftpy.world import Clock

__all__ = ["DirectoryAssignments"]

log = logging.getLogger(__name__)

# Replicas in one request, so that it is answered soon.
_REPLICAS_MAX: Final = 2_000
_ANSWER_TIMEOUT_MS: Final = 60_000
_FIRST_RETRY_MS: Final = 100
_LONGEST_RETRY_MS: Final = 10_000

_Replica: TypeAlias = tuple[Uuid, int]
_DONE: Final = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


class DirectoryAssignments:
    """`assign` from anywhere; `run` as a task."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: ControllerChannel,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._clock = clock
        self._waiting: dict[_Replica, Uuid] = {}
        self._wake = trio.Event()
        self._failure_count = 0

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def assign(self, topic_id: Uuid, partition_index: int, directory_id: Uuid) -> None:
        """The replica is in this directory. A later word on the same replica replaces it."""
        self._waiting[topic_id, partition_index] = directory_id
        self._wake.set()

    def forget(self, topic_id: Uuid, partition_index: int) -> None:
        """The metadata knows, or the replica is gone."""
        self._waiting.pop((topic_id, partition_index), None)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait()
            batch = dict(islice(self._waiting.items(), _REPLICAS_MAX))
            if not batch:
                self._wake = trio.Event()
            elif await self._send(batch):
                self._failure_count = 0
            else:
                pause_ms = _FIRST_RETRY_MS << min(self._failure_count, 10)
                self._failure_count += 1
                await self._clock.sleep(min(pause_ms, _LONGEST_RETRY_MS) / 1000)

    async def _send(self, batch: dict[_Replica, Uuid]) -> bool:
        """Ask for a batch; False if something of it must be asked for again."""
        request = AssignReplicasToDirsRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            directories=_directories(batch),
        )
        try:
            answer = await self._channel.request(request, timeout_ms=_ANSWER_TIMEOUT_MS)
        except (ControllerUnreachable, UnsupportedVersion) as error:
            log.warning("directories not assigned: %s", error)
            return False
        if answer.error_code != ErrorCode.NONE:
            log.warning("directories not assigned error=%d", answer.error_code)
            return False
        return self._take_answer(batch, answer)

    def _take_answer(
        self, batch: dict[_Replica, Uuid], answer: AssignReplicasToDirsResponse
    ) -> bool:
        rest = dict(batch)
        for directory in answer.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    replica = (topic.topic_id, partition.partition_index)
                    if partition.error_code in _DONE and rest.get(replica) == directory.id:
                        del rest[replica]
        for replica, directory_id in batch.items():
            if replica not in rest and self._waiting.get(replica) == directory_id:
                del self._waiting[replica]
        return not rest


def _directories(batch: dict[_Replica, Uuid]) -> list[RequestDirectoryData]:
    directories: dict[Uuid, dict[Uuid, list[RequestPartitionData]]] = {}
    for (topic_id, partition_index), directory_id in batch.items():
        partitions = directories.setdefault(directory_id, {}).setdefault(topic_id, [])
        partitions.append(RequestPartitionData(partition_index=partition_index))
    return [
        RequestDirectoryData(
            id=directory_id,
            topics=[
                RequestTopicData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )
        for directory_id, topics in directories.items()
    ]
