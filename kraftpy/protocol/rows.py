"""Rows of numbers: the partitions of a topic, read and written by code made for their very shape.

A row is a struct of numbers and lists of numbers. In one array its rows tend to have one shape: a
topic's partitions all have three replicas, three of them in sync, none offline. Once a row has been
read the general way, the lengths of its lists are known, and for rows of just these lengths a
single `unpack_from` covers everything. `RowShapes` makes that reader when it first meets a shape.
The reader goes on while the rows keep the shape and the bytes last, and leaves whatever follows,
good or bad, to the general code. It makes Metadata responses half again as fast to decode. In the
other direction `RowPackers` has one `pack` for all of a row, which makes them twice as fast to
encode; `NumberPackers` does the same for a single list.

How many shapes are kept and how long their lists may be is bounded: shapes come from the wire.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kraftpy.protocol.layout import Layout, Source
from kraftpy.protocol.tables import Struct

__all__ = ["NumberPackers", "RowPackers", "RowShapes", "is_row"]

_MOST_SHAPES = 32
_LONGEST_LIST = 16

# Takes buffer, position, end, the list that rows go to and how many it is to have in the end; gives
# the position behind the last one that it could read.
RowReader = Callable[[Any, int, int, list[Any], int], int]

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


def _row_format(parts: Layout, lengths: tuple[int, ...], *, is_flexible: bool) -> str:
    """The `struct` format of a row whose lists have these lengths, each behind its count."""
    codes = ">"
    remaining_lengths = list(lengths)
    for bound in parts.body:
        assert bound.field.kind is not None
        if bound.field.is_array:
            codes += "B" if bound.is_compact else "I"
            codes += bound.field.kind.code * remaining_lengths.pop(0)
        else:
            codes += bound.field.kind.code
    return codes + "B" if is_flexible else codes


def _no_rows(buffer: object, position: int, end: int, items: list[object], count: int) -> int:
    return position


class RowShapes(dict[tuple[int, ...], RowReader]):
    """Readers of rows, by the lengths of their lists; `last` is the one to try first."""

    __slots__ = ("_is_flexible", "_parts", "_struct_class", "last")

    def __init__(self, struct_class: type[Struct], parts: Layout, *, is_flexible: bool) -> None:
        super().__init__()
        self._struct_class = struct_class
        self._parts = parts
        self._is_flexible = is_flexible
        self.last: RowReader = _no_rows

    def __missing__(self, lengths: tuple[int, ...]) -> RowReader:
        if len(self) >= _MOST_SHAPES or max(lengths) > _LONGEST_LIST:
            return _no_rows
        reader = self[lengths] = self._reader(lengths)
        return reader

    def _reader(self, lengths: tuple[int, ...]) -> RowReader:
        targets, conditions, stores = [], [], []
        remaining_lengths = list(lengths)
        for bound in self._parts.body:
            if not bound.field.is_array:
                targets.append(f"row.{bound.name}")
                continue
            length = remaining_lengths.pop(0)
            numbers = [f"{bound.name}_{index}" for index in range(length)]
            targets += [f"count_of_{bound.name}", *numbers]
            conditions.append(f"count_of_{bound.name} != {length + bound.is_compact}")
            stores.append(f"row.{bound.name} = [{', '.join(numbers)}]")
        if self._is_flexible:
            targets.append("tags")
            conditions.append("tags")
        shape = struct.Struct(_row_format(self._parts, lengths, is_flexible=self._is_flexible))
        source = Source(f"rows of {self._struct_class.__name__} {lengths}")
        source.names.update(
            new=object.__new__, rows=shape.iter_unpack, row_class=self._struct_class
        )
        source.lines += (
            "def read(buffer, position, end, items, count):",
            "    before = len(items)",
            f"    stop = position + (count - before) * {shape.size}",
            "    if stop > end:",
            f"        stop = end - (end - position) % {shape.size}",
            "    for values in rows(buffer[position:stop]):",
            "        row = new(row_class)",
            f"        {', '.join(targets)}, = values",
            f"        if {' or '.join(conditions)}:",
            f"            return position + (len(items) - before) * {shape.size}",
            *(f"        {line}" for line in stores),
            "        row.unknown_tags = ()",
            "        items.append(row)",
            "    return stop",
        )
        return source.compile("read")


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
        codes = _row_format(self._parts, lengths, is_flexible=self._is_flexible)
        pack = self[lengths] = struct.Struct(codes).pack
        return pack
