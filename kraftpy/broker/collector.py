"""Python's collector of cyclic garbage, kept from stopping the loop for what a coordinator loads.

It looks at all objects again whenever their number has grown by a quarter, in one go: 40 ms and
more with the offsets of ten thousand groups, several times while they are loaded. But what is
loaded is no garbage. So the collector rests meanwhile, and passes over what is there afterwards.

A shard that is closed is a cycle. From then on the collector looks at everything again, and before
more is loaded it must have done so, or the dead shard would be passed over until the next one goes.
For the same reason nothing is passed over if a shard went while another was loaded.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["collector_at_rest", "look_at_everything"]


@contextmanager
def collector_at_rest(
    *, collects_first: bool = False, is_dirty: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """No collection meanwhile, and none of what is there at the end, unless that is dirty by then.

    Where somebody else has switched it off, as simulations do, nothing happens.
    """
    if not gc.isenabled():
        yield
        return
    if collects_first:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if not is_dirty():
            gc.freeze()
        gc.enable()


def look_at_everything() -> None:
    """Whatever was passed over may be garbage from now on."""
    gc.unfreeze()
