"""Modules that a library imports and a node may never use: loaded when somebody looks into them.

A stand-in takes the module's place in sys.modules. The first look at any of its names imports the
module itself, and from then on it is as if it had always been there.

trio imports `ssl` and `hmac` for streams that a node without TLS never opens, and with them comes
OpenSSL: 5 MB of each process, a tenth of an idle node.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

__all__ = ["put_off"]


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        return getattr(module, name)


def put_off(*names: str) -> None:
    """To be called before anybody imports them; what is imported already stays as it is."""
    for name in names:
        if name not in sys.modules:
            sys.modules[name] = _StandIn(name)
