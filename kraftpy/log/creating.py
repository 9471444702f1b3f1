"""Making the log of a partition that was never here before, without a wait for the medium.

Thousands of partitions may come with one topic, and each file and each sync takes its time. So a
new log is a directory with two small files, none of them synced: it survives the end of the
process, and a loss of power only when it was settled (log_files.py). That comes with the first
flush, or a moment later, and what a producer was promised to be durable is so not before.

A process that ends without a stop leaves many such logs to the next one, most of them still empty.
Those are what they were: there is nothing to recover, and the next process need not wait for the
medium either.
"""

from __future__ import annotations

from typing import Final

from kraftpy.log.checkpoints import NEW_PARTITION_METADATA, TopicPartition
from kraftpy.log.epochs import LeaderEpochCache
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_files import LogFiles
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.producers import ProducerState
from kraftpy.log.segment import Segment
from kraftpy.log.segment_files import FileKind, file_name
from kraftpy.log.segments import Segments
from kraftpy.world import Disk

__all__ = ["create_log", "load_new_log"]

_FIRST_SEGMENT: Final = file_name(0, FileKind.LOG)
_INDEXES: Final = {file_name(0, kind) for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)}


async def create_log(
    environment: LogEnvironment,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    metadata: str,
) -> PartitionLog | None:
    """A new log, not settled yet; None if something of that name is there already.

    `metadata` is what partition.metadata will say.
    """
    if _is_there(environment.disk, directory):
        return None
    await environment.disk.make_directory(directory)
    files = LogFiles(environment, directory)
    return _empty_log(environment, files, topic_partition, config, files.begin(metadata, config))


async def load_new_log(
    environment: LogEnvironment, directory: str, topic_partition: TopicPartition, config: LogConfig
) -> PartitionLog | None:
    """A log that the last process has made and not settled; None if more has become of it.

    Whose log it is stands in the directory; a crash may have taken its segment. There are indexes
    if somebody has read, and found nothing.
    """
    names = {*await environment.disk.list_directory(directory)}
    if names - {NEW_PARTITION_METADATA, _FIRST_SEGMENT, *_INDEXES}:
        return None
    if _FIRST_SEGMENT in names:
        file = environment.disk.open(f"{directory}/{_FIRST_SEGMENT}")
        try:
            if file.size():
                return None
        finally:
            file.close()
    files = LogFiles(environment, directory)
    segment = files.begin_segment(config)
    if names & _INDEXES:
        segment.reset_indexes()
    return _empty_log(environment, files, topic_partition, config, segment)


def _empty_log(
    environment: LogEnvironment,
    files: LogFiles,
    topic_partition: TopicPartition,
    config: LogConfig,
    segment: Segment,
) -> PartitionLog:
    segments = Segments()
    segments.add(segment)
    return PartitionLog(
        environment,
        files,
        topic_partition,
        config,
        segments=segments,
        epochs=LeaderEpochCache(),
        producers=ProducerState(
            expiration_ms=environment.producer_expiration_ms,
            verify_transactions=environment.verify_transactions,
        ),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
    )


def _is_there(disk: Disk, path: str) -> bool:
    """Without the thread that `stat` needs."""
    try:
        disk.open(path).close()
    except FileNotFoundError:
        return False
    except IsADirectoryError:
        pass
    return True
