"""Most tests of the shell run in both worlds: simulated, and on real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from netkit import Surrounding, memory_surrounding, real_surrounding


@pytest.fixture(params=["memory", "real"])
async def surrounding(request: pytest.FixtureRequest) -> AsyncIterator[Surrounding]:
    if request.param == "real":
        yield real_surrounding()
    else:
        async with memory_surrounding() as simulated:
            yield simulated
