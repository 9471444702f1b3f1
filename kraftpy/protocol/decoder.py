"""Writes the decoder of one message in one version, as straight-line Python.

The whole message becomes one function: nested structs and array elements are written out in place,
loops inside loops, so that reading calls nothing but `struct` and slot stores. Neighbouring
fixed-width fields, with the length, count or tag count behind them, are read by one `unpack_from`;
a varint's first byte takes part in that as an ordinary byte.

The function keeps four locals: `buffer`, its `end`, `position` (the first byte not yet read) and,
for a value with a length, `start`. Nothing is allocated before a length has been compared with the
bytes that remain, and a count with the fewest bytes its elements can take; what follows from that
is that decoding can't cost more memory than a small multiple of the frame.

Structs that a version or a message lacks are there with their defaults; the elements of one array
share them. A decoded message is for reading.

A message that holds record data is read through a memoryview and its records are slices of it. Any
other message is copied to `bytes` first, once, which makes every string cheaper to cut out.
"""

from __future__ import annotations

import struct

from kraftpy.protocol import primitives
from kraftpy.protocol.layout import (
    LONGEST_STRING,
    BoundField,
    Layout,
    Run,
    Source,
    element,
    holds_records,
    join,
    layout,
    minimum_size,
    null_marker,
    struct_minimum_size,
)
from kraftpy.protocol.primitives import refuse_null
from kraftpy.protocol.rows import RowShapes, is_row
from kraftpy.protocol.tables import Field, Message, Struct, covers

__all__ = ["write_decoder"]

# -1 as an unsigned count or length of four bytes.
_OLD_NULL = 0xFFFFFFFF

# Arrays of numbers up to this length, exclusive, are read without building a format.
_PREPARED_LENGTHS = 8

_HELPERS = {
    name: getattr(primitives, name)
    for name in (
        "Malformed",
        "bad_count",
        "bad_length",
        "bad_marker",
        "read_rest_of_varint",
        "read_tag",
        "read_unknown_tags",
        "read_uuids",
    )
}


def write_decoder(message_class: type[Message], version: int) -> Source:
    """Source of `decode(buffer, may_have_rest)`: a message, or some plain Python error."""
    return _DecoderWriter(message_class, version).source


class _DecoderWriter:
    def __init__(self, message_class: type[Message], version: int) -> None:
        self.version = version
        self.is_flexible = covers(message_class.FLEXIBLE, version)
        self.by_view = holds_records(message_class, version)
        self.source = Source(f"decoder of {message_class.__name__} v{version}")
        self.source.names.update(_HELPERS, new=object.__new__, unpack_from=struct.unpack_from)
        self.run = Run()
        # Locals with the default structs that all elements of the array being read share.
        self.shared: dict[Field, str] = {}
        self._write_message(message_class)

    def _write_message(self, message_class: type[Message]) -> None:
        source = self.source
        source.line("def decode(buffer, may_have_rest):", "")
        source.indent = 1
        source.line(f"buffer = {'memoryview' if self.by_view else 'bytes'}(buffer)", "")
        source.line("end = len(buffer)", "")
        source.line("position = 0", "")
        message = self._struct(message_class, "")
        self._settle()
        source.line("if position != end and not may_have_rest:", "")
        source.line("    raise Malformed(f'{end - position} bytes left over')", "")
        source.line(f"return {message}", "")

    # Fixed-width values wait in `self.run` until something of variable length comes.

    def _fixed(self, code: str, target: str, path: str) -> None:
        self.run.values.append((code, target, path))

    def _settle(self) -> None:
        """Read what is waiting and move `position` behind it."""
        run, self.run = self.run, Run()
        if not run.values:
            return
        targets = ", ".join(target for _, target, _ in run.values)
        if run.format == ">B":
            self.source.line(f"{targets} = buffer[position]", run)
        else:
            unpack = struct.Struct(run.format).unpack_from
            name = self.source.constant("unpack", run.format, unpack)
            self.source.line(f"{targets}, = {name}(buffer, position)", run)
        self.source.line(f"position += {run.size}", run)

    # Structs

    def _struct(self, struct_class: type[Struct], path: str) -> str:
        """Read a struct into a new local, whose name is returned."""
        name = self._new(struct_class, path)
        parts = layout(struct_class, self.version, is_flexible=self.is_flexible)
        for field in parts.absent:
            self._default(field, f"{name}.{field.name}", path)
        for bound in parts.body:
            self._field(bound, f"{name}.{bound.name}", join(path, bound.name))
        if self.is_flexible:
            self._tags(name, parts.tagged, path)
        else:
            self.source.line(f"{name}.unknown_tags = ()", path)
        return name

    def _new(self, struct_class: type[Struct], path: str) -> str:
        name = self.source.fresh("struct")
        made = self.source.constant(struct_class.__name__, struct_class, struct_class)
        self.source.line(f"{name} = new({made})", path)
        return name

    def _default(self, field: Field, target: str, path: str) -> None:
        if field.default is not ...:
            shown = repr(field.default)
            if field.kind is not None and field.kind.name == "uuid":
                shown = self.source.constant("zero_uuid", "", field.default)
            self.source.line(f"{target} = {shown}", path)
        elif field.is_array:
            self.source.line(f"{target} = []", path)
        else:
            name = self.shared.get(field) or self._default_struct(field, path)
            self.source.line(f"{target} = {name}", path)

    def _default_struct(self, field: Field, path: str) -> str:
        assert field.struct is not None
        name = self._new(field.struct, path)
        for inner in field.struct.FIELDS:
            self._default(inner, f"{name}.{inner.name}", path)
        self.source.line(f"{name}.unknown_tags = ()", path)
        return name

    def _defaults_of_elements(self, parts: Layout, path: str) -> dict[Field, str]:
        """Make the structs that elements lack once, before the loop over the elements.

        A partition of a Fetch answer lacks three as a rule, and they took a sixth of the time.
        """
        return {
            field: self._default_struct(field, path)
            for field in [*parts.absent, *(bound.field for bound in parts.tagged)]
            if field.default is ... and not field.is_array
        }

    def _tags(self, name: str, tagged: list[BoundField], path: str) -> None:
        source = self.source
        section = join(path, "tagged fields")
        count = source.fresh("tags")
        self._fixed("B", count, section)
        self._settle()
        for bound in tagged:
            self._default(bound.field, f"{name}.{bound.name}", path)
        if not tagged:
            source.line(f"if {count}:", section)
            source.line(
                f"    {name}.unknown_tags, position = "
                f"read_unknown_tags(buffer, {count}, position, end)",
                section,
            )
            source.line("else:", section)
            source.line(f"    {name}.unknown_tags = ()", section)
            return
        source.line(f"{name}.unknown_tags = ()", section)
        source.line(f"if {count}:", section)
        source.indent += 1
        self._known_tags(name, count, tagged, path)
        source.indent -= 1

    def _known_tags(self, name: str, count: str, tagged: list[BoundField], path: str) -> None:
        source = self.source
        section = join(path, "tagged fields")
        unknown, tag, tag_end = (
            source.fresh("unknown"),
            source.fresh("tag"),
            source.fresh("tag_end"),
        )
        source.line(f"if {count} > 127:", section)
        source.line(
            f"    {count}, position = read_rest_of_varint(buffer, {count}, position)", section
        )
        source.line(f"{unknown} = []", section)
        source.line(f"for _ in range({count}):", section)
        source.indent += 1
        source.line(f"{tag}, position, {tag_end} = read_tag(buffer, position, end)", section)
        keyword = "if"
        for bound in tagged:
            source.line(f"{keyword} {tag} == {bound.field.tag}:", section)
            source.indent += 1
            self._field(bound, f"{name}.{bound.name}", join(path, bound.name))
            self._settle()
            source.indent -= 1
            keyword = "elif"
        source.line("else:", section)
        source.line(f"    {unknown}.append(({tag}, bytes(buffer[position:{tag_end}])))", section)
        source.line(f"    position = {tag_end}", section)
        source.line(f"if position != {tag_end}:", section)
        source.line(
            f"    raise Malformed(f'tag {{{tag}}} ends {{position - {tag_end}}} bytes late')",
            section,
        )
        source.indent -= 1
        source.line(f"{name}.unknown_tags = tuple({unknown})", section)

    # Fields

    def _field(self, bound: BoundField, target: str, path: str) -> None:
        field = bound.field
        if field.is_array:
            self._array(bound, target, path)
        elif field.struct is not None:
            self._nested(bound, target, path)
        elif field.kind is not None and field.kind.code:
            self._fixed(field.kind.code, target, path)
        else:
            self._sized(bound, target, path)

    def _nested(self, bound: BoundField, target: str, path: str) -> None:
        struct_class = bound.field.struct
        assert struct_class is not None
        source = self.source
        if not bound.is_nullable:
            name = self._struct(struct_class, path)
            source.line(f"{target} = {name}", path)
            return
        marker = source.fresh("marker")
        self._fixed("b", marker, path)
        self._settle()
        source.line(f"if {marker} == 1:", path)
        source.indent += 1
        name = self._struct(struct_class, path)
        self._settle()
        source.line(f"{target} = {name}", path)
        source.indent -= 1
        source.line(f"elif {marker} == {null_marker(bound)}:", path)
        source.line(f"    {target} = None", path)
        source.line("else:", path)
        source.line(f"    raise bad_marker({marker})", path)

    def _length(self, bound: BoundField, old_code: str, path: str) -> str:
        """Read a length or count into a local, with `position` behind it.

        Compact ones are still one too high, 0 being null. Old ones of four bytes are read as
        unsigned: -1 is then the largest number there is, and nothing below 0 can fit the frame.
        """
        source = self.source
        length = source.fresh("length")
        self._fixed("B" if bound.is_compact else old_code, length, path)
        kind_name = "" if bound.field.kind is None else bound.field.kind.name
        is_nested = "." in path
        if bound.is_compact and kind_name == "records" and is_nested:
            self._rest_of_records_length(length, path)
            return length
        self._settle()
        if bound.is_compact:
            source.line(f"if {length} > 127:", path)
            source.line(f"    {self._rest_of_varint(length)}", path)
            if kind_name == "string" and not bound.field.is_array:
                source.line(f"    if {length} > {LONGEST_STRING + 1}:", path)
                source.line("        raise Malformed('string longer than 32767 bytes')", path)
        return length

    def _rest_of_varint(self, length: str) -> str:
        return f"{length}, position = read_rest_of_varint(buffer, {length}, position)"

    def _rest_of_records_length(self, length: str, path: str) -> None:
        """Record data is seldom shorter than 127 bytes: three bytes of its length are read at once.

        They are there even if the length has only one: a nested struct's tags follow it, and those
        of the struct around it. The low seven bits stay those of the first byte.
        """
        source = self.source
        second, third = source.fresh("second"), source.fresh("third")
        self._fixed("B", second, path)
        self._fixed("B", third, path)
        self._settle()
        source.line(f"if {length} < 128:", path)
        source.line("    position -= 2", path)
        source.line(f"elif {second} < 128:", path)
        source.line("    position -= 1", path)
        source.line(f"    {length} += ({second} << 7) - 128", path)
        source.line(f"elif {third} < 128:", path)
        source.line(f"    {length} += ({second} << 7) + ({third} << 14) - 16512", path)
        source.line("else:", path)
        source.line("    position -= 2", path)
        source.line(f"    {self._rest_of_varint(length)}", path)

    def _sized(self, bound: BoundField, target: str, path: str) -> None:
        kind = bound.field.kind
        assert kind is not None
        source = self.source
        is_string = kind.name == "string"
        length = self._length(bound, "h" if is_string else "I", path)
        if bound.is_nullable:
            old_null = -1 if is_string else _OLD_NULL
            source.line(f"if {length} == {0 if bound.is_compact else old_null}:", path)
            source.line(f"    {target} = None", path)
            source.line("else:", path)
            source.indent += 1
        source.line("start = position", path)
        source.line(f"position += {length}{' - 1' if bound.is_compact else ''}", path)
        # Only two lengths can be below zero here: that of an old string, which is signed, and a
        # compact null where null was not dealt with above.
        may_be_negative = not bound.is_nullable if bound.is_compact else is_string
        source.line(
            f"if {'not start <= position <= end' if may_be_negative else 'position > end'}:", path
        )
        source.line("    raise bad_length(start, position, end)", path)
        source.line(f"{target} = {self._cut(kind.name)}", path)
        if bound.is_nullable:
            source.indent -= 1

    def _cut(self, kind_name: str) -> str:
        """The expression for the value between `start` and `position`."""
        cut = "buffer[start:position]"
        if kind_name == "records":
            return cut
        if kind_name == "string":
            return f"str({cut}, 'utf-8')" if self.by_view else f"{cut}.decode()"
        return f"bytes({cut})" if self.by_view else cut

    def _array(self, bound: BoundField, target: str, path: str) -> None:
        source = self.source
        field = bound.field
        count = self._length(bound, "I", path)
        if bound.is_nullable:
            source.line(f"if {count} == {0 if bound.is_compact else _OLD_NULL}:", path)
            source.line(f"    {target} = None", path)
            source.line("else:", path)
            source.indent += 1
        if field.kind is not None and field.kind.code and field.kind.name != "uuid":
            self._numbers(bound, field.kind.code, target, count, path)
        else:
            if bound.is_compact:
                source.line(f"{count} -= 1", path)
            size = self._element_size(bound)
            lower_bound = "0 <= " if bound.is_compact else ""
            source.line(f"if not {lower_bound}{count} * {size} <= end - position:", path)
            source.line(f"    raise bad_count({count}, end - position)", path)
            self._elements(bound, target, count, path)
        if bound.is_nullable:
            source.indent -= 1

    def _numbers(self, bound: BoundField, code: str, target: str, count: str, path: str) -> None:
        """Read an array of numbers.

        Most are replica lists: empty, or so short that there is a prepared `unpack_from` for their
        length, found by the count as it is on the wire.
        """
        source = self.source
        one_more = int(bound.is_compact)
        readers: list[object] = [
            struct.Struct(f">{length}{code}").unpack_from for length in range(_PREPARED_LENGTHS)
        ]
        readers[:0] = [refuse_null] * one_more
        prepared = source.constant("prepared", (code, one_more), tuple(readers))
        size = struct.calcsize(">" + code)
        length = f"({count} - 1)" if one_more else count
        source.line(f"if {count} == {one_more}:", path)
        source.line(f"    {target} = []", path)
        source.line(f"elif {count} < {len(readers)}:", path)
        source.line(f"    {target} = list({prepared}[{count}](buffer, position))", path)
        source.line(f"    position += {length} * {size}", path)
        source.line(f"elif {length} * {size} <= end - position:", path)
        source.line(
            f"    {target} = list(unpack_from(f'>{{{length}}}{code}', buffer, position))", path
        )
        source.line(f"    position += {length} * {size}", path)
        source.line("else:", path)
        source.line(f"    raise bad_count({length}, end - position)", path)

    def _element_size(self, bound: BoundField) -> int:
        field = bound.field
        if field.struct is not None:
            return max(1, struct_minimum_size(field.struct, self.version, bound))
        return minimum_size(element(bound, self.version), self.version)

    def _elements(self, bound: BoundField, target: str, count: str, path: str) -> None:
        source = self.source
        field = bound.field
        if field.kind is not None and field.kind.name == "uuid":
            source.line(f"{target} = read_uuids(buffer, position, {count})", path)
            source.line(f"position += {count} * 16", path)
            return
        if field.struct is not None:
            parts = layout(field.struct, self.version, is_flexible=self.is_flexible)
            if is_row(parts):
                self._rows(field.struct, parts, target, count, path)
                return
            defaults = self._defaults_of_elements(parts, path)
        items = source.fresh("items")
        source.line(f"{target} = {items} = []", path)
        source.line(f"for _ in range({count}):", path)
        source.indent += 1
        if field.struct is not None:
            outside, self.shared = self.shared, defaults
            item = self._struct(field.struct, f"{path}[]")
            self._settle()
            self.shared = outside
        else:
            item = source.fresh("item")
            self._sized(element(bound, self.version), item, f"{path}[]")
        source.line(f"{items}.append({item})", path)
        source.indent -= 1

    def _rows(
        self, struct_class: type[Struct], parts: Layout, target: str, count: str, path: str
    ) -> None:
        """Read an array of rows: one by one, but all that follow in one shape at once."""
        source = self.source
        items = source.fresh("items")
        made = RowShapes(struct_class, parts, is_flexible=self.is_flexible)
        shapes = source.constant("shapes", struct_class, made)
        read = f"{shapes}.last[{count}](buffer, position, end, {count})"
        source.line(f"{items}, position = {read}", path)
        source.line(f"{target} = {items}", path)
        source.line(f"while len({items}) < {count}:", path)
        source.indent += 1
        item = self._struct(struct_class, f"{path}[]")
        self._settle()
        source.line(f"{items}.append({item})", path)
        lists = [bound.name for bound in parts.body if bound.field.is_array]
        lengths = "".join(f"len({item}.{name}), " for name in lists)
        read_on = f"{shapes}.read_on(({lengths}), buffer, position, end, {count} - len({items}))"
        source.line(f"rows, position = {read_on}", path)
        source.line(f"{items} += rows", path)
        source.indent -= 1
