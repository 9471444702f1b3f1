"""DescribeLogDirs (35): a broker's data directories, how full they are, and what is in them.

How much space is left is asked of the system, in the disk's thread; so the answer comes later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

import trio

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.log_directory import LogDirectory
from kraftpy.log.manager import LogManager
from kraftpy.log.partition_log import PartitionLog
from kraftpy.net.line import Spawn
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kraftpy.security.acl_terms import AclOperation
from kraftpy.world import Disk

__all__ = ["DescribeLogDirsHandler"]

log = logging.getLogger(__name__)

# Logs that are described before others may run.
_LOGS_IN_A_PIECE: Final = 500


class DescribeLogDirsHandler(Handler):
    api_key = 35
    cluster_operation = AclOperation.DESCRIBE

    def __init__(self, logs: LogManager, disk: Disk, *, spawn: Spawn) -> None:
        self._logs = logs
        self._disk = disk
        self._spawn = spawn

    def handle(self, request: DescribeLogDirsRequest, context: RequestContext) -> None:
        wanted: dict[TopicPartition, None] | None = None
        if request.topics is not None:
            wanted = {
                (topic.topic, index): None for topic in request.topics for index in topic.partitions
            }
        self._spawn(partial(context.respond_with, partial(self._describe, wanted)))

    async def _describe(self, wanted: dict[TopicPartition, None] | None) -> DescribeLogDirsResponse:
        response = DescribeLogDirsResponse()
        cordoned = self._logs.cordoned_directories
        for directory in self._logs.directories:
            result = DescribeLogDirsResult(
                log_dir=directory.path,
                is_cordoned="*" in cordoned or directory.path in cordoned,
            )
            response.results.append(result)
            if directory.is_online:
                try:
                    space = await self._disk.space(directory.path)
                except OSError as error:
                    log.warning("the space of %s is not known: %s", directory.path, error)
                else:
                    result.total_bytes = space.total_bytes
                    result.usable_bytes = space.usable_bytes
                result.topics = await self._topics(directory, wanted)
            # Asked again: the wait was long enough to lose it.
            if not directory.is_online:
                result.topics = []
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return response

    async def _topics(
        self, directory: LogDirectory, wanted: dict[TopicPartition, None] | None
    ) -> list[DescribeLogDirsTopic]:
        topics: dict[str, DescribeLogDirsTopic] = {}
        for logs, is_future in ((directory.logs, False), (directory.futures, True)):
            for number, ((name, index), each) in enumerate(list(logs.items()), 1):
                if number % _LOGS_IN_A_PIECE == 0:
                    await trio.lowlevel.checkpoint()
                if wanted is not None and (name, index) not in wanted:
                    continue
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = DescribeLogDirsTopic(name=name)
                topic.partitions.append(
                    DescribeLogDirsPartition(
                        partition_index=index,
                        partition_size=each.size_bytes,
                        offset_lag=self._lag(each, is_future=is_future),
                        is_future_key=is_future,
                    )
                )
        return list(topics.values())

    def _lag(self, each: PartitionLog, *, is_future: bool) -> int:
        """Of a future log: behind the current one; of a current one: behind what is committed."""
        current = self._logs.get(each.topic_partition) if is_future else each
        if current is None:
            return 0
        end = current.log_end_offset if is_future else current.high_watermark
        return max(0, end - each.log_end_offset)

    def error_codes(self, response: DescribeLogDirsResponse) -> Iterator[int]:
        yield response.error_code
        for result in response.results:
            yield result.error_code
