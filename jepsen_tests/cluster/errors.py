"""What goes wrong in the suite itself, and must not be taken for the cluster's fault."""

from __future__ import annotations

__all__ = ["HarnessError", "NotHereError"]


class HarnessError(Exception):
    """The suite could not do its part, as when the cluster did not come back after `heal`."""


class NotHereError(HarnessError):
    """This machine, or this kind of network, has no means for that fault: it is skipped."""
