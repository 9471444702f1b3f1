"""The rules that neither ruff nor mypy nor the import linter sees, read off the source itself.

JEP-130, rules 1 to 4, 6 to 8, 10, 11 and 16 of the simulation, and the measures of the style. Each
check is a function from a Module to the complaints about it. What is a guess from names (which
variable holds a set, say) is meant to catch slips, not somebody who hides.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

LINE_COLUMNS = 100
FUNCTION_LINES = 70
MODULE_CODE_LINES = 500

# Where the machine may be reached, beside kraftpy/world itself.
MACHINE_ROOMS = ("kraftpy/world/", "kraftpy/sim/", "kraftpy/cli/", "kraftpy/testing/")
MACHINE_MODULES = {"kraftpy/client/blocking.py": "for Spark workers, which have no trio loop"}

BANNED_IMPORTS = frozenset(
    {
        *("time", "datetime", "zoneinfo", "sched"),
        *("random", "secrets"),
        *("socket", "ssl", "select", "selectors", "socketserver", "asyncio", "http", "urllib"),
        *("mmap", "pathlib", "shutil", "tempfile", "fcntl", "glob", "fileinput"),
        *("threading", "_thread", "multiprocessing", "concurrent", "subprocess", "signal"),
    }
)
BANNED_NAMES = frozenset(
    {
        *("os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4"),
        *("os.open", "os.fdopen", "os.read", "os.write", "os.pread", "os.pwrite", "os.sendfile"),
        *("os.fsync", "os.fdatasync", "os.rename", "os.replace", "os.remove", "os.unlink"),
        *("os.mkdir", "os.makedirs", "os.rmdir", "os.listdir", "os.scandir", "os.walk"),
        *("os.stat", "os.truncate", "os.ftruncate", "os.link", "os.symlink", "io.open"),
        *("os.fork", "os.system", "os.popen", "os.posix_spawn", "os.times"),
        *("trio.sleep", "trio.sleep_until", "trio.current_time", "trio.to_thread"),
        *("trio.move_on_after", "trio.move_on_at", "trio.fail_after", "trio.fail_at"),
        *("trio.open_tcp_stream", "trio.open_tcp_listeners", "trio.serve_tcp", "trio.socket"),
        *("trio.open_file", "trio.Path", "trio.run_process", "trio.open_process"),
        *("trio.lowlevel.open_process",),
    }
)

# Where clients' requests are served, and what gives a task a deadline.
REQUEST_ROOMS = ("kraftpy/api/", "kraftpy/broker/", "kraftpy/coordinator/")
DEADLINES = frozenset({"move_on_after", "move_on_at", "fail_after", "fail_at", "wait_until"})

SET_MAKERS = frozenset({"set", "frozenset"})
# Whoever consumes a set through these does not see its order.
ORDER_BLIND = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})
MUTABLE_MAKERS = frozenset({"dict", "list", "set", "deque", "defaultdict", "Counter", "bytearray"})
MUTATORS = frozenset(
    {
        *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop"),
        *("popitem", "popleft", "remove", "reverse", "setdefault", "sort", "update"),
    }
)
LINTER_REMARK = re.compile(r"\s+# (noqa|type: ignore).*")
CONSTANT_NAME = re.compile(r"_*[A-Z][A-Z0-9_]*|__\w+__")


@dataclass(frozen=True)
class Module:
    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def may_touch_machine(self) -> bool:
        return self.path.startswith(MACHINE_ROOMS) or self.path in MACHINE_MODULES

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree; walking it anew for each check would take most of the time."""
        return tuple(ast.walk(self.tree))

    def walk(self) -> Iterator[ast.AST]:
        return iter(self.nodes)


Check = Callable[[Module], Iterator[str]]


def at(node: ast.AST, complaint: str) -> str:
    return f"line {getattr(node, 'lineno', 1)}: {complaint}"


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of names, otherwise empty."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def called(node: ast.AST) -> str:
    return dotted(node.func) if isinstance(node, ast.Call) else ""


# Measures.


def lines_are_short(module: Module) -> Iterator[str]:
    """A remark to a linter at the end of a line does not count; it can stand nowhere else."""
    for number, line in enumerate(module.source.splitlines(), 1):
        columns = len(LINTER_REMARK.sub("", line))
        if columns > LINE_COLUMNS:
            yield f"line {number}: {columns} columns, at most {LINE_COLUMNS}"


def functions_are_short(module: Module) -> Iterator[str]:
    for node in module.walk():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield at(node, f"{node.name} has {length} lines, at most {FUNCTION_LINES}")


def modules_are_short(module: Module) -> Iterator[str]:
    """Lines that hold code: neither blank nor only comment or docstring."""
    code_lines: set[int] = set()
    docstrings = {
        line
        for node in module.walk()
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type not in layout and token.type != tokenize.ENDMARKER:
            code_lines.update(range(token.start[0], token.end[0] + 1))
    count = len(code_lines - docstrings)
    if count >= MODULE_CODE_LINES:
        yield f"{count} lines of code, fewer than {MODULE_CODE_LINES} are allowed"


def modules_have_docstrings(module: Module) -> Iterator[str]:
    if module.tree.body and not ast.get_docstring(module.tree):
        yield "no docstring"


def nothing_is_left_to_be_done(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.source.splitlines(), 1):
        mark = re.search(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b", line)
        if mark:
            yield f"line {number}: {mark[0]}"
    yield from _stubs(module.tree, in_protocol=False)


def _stubs(node: ast.AST, *, in_protocol: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            bases = [dotted(base).rpartition(".")[2] for base in child.bases]
            yield from _stubs(child, in_protocol="Protocol" in bases)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            last = child.body[-1]
            empty = (
                isinstance(last, ast.Expr)
                and isinstance(last.value, ast.Constant)
                and last.value.value is ...
            )
            overload = any("overload" in dotted(item) for item in child.decorator_list)
            if empty and not in_protocol and not overload:
                yield at(child, f"{child.name} has no body")
            yield from _stubs(child, in_protocol=False)
        else:
            yield from _stubs(child, in_protocol=in_protocol)


# The machine (JEP-130).


def the_machine_is_reached_through_the_world(module: Module) -> Iterator[str]:
    """Rules 1 to 4 and 6, wherever the import stands and whatever it is called."""
    if module.may_touch_machine:
        return
    aliases: dict[str, str] = {}
    for node in module.walk():
        if isinstance(node, ast.Import):
            for name in node.names:
                aliases[name.asname or name.name.partition(".")[0]] = (
                    name.name if name.asname else name.name.partition(".")[0]
                )
                yield from _banned_import(node, name.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                aliases[name.asname or name.name] = full
                yield from _banned_import(node, node.module or "")
                if full in BANNED_NAMES:
                    yield at(node, f"imports {full}")
        elif called(node).rpartition(".")[2] in ("import_module", "__import__"):
            argument = node.args[0] if isinstance(node, ast.Call) and node.args else None
            if isinstance(argument, ast.Constant):
                yield from _banned_import(node, str(argument.value))
    for node in module.walk():
        if called(node) == "open":
            yield at(node, "calls open()")
        if isinstance(node, ast.Attribute):
            head, _, rest = dotted(node).partition(".")
            if f"{aliases.get(head, head)}.{rest}" in BANNED_NAMES:
                yield at(node, f"uses {aliases.get(head, head)}.{rest}")


def _banned_import(node: ast.AST, name: str) -> Iterator[str]:
    if name.partition(".")[0] in BANNED_IMPORTS:
        yield at(node, f"imports {name}")


def nobody_sleeps_for_nothing(module: Module) -> Iterator[str]:
    """Rule 16: no `time.sleep`, no polling with a sleep of 0."""
    for node in module.walk():
        name = called(node)
        if name == "time.sleep":
            yield at(node, "calls time.sleep")
        if isinstance(node, ast.Call) and name.rpartition(".")[2] == "sleep" and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and first.value == 0:
                yield at(node, "sleeps for 0")


def requests_wait_in_the_purgatory(module: Module) -> Iterator[str]:
    """What a client waits for ends by the timing wheel, not by a deadline of a task's own."""
    if not module.path.startswith(REQUEST_ROOMS):
        return
    for node in module.walk():
        if called(node).rpartition(".")[2] in DEADLINES:
            yield at(node, "sets a deadline of its own")


# Determinism.


@dataclass
class Scope:
    """Names that hold sets, as far as the source says so."""

    names: set[str] = field(default_factory=set)


def no_order_comes_from_a_set(module: Module) -> Iterator[str]:
    """Rule 7: the order of a set is that of its members' hashes. Attributes count by their name."""
    attributes = Scope()
    for node in module.walk():
        for target in _set_targets(node):
            if isinstance(target, ast.Attribute):
                attributes.names.add(target.attr)
    yield from _iterated_sets(module.tree, Scope(), attributes)


def _set_targets(node: ast.AST) -> Iterator[ast.expr]:
    """What is assigned or annotated as a set by this statement."""
    if isinstance(node, ast.Assign) and _makes_set(node.value, Scope(), Scope()):
        yield from node.targets
    elif isinstance(node, ast.AnnAssign):
        annotation = node.annotation
        base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        if dotted(base) in {*SET_MAKERS, "AbstractSet", "Set"}:
            yield node.target


def _makes_set(node: ast.AST, names: Scope, attributes: Scope) -> bool:
    if isinstance(node, ast.Set | ast.SetComp) or called(node) in SET_MAKERS:
        return True
    if isinstance(node, ast.Name):
        return node.id in names.names
    if isinstance(node, ast.Attribute):
        return node.attr in attributes.names
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub):
        return _makes_set(node.left, names, attributes)
    return False


def _iterated_sets(node: ast.AST, outer: Scope, attributes: Scope) -> Iterator[str]:
    """Complaints in the scope of `node`, a module, class or function, and in those within."""
    names = Scope(set(outer.names))
    body = list(_own_nodes(node))
    for child in body:
        for target in _set_targets(child):
            if isinstance(target, ast.Name):
                names.names.add(target.id)
    blind = {
        id(argument)
        for child in body
        if called(child) in ORDER_BLIND and isinstance(child, ast.Call)
        for argument in child.args
    }
    for child in body:
        for iterated in _iterated_by(child, blind):
            if _makes_set(iterated, names, attributes):
                yield at(iterated, f"order taken from the set {ast.unparse(iterated)}")
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _iterated_sets(child, names, attributes)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Everything inside `node`, down to nested functions and classes but not into them."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _own_nodes(child)


def _iterated_by(node: ast.AST, blind: set[int]) -> Iterator[ast.expr]:
    if isinstance(node, ast.For | ast.AsyncFor):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        if id(node) not in blind:
            yield from (generator.iter for generator in node.generators)
    elif isinstance(node, ast.Starred):
        yield node.value
    elif isinstance(node, ast.Call):
        name = called(node)
        if name in {"list", "tuple", "iter", "enumerate", "next", "map", "dict.fromkeys"} or (
            isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "extend")
        ):
            yield from node.args


def no_order_comes_from_identity(module: Module) -> Iterator[str]:
    """Rule 7, the rest: addresses of objects and weak sets differ from run to run."""
    for node in module.walk():
        name = called(node).rpartition(".")[2]
        if name in ("id", "WeakSet") and called(node) in ("id", "WeakSet", "weakref.WeakSet"):
            yield at(node, f"uses {name}()")


def modules_have_no_state(module: Module) -> Iterator[str]:
    """Rule 8: a mutable container on a module is a constant, so named, and never changed."""
    constants: set[str] = set()
    for node in module.tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        value = getattr(node, "value", None)
        for target in targets:
            if isinstance(target, ast.Name) and _is_mutable(value):
                constants.add(target.id)
                if not CONSTANT_NAME.fullmatch(target.id):
                    yield at(node, f"{target.id} is mutable and not named as a constant")
    for function in module.walk():
        if isinstance(function, ast.Global):
            yield at(function, f"global {', '.join(function.names)}")
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                changed = _changed_name(node)
                if changed in constants:
                    yield at(node, f"changes the constant {changed}")


def _is_mutable(value: ast.AST | None) -> bool:
    if isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp):
        return True
    return value is not None and called(value).rpartition(".")[2] in MUTABLE_MAKERS


def _changed_name(node: ast.AST) -> str:
    """The plain name whose object this changes in place."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return dotted(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return dotted(node.func.value) if node.func.attr in MUTATORS else ""
    return ""


def nobody_relies_on_finalisers(module: Module) -> Iterator[str]:
    """Rule 10."""
    for node in module.walk():
        if isinstance(node, ast.FunctionDef) and node.name == "__del__":
            yield at(node, "defines __del__")
        if called(node) in ("weakref.finalize", "atexit.register"):
            yield at(node, f"calls {called(node)}")


def assertions_stay_on(module: Module) -> Iterator[str]:
    """Rule 11: `assert` is gone under -O; world.assert_always is not.

    `assert x is not None` and `assert isinstance(x, T)` may tell mypy what is known: without them
    the next line fails by itself.
    """
    for node in module.walk():
        if isinstance(node, ast.Assert) and not _narrows_a_type(node.test):
            yield at(node, f"assert {ast.unparse(node.test)}")


def _narrows_a_type(test: ast.expr) -> bool:
    if isinstance(test, ast.Compare):
        last = test.comparators[-1]
        return isinstance(test.ops[0], ast.IsNot) and isinstance(last, ast.Constant)
    return called(test) == "isinstance"


PRODUCT_CHECKS: tuple[Check, ...] = (
    lines_are_short,
    functions_are_short,
    modules_are_short,
    modules_have_docstrings,
    nothing_is_left_to_be_done,
    the_machine_is_reached_through_the_world,
    nobody_sleeps_for_nothing,
    requests_wait_in_the_purgatory,
    no_order_comes_from_a_set,
    no_order_comes_from_identity,
    modules_have_no_state,
    nobody_relies_on_finalisers,
    assertions_stay_on,
)
