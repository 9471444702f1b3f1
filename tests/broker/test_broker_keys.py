"""Settings of a node, by their keys, and what they do to the broker's parts."""

from __future__ import annotations

from typing import Any

import pytest
from fetch_rig import Fetcher, Traffic, data, follower

from kraftpy.broker.fetcher_core import FetcherCore
from kraftpy.broker.purgatories import ReplicaPurgatories
from kraftpy.config import ConfigurationError, NodeConfig, from_mapping
from kraftpy.node.broker_settings import fetcher_settings, replica_settings
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.protocol.errors import ErrorCode
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.world.memory_clock import MemoryClock

NODE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "9@h:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:0",
}


def config_with(**settings: str) -> NodeConfig:
    return NodeConfig(from_mapping(NODE | settings, "the test"))


class Ended(DelayedOperation):
    """Over as soon as somebody says so."""

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        pass

    def on_expiration(self) -> None:
        pass


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        ("producer.purgatory.purge.interval.requests", "produce"),
        ("fetch.purgatory.purge.interval.requests", "fetch"),
        ("delete.records.purgatory.purge.interval.requests", "delete_records"),
    ],
)
async def test_purgatories_are_purged(key: str, attribute: str, autojump_clock: object) -> None:
    """producer.purgatory.purge.interval.requests, fetch.purgatory.purge.interval.requests,
    delete.records.purgatory.purge.interval.requests: so many operations that are over may stay in
    the lists, and not one more.
    """
    settings = replica_settings(config_with(**{key: "5"})).purgatories
    purgatories = ReplicaPurgatories(1, settings, MemoryClock(), MetricRegistry())
    purgatory: Any = getattr(purgatories, attribute)
    sizes = []
    for number in range(6):
        operation = Ended(60_000)
        assert not purgatory.try_complete_else_watch(operation, [("t", 0), ("t", number + 1)])
        operation.force_complete()
        purgatory.timer.advance()
        sizes.append(purgatory.purgatory_size)
    assert sizes == [2, 4, 6, 8, 10, 0]


def fetcher_with(**settings: str) -> Fetcher:
    fetcher = Fetcher()
    fetcher.core = FetcherCore(fetcher_settings(config_with(**settings)), Traffic(), lambda: 101)
    fetcher.core.add(follower())
    return fetcher


def test_what_a_follower_asks_for() -> None:
    """replica.fetch.max.bytes for a partition, replica.fetch.response.max.bytes for them all, and
    replica.fetch.backoff.ms is the longest pause after an error.
    """
    request = fetcher_with(**{"replica.fetch.response.max.bytes": "77777"}).fetch()
    assert request.max_bytes == 77_777
    request = fetcher_with(**{"replica.fetch.max.bytes": "5555"}).fetch()
    assert request.topics[0].partitions[0].partition_max_bytes == 5_555
    for longest_ms in (1_000, 50):
        fetcher = fetcher_with(**{"replica.fetch.backoff.ms": str(longest_ms)})
        fetcher.fetch()
        for _ in range(10):
            fetcher.answer(data(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
            fetcher.fetch()
            fetcher.answer()
            idle: Any = fetcher.step()
            paused_ms = idle.until_ms - fetcher.now_ms
            fetcher.now_ms = idle.until_ms
            fetcher.fetch()
        assert paused_ms == longest_ms


def test_the_brokers_own_protocol() -> None:
    """security.inter.broker.protocol picks the listener that brokers use, and one that does not
    exist is refused.
    """
    assert config_with().topology.inter_broker_listener_name == "PLAINTEXT"
    with pytest.raises(ConfigurationError, match="SSL"):
        config_with(**{"security.inter.broker.protocol": "SSL"})
