"""Rows of numbers: the partitions of a topic, read and written by code made for their very shape.

A row is a struct of numbers and lists of numbers. In one array its rows tend to have one shape: a
topic's partitions all have three replicas, three of them in sync, none offline. Once a row has been
read the general way, the lengths of its lists are known, and rows of just these lengths have every
number at a known place. `RowShapes` makes a reader when it first meets a shape: a loop with a
single `unpack` for a row. It goes on while the rows keep the shape and the bytes last, and leaves
whatever follows, good or bad, to the general code. It makes Metadata responses half again as fast
to decode.

The arrays of a message tend to have one length, too. When the same number of rows of a shape comes
up again and again, the loop is written out for it: one `unpack` for the counts inside all of these
rows, which tells whether they have the shape, and one for everything else. That takes another
eighth off.

In the other direction `RowPackers` has one `pack` for all of a row, which makes Metadata responses
twice as fast to encode; `NumberPackers` does the same for a single list.

How many shapes are kept, how long their lists may be and how much is written out is bounded: shapes
come from the wire.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import starmap
from typing import Any, TypeAlias

from kraftpy.protocol.layout import Layout, Source
from kraftpy.protocol.tables import Struct

__all__ = ["NumberPackers", "RowPackers", "RowShapes", "is_row"]

_MOST_SHAPES = 32
_LONGEST_LIST = 16

# Writing a loop out takes up to a millisecond, so that a number of rows must come up often.
_OFTEN = 16
_MOST_WRITTEN_OUT = 32
_MOST_ROWS_WRITTEN_OUT = 12
_MOST_NUMBERS_WRITTEN_OUT = 128

# Takes buffer, position, end and how many rows there should be; gives those that it could read, and
# the position behind them.
RowReader: TypeAlias = Callable[[Any, int, int, int], tuple[list[Any], int]]

Packer = Callable[..., bytes]


def is_row(parts: Layout) -> bool:
    """Numbers only, with at least one list of them that can't be null."""
    if parts.tagged or parts.absent:
        return False
    for bound in parts.body:
        kind = bound.field.kind
        if kind is None or not kind.code or kind.name == "uuid" or bound.is_nullable:
            return False
    return any(bound.field.is_array for bound in parts.body)


class RowShape:
    """Where the numbers are in rows whose lists have certain lengths."""

    __slots__ = ("_is_flexible", "_lengths", "_parts")

    def __init__(self, parts: Layout, lengths: tuple[int, ...], *, is_flexible: bool) -> None:
        self._parts = parts
        self._lengths = lengths
        self._is_flexible = is_flexible

    def numbers(self, row: str) -> Iterator[tuple[str, str | int]]:
        """The `struct` code of each number, and the place in `row` or the local that it goes to.

        Counts go nowhere. They stand with the value that they have in this shape; so does that of
        the tags, which is 0.
        """
        lengths = iter(self._lengths)
        for bound in self._parts.body:
            assert bound.field.kind is not None
            code = bound.field.kind.code
            if bound.field.is_array:
                length = next(lengths)
                yield "B" if bound.is_compact else "I", length + bound.is_compact
                for index in range(length):
                    yield code, f"{row}_{bound.name}_{index}"
            else:
                yield code, f"{row}.{bound.name}"
        if self._is_flexible:
            yield "B", 0

    def stores(self, row: str) -> Iterator[str]:
        """Lines that put the rest into `row` when its numbers are where they go."""
        lengths = iter(self._lengths)
        for bound in self._parts.body:
            if bound.field.is_array:
                places = (f"{row}_{bound.name}_{index}" for index in range(next(lengths)))
                yield f"{row}.{bound.name} = [{', '.join(places)}]"
        yield f"{row}.unknown_tags = ()"

    @property
    def format(self) -> str:
        return ">" + "".join(code for code, _ in self.numbers(""))


def _no_rows(buffer: object, position: int, end: int, count: int) -> tuple[list[Any], int]:
    return [], position


class RowReaders(dict[int, RowReader]):
    """Readers of rows of one shape: `loop`, and for some numbers of rows one without a loop."""

    __slots__ = ("loop",)

    def __init__(self, loop: RowReader) -> None:
        super().__init__()
        self.loop = loop

    def __missing__(self, count: int) -> RowReader:
        return self.loop


class RowShapes(dict[tuple[int, ...], RowReaders]):
    """Readers of rows, by the lengths of their lists; `last` are the ones to try first."""

    __slots__ = ("_is_flexible", "_parts", "_struct_class", "last", "left_to_write_out")

    def __init__(self, struct_class: type[Struct], parts: Layout, *, is_flexible: bool) -> None:
        super().__init__()
        self._struct_class = struct_class
        self._parts = parts
        self._is_flexible = is_flexible
        self.last = RowReaders(_no_rows)
        self.left_to_write_out = _MOST_WRITTEN_OUT

    def __missing__(self, lengths: tuple[int, ...]) -> RowReaders:
        if len(self) >= _MOST_SHAPES or max(lengths) > _LONGEST_LIST:
            return RowReaders(_no_rows)
        shape = RowShape(self._parts, lengths, is_flexible=self._is_flexible)
        readers = self[lengths] = _GrowingReaders(self, shape, self._struct_class)
        return readers

    def read_on(
        self, lengths: tuple[int, ...], buffer: Any, position: int, end: int, count: int
    ) -> tuple[list[Any], int]:
        """Read what follows a row whose lists have these lengths, as a `RowReader` does.

        Rows of two shapes may alternate, as when a broker is down that has some of the replicas. So
        the shape before is tried, too.
        """
        before, self.last = self.last, self[lengths]
        rows, position = self.last.loop(buffer, position, end, count)
        if count and not rows and before is not self.last:
            rows, position = before.loop(buffer, position, end, count)
            if rows:
                self.last = before
        return rows, position


class _GrowingReaders(RowReaders):
    """Writes the loop out for a number of rows that comes up often."""

    __slots__ = ("_come_up", "_most_rows", "_shape", "_shapes", "_struct_class")

    def __init__(self, shapes: RowShapes, shape: RowShape, struct_class: type[Struct]) -> None:
        self._shapes = shapes
        self._shape = shape
        self._struct_class = struct_class
        super().__init__(self._write_loop())
        self._come_up: dict[int, int] = {}
        numbers = sum(isinstance(place, str) for _, place in shape.numbers(""))
        self._most_rows = numbers and min(
            _MOST_ROWS_WRITTEN_OUT, _MOST_NUMBERS_WRITTEN_OUT // numbers
        )

    def __missing__(self, count: int) -> RowReader:
        if not 0 < count <= self._most_rows or not self._shapes.left_to_write_out:
            return self.loop
        times = self._come_up[count] = self._come_up.get(count, 0) + 1
        if times < _OFTEN:
            return self.loop
        self._shapes.left_to_write_out -= 1
        reader = self[count] = self._write_out(count)
        return reader

    def _write_loop(self) -> RowReader:
        targets: list[str] = []
        conditions: list[str] = []
        for _, place in self._shape.numbers("row"):
            if isinstance(place, int):
                targets.append(f"count_{len(conditions)}")
                conditions.append(f"{targets[-1]} != {place}")
            else:
                targets.append(place)
        unpacker = struct.Struct(self._shape.format)
        source = self._source("in a loop")
        source.names.update(unpack=unpacker.iter_unpack, view=memoryview)
        source.lines += (
            "def read(buffer, position, end, count):",
            f"    stop = position + count * {unpacker.size}",
            "    if stop > end:",
            f"        stop = end - (end - position) % {unpacker.size}",
            "    rows = []",
            # A view: shapes that take turns are left after a row, and the rest may be megabytes.
            "    for numbers in unpack(view(buffer)[position:stop]):",
            "        row = new(row_class)",
            f"        {', '.join(targets)}, = numbers",
            f"        if {' or '.join(conditions)}:",
            f"            return rows, position + len(rows) * {unpacker.size}",
            *(f"        {line}" for line in self._shape.stores("row")),
            "        rows.append(row)",
            "    return rows, stop",
        )
        return source.compile("read")

    def _write_out(self, count: int) -> RowReader:
        rows = [f"row_{index}" for index in range(count)]
        numbers = [number for row in rows for number in self._shape.numbers(row)]
        counts_format = number_format = ">"
        for code, place in numbers:
            passed_over = f"{struct.calcsize('>' + code)}x"
            counts_format += code if isinstance(place, int) else passed_over
            number_format += code if isinstance(place, str) else passed_over
        targets = [place for _, place in numbers if isinstance(place, str)]
        counts = [place for _, place in numbers if isinstance(place, int)]
        unpacker = struct.Struct(number_format)
        # Two counts of a byte each that stand side by side are compared as one number.
        unpack_counts = struct.Struct(counts_format.replace("BB", "H")).unpack_from
        # Making several objects at once is quicker, making few of them is not.
        new_rows = [f"{row} = new(row_class)" for row in rows]
        if count > 3:
            new_rows = [f"{', '.join(rows)} = starmap(new, row_classes)"]
        source = self._source(f"{count} of them")
        source.names.update(
            starmap=starmap,
            row_classes=((self._struct_class,),) * count,
            expected_counts=unpack_counts(struct.pack(counts_format, *counts)),
            unpack_counts=unpack_counts,
            unpack=unpacker.unpack_from,
            read_in_loop=self.loop,
        )
        source.lines += (
            "def read(buffer, position, end, count):",
            f"    stop = position + {unpacker.size}",
            "    if stop > end or unpack_counts(buffer, position) != expected_counts:",
            "        return read_in_loop(buffer, position, end, count)",
            *(f"    {line}" for line in new_rows),
            f"    {', '.join(targets)}, = unpack(buffer, position)",
            *(f"    {line}" for row in rows for line in self._shape.stores(row)),
            f"    return [{', '.join(rows)}], stop",
        )
        return source.compile("read")

    def _source(self, what: str) -> Source:
        source = Source(f"rows of {self._struct_class.__name__}, {what}")
        source.names.update(new=object.__new__, row_class=self._struct_class)
        return source


class NumberPackers(dict[int, Packer]):
    """How to write a list of numbers, by its length."""

    __slots__ = ("_code",)

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, length: int) -> Packer:
        pack = struct.Struct(f">{length}{self._code}").pack
        if length <= _LONGEST_LIST:
            self[length] = pack
        return pack


class RowPackers(dict[tuple[int, ...], Packer | None]):
    """How to write a row at once, by the lengths of its lists; None if the general way must do.

    A count that is compact is one byte here, which lists of bounded length never exceed.
    """

    __slots__ = ("_is_flexible", "_parts")

    def __init__(self, parts: Layout, *, is_flexible: bool) -> None:
        super().__init__()
        self._parts = parts
        self._is_flexible = is_flexible

    def __missing__(self, lengths: tuple[int, ...]) -> Packer | None:
        if len(self) >= _MOST_SHAPES or max(lengths) > _LONGEST_LIST:
            return None
        shape = RowShape(self._parts, lengths, is_flexible=self._is_flexible)
        pack = self[lengths] = struct.Struct(shape.format).pack
        return pack
