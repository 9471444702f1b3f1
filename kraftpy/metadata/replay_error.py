"""The one way in which a record can fail to be replayed."""

from __future__ import annotations

__all__ = ["ReplayError"]


class ReplayError(Exception):
    """A record contradicts what the log says before it.

    The log was written by a controller that had replayed the same records, so this is somebody's
    bug: fatal on a controller, while a broker goes on without the record and says so.
    """

    def __init__(self, record: object, reason: str) -> None:
        super().__init__(f"{type(record).__name__}: {reason}")
