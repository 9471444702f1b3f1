"""Every key of a topic that has an effect: it is changed, and the effect is seen."""

from __future__ import annotations

import pytest
from effects.topic_effects import TOPIC_EFFECTS, TopicEffect
from support.simulated_nodes import SimulatedNodes, run_nodes

from kraftpy.client.admin_operations import ConfigKind

# So little happens by itself that hours pass quickly.
QUIET = {
    "broker.heartbeat.interval.ms": "600000",
    "broker.session.timeout.ms": "1800000",
    "metadata.max.idle.interval.ms": "0",
}
STATIC = [
    pytest.param(effect, key, value, id=key)
    for effect in TOPIC_EFFECTS.values()
    for key, value in effect.static.items()
]


@pytest.mark.parametrize("key", TOPIC_EFFECTS)
def test_a_setting_changes_while_the_node_runs(key: str) -> None:
    """By IncrementalAlterConfigs: for the topic, then as the default of all brokers, which must
    reach a log that is there already; and when it is taken back, all is as before.
    """
    effect = TOPIC_EFFECTS[key]

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1", settings={**QUIET, **effect.node})

        async def observe(topic: str) -> object:
            return await effect.observe(rig, topic)

        for topic in ("before", "own", "later", "again"):
            await rig.create(topic, configs=effect.topic)
        seen_before = await observe("before")
        await rig.alter(ConfigKind.TOPIC, "own", {key: effect.value})
        seen = await observe("own")
        assert seen != seen_before
        if effect.expected is not None:
            assert seen == effect.expected
        for synonym, value in effect.dynamic.items():
            await rig.alter(ConfigKind.BROKER, "", {synonym: value})
            assert await observe("later") == seen, synonym
            await rig.alter(ConfigKind.BROKER, "", {synonym: None})
            assert await observe("again") == seen_before, synonym

    run_nodes(scenario)


@pytest.mark.parametrize(("effect", "key", "value"), STATIC)
def test_a_setting_in_the_nodes_file(effect: TopicEffect, key: str, value: str) -> None:
    """Those that can't be changed at run time; that the default is another was seen above."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start("n1", settings={**QUIET, **effect.node, key: value})
        await rig.create("t", configs=effect.topic)
        assert await effect.observe(rig, "t") == effect.expected

    run_nodes(scenario)
