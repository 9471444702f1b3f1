"""Small changes of a module's meaning, one at a time: mutants. A good test suite notices each.

A point is named by its number in the walk through the syntax tree, which is the same in every
process. Docstrings, annotations, names and `__all__` are left alone: nothing hangs on them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclass(frozen=True)
class Mutant:
    number: int
    line: int
    change: str


class _Mutator(ast.NodeTransformer):
    """Counts the points; at the wanted one, changes the tree."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.found: list[Mutant] = []

    def _is_here(self, node: ast.AST, change: str) -> bool:
        number = len(self.found)
        self.found.append(Mutant(number, getattr(node, "lineno", 0), change))
        return number == self.wanted

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for index, operator in enumerate(node.ops):
            other = COMPARISONS[type(operator)]
            if self._is_here(node, f"{type(operator).__name__} becomes {other.__name__}"):
                node.ops[index] = other()
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        other = ARITHMETIC.get(type(node.op))
        if other is not None and self._is_here(
            node, f"{type(node.op).__name__} becomes {other.__name__}"
        ):
            node.op = other()
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self._is_here(node, "and becomes or, or or and"):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and self._is_here(node, "not is left out"):
            return node.operand
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            if self._is_here(node, f"{node.value} becomes {not node.value}"):
                return ast.copy_location(ast.Constant(not node.value), node)
        elif isinstance(node.value, int) and self._is_here(node, f"{node.value} becomes one more"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant):
            # A docstring.
            return node
        self.generic_visit(node)
        if isinstance(node.value, ast.Call) and self._is_here(node, "a call is left out"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if self._is_here(node, "a change of a variable is left out"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(each) for each in node.body]
        node.args.defaults = [self.visit(each) for each in node.args.defaults]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if any(isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets):
            return node
        self.generic_visit(node)
        return node


def mutants_of(source: str) -> list[Mutant]:
    """All there are."""
    mutator = _Mutator(-1)
    mutator.visit(ast.parse(source))
    return mutator.found


def mutated(source: str, number: int) -> ast.Module:
    mutator = _Mutator(number)
    tree = mutator.visit(ast.parse(source))
    if number not in range(len(mutator.found)):
        raise ValueError(f"there is no mutant {number}; there are {len(mutator.found)}")
    fixed: ast.Module = ast.fix_missing_locations(tree)
    return fixed


def described(source: str, mutants: list[Mutant]) -> Iterator[str]:
    lines = source.splitlines()
    for each in mutants:
        text = lines[each.line - 1].strip() if each.line else ""
        yield f"line {each.line}: {each.change}: {text}"
