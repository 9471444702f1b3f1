"""Every message of the protocol, its versions, and hypothesis strategies drawn from its table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from kraftpy.protocol.coordinator_records import (
    GROUP_RECORDS,
    SHARE_STATE_RECORDS,
    TRANSACTION_RECORDS,
)
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema import consumer_protocol, control_records, headers, principal
from kraftpy.protocol.tables import Field, Message, Struct, covers, version_bounds

LOOSE_MESSAGES: tuple[type[Message], ...] = (
    headers.RequestHeader,
    headers.ResponseHeader,
    consumer_protocol.ConsumerProtocolSubscription,
    consumer_protocol.ConsumerProtocolAssignment,
    control_records.ControlRecordTypeSchema,
    control_records.EndTxnMarker,
    control_records.LeaderChangeMessage,
    control_records.SnapshotHeaderRecord,
    control_records.SnapshotFooterRecord,
    control_records.KRaftVersionRecord,
    control_records.VotersRecord,
    principal.DefaultPrincipalData,
)

# kio does not have these.
RECORD_MESSAGES: tuple[type[Message], ...] = (
    *GROUP_RECORDS.classes,
    *TRANSACTION_RECORDS.classes,
    *SHARE_STATE_RECORDS.classes,
)

# Few examples for each of many cases, the same in every run; under the long profile many, and new
# ones every time.
quick = settings(
    max_examples=500 if os.environ.get("KRAFTPY_HYPOTHESIS") == "long" else 15,
    derandomize=os.environ.get("KRAFTPY_HYPOTHESIS") != "long",
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

# A limit on what a field may draw, for an oracle that can't take everything; None: no limit.
Limit = Callable[[type[Struct], Field], "st.SearchStrategy[object] | None"]


def all_messages() -> Iterator[type[Message]]:
    for api in API.values():
        yield api.request_class
        yield api.response_class
    yield from LOOSE_MESSAGES


def versions_of(message_class: type[Message]) -> range:
    first, last = version_bounds(message_class.VERSIONS)
    return range(first, last + 1)


def present_fields(struct_class: type[Struct], version: int) -> list[Field]:
    """In the order of the table, tagged ones among the others."""
    return [field for field in struct_class.FIELDS if covers(field.versions, version)]


# Kafka counts its tags up from 0; those of the few fields that are our own begin here.
_FIRST_OWN_TAG = 10_000


def kafka_fields(struct_class: type[Struct], version: int) -> list[Field]:
    """Those that Kafka has too."""
    fields = present_fields(struct_class, version)
    return [field for field in fields if field.tag is None or field.tag < _FIRST_OWN_TAG]


def _integers(kind_name: str) -> st.SearchStrategy[int]:
    low, high = INTEGERS[kind_name]
    return st.sampled_from([0, 1, low, high, low + 1, high - 1]) | st.integers(low, high)


# 126, 127 and 128 bytes: the last compact length of one byte, and the first of two.
_TEXTS = st.sampled_from(["", "t", "topic-7", "ünï✓🦒", "x" * 126, "x" * 127, "é" * 64, "y" * 300])
_BINARIES = st.sampled_from([b"", b"\0", b"\xff" * 126, bytes(127), bytes(128), bytes(20_000)])

SCALARS: dict[str, st.SearchStrategy[object]] = {
    **{name: _integers(name) for name in INTEGERS},
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "uuid": st.sampled_from([bytes(16), bytes(range(16))]) | st.binary(min_size=16, max_size=16),
    "string": _TEXTS | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "bytes": _BINARIES | st.binary(max_size=5),
    "records": _BINARIES | st.binary(max_size=5),
}


def _lists(field: Field, element: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
    lists = st.lists(element, max_size=2)
    if field.kind is not None and field.kind.code:
        # Long enough for a count of two bytes, short enough for a prepared reader, and between.
        sizes = st.sampled_from([7, 8, 126, 127, 130])
        lists |= st.builds(lambda value, size: [value] * size, element, sizes)
    return lists


def values(
    owner: type[Struct], field: Field, version: int, limit: Limit | None
) -> st.SearchStrategy[object]:
    """What `field` of `owner` may hold in `version`."""
    limited = limit(owner, field) if limit is not None else None
    element: st.SearchStrategy[object]
    if limited is not None:
        element = limited
    elif field.struct is not None:
        element = structs(field.struct, version, limit)
    else:
        assert field.kind is not None
        element = SCALARS[field.kind.name]
    drawn = _lists(field, element) if field.is_array else element
    return st.none() | drawn if covers(field.nullable, version) else drawn


def structs(
    struct_class: type[Struct], version: int, limit: Limit | None = None
) -> st.SearchStrategy[Struct]:
    """With a limit, of Kafka's own fields only."""
    drawn: dict[str, st.SearchStrategy[object]] = {}
    optional: dict[str, st.SearchStrategy[object]] = {}
    fields = present_fields if limit is None else kafka_fields
    for field in fields(struct_class, version):
        # A tagged field left out has its default, which is not written.
        (drawn if field.tag is None else optional)[field.name] = values(
            struct_class, field, version, limit
        )
    return st.fixed_dictionaries(drawn, optional=optional).map(
        lambda arguments: struct_class(**arguments)
    )


def messages(
    message_class: type[Message], version: int, limit: Limit | None = None
) -> st.SearchStrategy[Message]:
    return structs(message_class, version, limit)  # type: ignore[return-value]


_SAMPLES: dict[str, object] = {
    **dict.fromkeys(INTEGERS, 5),
    "bool": True,
    "float64": 0.5,
    "uuid": bytes(range(16)),
    "string": "añb",
    "bytes": b"\1\2\3",
    "records": b"\4\5\6\7",
}


def sample(struct_class: type[Struct], version: int, count: int = 2) -> Struct:
    """Everything set that the version has, tagged fields too; arrays of `count`, inside of 1."""
    arguments: dict[str, object] = {}
    for field in present_fields(struct_class, version):
        if field.struct is not None:
            value: object = sample(field.struct, version, 1)
        else:
            assert field.kind is not None
            value = _SAMPLES[field.kind.name]
        arguments[field.name] = [value] * count if field.is_array else value
    return struct_class(**arguments)


def sample_message(message_class: type[Message], version: int) -> Message:
    return sample(message_class, version)  # type: ignore[return-value]
