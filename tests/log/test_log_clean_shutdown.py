"""What an orderly stop leaves for the next process: that it was one, and its broker epoch."""

from __future__ import annotations

import pytest
from log_home import Home

from kraftpy.log.clean_shutdown import (
    CLEAN_SHUTDOWN_MARKER,
    format_clean_shutdown,
    parse_clean_shutdown,
    previous_broker_epoch,
)
from kraftpy.world.memory_disk import MemoryDisk


@pytest.fixture
def home() -> Home:
    return Home(MemoryDisk(), "/data")


async def test_an_orderly_stop_leaves_the_broker_epoch(home: Home) -> None:
    """CTL-74, kraft.md 14.3: the next process reads it before the log manager takes it away."""
    async with home.manager().running() as manager:
        manager.broker_epoch = 4711
    assert await previous_broker_epoch(home.disk, [home.a, home.b]) == 4711
    async with home.manager().running():
        assert await previous_broker_epoch(home.disk, [home.a, home.b]) == -1


async def test_directories_must_agree(home: Home) -> None:
    """One was left out of the last life, or has failed in it: nobody stopped with both."""
    async with home.manager().running() as manager:
        manager.broker_epoch = 4711
    home.put(f"{home.b}/{CLEAN_SHUTDOWN_MARKER}", format_clean_shutdown(4710))
    assert await previous_broker_epoch(home.disk, [home.a, home.b]) == -1
    await home.disk.unlink(f"{home.b}/{CLEAN_SHUTDOWN_MARKER}")
    assert await previous_broker_epoch(home.disk, [home.a, home.b]) == -1
    assert await previous_broker_epoch(home.disk, [home.a]) == 4711


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "{}", '{"brokerEpoch":"7"}', "null"])
def test_a_marker_without_epoch_is_still_a_marker(text: str) -> None:
    """Kafka's older releases leave it empty."""
    assert parse_clean_shutdown(text) == -1
