"""The short names in which the tables of keys are written.

A table is read by people who look for one key, so that each key takes three lines: its name, what
it is for, and its facts (type, default, importance, condition, who may change it). The reasons why
a key of Kafka has no effect here are few, and named here.
"""

from __future__ import annotations

from typing import Final

from kraftpy.config.definition import (
    REQUIRED,
    Check,
    ConfigType,
    Definition,
    Effect,
    Importance,
    Required,
    UpdateMode,
    Value,
)

__all__ = ["REQUIRED", "define"]

BOOLEAN: Final = ConfigType.BOOLEAN
INT: Final = ConfigType.INT
SHORT: Final = ConfigType.SHORT
LONG: Final = ConfigType.LONG
DOUBLE: Final = ConfigType.DOUBLE
STRING: Final = ConfigType.STRING
LIST: Final = ConfigType.LIST
CLASS: Final = ConfigType.CLASS
PASSWORD: Final = ConfigType.PASSWORD

HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW

READ_ONLY: Final = UpdateMode.READ_ONLY
PER_BROKER: Final = UpdateMode.PER_BROKER
CLUSTER_WIDE: Final = UpdateMode.CLUSTER_WIDE

YES: Final = Effect.YES

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308

THREADS: Final = "one loop does this work; there are no threads to count"
QUEUE: Final = "a request is carried out as soon as it has been read"
BUFFERS: Final = "write buffers are not kept"
PLUGIN: Final = "plug-ins are Java classes, which a node can't load"
JVM: Final = "a matter of the JVM"
MEASURE: Final = "slow events show in the metrics of the loop"
METRICS: Final = "metrics are fetched over HTTP"
TIERED: Final = "there is no tiered storage"
SHARE: Final = "there are no share groups"
STREAMS: Final = "there are no Streams groups"
TOKENS: Final = "there are no delegation tokens"
KERBEROS: Final = "there is no Kerberos"


def define(  # noqa: PLR0917 - The columns of a table.
    name: str,
    doc: str,
    type_: ConfigType,
    default: Value | Required,
    importance: Importance,
    check: Check | None = None,
    mode: UpdateMode = READ_ONLY,
    *,
    effect: Effect = Effect.LATER,
    no_effect: str = "",
    internal: bool = False,
    synonyms: tuple[str, ...] = (),
) -> Definition:
    """One key. `no_effect` is the reason why it has none."""
    if no_effect:
        effect = Effect.NONE
    return Definition(
        name, doc, type_, default, importance, check, mode, effect, no_effect, internal, synonyms
    )
