"""Administration for trio code.

    async with open_admin(world, [("127.0.0.1", 9092)]) as admin:
        await admin.run(create_topics([NewTopic("events", partitions=3)]))

The operations are in admin_operations.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from kraftpy.client.admin_core import AdminCore, Operation
from kraftpy.client.links import Driver
from kraftpy.client.settings import AdminSettings
from kraftpy.world import Address, World

__all__ = ["Admin", "open_admin"]

T = TypeVar("T")


@asynccontextmanager
async def open_admin(
    world: World, bootstrap: Sequence[Address], settings: AdminSettings | None = None
) -> AsyncIterator[Admin]:
    """An admin client that lives as long as the block."""
    settings = settings or AdminSettings()
    core = AdminCore(bootstrap, settings, world.rng.stream("admin"))
    async with trio.open_nursery() as nursery:
        driver = Driver(world, nursery, core, settings.client)
        nursery.start_soon(driver.run, name="client-admin")
        try:
            yield Admin(core, driver)
        finally:
            driver.close()
            nursery.cancel_scope.cancel()


class Admin:
    """Made by `open_admin`."""

    def __init__(self, core: AdminCore, driver: Driver) -> None:
        self._core = core
        self._driver = driver

    async def run(self, operation: Operation[T]) -> T:
        """Carry an operation out; its result. Raises KafkaError."""
        run = self._core.start(operation, self._driver.now_ms)
        self._driver.wake()
        await self._driver.until(lambda: run.is_done)
        return run.result()
