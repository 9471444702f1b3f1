"""A pytest plugin (`-p mutant_plugin`): KRAFTPY_MUTANT=module:number has that module changed."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from mutation_points import mutated

VARIABLE = "KRAFTPY_MUTANT"


class _Finder(MetaPathFinder):
    def __init__(self, name: str, number: int) -> None:
        self._name = name
        self._number = number

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        found = PathFinder.find_spec(fullname, path)
        assert found is not None
        assert found.origin is not None
        loader = _Loader(Path(found.origin), self._number)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


class _Loader(Loader):
    def __init__(self, path: Path, number: int) -> None:
        self._path = path
        self._number = number

    def exec_module(self, module: ModuleType) -> None:
        tree = mutated(self._path.read_text(), self._number)
        exec(compile(tree, str(self._path), "exec"), module.__dict__)


if VARIABLE in os.environ:
    _name, _, _number = os.environ[VARIABLE].partition(":")
    assert _name not in sys.modules, f"{_name} was imported before it could be changed"
    sys.meta_path.insert(0, _Finder(_name, int(_number)))
