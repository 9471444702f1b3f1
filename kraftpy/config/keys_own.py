"""Keys of kraftpy itself, under a prefix that Kafka will not take."""

from __future__ import annotations

from typing import Final

from kraftpy.config.checks import between, one_of
from kraftpy.config.table import CLUSTER_WIDE, INT, LOW, MEDIUM, STRING, YES, define

__all__ = ["KEYS"]

# A table, kept to three lines a key.
# fmt: off
KEYS: Final = (
    define("kraftpy.record.validation",
           "How produced batches are checked: by their header, or in full by every record too.",
           STRING, "header", MEDIUM, one_of("header", "full"), CLUSTER_WIDE, effect=YES),
    define("kraftpy.http.port",
           "Port of health, metrics and console; 0 takes a free one, unset opens none.",
           INT, None, LOW, between(0, 65_535), effect=YES),
    define("kraftpy.http.host",
           "Address at which that port is opened.",
           STRING, "127.0.0.1", LOW, effect=YES),
    define("kraftpy.principal",
           "Who connects, as in User:node; set for a listener that only nodes can reach.",
           STRING, "User:ANONYMOUS", MEDIUM, effect=YES),
)
