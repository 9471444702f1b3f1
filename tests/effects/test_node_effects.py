"""Keys of a node that have an effect: each is changed, and the effect is seen."""

from __future__ import annotations

import pytest
from effects.node_effects import DYNAMIC_EFFECTS, STATIC_EFFECTS
from support.simulated_nodes import SimulatedNodes, run_nodes

from kraftpy.client.admin_operations import ConfigKind


@pytest.mark.parametrize("key", STATIC_EFFECTS)
def test_two_nodes_with_different_settings(key: str) -> None:
    effect = STATIC_EFFECTS[key]
    seen: list[object] = []
    for settings in ({}, {key: effect.value}):

        async def scenario(rig: SimulatedNodes, settings: dict[str, str] = settings) -> None:
            seen.append(await effect.observe(rig, {**effect.node, **settings}))

        run_nodes(scenario)
    before, after = seen
    assert after == effect.expected
    assert before != after


@pytest.mark.parametrize("key", DYNAMIC_EFFECTS)
def test_a_setting_changes_while_nodes_run(key: str) -> None:
    """By IncrementalAlterConfigs; when it is taken back, all is as before."""
    effect = DYNAMIC_EFFECTS[key]

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start(*effect.names, settings=effect.node)
        resource = "1" if effect.per_broker else ""
        before = await effect.observe(rig, 0)
        await rig.alter(ConfigKind.BROKER, resource, {key: effect.value})
        after = await effect.observe(rig, 1)
        assert after == effect.expected
        assert before != after
        await rig.alter(ConfigKind.BROKER, resource, {key: None})
        assert await effect.observe(rig, 2) == before

    run_nodes(scenario)
