"""The loggers of this process and their levels, by log4j's names, which Kafka's tools know.

They belong to the process: nodes that share an interpreter share them. A change lasts as long as
the process does.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["LEVELS", "ROOT", "has_logger", "levels", "set_level", "unset_level"]

ROOT: Final = logging.root.name
# Python has no TRACE: that is everything that DEBUG shows, and what would be below it.
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES: Final = {number: name for name, number in LEVELS.items()}


def has_logger(name: str) -> bool:
    return name == ROOT or name in logging.Logger.manager.loggerDict


def levels() -> dict[str, str]:
    """Of every logger the level that holds for it, its own or that of the nearest above it.

    Rooms are among them although they log nothing: what is set for one holds for its modules.
    """
    found = {}
    for name in (ROOT, *sorted(logging.Logger.manager.loggerDict)):
        number = logging.getLogger(name).getEffectiveLevel()
        found[name] = _NAMES.get(number, logging.getLevelName(number))
    return found


def set_level(name: str, level: str) -> None:
    logging.getLogger(name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """What holds is that of the logger above it, again."""
    logging.getLogger(name).setLevel(logging.NOTSET)
