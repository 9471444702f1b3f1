"""What the log manager is told by a node's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftpy.config import NodeConfig
from kraftpy.log.cleaner_settings import CleanerSettings

__all__ = ["NEVER_MS", "LogManagerSettings"]

NEVER_MS: Final = 2**63 - 1
_TASKS_FOR_A_THREAD: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerSettings:
    """Kafka's broker keys as far as they are about directories and the chores of all logs."""

    directories: tuple[str, ...]
    """Absolute paths, in the order in which equal ones are preferred."""
    cluster_id: str
    node_id: int
    locks_directories: bool = True
    """False if whoever runs the logs holds the directories' locks already, for longer."""
    cordoned_directories: tuple[str, ...] = ()
    """Those that get no new partitions; `*` for all."""
    loaders_per_directory: int = 8
    """Logs that are loaded at a time. These are tasks, which wait for the disk most of the time."""
    initial_delay_ms: int = 30_000
    """Before the first round of the chores, so that a start is not slowed down."""
    retention_check_interval_ms: int = 300_000
    flush_check_interval_ms: int = NEVER_MS
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    producer_expiration_ms: int = 86_400_000
    producer_expiration_check_interval_ms: int = 600_000
    verifies_transactions: bool = True
    cleaner: CleanerSettings = CleanerSettings()  # noqa: RUF009 (frozen)
    open_files_max: int = 500
    """Handles of all logs together; half of the usual `ulimit -n`, which sockets share."""

    @classmethod
    def from_node(
        cls,
        node: NodeConfig,
        cluster_id: str,
        directories: tuple[str, ...],
        *,
        open_files_max: int,
    ) -> LogManagerSettings:
        """`directories` are locked. `open_files_max` is what the system's limit leaves to logs."""
        return cls(
            directories=directories,
            locks_directories=False,
            cluster_id=cluster_id,
            node_id=node.node_id,
            cordoned_directories=node.get_list("cordoned.log.dirs"),
            loaders_per_directory=_TASKS_FOR_A_THREAD
            * node.get_int("num.recovery.threads.per.data.dir"),
            initial_delay_ms=node.get_int("log.initial.task.delay.ms"),
            retention_check_interval_ms=node.get_int("log.retention.check.interval.ms"),
            flush_check_interval_ms=node.get_int("log.flush.scheduler.interval.ms"),
            recovery_point_checkpoint_interval_ms=node.get_int(
                "log.flush.offset.checkpoint.interval.ms"
            ),
            log_start_checkpoint_interval_ms=node.get_int(
                "log.flush.start.offset.checkpoint.interval.ms"
            ),
            high_watermark_checkpoint_interval_ms=node.get_int(
                "replica.high.watermark.checkpoint.interval.ms"
            ),
            producer_expiration_ms=node.get_int("producer.id.expiration.ms"),
            producer_expiration_check_interval_ms=node.get_int(
                "producer.id.expiration.check.interval.ms"
            ),
            verifies_transactions=node.get_bool("transaction.partition.verification.enable"),
            cleaner=CleanerSettings.from_node(node),
            open_files_max=open_files_max,
        )
