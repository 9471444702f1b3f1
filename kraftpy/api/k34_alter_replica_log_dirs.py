"""AlterReplicaLogDirs (34): move replicas between the data directories of this broker.

The answer says whether a move was begun. It goes on in the background, while the replica works; at
one moment the copy takes the place of the log, and the controller is told where the replica is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.hosted_replicas import HostedReplicas
from kraftpy.broker.partition import Partition
from kraftpy.log.errors import LogError
from kraftpy.log.log_directory import LogDirectory
from kraftpy.log.manager import LogManager
from kraftpy.log.partition_log import PartitionLog
from kraftpy.net.line import Spawn
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kraftpy.records.errors import RecordDataError
from kraftpy.security.acl_terms import AclOperation

__all__ = ["AlterReplicaLogDirsHandler"]

log = logging.getLogger(__name__)


class AlterReplicaLogDirsHandler(Handler):
    api_key = 34
    cluster_operation = AclOperation.ALTER

    def __init__(
        self,
        replicas: HostedReplicas,
        logs: LogManager,
        *,
        spawn: Spawn,
        moved: Callable[[Uuid, int, Uuid], None],
    ) -> None:
        """`moved` is told topic id, partition and the id of the directory where it is now."""
        self._replicas = replicas
        self._logs = logs
        self._spawn = spawn
        self._moved = moved

    def handle(
        self, request: AlterReplicaLogDirsRequest, context: RequestContext
    ) -> AlterReplicaLogDirsResponse:
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for wanted in request.dirs:
            for topic in wanted.topics:
                result = results.get(topic.name)
                if result is None:
                    result = AlterReplicaLogDirTopicResult(topic_name=topic.name)
                    results[topic.name] = result
                for index in topic.partitions:
                    code = self._begin(wanted.path, topic.name, index)
                    result.partitions.append(
                        AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    )
        return AlterReplicaLogDirsResponse(results=list(results.values()))

    def _begin(self, path: str, topic: str, index: int) -> ErrorCode:
        target = next((each for each in self._logs.directories if each.path == path), None)
        if target is None:
            return ErrorCode.LOG_DIR_NOT_FOUND
        partition = self._replicas.lookup((topic, index))
        if partition is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if isinstance(partition, ErrorCode):
            return partition
        if not target.is_online:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._logs.directory_of((topic, index)) is not target:
            self._spawn(partial(self._move, partition, target))
        return ErrorCode.NONE

    async def _move(self, partition: Partition, target: LogDirectory) -> None:
        def swap(new_log: PartitionLog) -> None:
            partition.log = new_log
            topic_id, index = partition.topic_id, partition.topic_partition[1]
            self._moved(topic_id, index, target.directory_id)

        try:
            await self._logs.move(partition.topic_partition, target.path, swap)
        except (LogError, RecordDataError) as error:
            log.warning("%r was not moved to %s: %s", partition, target.path, error)

    def error_answer(
        self,
        request: AlterReplicaLogDirsRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> AlterReplicaLogDirsResponse:
        return AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(
                    topic_name=topic.name,
                    partitions=[
                        AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                        for index in topic.partitions
                    ],
                )
                for wanted in request.dirs
                for topic in wanted.topics
            ]
        )

    def error_codes(self, response: AlterReplicaLogDirsResponse) -> Iterator[int]:
        for topic in response.results:
            for result in topic.partitions:
                yield result.error_code
