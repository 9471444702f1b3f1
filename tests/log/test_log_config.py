"""A topic's configuration as the log takes it (LOG-100: precedence of times; LOG-22: codecs)."""

from __future__ import annotations

import pytest

from kraftpy.config import NodeConfig, TopicConfig
from kraftpy.config.layers import from_mapping
from kraftpy.log.log_config import LogConfig
from kraftpy.records.batch import TimestampType
from kraftpy.records.compression import Codec

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}


def made(topic: dict[str, str] | None = None, node: dict[str, str] | None = None) -> LogConfig:
    config = NodeConfig(from_mapping(NODE | (node or {}), "test"))
    return LogConfig.from_topic(TopicConfig(topic or {}, config))


def test_the_defaults_are_kafkas() -> None:
    """What a log gets without settings is what the class says."""
    assert made() == LogConfig()


def test_a_topics_settings() -> None:
    config = made(
        {
            "cleanup.policy": "compact",
            "compression.type": "zstd",
            "compression.zstd.level": "7",
            "flush.messages": "1",
            "internal.segment.bytes": "1024",
            "index.interval.bytes": "0",
            "max.message.bytes": "5000",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.1",
            "preallocate": "true",
            "retention.bytes": "77",
        }
    )
    assert (config.is_compacted, config.is_deleted) == (True, False)
    assert (config.codec, config.codec_level) == (Codec.ZSTD, 7)
    assert config.flush_messages == 1
    assert (config.segment_bytes, config.index_interval_bytes) == (1024, 0)
    assert config.min_cleanable_dirty_ratio == 0.1
    assert config.preallocate
    assert config.retention_bytes == 77
    rules = config.rules
    assert rules.is_compacted
    assert rules.max_message_bytes == 5000
    assert rules.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("producer", None),
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
def test_codecs(name: str, codec: Codec | None) -> None:
    """LOG-22."""
    assert made({"compression.type": name}).codec is codec


@pytest.mark.parametrize(
    ("policy", "is_compacted", "is_deleted"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        ("", False, False),
    ],
)
def test_policies(policy: str, is_compacted: bool, is_deleted: bool) -> None:
    """LOG-116."""
    config = made({"cleanup.policy": policy})
    assert (config.is_compacted, config.is_deleted) == (is_compacted, is_deleted)


def test_retention_by_milliseconds_before_minutes_before_hours() -> None:
    """LOG-100."""
    hours = {"log.retention.hours": "2"}
    minutes = hours | {"log.retention.minutes": "3"}
    assert made(node=hours).retention_ms == 7_200_000
    assert made(node=minutes).retention_ms == 180_000
    assert made(node=minutes | {"log.retention.ms": "4"}).retention_ms == 4
    assert made({"retention.ms": "5"}, minutes).retention_ms == 5
