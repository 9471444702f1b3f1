"""What the cleaner is told by a node's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraftpy.config import NodeConfig

__all__ = ["CleanerSettings"]

_LOAD_FACTOR_MIN: Final = 0.01
_BUFFER_MIN_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """Kafka's broker keys `log.cleaner.*`, as far as they are not a topic's.

    What Kafka gives to threads is given to tasks of the one loop. They clean as many logs at a
    time, which helps where a log is slow to read; they do not make the loop any faster.
    """

    is_enabled: bool = True
    task_count: int = 1
    """`log.cleaner.threads`."""
    map_bytes: int = 134_217_728
    """The most memory for the offset maps of all tasks."""
    map_load_factor: float = 0.9
    buffer_bytes: int = 524_288
    """How much all tasks together read at a time."""
    max_bytes_per_second: float = float("inf")
    """Of reading and writing together."""
    backoff_ms: int = 15_000
    """The pause when no log is dirty enough."""

    @property
    def map_bytes_each(self) -> int:
        """For one task; its map takes no more than the log at hand needs."""
        return self.map_bytes // self.task_count

    @property
    def buffer_bytes_each(self) -> int:
        return self.buffer_bytes // self.task_count

    @classmethod
    def from_node(cls, node: NodeConfig) -> CleanerSettings:
        """Kafka accepts numbers with which nothing could be cleaned; the nearest that work hold."""
        task_count = node.get_int("log.cleaner.threads")
        return cls(
            is_enabled=node.get_bool("log.cleaner.enable"),
            task_count=task_count,
            map_bytes=node.get_int("log.cleaner.dedupe.buffer.size"),
            map_load_factor=min(
                max(node.get_float("log.cleaner.io.buffer.load.factor"), _LOAD_FACTOR_MIN), 1.0
            ),
            buffer_bytes=max(
                node.get_int("log.cleaner.io.buffer.size"), _BUFFER_MIN_BYTES * task_count
            ),
            max_bytes_per_second=max(node.get_float("log.cleaner.io.max.bytes.per.second"), 1.0),
            backoff_ms=node.get_int("log.cleaner.backoff.ms"),
        )
