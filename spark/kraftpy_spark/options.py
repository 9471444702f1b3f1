"""The options of `format("kraftpy")`: those of Spark's own Kafka connector, under the same names.

Names are compared without regard to case, as Spark does it. An option that is not understood is
refused rather than ignored: whoever sets `kafka.security.protocol` must not find out later that
nobody read it. Those of Kafka's consumer that have no meaning for a reader that knows its offsets
(HARMLESS) are accepted without effect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias, TypeVar

from kraftpy.client.settings import (
    ClientSettings,
    ConsumerSettings,
    IsolationLevel,
    ProducerSettings,
)
from kraftpy.world import Address

__all__ = [
    "EARLIEST",
    "LATEST",
    "ByTimestamp",
    "ByTopicTimestamp",
    "Edge",
    "Offsets",
    "OptionMistake",
    "SinkOptions",
    "SourceOptions",
    "Subscription",
    "parse_servers",
]

LATEST = -1
EARLIEST = -2

# Of one topic after the other: partition and number.
Offsets: TypeAlias = dict[str, dict[int, int]]

_PREFIX = "kafka."
_DEFAULT_TRIGGER_DELAY_MS = 15 * 60 * 1_000
# What one fetch of a partition asks for. Larger answers are fewer, and cost less for each record.
_FETCH_BYTES = 8 * 1024 * 1024
# Long enough for a large batch; when a task is tried again, its new producer ends the old one's.
_TRANSACTION_TIMEOUT_MS = 300_000

_SOURCE_NAMES = frozenset(
    {
        *("assign", "subscribe", "subscribepattern", "startingoffsets", "startingtimestamp"),
        *("startingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy", "endingoffsets"),
        *("endingtimestamp", "endingoffsetsbytimestamp", "failondataloss", "minpartitions"),
        *("maxrecordsperpartition", "maxoffsetspertrigger", "minoffsetspertrigger"),
        *("maxtriggerdelay", "includeheaders", "groupidprefix", "kafkaconsumer.polltimeoutms"),
        *("fetchoffset.numretries", "fetchoffset.retryintervalms"),
    }
)
_SINK_NAMES = frozenset({"topic", "includeheaders", "deliveryguarantee"})
# Spark hands these to every sink.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "mode"})
# They speak of groups, of sockets, or of a format that Spark has anyway.
_HARMLESS = frozenset(
    {
        *("group.id", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"),
        *("receive.buffer.bytes", "send.buffer.bytes", "connections.max.idle.ms"),
        *("max.poll.records", "enable.metrics.push"),
    }
)
_SPARK_DECIDES = {
    "auto.offset.reset": "startingOffsets says where to begin",
    "enable.auto.commit": "Spark keeps offsets in its checkpoint",
    "key.deserializer": "keys are binary; cast them",
    "value.deserializer": "values are binary; cast them",
    "key.serializer": "keys are binary or strings; cast them",
    "value.serializer": "values are binary or strings; cast them",
    "interceptor.classes": "there is no Java here",
}
_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*")
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

Settings = TypeVar("Settings", ConsumerSettings, ProducerSettings)


class OptionMistake(ValueError):  # noqa: N818 (it names what is wrong)
    """An option says something that can't be done; the words say what would."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions; exactly one of the three is given."""

    topics: tuple[str, ...] | None = None
    partitions: dict[str, tuple[int, ...]] | None = None
    pattern: str | None = None

    def __str__(self) -> str:
        if self.topics is not None:
            return f"subscribe={','.join(self.topics)}"
        if self.partitions is not None:
            return f"assign={json.dumps(self.partitions)}"
        return f"subscribePattern={self.pattern}"


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """The first records of this time or later, in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ByTopicTimestamp:
    timestamps_ms: Offsets


# Where to begin or to end: EARLIEST or LATEST everywhere, or said for each partition.
Edge: TypeAlias = int | Offsets | ByTimestamp | ByTopicTimestamp


@dataclass(frozen=True, slots=True)
class SourceOptions:
    bootstrap: tuple[Address, ...]
    subscription: Subscription
    starting: Edge
    ending: Edge
    # Where to begin if no record is as young as the time that was asked for.
    if_no_timestamp: Literal["error", "latest"]
    fails_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    includes_headers: bool
    poll_timeout_ms: int
    consumer: ConsumerSettings

    @classmethod
    def parse(cls, given: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
        options = {key.lower(): value for key, value in given.items()}
        _refuse_unknown(options, _SOURCE_NAMES)
        default = LATEST if is_stream else EARLIEST
        starting = _edge(options, "starting", default)
        ending = _edge(options, "ending", LATEST)
        if is_stream:
            _refuse_endings(options)
        else:
            _check_bounds(starting, ending)
        minimum = _positive(options, "minOffsetsPerTrigger")
        maximum = _positive(options, "maxOffsetsPerTrigger")
        if minimum is not None and maximum is not None and minimum > maximum:
            raise OptionMistake(
                f"minOffsetsPerTrigger ({minimum}) is greater than maxOffsetsPerTrigger ({maximum})"
            )
        return cls(
            parse_servers(options),
            _subscription(options),
            starting,
            ending,
            _choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest")),
            _flag(options, "failOnDataLoss", default=True),
            _positive(options, "minPartitions"),
            _positive(options, "maxRecordsPerPartition"),
            maximum,
            minimum,
            _duration_ms(options, "maxTriggerDelay", _DEFAULT_TRIGGER_DELAY_MS),
            _flag(options, "includeHeaders", default=False),
            _positive(options, "kafkaConsumer.pollTimeoutMs") or 120_000,
            _settings(
                options,
                ConsumerSettings(
                    auto_offset_reset="none",
                    max_partition_fetch_bytes=_FETCH_BYTES,
                    client=ClientSettings(client_id="kraftpy-spark"),
                ),
            ),
        )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    bootstrap: tuple[Address, ...]
    # None: the column `topic` says it for each row.
    topic: str | None
    is_exactly_once: bool
    producer: ProducerSettings

    @classmethod
    def parse(cls, given: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
        options = {key.lower(): value for key, value in given.items() if not _is_sparks(key)}
        _refuse_unknown(options, _SINK_NAMES)
        if "kafka.transactional.id" in options:
            raise OptionMistake(
                "kafka.transactional.id is made of the query's id; deliveryGuarantee=exactly-once"
                " asks for transactions"
            )
        guarantee: str = _choice(options, "deliveryGuarantee", ("at-least-once", "exactly-once"))
        is_exactly_once = guarantee == "exactly-once"
        if is_exactly_once and not is_stream:
            raise OptionMistake(
                "deliveryGuarantee=exactly-once needs writeStream: a batch write has no id by which"
                " a second attempt could be known"
            )
        producer = ProducerSettings(
            client=ClientSettings(client_id="kraftpy-spark"),
            # A writer has rows waiting: full batches cost less than early ones gain.
            batch_size=128 * 1024,
            transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
        )
        return cls(
            parse_servers(options),
            options.get("topic"),
            is_exactly_once,
            _settings(options, producer),
        )


def _is_sparks(name: str) -> bool:
    return name.lower() in _SPARKS_OWN


def _refuse_unknown(options: Mapping[str, str], known: frozenset[str]) -> None:
    for name in options:
        if not name.startswith(_PREFIX) and name not in known:
            raise OptionMistake(
                f'format("kraftpy") has no option {name!r}; docs/spark.md lists those it has'
            )


def _refuse_endings(options: Mapping[str, str]) -> None:
    for name in ("endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp"):
        if name in options:
            raise OptionMistake(f"{name} is for batch reads; a stream has no end")


def parse_servers(options: Mapping[str, str]) -> tuple[Address, ...]:
    text = options.get("kafka.bootstrap.servers", "")
    if not text.strip():
        raise OptionMistake(
            "kafka.bootstrap.servers is missing; `kraftpy up` prints what it should be, for example"
            ' .option("kafka.bootstrap.servers", "127.0.0.1:9092")'
        )
    addresses = []
    for server in text.split(","):
        host, colon, port = server.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
            raise OptionMistake(
                f"kafka.bootstrap.servers has {server.strip()!r}, which is not host:port"
            )
        addresses.append((host, int(port)))
    return tuple(addresses)


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in ("subscribe", "assign", "subscribepattern") if name in options]
    if len(given) != 1:
        raise OptionMistake(
            "exactly one of subscribe, assign and subscribePattern says which topics to read;"
            f" there {'is none' if not given else 'are ' + ' and '.join(given)}"
        )
    [name] = given
    text = options[name].strip()
    if not text:
        raise OptionMistake(f"{name} is empty")
    if name == "subscribe":
        return Subscription(topics=tuple(sorted({topic.strip() for topic in text.split(",")})))
    if name == "assign":
        return Subscription(partitions=_assigned(text))
    try:
        re.compile(text)
    except re.error as error:
        raise OptionMistake(
            f"subscribePattern {text!r} is no regular expression: {error}"
        ) from None
    return Subscription(pattern=text)


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    example = '{"topic": [0, 1]}'
    found = _json(text, "assign", example)
    assigned = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not all(type(each) is int for each in partitions):
            raise OptionMistake(f"assign must look like {example}, not {text}")
        assigned[topic] = tuple(sorted(set(partitions)))
    return assigned


def _edge(options: Mapping[str, str], side: str, default: int) -> Edge:
    """Spark's order: one time for all, times by partition, offsets."""
    if f"{side}timestamp" in options:
        return ByTimestamp(_number(options, f"{side}Timestamp"))
    name = f"{side}OffsetsByTimestamp"
    if name.lower() in options:
        return ByTopicTimestamp(_by_partition(options[name.lower()], name))
    name = f"{side}Offsets"
    text = options.get(name.lower())
    if text is None:
        return default
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() in words:
        return words[text.strip().lower()]
    return _by_partition(text, name)


def _by_partition(text: str, name: str) -> Offsets:
    example = '{"topic": {"0": 23, "1": -2}}'
    found = _json(text, name, example)
    try:
        return {
            topic: {int(partition): int(offset) for partition, offset in offsets.items()}
            for topic, offsets in found.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise OptionMistake(f"{name} must look like {example}, not {text}") from None


def _json(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not found:
        raise OptionMistake(f"{name} must look like {example}, not {text}")
    return found


def _check_bounds(starting: Edge, ending: Edge) -> None:
    """A batch can't begin at an end that it does not know yet, nor end before it begins."""
    if starting == LATEST or _has(starting, LATEST):
        raise OptionMistake("startingOffsets of a batch read can't be latest (-1)")
    if ending == EARLIEST or _has(ending, EARLIEST):
        raise OptionMistake("endingOffsets of a batch read can't be earliest (-2)")


def _has(edge: Edge, offset: int) -> bool:
    return isinstance(edge, dict) and any(
        each == offset for offsets in edge.values() for each in offsets.values()
    )


def _number(options: Mapping[str, str], name: str) -> int:
    text = options[name.lower()]
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise OptionMistake(f"{name} must be a number of at least 0, not {text!r}")
    return number


def _positive(options: Mapping[str, str], name: str) -> int | None:
    if name.lower() not in options:
        return None
    number = _number(options, name)
    if number == 0:
        raise OptionMistake(f"{name} must be at least 1")
    return number


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionMistake(f"{name} must be true or false, not {text!r}")
    return text == "true"


def _choice(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> Any:
    """The first word is the default."""
    text = options.get(name.lower(), words[0]).strip().lower()
    if text not in words:
        raise OptionMistake(f"{name} must be {' or '.join(words)}, not {text!r}")
    return text


def _duration_ms(options: Mapping[str, str], name: str, default_ms: int) -> int:
    text = options.get(name.lower())
    if text is None:
        return default_ms
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise OptionMistake(f"{name} must be a time such as 30s or 15m, not {text!r}")
    return int(found[1]) * _DURATION_MS[found[2] or "ms"]


def _settings(options: Mapping[str, str], settings: Settings) -> Settings:
    """`kafka.*` as the settings of our own client."""
    own: dict[str, Any] = {}
    client: dict[str, Any] = {}
    own_types = {field.name: field for field in fields(settings)}
    client_types = {field.name: field for field in fields(settings.client)}
    for name, text in options.items():
        key = name.removeprefix(_PREFIX)
        if not name.startswith(_PREFIX) or key == "bootstrap.servers" or key in _HARMLESS:
            continue
        if key in _SPARK_DECIDES:
            raise OptionMistake(f"{name} can't be set: {_SPARK_DECIDES[key]}")
        if key == "security.protocol" and text == "PLAINTEXT":
            continue
        attribute = key.replace(".", "_")
        for known, values, holder in (
            (own_types, own, settings),
            (client_types, client, settings.client),
        ):
            if attribute in known and attribute != "client":
                values[attribute] = _converted(name, text, getattr(holder, attribute))
                break
        else:
            raise OptionMistake(
                f"{name} is not an option of kraftpy's client; take it out, or use Spark's own"
                ' connector, format("kafka")'
            )
    try:
        return replace(settings, client=replace(settings.client, **client), **own)
    except ValueError as error:
        raise OptionMistake(f"the kafka.* options don't go together: {error}") from None


def _converted(name: str, text: str, default: Any) -> Any:
    """The text as a value of the default's type."""
    if name == "kafka.acks":
        return {"all": -1}.get(text) or _integer(name, text)
    if name == "kafka.compression.type":
        return _choice({name: text}, name, ("none", "gzip", "snappy", "lz4", "zstd"))
    if isinstance(default, IsolationLevel):
        try:
            return IsolationLevel[text.upper()]
        except KeyError:
            raise OptionMistake(f"{name} must be read_committed or read_uncommitted") from None
    if isinstance(default, bool) or name == "kafka.enable.idempotence":
        return _flag({name: text}, name, default=False)
    if isinstance(default, int) or name == "kafka.compression.level":
        return _integer(name, text)
    return text


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise OptionMistake(f"{name} must be a number, not {text!r}") from None
