"""What a struct looks like in one version, and the notebook that generated code is written in.

Both generators ask the same two questions: which fields are there, in which order and under which
rules (`layout`), and which line of the generated source belongs to which field (`Source`). The
second is how errors get their field names for nothing: while all goes well, generated code keeps no
track of where it is; when a line raises, the traceback has its number and `Source.labels` its
fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from typing import Any

from kraftpy.protocol.tables import Field, Struct, covers

__all__ = [
    "LONGEST_STRING",
    "BoundField",
    "Layout",
    "Run",
    "Source",
    "element",
    "holds_records",
    "join",
    "layout",
    "minimum_size",
    "null_marker",
    "struct_minimum_size",
]


# The old length prefix can say no more, and Kafka holds compact strings to the same limit.
LONGEST_STRING = 32767


class BoundField:
    """A field with its rules decided for one version."""

    __slots__ = ("field", "is_compact", "is_flexible", "is_nullable", "name")

    def __init__(self, field: Field, version: int, *, is_flexible: bool) -> None:
        self.field = field
        self.name = field.name
        self.is_flexible = is_flexible
        self.is_compact = is_flexible and field.compact
        self.is_nullable = covers(field.nullable, version)


class Layout:
    """A struct in one version: fields in wire order, tagged ones by tag, and those not there."""

    __slots__ = ("absent", "body", "tagged")

    def __init__(self) -> None:
        self.body: list[BoundField] = []
        self.tagged: list[BoundField] = []
        self.absent: list[Field] = []


def layout(struct_class: type[Struct], version: int, *, is_flexible: bool) -> Layout:
    result = Layout()
    for field in struct_class.FIELDS:
        if not covers(field.versions, version):
            result.absent.append(field)
            continue
        bound = BoundField(field, version, is_flexible=is_flexible)
        (result.body if field.tag is None else result.tagged).append(bound)
    result.tagged.sort(key=lambda bound: bound.field.tag or 0)
    return result


def element(bound: BoundField, version: int) -> BoundField:
    """An array's element as a field: the same, but single and never null."""
    single = Field(bound.field.kind, bound.field.versions, compact=bound.field.compact)
    return BoundField(single, version, is_flexible=bound.is_flexible)


def null_marker(bound: BoundField) -> int:
    """The byte in place of a struct that is null; before one that is there stands 1.

    Kafka's generator writes a signed byte here, and a varint where the struct is a tagged field.
    """
    return -1 if bound.field.tag is None else 0


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def minimum_size(bound: BoundField, version: int) -> int:
    """The fewest bytes that the field can take."""
    field = bound.field
    if field.is_array:
        return 1 if bound.is_compact else 4
    if field.struct is not None:
        return 1 if bound.is_nullable else struct_minimum_size(field.struct, version, bound)
    if field.kind is None or not field.kind.code:
        old_prefix = 2 if field.kind is not None and field.kind.name == "string" else 4
        return 1 if bound.is_compact else old_prefix
    return struct.calcsize(">" + field.kind.code)


def struct_minimum_size(struct_class: type[Struct], version: int, outer: BoundField) -> int:
    parts = layout(struct_class, version, is_flexible=outer.is_flexible)
    return int(outer.is_flexible) + sum(minimum_size(bound, version) for bound in parts.body)


def holds_records(struct_class: type[Struct], version: int) -> bool:
    """Does record data occur anywhere in it?"""
    for field in struct_class.FIELDS:
        if covers(field.versions, version):
            if field.kind is not None and field.kind.name == "records":
                return True
            if field.struct is not None and holds_records(field.struct, version):
                return True
    return False


class Run:
    """Neighbouring fixed-width values that one `struct` call reads or writes.

    Each value is a `struct` code, a Python expression (the target that is read into, or the value
    that is written; "*items" for a list of values that are written) and the path of its field.
    """

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: list[tuple[str, str, str]] = []

    @property
    def format(self) -> str:
        return ">" + "".join(code for code, _, _ in self.values)

    @property
    def size(self) -> int:
        return struct.calcsize(self.format)


class Source:
    """Generated lines, the names they use, and for each line the field or run it deals with."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.lines: list[str] = []
        self.labels: list[str | Run] = [""]
        self.names: dict[str, Any] = {}
        self.indent = 0
        self._counter = 0
        self._constants: dict[tuple[str, Hashable], str] = {}

    def line(self, text: str, label: str | Run) -> None:
        self.lines.append("    " * self.indent + text)
        self.labels.append(label)

    def fresh(self, stem: str) -> str:
        """A local name that nothing else has."""
        self._counter += 1
        return f"{stem}_{self._counter}"

    def constant(self, stem: str, key: Hashable, value: object) -> str:
        """A global name for `value`; one and the same for the same stem and key."""
        name = self._constants.get((stem, key))
        if name is None:
            name = self._constants[stem, key] = self.fresh(stem)
            self.names[name] = value
        return name

    def compile(self, function_name: str) -> Callable[..., Any]:
        code = compile("\n".join(self.lines), f"<{self.title}>", "exec")
        exec(code, self.names)
        function: Callable[..., Any] = self.names[function_name]
        return function

    def place_of(
        self, failure: BaseException, function: Callable[..., Any]
    ) -> tuple[str | Run, dict[str, Any]]:
        """What the line of `function` that `failure` came through deals with, and its locals."""
        traceback = failure.__traceback__
        while traceback is not None:
            if traceback.tb_frame.f_code is function.__code__:
                return self.labels[traceback.tb_lineno], traceback.tb_frame.f_locals
            traceback = traceback.tb_next
        return "", {}
