"""docs/configuration.md, made from the tables of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kraftpy.config.definition import REQUIRED, Definition, Effect, UpdateMode, render
from kraftpy.config.definitions import SECTIONS
from kraftpy.config.keys_client_metrics import KEYS as CLIENT_METRICS_KEYS
from kraftpy.config.keys_group import KEYS as GROUP_KEYS
from kraftpy.config.keys_topic import KEYS as TOPIC_KEYS

__all__ = ["document"]

_INTRODUCTION: Final = """\
# Configuration

Made by `python -m kraftpy.config > docs/configuration.md`; tests/config checks that it is current.

The keys are those of Apache Kafka 4.3 and mean the same. A value comes from, the strongest first:
dynamic settings for one broker, dynamic settings for the cluster, `--set key=value`, the
environment, the properties file, the default.

- **Files** are Java properties files.
- **Environment variables** are those of Kafka's container image: `KAFKA_` and the key in upper
  case, `_` for a dot, `__` for an underscore, `___` for a hyphen. `KAFKA_NODE_ID=1` sets `node.id`.
- **One listener alone**: `listener.name.<name>.<key>`, the name in lower case, for
  `max.connections`, `max.connection.creation.rate` and the keys of security.
- A key that nobody knows is reported with the nearest known one and otherwise ignored. A value that
  is wrong keeps the node from starting; all that is wrong is said at once.

*Change* says whether a key can be set while brokers run: for single brokers (per-broker), also for
all at once (cluster-wide), or only in a file (read-only). *Effect* says whether setting it does
anything here: yes, not yet (later), or nothing, with the reason. Keys in *italics* are internal to
Kafka and meant for tests.
"""


def document() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for title, module in SECTIONS:
        yield from _section(title, (module.__doc__ or "").strip(), module.KEYS)
    yield from _section("Topics", "Set for single topics, over a broker's defaults.", TOPIC_KEYS)
    yield from _section("Single groups", "Set for single groups, in brokers' bounds.", GROUP_KEYS)
    yield from _section(
        "Client metrics", "Set for a subscription to clients' metrics.", CLIENT_METRICS_KEYS
    )


def _section(title: str, about: str, definitions: Iterable[Definition]) -> Iterator[str]:
    yield from (f"## {title}", "", about, "")
    yield "| Key | Meaning | Type | Default | Values | Change | Effect |"
    yield "|---|---|---|---|---|---|---|"
    for definition in definitions:
        yield "| " + " | ".join(_cells(definition)) + " |"
    yield ""


def _cells(definition: Definition) -> Iterator[str]:
    yield f"*`{definition.name}`*" if definition.internal else f"`{definition.name}`"
    behind = ", ".join(f"`{name}`" for name in definition.synonyms)
    yield definition.doc + (f" Default from {behind}." if behind else "")
    yield f"{definition.type.value}, {definition.importance.value}"
    yield _default(definition)
    yield definition.check.text if definition.check is not None else ""
    yield "" if definition.mode is UpdateMode.READ_ONLY else definition.mode.value
    none = definition.effect is Effect.NONE
    yield f"none: {definition.reason}" if none else definition.effect.value


def _default(definition: Definition) -> str:
    if definition.default is REQUIRED:
        return "must be set"
    shown = render(definition.default)
    if shown is None:
        return ""
    return f"`{shown}`" if shown else "empty"
