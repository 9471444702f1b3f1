"""Writes the encoder of one message in one version, as straight-line Python.

The mirror of the decoder: one function, nested structs written out in place. It collects pieces in
the list `out`. Neighbouring fixed-width fields, with the length, count or tag count behind them, go
through one `pack`; a varint of several bytes has its first byte in that run and the rest in a piece
of its own.

Record data is not looked into and not copied: `out` so far is joined into one part, the data
follows as a part by itself, be it bytes, a memoryview or a file slice. A message without record
data is one part.

Lists of numbers are packed by a `struct` made for their length, and a row of numbers and such lists
(a partition of Metadata) as a whole, see `rows`.

Range checks are `struct`'s. Null where the table has none fails by itself (None has no `encode`, no
`len`), and a value that the version can't carry is compared with its default.
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
    null_marker,
)
from kraftpy.protocol.rows import NumberPackers, RowPackers, is_row
from kraftpy.protocol.tables import Field, Message, Struct, covers

__all__ = ["write_encoder"]

_HELPERS = {
    name: getattr(primitives, name)
    for name in ("Unwritable", "merge_tags", "rest_of_varint", "tag_section", "checked_uuids")
}


def write_encoder(message_class: type[Message], version: int) -> Source:
    """Source of `encode(message)`, which returns parts or raises a plain Python error."""
    return _EncoderWriter(message_class, version).source


class _EncoderWriter:
    def __init__(self, message_class: type[Message], version: int) -> None:
        self.version = version
        self.is_flexible = covers(message_class.FLEXIBLE, version)
        self.source = Source(f"encoder of {message_class.__name__} v{version}")
        self.source.names.update(_HELPERS, pack=struct.pack)
        self.run = Run()
        self.out = "out"
        self._write_message(message_class)

    def _write_message(self, message_class: type[Message]) -> None:
        source = self.source
        has_records = holds_records(message_class, self.version)
        source.line("def encode(message):", "")
        source.indent = 1
        source.line("out = []", "")
        if has_records:
            source.line("parts = []", "")
        self._struct(message_class, "message", "")
        self._write_run()
        if has_records:
            source.line("if out:", "")
            source.line("    parts.append(b''.join(out))", "")
            source.line("return parts", "")
        else:
            source.line("return [b''.join(out)]", "")

    # Fixed-width values wait in `self.run` until something of variable length comes.

    def _fixed(self, code: str, value: str, path: str) -> None:
        self.run.values.append((code, value, path))

    def _write_run(self) -> None:
        run, self.run = self.run, Run()
        if run.values:
            pack = self.source.constant("pack", run.format, struct.Struct(run.format).pack)
            values = ", ".join(value for _, value, _ in run.values)
            self.source.line(f"{self.out}.append({pack}({values}))", run)

    def _piece(self, value: str, path: str) -> None:
        self._write_run()
        self.source.line(f"{self.out}.append({value})", path)

    # Structs

    def _struct(self, struct_class: type[Struct], name: str, path: str) -> None:
        parts = layout(struct_class, self.version, is_flexible=self.is_flexible)
        for field in parts.absent:
            if not field.ignorable:
                self._refuse_unless_default(field, f"{name}.{field.name}", join(path, field.name))
        for bound in parts.body:
            self._field(bound, f"{name}.{bound.name}", join(path, bound.name))
        section = join(path, "tagged fields")
        if self.is_flexible:
            self._tags(name, parts.tagged, path)
        else:
            self.source.line(f"if {name}.unknown_tags:", section)
            self.source.line("    raise Unwritable('no tags in this version')", section)

    def _refuse_unless_default(self, field: Field, value: str, path: str) -> None:
        self.source.line(f"if {self._differs(field, value)}:", path)
        self.source.line("    raise Unwritable('this version has no such field')", path)

    def _differs(self, field: Field, value: str) -> str:
        """The condition that `value` is not the field's default."""
        if field.default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} or {value} is None" if field.nullable else value
        if field.default is ...:
            assert field.struct is not None
            inner = [self._differs(each, f"{value}.{each.name}") for each in field.struct.FIELDS]
            null = [f"{value} is None"] if field.nullable else []
            return " or ".join([*null, *inner, f"{value}.unknown_tags"])
        if field.kind is not None and field.kind.name == "uuid":
            return f"{value} != {self.source.constant('zero_uuid', '', field.default)}"
        return f"{value} != {field.default!r}"

    def _tags(self, name: str, tagged: list[BoundField], path: str) -> None:
        source = self.source
        section = join(path, "tagged fields")
        count, rest = source.fresh("tags"), source.fresh("rest")
        tags = f"{name}.unknown_tags"
        if tagged:
            # What waits must be written before a tagged value starts a run of its own.
            self._write_run()
            tags = source.fresh("tagged")
            source.line(f"{tags} = []", section)
            for bound in tagged:
                self._tagged_value(bound, f"{name}.{bound.name}", tags, join(path, bound.name))
            source.line(f"if {name}.unknown_tags:", section)
            source.line(f"    {tags} = merge_tags({tags}, {name}.unknown_tags)", section)
        source.line(f"if {tags}:", section)
        source.line(f"    {count}, {rest} = tag_section({tags})", section)
        source.line("else:", section)
        source.line(f"    {count} = 0", section)
        self._fixed("B", count, section)
        self._write_run()
        source.line(f"if {count}:", section)
        source.line(f"    {self.out}.append({rest})", section)

    def _tagged_value(self, bound: BoundField, value: str, tags: str, path: str) -> None:
        source = self.source
        source.line(f"if {self._differs(bound.field, value)}:", path)
        source.indent += 1
        outer, self.out = self.out, source.fresh("out")
        source.line(f"{self.out} = []", path)
        self._field(bound, value, path)
        self._write_run()
        source.line(f"{tags}.append(({bound.field.tag}, b''.join({self.out})))", path)
        self.out = outer
        source.indent -= 1

    # Fields

    def _field(self, bound: BoundField, value: str, path: str) -> None:
        field = bound.field
        if field.is_array:
            self._array(bound, value, path)
        elif field.struct is not None:
            self._nested(bound, field.struct, value, path)
        elif field.kind is not None and field.kind.name == "uuid":
            self._uuid(value, path)
        elif field.kind is not None and field.kind.code:
            self._fixed(field.kind.code, value, path)
        else:
            self._sized(bound, value, path)

    def _uuid(self, value: str, path: str) -> None:
        # `struct` would pad or cut bytes of another length without a word.
        name = self.source.fresh("uuid")
        self.source.line(f"{name} = {value}", path)
        self.source.line(f"if len({name}) != 16:", path)
        self.source.line("    raise Unwritable('a uuid has 16 bytes')", path)
        self._fixed("16s", name, path)

    def _nested(self, bound: BoundField, struct_class: type[Struct], value: str, path: str) -> None:
        source = self.source
        name = source.fresh("struct")
        source.line(f"{name} = {value}", path)
        if not bound.is_nullable:
            self._struct(struct_class, name, path)
            return
        self._write_run()
        source.line(f"if {name} is None:", path)
        source.line(f"    {self.out}.append({null_marker(bound).to_bytes(signed=True)!r})", path)
        source.line("else:", path)
        source.indent += 1
        self._fixed("b", "1", path)
        self._struct(struct_class, name, path)
        self._write_run()
        source.indent -= 1

    def _sized(self, bound: BoundField, value: str, path: str) -> None:
        kind = bound.field.kind
        assert kind is not None
        source = self.source
        data, length = source.fresh("data"), source.fresh("length")
        taken = f"{value}.encode()" if kind.name == "string" else value
        if bound.is_nullable:
            source.line(f"{data} = {value}", path)
            source.line(f"if {data} is None:", path)
            source.line(f"    {data} = b''", path)
            source.line(f"    {length} = {0 if bound.is_compact else -1}", path)
            source.line("else:", path)
            source.indent += 1
            if kind.name == "string":
                source.line(f"{data} = {data}.encode()", path)
        else:
            source.line(f"{data} = {taken}", path)
        source.line(f"{length} = len({data}){' + 1' if bound.is_compact else ''}", path)
        if bound.is_nullable:
            source.indent -= 1
        self._length(bound, length, "h" if kind.name == "string" else "i", path)
        if kind.name == "records":
            source.line(f"if {data}:", path)
            source.line("    parts.append(b''.join(out))", path)
            source.line("    out.clear()", path)
            source.line(f"    parts.append({data})", path)
        else:
            self._piece(data, path)

    def _length(self, bound: BoundField, length: str, old_code: str, path: str) -> None:
        """Write a length or count (compact ones already one higher), and all that waited."""
        source = self.source
        if not bound.is_compact:
            self._fixed(old_code, length, path)
            self._write_run()
            return
        rest = source.fresh("rest")
        source.line(f"if {length} > 127:", path)
        if old_code == "h":
            source.line(f"    if {length} > {LONGEST_STRING + 1}:", path)
            source.line("        raise Unwritable('string longer than 32767 bytes')", path)
        source.line(f"    {rest} = rest_of_varint({length})", path)
        source.line(f"    {length} = {length} & 127 | 128", path)
        self._fixed("B", length, path)
        self._write_run()
        source.line(f"if {length} > 127:", path)
        source.line(f"    {self.out}.append({rest})", path)

    def _array(self, bound: BoundField, value: str, path: str) -> None:
        source = self.source
        field = bound.field
        items, count = source.fresh("items"), source.fresh("count")
        source.line(f"{items} = {value}", path)
        counted = f"{count} = len({items}){' + 1' if bound.is_compact else ''}"
        if bound.is_nullable:
            source.line(f"if {items} is None:", path)
            source.line(f"    {items} = ()", path)
            source.line(f"    {count} = {0 if bound.is_compact else -1}", path)
            source.line("else:", path)
            source.line(f"    {counted}", path)
        else:
            source.line(counted, path)
        self._length(bound, count, "i", path)
        if field.kind is not None and field.kind.name == "uuid":
            self._piece(f"b''.join(checked_uuids({items}))", path)
        elif field.kind is not None and field.kind.code:
            self._numbers(field.kind.code, items, path)
        else:
            item = source.fresh("item")
            source.line(f"for {item} in {items}:", path)
            source.indent += 1
            if field.struct is not None:
                self._element(field.struct, item, f"{path}[]")
            else:
                self._sized(element(bound, self.version), item, f"{path}[]")
            self._write_run()
            source.indent -= 1

    def _numbers(self, code: str, items: str, path: str) -> None:
        packers = self.source.constant("packers", code, NumberPackers(code))
        run = Run()
        run.values.append((code, f"*{items}", path))
        self.source.line(f"if {items}:", path)
        self.source.line(f"    {self.out}.append({packers}[len({items})](*{items}))", run)

    def _element(self, struct_class: type[Struct], item: str, path: str) -> None:
        parts = layout(struct_class, self.version, is_flexible=self.is_flexible)
        if is_row(parts):
            self._row(struct_class, parts, item, path)
        else:
            self._struct(struct_class, item, path)

    def _row(self, struct_class: type[Struct], parts: Layout, item: str, path: str) -> None:
        """Write a row at once, unless it has tags or a list that is too long for that."""
        source = self.source
        made = RowPackers(parts, is_flexible=self.is_flexible)
        packers = source.constant("packers", struct_class, made)
        pack = source.fresh("pack")
        run = Run()
        lengths = ""
        for bound in parts.body:
            value, place = f"{item}.{bound.name}", join(path, bound.name)
            assert bound.field.kind is not None
            if bound.field.is_array:
                items, length = source.fresh("items"), source.fresh("length")
                source.line(f"{items} = {value}", place)
                source.line(f"{length} = len({items})", place)
                lengths += f"{length}, "
                run.values.append(("i", f"{length} + 1" if bound.is_compact else length, place))
                value = f"*{items}"
            run.values.append((bound.field.kind.code, value, place))
        if self.is_flexible:
            run.values.append(("B", "0", path))
        source.line(f"{pack} = {packers}[{lengths}]", path)
        source.line(f"if {pack} is None or {item}.unknown_tags:", path)
        source.indent += 1
        self._struct(struct_class, item, path)
        self._write_run()
        source.indent -= 1
        source.line("else:", path)
        values = ", ".join(value for _, value, _ in run.values)
        source.line(f"    {self.out}.append({pack}({values}))", run)
