"""Writes the decoder of one message in one version, as straight-line Python.

The whole message becomes one function: nested structs and array elements are written out in place,
loops inside loops, so that reading calls nothing but `struct` and slot stores. Neighbouring
fixed-width fields, with the length, count or tag count behind them, are read by one `unpack_from`;
a varint's first byte takes part in that as an ordinary byte.

The function keeps four locals: `buffer`, its `end`, `position` (the first byte not yet read) and,
for a value with a length, `start`. Nothing is allocated before a length has been compared with the
bytes that remain, and a count with the fewest bytes its elements can take; what follows from that
is that decoding can't cost more memory than a small multiple of the frame.

A message that holds record data is read through a memoryview and its records are slices of it. Any
other message is copied to `bytes` first, once, which makes every string cheaper to cut out.
"""

from __future__ import annotations

import struct

from kraftpy.protocol import primitives
from kraftpy.protocol.layout import (
    LONGEST_STRING,
    BoundField,
    Run,
    Source,
    element,
    holds_records,
    join,
    layout,
    minimum_size,
    struct_minimum_size,
)
from kraftpy.protocol.tables import Field, Message, Struct, covers

__all__ = ["write_decoder"]

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
    """Source of `decode(buffer)`, which returns a message or raises a plain Python error."""
    return _DecoderWriter(message_class, version).source


class _DecoderWriter:
    def __init__(self, message_class: type[Message], version: int) -> None:
        self.version = version
        self.is_flexible = covers(message_class.FLEXIBLE, version)
        self.by_view = holds_records(message_class, version)
        self.source = Source(f"decoder of {message_class.__name__} v{version}")
        self.source.names.update(_HELPERS, new=object.__new__, unpack_from=struct.unpack_from)
        self.run = Run()
        self._write_message(message_class)

    def _write_message(self, message_class: type[Message]) -> None:
        source = self.source
        source.line("def decode(buffer):", "")
        source.indent = 1
        source.line(f"buffer = {'memoryview' if self.by_view else 'bytes'}(buffer)", "")
        source.line("end = len(buffer)", "")
        source.line("position = 0", "")
        message = self._struct(message_class, "")
        self._settle()
        source.line("if position != end:", "")
        source.line("    raise Malformed(f'{end - position} bytes left over')", "")
        source.line(f"return {message}", "")

    # Fixed-width values wait in `self.run` until something of variable length comes.

    def _fixed(self, code: str, target: str, path: str) -> None:
        self.run.values.append((code, target, path))

    def _read_run(self) -> int:
        """Read what is waiting; `position` stays where it was. Gives the number of bytes read."""
        run, self.run = self.run, Run()
        if not run.values:
            return 0
        targets = ", ".join(target for _, target, _ in run.values)
        if run.format == ">B":
            self.source.line(f"{targets} = buffer[position]", run)
        else:
            unpack = struct.Struct(run.format).unpack_from
            name = self.source.constant("unpack", run.format, unpack)
            self.source.line(f"{targets}, = {name}(buffer, position)", run)
        return run.size

    def _settle(self) -> None:
        """Read what is waiting and move `position` behind it."""
        size = self._read_run()
        if size:
            self.source.line(f"position += {size}", "")

    # Structs

    def _struct(self, struct_class: type[Struct], path: str) -> str:
        """Read a struct into a new local, whose name is returned."""
        name = self.source.fresh("struct")
        made = self.source.constant(struct_class.__name__, struct_class, struct_class)
        self.source.line(f"{name} = new({made})", path)
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

    def _default(self, field: Field, target: str, path: str) -> None:
        if field.default is not ...:
            shown = repr(field.default)
            if field.kind is not None and field.kind.name == "uuid":
                shown = self.source.constant("zero_uuid", "", field.default)
            self.source.line(f"{target} = {shown}", path)
        elif field.is_array:
            self.source.line(f"{target} = []", path)
        else:
            assert field.struct is not None
            made = self.source.constant("default", field.struct, field.struct)
            self.source.line(f"{target} = {made}()", path)

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
        source.line(f"elif {marker} == -1:", path)
        source.line(f"    {target} = None", path)
        source.line("else:", path)
        source.line(f"    raise bad_marker({marker})", path)

    def _length(self, bound: BoundField, old_code: str, path: str) -> str:
        """Read a length or count into a local, with `position` behind it. Compact ones are still
        one too high: 0 is null.
        """
        source = self.source
        length = source.fresh("length")
        self._fixed("B" if bound.is_compact else old_code, length, path)
        self._settle()
        if bound.is_compact:
            source.line(f"if {length} > 127:", path)
            source.line(
                f"    {length}, position = read_rest_of_varint(buffer, {length}, position)", path
            )
            if old_code == "h":
                source.line(f"    if {length} > {LONGEST_STRING + 1}:", path)
                source.line("        raise Malformed('string longer than 32767 bytes')", path)
        return length

    def _sized(self, bound: BoundField, target: str, path: str) -> None:
        kind = bound.field.kind
        assert kind is not None
        source = self.source
        length = self._length(bound, "h" if kind.name == "string" else "i", path)
        if bound.is_nullable:
            source.line(f"if {length} == {0 if bound.is_compact else -1}:", path)
            source.line(f"    {target} = None", path)
            source.line("else:", path)
            source.indent += 1
        source.line("start = position", path)
        source.line(f"position += {length}{' - 1' if bound.is_compact else ''}", path)
        source.line("if not start <= position <= end:", path)
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
        count = self._length(bound, "i", path)
        if bound.is_compact:
            source.line(f"{count} -= 1", path)
        if bound.is_nullable:
            source.line(f"if {count} == -1:", path)
            source.line(f"    {target} = None", path)
            source.line("else:", path)
            source.indent += 1
        size = self._element_size(bound)
        bound_check = f"{count} * {size}" if size > 1 else count
        source.line(f"if not 0 <= {bound_check} <= end - position:", path)
        source.line(f"    raise bad_count({count}, end - position)", path)
        self._elements(bound, target, count, path)
        if bound.is_nullable:
            source.indent -= 1

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
        if field.kind is not None and field.kind.code:
            size = struct.calcsize(">" + field.kind.code)
            source.line(
                f"{target} = list(unpack_from(f'>{{{count}}}{field.kind.code}', buffer, position))",
                path,
            )
            source.line(f"position += {count} * {size}", path)
            return
        items = source.fresh("items")
        source.line(f"{target} = {items} = []", path)
        source.line(f"for _ in range({count}):", path)
        source.indent += 1
        if field.struct is not None:
            item = self._struct(field.struct, f"{path}[]")
        else:
            item = source.fresh("item")
            self._sized(element(bound, self.version), item, f"{path}[]")
        self._settle()
        source.line(f"{items}.append({item})", path)
        source.indent -= 1
