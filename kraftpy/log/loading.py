"""Loading the log of a partition from its directory, or making a new one (7).

`load_log` is the way to a PartitionLog.
"""

from __future__ import annotations

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_owner import LogEnvironment
from kraftpy.log.partition_log import PartitionLog

__all__ = ["load_log"]


async def load_log(
    environment: LogEnvironment,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    is_clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
) -> PartitionLog:
    """The log in `directory`, which is made if there is none.

    `is_clean`: the clean-shutdown marker was there, so that no recovery is needed. Recovery works
    in slices that leave the loop free. Raises OSError, and MalformedFileError for a leader epoch
    checkpoint that can't be understood.
    """
    raise NotImplementedError
