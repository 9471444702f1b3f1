"""A topic's configuration as far as the log uses it, typed and ready to use.

Made anew whenever the topic's or the broker's settings change, and handed to the log whole: no
operation sees half of a change. Values are taken as they are, without Kafka's lower bounds, which
the configuration has checked where they hold; tests go far below them (segments of 1 KiB, an index
entry for every byte).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kraftpy.config import TopicConfig
from kraftpy.records.batch import TimestampType
from kraftpy.records.compression import Codec
from kraftpy.records.validation import TopicRules

__all__ = ["LogConfig"]

_INT64_MAX = 2**63 - 1
_DAY_MS = 86_400_000
_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """Kafka's topic keys in snake case; `cleanup.policy` is two booleans."""

    is_compacted: bool = False
    is_deleted: bool = True
    """Whether segments go by age and size."""

    codec: Codec | None = None
    """The codec to store; None is `compression.type=producer`."""
    codec_level: int | None = None
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _INT64_MAX
    flush_ms: int = _INT64_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = _INT64_MAX
    max_message_bytes: int = 1_048_588
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = _INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1024 * _MIB
    segment_index_bytes: int = 10 * _MIB
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    validates_fully: bool = False
    """`kraftpy.record.validation=full`."""
    max_inflated_bytes: int = 100 * _MIB
    """The most that one compressed batch may become where it has to be looked into."""

    @classmethod
    def from_topic(cls, topic: TopicConfig, *, validates_fully: bool = False) -> LogConfig:
        """`topic` has the broker's defaults in it already."""
        policy = topic["cleanup.policy"]
        policies = policy if isinstance(policy, tuple) else ()
        codec = _codec(str(topic["compression.type"]))
        return cls(
            is_compacted="compact" in policies,
            is_deleted="delete" in policies,
            codec=codec,
            codec_level=_codec_level(topic, codec),
            delete_retention_ms=topic.get_int("delete.retention.ms"),
            file_delete_delay_ms=topic.get_int("file.delete.delay.ms"),
            flush_messages=topic.get_int("flush.messages"),
            flush_ms=topic.get_int("flush.ms"),
            index_interval_bytes=topic.get_int("index.interval.bytes"),
            max_compaction_lag_ms=topic.get_int("max.compaction.lag.ms"),
            max_message_bytes=topic.get_int("max.message.bytes"),
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME
                if topic["message.timestamp.type"] == "LogAppendTime"
                else TimestampType.CREATE_TIME
            ),
            timestamp_before_max_ms=topic.get_int("message.timestamp.before.max.ms"),
            timestamp_after_max_ms=topic.get_int("message.timestamp.after.max.ms"),
            min_cleanable_dirty_ratio=float(str(topic["min.cleanable.dirty.ratio"])),
            min_compaction_lag_ms=topic.get_int("min.compaction.lag.ms"),
            preallocate=bool(topic["preallocate"]),
            retention_bytes=topic.get_int("retention.bytes"),
            retention_ms=topic.get_int("retention.ms"),
            segment_bytes=topic.segment_bytes,
            segment_index_bytes=topic.get_int("segment.index.bytes"),
            segment_jitter_ms=topic.get_int("segment.jitter.ms"),
            segment_ms=topic.get_int("segment.ms"),
            validates_fully=validates_fully,
        )

    @cached_property
    def roll_ms(self) -> int:
        """The age at which a segment is rolled.

        What must be compacted by a certain age must not stay in the active segment for longer.
        """
        if self.is_compacted and self.max_compaction_lag_ms > 0:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @cached_property
    def rules(self) -> TopicRules:
        """What a leader holds produced batches to."""
        return TopicRules(
            max_message_bytes=self.max_message_bytes,
            max_inflated_bytes=self.max_inflated_bytes,
            codec=self.codec,
            codec_level=self.codec_level,
            timestamp_type=self.timestamp_type,
            timestamp_before_max_ms=self.timestamp_before_max_ms,
            timestamp_after_max_ms=self.timestamp_after_max_ms,
            is_compacted=self.is_compacted,
            validates_fully=self.validates_fully,
        )


def _codec(compression_type: str) -> Codec | None:
    if compression_type == "producer":
        return None
    return Codec.NONE if compression_type == "uncompressed" else Codec[compression_type.upper()]


def _codec_level(topic: TopicConfig, codec: Codec | None) -> int | None:
    if codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        return topic.get_int(f"compression.{codec.name.lower()}.level")
    return None
