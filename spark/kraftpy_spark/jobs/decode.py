"""From records to rows of the lake, by Spark's own functions: no Python for each row.

A record that can't become a row gets a reason instead: `deserialize` if its bytes are not what the
schema says, `rejected` if they are and the record still can't be taken. Columns that begin with `_`
are the job's own; `_topic_id`, `_partition` and `_offset` together name a record.

Everything that is decided about a record hangs on the record, on the settings and on the watermark
alone, never on the clock: a batch that is run again decides the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias

from pyspark.sql import functions as F  # noqa: N812 (Spark's own habit)
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from kraftpy_spark.jobs.schema import SchemaMistake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["FOLDERS", "OWN_COLUMNS", "Shape", "audit_columns", "decode", "header", "header_number"]

TimeUnit: TypeAlias = Literal["s", "ms", "us"]
Granularity: TypeAlias = Literal["hour", "day"]

FOLDERS: Mapping[Granularity, tuple[str, ...]] = {
    "hour": ("event_date", "event_hour"),
    "day": ("event_date",),
}
OWN_COLUMNS = (
    *("_key", "_topic", "_topic_id", "_partition", "_offset", "_timestamp"),
    *("_event_time", "_ingested_at"),
)
_AUDIT_COLUMNS = ("_audit_pid", "_audit_seq", "_audit_time")
_CORRUPT = "_corrupt"
_PER_SECOND: Mapping[TimeUnit, int] = {"s": 1, "ms": 1_000, "us": 1_000_000}


@dataclass(frozen=True, slots=True)
class Shape:
    """What rows look like, and what a record must have to become one."""

    schema: StructType
    event_time: str | None = None
    """A column of the schema, `a.b` for one inside; None: the record's own timestamp."""
    event_time_unit: TimeUnit = "ms"
    """Of an event time that is a number."""
    partition_by: Granularity = "hour"
    future_limit_ms: int = 24 * 3600 * 1000
    """An event further ahead of its record's timestamp is a mistake, and would drag the watermark
    along."""
    keeps_audit: bool = False

    def __post_init__(self) -> None:
        taken = {*OWN_COLUMNS, *_AUDIT_COLUMNS, _CORRUPT, *FOLDERS["hour"]}
        clash = [name for name in self.schema.names if name in taken]
        if clash:
            raise SchemaMistake(
                f"the column {clash[0]!r} of the schema has a name that the lake uses itself;"
                " rename it, for example with --transform"
            )
        if self.event_time is not None:
            self._event_time_field()

    @property
    def folders(self) -> tuple[str, ...]:
        return FOLDERS[self.partition_by]

    @property
    def columns(self) -> tuple[str, ...]:
        audit = _AUDIT_COLUMNS if self.keeps_audit else ()
        return (*self.schema.names, *OWN_COLUMNS, *audit, *self.folders)

    def event_time_column(self) -> Column:
        """Of decoded rows; raises SchemaMistake for a column that isn't there."""
        if self.event_time is None:
            return F.col("timestamp")
        field = self._event_time_field()
        column = F.col(f"row.{self.event_time}")
        if isinstance(field.dataType, LongType):
            factor = 1_000_000 // _PER_SECOND[self.event_time_unit]
            return F.timestamp_micros(F.try_multiply(column, F.lit(factor)))
        return column.try_cast("timestamp")

    def _event_time_field(self) -> StructField:
        path = str(self.event_time).split(".")
        place: object = self.schema
        field: StructField | None = None
        for name in path:
            names = place.names if isinstance(place, StructType) else []
            if name not in names:
                raise SchemaMistake(
                    f"--event-time {self.event_time}: there is no column {name!r};"
                    f" there are {', '.join(names) or 'none'}"
                )
            assert isinstance(place, StructType)
            field = place[name]
            place = field.dataType
        assert field is not None
        kind = field.dataType.typeName()
        if kind not in ("long", "timestamp", "timestamp_ntz", "date", "string"):
            raise SchemaMistake(
                f"--event-time {self.event_time}: a {kind} is no time; it can be a TIMESTAMP, a"
                " DATE, a STRING in ISO 8601 or a BIGINT since 1970 (--event-time-unit)"
            )
        return field


def decode(
    records: DataFrame, shape: Shape, topic_ids: Mapping[str, str], watermark_ms: int | None
) -> DataFrame:
    """The records, with `row` (a struct of the schema), the lake's own columns, and:

    `reason` and `explanation` of those that can't be rows, null for the others; `is_late` of those
    that are older than the watermark.
    """
    schema = StructType([*shape.schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = records.withColumn("row", F.from_json(F.col("value").cast("string"), schema, options))
    timed = parsed.withColumn("_event_time", shape.event_time_column())
    judged = timed.withColumn("judgement", _judgement(shape))
    if watermark_ms is None:
        is_late = F.lit(False)
    else:
        is_late = F.col("_event_time") < F.timestamp_micros(F.lit(watermark_ms * 1_000))
    ids = F.create_map(*[F.lit(text) for pair in topic_ids.items() for text in pair])
    frame = judged.select(
        *records.columns,
        "row",
        "_event_time",
        F.coalesce(ids[F.col("topic")], F.lit("")).alias("_topic_id")
        if topic_ids
        else F.lit("").alias("_topic_id"),
        F.col("judgement.reason").alias("reason"),
        F.col("judgement.explanation").alias("explanation"),
        (F.col("judgement").isNull() & is_late).alias("is_late"),
        *(audit_columns() if shape.keeps_audit else ()),
    )
    return _folder_columns(frame, shape)


def _folder_columns(frame: DataFrame, shape: Shape) -> DataFrame:
    """With the columns that make the lake's folders: of the event's time, in UTC."""
    made = {
        "event_date": F.date_format("_event_time", "yyyy-MM-dd"),
        "event_hour": F.date_format("_event_time", "HH"),
    }
    return frame.withColumns({name: made[name] for name in shape.folders})


def _judgement(shape: Shape) -> Column:
    row = F.col("row")
    missing = list(_missing(shape.schema, row, ""))
    absent = F.coalesce(
        *[F.when(is_missing, F.lit(path)) for path, is_missing in missing], F.lit(None)
    )
    limit = F.col("timestamp") + F.expr(f"INTERVAL {shape.future_limit_ms * 1000} MICROSECOND")

    def because(reason: str, explanation: Column) -> Column:
        return F.struct(F.lit(reason).alias("reason"), explanation.alias("explanation"))

    chain = (
        F.when(F.col("value").isNull(), because("rejected", F.lit("the record has no value")))
        .when(
            ~F.is_valid_utf8(F.col("value").cast("string")),
            because("deserialize", F.lit("the value is not UTF-8")),
        )
        .when(
            row.isNull() | row[_CORRUPT].isNotNull(),
            because("deserialize", F.lit("the value is not JSON of the schema")),
        )
    )
    if missing:
        chain = chain.when(
            absent.isNotNull(),
            because("rejected", F.concat(absent, F.lit(" is required and missing"))),
        )
    return chain.when(
        F.col("_event_time").isNull(),
        because("rejected", F.lit(f"{shape.event_time} is no time")),
    ).when(
        F.col("_event_time") > limit,
        because("rejected", F.lit("the event is further in the future than --future-limit")),
    )


def _missing(schema: StructType, column: Column, prefix: str) -> Iterator[tuple[str, Column]]:
    """Where a required field may be missing, and whether it is."""
    for field in schema.fields:
        inside, path = column[field.name], f"{prefix}{field.name}"
        if not field.nullable:
            yield path, column.isNotNull() & inside.isNull()
        if isinstance(field.dataType, StructType):
            yield from _missing(field.dataType, inside, f"{path}.")
        elif isinstance(field.dataType, ArrayType):
            yield from _missing_in_array(field.dataType, inside, path)


def _missing_in_array(kind: ArrayType, column: Column, path: str) -> Iterator[tuple[str, Column]]:
    element = kind.elementType
    if not isinstance(element, StructType):
        return
    for inner, _ in _missing(element, column, f"{path}[]."):
        yield inner, F.exists(column, _lacks(element, f"{path}[].", inner))


def _lacks(element: StructType, prefix: str, path: str) -> Callable[[Column], Column]:
    """Whether one element of an array lacks the field at `path`."""

    def lacks(each: Column) -> Column:
        return dict(_missing(element, each, prefix))[path]

    return lacks


def audit_columns() -> tuple[Column, ...]:
    return (
        header("audit.pid").cast("string").alias("_audit_pid"),
        header_number("audit.seq").alias("_audit_seq"),
        F.timestamp_micros(F.try_multiply(header_number("audit.ts"), F.lit(1_000))).alias(
            "_audit_time"
        ),
    )


def header(name: str) -> Column:
    """The last header of a name, as readers take it."""
    found = F.filter("headers", lambda each: each["key"] == name)
    return F.try_element_at(found, F.lit(-1))["value"]


def header_number(name: str, size: int = 8) -> Column:
    """A header with so many bytes, the highest first; null if it is anything else."""
    value = header(name)
    number = F.conv(F.hex(F.substring(value, 1, size)), 16, 10).cast("decimal(20,0)")
    # As decimals: the limits themselves are too large for Spark's integers.
    half, limit = (F.lit(Decimal(1 << bits)) for bits in (8 * size - 1, 8 * size))
    signed = F.when(number >= half, number - limit).otherwise(number)
    return F.when(F.length(value) == size, signed.cast("long"))
