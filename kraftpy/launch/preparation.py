"""Everything before the first process: settings are checked, files written, directories formatted.

Settings are checked for all nodes before anything is written. What is formatted already stays as it
is, so preparing again changes configuration files and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraftpy.config import ConfigurationError, NodeConfig, from_mapping
from kraftpy.config.properties import format_properties
from kraftpy.launch.errors import LaunchError, WrongSettingsError
from kraftpy.launch.plan import OWN_KEYS, NodePlan
from kraftpy.log.checkpoints import AtomicFile
from kraftpy.log.log_directory import LOCK_FILE, make_path
from kraftpy.metadata.directories import directory_paths
from kraftpy.metadata.format import FormatRefusedError, FormatRequest, format_storage
from kraftpy.world import Clock, Disk, World

__all__ = ["check_settings", "prepare", "wait_until_unused"]

_POLL_SECONDS = 0.05


def check_settings(plans: Sequence[NodePlan], given: Mapping[str, str]) -> list[NodeConfig]:
    """The configuration of each node. Raises WrongSettingsError with everything that is wrong."""
    own = [key for key in given if key in OWN_KEYS]
    if own:
        raise WrongSettingsError(
            f"{', '.join(own)} can't be set for all nodes: each has its own. `kraftpy node CONFIG` "
            "runs a single node with any configuration."
        )
    try:
        return [
            NodeConfig(
                from_mapping(plan.settings, "the settings of a cluster on one machine"),
                from_mapping(given, "--set"),
            )
            for plan in plans
        ]
    except ConfigurationError as error:
        lines = "\n".join(f"  {line}" for line in (*error.problems, *error.warnings))
        raise WrongSettingsError(
            f"the configuration is wrong:\n{lines}\n"
            "`kraftpy config describe KEY` tells what a key means."
        ) from None


async def prepare(
    world: World, plans: Sequence[NodePlan], configs: Sequence[NodeConfig], *, cluster_id: str
) -> list[int]:
    """Write the files of each node; the ids of those that were formatted. Raises LaunchError."""
    formatted = []
    for plan, config in zip(plans, configs, strict=True):
        await make_path(world.disk, plan.directory)
        await AtomicFile(world.disk, plan.config_path).replace(format_properties(plan.settings))
        request = FormatRequest(cluster_id=cluster_id, ignores_formatted=True)
        try:
            done = await format_storage(config, request, directory_paths(config, "/"), world)
        except FormatRefusedError as error:
            raise LaunchError(f"node {plan.node_id} can't be formatted: {error}") from error
        if done.paths:
            formatted.append(plan.node_id)
    return formatted


async def wait_until_unused(
    disk: Disk, clock: Clock, plans: Sequence[NodePlan], *, timeout_seconds: float
) -> None:
    """Wait for nodes of an earlier run: those whose launcher was killed stop by themselves, but
    that takes a moment. Raises LaunchError.
    """
    used: NodePlan | None = None
    with clock.move_on_after(timeout_seconds):
        for plan in plans:
            used = plan
            while _is_used(disk, plan):
                await clock.sleep(_POLL_SECONDS)
        return
    assert used is not None
    raise LaunchError(
        f"node {used.node_id} of an earlier run still uses {used.data_dir}; stop that process "
        f"(its id is in {used.ready_path}), or use another directory"
    )


def _is_used(disk: Disk, plan: NodePlan) -> bool:
    try:
        disk.lock(f"{plan.data_dir}/{LOCK_FILE}").release()
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
