"""`.kafka_cleanshutdown`, which says that a node has stopped in order, and as whom.

It is there, or it isn't: that alone decides whether logs are recovered. Since Kafka 3.7 it also
holds the broker epoch of the process that stopped. The next one registers with it, by which the
controller knows that nothing of this broker's data is lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from kraftpy.log.checkpoints import read_text
from kraftpy.log.errors import MalformedFileError
from kraftpy.world import Disk

__all__ = [
    "CLEAN_SHUTDOWN_MARKER",
    "NO_BROKER_EPOCH",
    "format_clean_shutdown",
    "parse_clean_shutdown",
    "previous_broker_epoch",
]

CLEAN_SHUTDOWN_MARKER: Final = ".kafka_cleanshutdown"
NO_BROKER_EPOCH: Final = -1


def format_clean_shutdown(broker_epoch: int) -> str:
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'


def parse_clean_shutdown(text: str) -> int:
    """The broker epoch; -1 if the text, which may be empty, has none."""
    try:
        epoch = json.loads(text)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return NO_BROKER_EPOCH
    return epoch if type(epoch) is int else NO_BROKER_EPOCH


async def previous_broker_epoch(disk: Disk, directories: Sequence[str]) -> int:
    """Of the process that stopped in order with all these directories; -1 if none did.

    To be read before the log manager runs: it removes the files.
    """
    epochs = {await _epoch_in(disk, directory): None for directory in directories}
    return next(iter(epochs)) if len(epochs) == 1 else NO_BROKER_EPOCH


async def _epoch_in(disk: Disk, directory: str) -> int:
    try:
        text = await read_text(disk, f"{directory}/{CLEAN_SHUTDOWN_MARKER}")
    except (OSError, MalformedFileError):
        # The log manager takes the directory offline for it.
        return NO_BROKER_EPOCH
    return NO_BROKER_EPOCH if text is None else parse_clean_shutdown(text)
