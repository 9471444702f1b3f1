"""The configuration of a node for commands: a properties file, the environment, --set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kraftpy.cli.failure import EXIT_USAGE, CommandFailed
from kraftpy.config import (
    ConfigurationError,
    Layer,
    NodeConfig,
    from_assignments,
    from_environment,
    from_properties,
)

__all__ = ["file_layer", "load_node_config"]


def load_node_config(base: Layer, assignments: Sequence[str]) -> NodeConfig:
    """`base` under the environment under the assignments of --set."""
    try:
        return NodeConfig(base, from_environment(os.environ), from_assignments(assignments))
    except ConfigurationError as error:
        lines = "\n".join(f"  {line}" for line in (*error.problems, *error.warnings))
        raise CommandFailed(
            f"the configuration is wrong:\n{lines}\n"
            "`kraftpy config describe KEY` tells what a key means.",
            exit_code=EXIT_USAGE,
        ) from None


def file_layer(path: str) -> Layer:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path} can't be read: {error}", exit_code=EXIT_USAGE) from None
    return from_properties(text, path)
