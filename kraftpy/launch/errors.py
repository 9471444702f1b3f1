"""How launching fails."""

from __future__ import annotations

from typing import Final

__all__ = ["CANT_LISTEN", "LaunchError", "PortTakenError", "WrongSettingsError"]

CANT_LISTEN: Final = "can't listen: "
"""What a node says before it ends because of a port; whoever has launched it looks for that."""


class LaunchError(Exception):
    """The message says what is wrong and what to do next."""


class WrongSettingsError(LaunchError):
    """Nothing was done: no node could run with the settings that were given."""


class PortTakenError(LaunchError):
    """Somebody was quicker."""
