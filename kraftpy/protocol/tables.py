"""The vocabulary of our schema tables, and the classes they make.

A message is one class for all its versions. Its body is the table: one line for each field, in
wire order, saying type, versions and rules.

    class TopicProduceData(Struct):
        name: str = string("3-12", ignorable=True, key=True)
        topic_id: Uuid = uuid("13+", ignorable=True, key=True)
        partition_data: list[PartitionProduceData] = array(PartitionProduceData)


    class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
        ...

To mypy these are dataclasses with keyword-only constructors (PEP 681): every line is a field with a
default. The specifiers are typed as what they describe, so an annotation that contradicts its table
line is a type error. At run time the metaclass collects the lines into `FIELDS` and makes slots of
their names; that costs microseconds, where `dataclasses.dataclass` would cost a millisecond for
each of some 500 classes. The constructor is generated when the first object is made.

Rules of a line, all of them Kafka's:

- `versions`: where the field exists ("3+", "0-12", "4"); left out, in all of the message's.
- `nullable`: versions in which null is allowed on the wire.
- `tag`: the field lives in the tagged section and is written only when it differs from its default.
- `default`: the value of a field that did not come. Left out: zero, "", b"", [], a struct of
  defaults.
- `ignorable`: dropped silently when a version without the field is written. A field that isn't
  must then have its default, or the message can't be written.
- `key`: elements of the surrounding array are told apart by this field. Documentation only.

Every struct also has `unknown_tags`: tagged fields that this table doesn't know, kept as they came
and written back.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
    overload,
)

from kraftpy.protocol.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraftpy.protocol.layout import Source
    from kraftpy.world import Buffer, FileSlice

__all__ = [
    "ALL",
    "Field",
    "Kind",
    "Message",
    "Part",
    "RecordKey",
    "RecordValue",
    "Request",
    "Response",
    "Struct",
    "array",
    "binary",
    "boolean",
    "covers",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "record_data",
    "string",
    "struct",
    "uint16",
    "uuid",
    "version_bounds",
]

T = TypeVar("T")
S = TypeVar("S", bound="Struct")

# Record data on its way through the codec: bytes in memory or a range of a file.
Part: TypeAlias = "Buffer | FileSlice"

ALL = "0+"
_NEWEST = 32767


def version_bounds(versions: str) -> tuple[int, int]:
    """First and last version of "3+", "0-12" or "4"; "" and "none" give an empty range."""
    if versions in ("", "none"):
        return 0, -1
    if versions.endswith("+"):
        return int(versions[:-1]), _NEWEST
    first, _, last = versions.partition("-")
    return int(first), int(last or first)


def covers(versions: str, version: int) -> bool:
    first, last = version_bounds(versions)
    return first <= version <= last


class Kind(Generic[T]):
    """A wire type: its name, its `struct` code when it has a fixed width, its plain default."""

    __slots__ = ("code", "default", "name")

    def __init__(self, name: str, code: str, default: T | None) -> None:
        self.name = name
        self.code = code
        self.default = default


class Field:
    """One line of a table.

    `struct` is the class of a struct or of an array's elements, `kind` the type of anything else.
    A default of `...` stands for a new list, or a new struct of defaults, for each message.
    """

    __slots__ = (
        "compact",
        "default",
        "ignorable",
        "is_array",
        "key",
        "kind",
        "name",
        "nullable",
        "struct",
        "tag",
        "versions",
    )

    def __init__(
        self,
        kind: Kind[Any] | None,
        versions: str,
        *,
        struct: type[Struct] | None = None,
        is_array: bool = False,
        nullable: str = "",
        tag: int | None = None,
        default: object = None,
        ignorable: bool = False,
        key: bool = False,
        compact: bool = True,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.struct = struct
        self.is_array = is_array
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.default = default
        self.ignorable = ignorable
        self.key = key
        self.compact = compact


class _Fixed(Kind[T]):
    """A type of fixed width; never null."""

    __slots__ = ()

    def __call__(
        self,
        versions: str = ALL,
        *,
        tag: int | None = None,
        default: T | None = None,
        ignorable: bool = False,
        key: bool = False,
    ) -> T:
        value = self.default if default is None else default
        return cast(
            "T",
            Field(
                self,
                versions,
                tag=tag,
                default=value,
                ignorable=ignorable,
                key=key,
            ),
        )


class _Sized(Kind[T]):
    """A type with a length in front: string, bytes, record data. `compact=False` keeps the old
    length prefix in flexible versions too.
    """

    __slots__ = ()

    @overload
    def __call__(
        self,
        versions: str = ALL,
        *,
        tag: int | None = None,
        ignorable: bool = False,
        key: bool = False,
    ) -> T: ...

    @overload
    def __call__(
        self,
        versions: str = ALL,
        *,
        nullable: str,
        tag: int | None = None,
        default: T | None = ...,
        ignorable: bool = False,
        key: bool = False,
        compact: bool = True,
    ) -> T | None: ...

    def __call__(
        self,
        versions: str = ALL,
        *,
        nullable: str = "",
        default: object = ...,
        tag: int | None = None,
        ignorable: bool = False,
        key: bool = False,
        compact: bool = True,
    ) -> T | None:
        return cast(
            "T",
            Field(
                self,
                versions,
                nullable=nullable,
                tag=tag,
                default=self.default if default is ... else default,
                ignorable=ignorable,
                key=key,
                compact=compact,
            ),
        )


boolean: _Fixed[bool] = _Fixed("bool", "?", False)
int8: _Fixed[int] = _Fixed("int8", "b", 0)
int16: _Fixed[int] = _Fixed("int16", "h", 0)
uint16: _Fixed[int] = _Fixed("uint16", "H", 0)
int32: _Fixed[int] = _Fixed("int32", "i", 0)
int64: _Fixed[int] = _Fixed("int64", "q", 0)
float64: _Fixed[float] = _Fixed("float64", "d", 0.0)
uuid: _Fixed[Uuid] = _Fixed("uuid", "16s", ZERO_UUID)
string: _Sized[str] = _Sized("string", "", "")
binary: _Sized[bytes] = _Sized("bytes", "", b"")
record_data: _Sized[Part] = _Sized("records", "", b"")


@overload
def array(
    element: Kind[T],
    versions: str = ALL,
    *,
    tag: int | None = None,
    ignorable: bool = False,
) -> list[T]: ...


@overload
def array(
    element: type[S],
    versions: str = ALL,
    *,
    tag: int | None = None,
    ignorable: bool = False,
) -> list[S]: ...


@overload
def array(
    element: Kind[T],
    versions: str = ALL,
    *,
    nullable: str,
    tag: int | None = None,
    default: None = ...,
    ignorable: bool = False,
) -> list[T] | None: ...


@overload
def array(
    element: type[S],
    versions: str = ALL,
    *,
    nullable: str,
    tag: int | None = None,
    default: None = ...,
    ignorable: bool = False,
) -> list[S] | None: ...


def array(
    element: Kind[Any] | type[Struct],
    versions: str = ALL,
    *,
    nullable: str = "",
    tag: int | None = None,
    default: object = ...,
    ignorable: bool = False,
) -> Any:
    """A list of one kind or of one struct."""
    kind, struct_class = (element, None) if isinstance(element, Kind) else (None, element)
    return Field(
        kind,
        versions,
        struct=struct_class,
        is_array=True,
        nullable=nullable,
        tag=tag,
        default=default,
        ignorable=ignorable,
    )


@overload
def struct(
    struct_class: type[S],
    versions: str = ALL,
    *,
    tag: int | None = None,
    ignorable: bool = False,
) -> S: ...


@overload
def struct(
    struct_class: type[S],
    versions: str = ALL,
    *,
    nullable: str,
    default: None = ...,
    tag: int | None = None,
    ignorable: bool = False,
) -> S | None: ...


def struct(
    struct_class: type[Struct],
    versions: str = ALL,
    *,
    nullable: str = "",
    default: object = ...,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A struct inside a struct."""
    return Field(
        None,
        versions,
        struct=struct_class,
        nullable=nullable,
        tag=tag,
        default=default,
        ignorable=ignorable,
    )


@dataclass_transform(kw_only_default=True)
class StructMeta(type):
    """Collects a class body's table lines into `FIELDS` and makes slots of their names."""

    FIELDS: tuple[Field, ...]

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **facts: object
    ) -> StructMeta:
        fields = []
        for key, value in namespace.items():
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
        for field in fields:
            del namespace[field.name]
        namespace["FIELDS"] = tuple(fields)
        namespace.setdefault("__slots__", tuple(field.name for field in fields))
        return super().__new__(cls, name, bases, namespace, **facts)


class Struct(metaclass=StructMeta):
    """A group of fields on the wire."""

    if TYPE_CHECKING:
        unknown_tags: tuple[tuple[int, bytes], ...] = ()

    FIELDS: ClassVar[tuple[Field, ...]]
    __slots__ = ("unknown_tags",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: object) -> None:
        """Generate this class's own constructor, put it in place and call it."""
        constructor = _constructor(type(self))
        type(self).__init__ = constructor  # type: ignore[method-assign]
        constructor(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        for field in self.FIELDS:
            if getattr(self, field.name) != getattr(other, field.name):
                return False
        return self.unknown_tags == other.unknown_tags

    def __repr__(self) -> str:
        """Lengths instead of contents for bytes: they are bulky, or secret."""
        shown = []
        for field in self.FIELDS:
            value = getattr(self, field.name)
            if value is not None and field.kind in (binary, record_data) and not field.is_array:
                shown.append(f"{field.name}=<{len(value)} bytes>")
            else:
                shown.append(f"{field.name}={value!r}")
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _constructor(struct_class: type[Struct]) -> Callable[..., None]:
    parameters = []
    body = []
    names: dict[str, Any] = {"FRESH": ...}
    for field in struct_class.FIELDS:
        name = field.name
        if field.default is not ...:
            value = name
        elif field.is_array:
            value = f"[] if {name} is FRESH else {name}"
        else:
            names[f"make_{name}"] = field.struct
            value = f"make_{name}() if {name} is FRESH else {name}"
        names[f"default_{name}"] = field.default
        parameters.append(f"{name}=default_{name}, ")
        body.append(f"    self.{name} = {value}\n")
    source = (
        f"def __init__(self, *, {''.join(parameters)}unknown_tags=()):\n"
        f"{''.join(body)}    self.unknown_tags = unknown_tags\n"
    )
    exec(compile(source, f"<constructor of {struct_class.__name__}>", "exec"), names)
    return cast("Callable[..., None]", names["__init__"])


class Message(Struct):
    """A struct that stands alone, with versions of its own.

    `decoders` and `encoders` hold the functions generated so far, by version; the codec fills them.
    """

    __slots__ = ()
    VERSIONS: ClassVar[str]
    FLEXIBLE: ClassVar[str]
    decoders: ClassVar[dict[int, tuple[Callable[..., Any], Source]]]
    encoders: ClassVar[dict[int, tuple[Callable[..., Any], Source]]]

    def __init_subclass__(cls, *, versions: str = "none", flexible: str = "none") -> None:
        cls.VERSIONS = versions
        cls.FLEXIBLE = flexible
        cls.decoders = {}
        cls.encoders = {}


class ApiMessage(Message):
    """A message under a key: that of an API, or the type of a coordinator's record."""

    __slots__ = ()
    KEY: ClassVar[int]

    def __init_subclass__(
        cls, *, key: int = -1, versions: str = "none", flexible: str = "none"
    ) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.KEY = key


class Request(ApiMessage):
    """What a client sends."""

    __slots__ = ()


class Response(ApiMessage):
    """What a node answers."""

    __slots__ = ()


class RecordKey(ApiMessage):
    """The key of a coordinator's record; `KEY` is the type that stands before it."""

    __slots__ = ()


class RecordValue(ApiMessage):
    """The value of a coordinator's record, of the type of its key."""

    __slots__ = ()
