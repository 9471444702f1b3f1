"""Making the log of a partition that was never here before, without a wait for the medium.

Thousands of partitions may come with one topic, and each file and each sync takes its time. So a
new log is a directory with two small files, none of them synced: it survives the end of the
process, and a loss of power only when it was settled (log_files.py). That comes with the first
flush, or a moment later, and what a producer was promised to be durable is so not before.
"""

from __future__ import annotations

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.epochs import LeaderEpochCache
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_files import LogFiles
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.partition_log import PartitionLog
from kraftpy.log.producers import ProducerState
from kraftpy.log.segments import Segments
from kraftpy.world import Disk

__all__ = ["create_log"]


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
    segments = Segments()
    segments.add(files.begin(metadata, config))
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
