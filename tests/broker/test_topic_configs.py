"""Topics' configurations: where their settings come from, and who hears of changes."""

from __future__ import annotations

import pytest
from api.image_cluster import NODE_SETTINGS, broker, configs, image_of, topic

from kraftpy.broker.topic_configs import TopicConfigs
from kraftpy.config import DynamicConfig, NodeConfig, from_mapping
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance
from kraftpy.metadata.publisher import Manifest, Source
from kraftpy.metadata.records import ConfigRecord, ConfigResourceType

TOPIC = 2
MANIFEST = Manifest(Source.LOG, Provenance(0, 0, 0), 1, 1, 1)


class Setting:
    """A broker's configuration, the metadata, and somebody who listens."""

    def __init__(self) -> None:
        self.node = DynamicConfig(NodeConfig(from_mapping(NODE_SETTINGS, "test")))
        self.configs = TopicConfigs(self.node)
        self.image: MetadataImage = EMPTY_IMAGE
        self.heard: list[tuple[str, ...]] = []
        self.configs.subscribe(lambda names: self.heard.append(tuple(names)))
        self.publish(
            broker(1),
            *topic("plain", (1,)),
            *topic("special", (1,)),
            *configs(
                (TOPIC, "special", "cleanup.policy", "compact"),
                (TOPIC, "special", "min.insync.replicas", "2"),
            ),
        )

    def publish(self, *records: object) -> None:
        after = image_of(*records, base=self.image)  # type: ignore[arg-type]
        self.configs.publish(ImageChanges(self.image, after), after, MANIFEST)
        self.image = after


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_a_topic_s_own_settings_over_the_broker_s(setting: Setting) -> None:
    plain, special = setting.configs.config_of("plain"), setting.configs.config_of("special")
    assert (plain.is_compacted, special.is_compacted) == (False, True)
    assert plain.segment_bytes == special.segment_bytes == 2_000_000
    assert setting.configs.min_insync_replicas("plain") == 1
    assert setting.configs.min_insync_replicas("special") == 2
    assert setting.configs.config_of("nobody knows it") is plain
    assert setting.heard == [("special",)]


def test_a_change_of_a_topic_s_settings(setting: Setting) -> None:
    before = setting.configs.config_of("special")
    setting.publish(*configs((TOPIC, "special", "retention.ms", "77")))
    assert setting.heard[1:] == [("special",)]
    after = setting.configs.config_of("special")
    assert (before.retention_ms, after.retention_ms) == (604_800_000, 77)
    setting.publish(
        *(
            ConfigRecord(ConfigResourceType.TOPIC, "special", key, None)
            for key in ("retention.ms", "cleanup.policy", "min.insync.replicas")
        )
    )
    assert setting.configs.config_of("special") is setting.configs.config_of("plain")


def test_a_change_of_the_broker_s_settings_concerns_all_topics(setting: Setting) -> None:
    setting.configs.config_of("plain")
    setting.configs.config_of("special")
    setting.node.update(cluster={"log.retention.ms": "5000"})
    assert setting.heard[1:] == [("plain", "special")]
    assert setting.configs.config_of("plain").retention_ms == 5_000
    assert setting.configs.config_of("special").retention_ms == 5_000
    setting.node.update(cluster={"log.retention.ms": "5000", "log.cleaner.threads": "2"})
    assert len(setting.heard) == 2


def test_metadata_that_concerns_no_topic_is_not_told(setting: Setting) -> None:
    setting.publish(*configs((4, "1", "log.cleaner.threads", "2")))
    assert len(setting.heard) == 1


def test_settings_that_can_t_be_used_are_left_out(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """They are in the log, whoever wrote them; the others hold."""
    setting.publish(
        *configs(
            (TOPIC, "special", "retention.ms", "a while"),
            (TOPIC, "special", "from.the.future", "1"),
        )
    )
    config = setting.configs.config_of("special")
    assert (config.is_compacted, config.retention_ms) == (True, 604_800_000)
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "from.the.future" in caplog.text


def test_full_validation_is_the_node_s_choice() -> None:
    node = DynamicConfig(NodeConfig(from_mapping(NODE_SETTINGS, "test")))
    configs = TopicConfigs(node)
    assert not configs.config_of("t").validates_fully
    node.update(cluster={"kraftpy.record.validation": "full"})
    assert configs.config_of("t").validates_fully
    node.update(cluster={})
    assert not configs.config_of("t").validates_fully
