"""CRC-32C (Castagnoli), by the extension module of the `crc32c` package.

The package itself is not imported. It would bring its command line, and importlib.metadata to look
its own version up: 37 modules, 1.8 MB of each process, and a fifth of what a node does to start.
Nor is the extension loaded before there is a batch, since many commands never see one.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from types import ModuleType

    from kraftpy.world import Buffer

__all__ = ["crc32c"]


class _Checksum(Protocol):
    def __call__(self, data: Buffer, so_far: int = 0, /) -> int: ...


def crc32c(data: Buffer, so_far: int = 0) -> int:
    """The checksum of `data` behind what `so_far` is the checksum of."""
    return _of_library()(data, so_far)


@cache
def _of_library() -> _Checksum:
    module = _extension() or import_module("crc32c")
    checksum: _Checksum = module.crc32c
    return checksum


def _extension() -> ModuleType | None:
    """None if it is not where we know it; then the package will know."""
    from importlib.util import module_from_spec

    package = PathFinder.find_spec("crc32c")
    where = None if package is None else package.submodule_search_locations
    extension = PathFinder.find_spec("crc32c._crc32c", where)
    if extension is None or extension.loader is None:
        return None
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return module
