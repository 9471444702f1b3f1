"""Keys of coordinators that have an effect: each is changed, and the effect is seen."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from effects.coordinator_effects import SHARD_EFFECTS

from kraftpy.config import NodeConfig, from_mapping

NODE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "2@n2:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://n1:9092",
    "log.dirs": "/data",
}


def config_with(settings: Mapping[str, str]) -> NodeConfig:
    return NodeConfig(from_mapping({**NODE, **settings}, "the test"))


@pytest.mark.parametrize("key", SHARD_EFFECTS)
def test_two_shards_with_different_settings(key: str) -> None:
    effect = SHARD_EFFECTS[key]
    before = effect.observe(config_with(effect.others))
    after = effect.observe(config_with({**effect.others, key: effect.value}))
    assert after == effect.expected
    assert before != after
