"""How launching fails."""

from __future__ import annotations

__all__ = ["LaunchError", "WrongSettingsError"]


class LaunchError(Exception):
    """The message says what is wrong and what to do next."""


class WrongSettingsError(LaunchError):
    """Nothing was done: no node could run with the settings that were given."""
