"""Which clients there are, and whether this machine has them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TypeAlias

from kraftpy.verify.workloads.own_client import open_own_client
from kraftpy.verify.workloads.port import ClientSpec, OpenClient, WorkloadClient
from kraftpy.world import Address, World

__all__ = ["CLIENTS", "ClientKind", "find_clients", "open_clients", "parse_servers"]

Opener: TypeAlias = Callable[[World, str], AbstractAsyncContextManager[OpenClient]]
"""From bootstrap servers to a way of opening clients; what they share lives as long as the block.
"""


@dataclass(frozen=True, slots=True)
class ClientKind:
    name: str
    summary: str
    missing: Callable[[], str | None]
    """Why it can't be used here; None if it can."""
    opener: Opener
    has_consumer_protocol: bool = True


def parse_servers(bootstrap: str) -> list[Address]:
    """`host:port,...` as addresses."""
    pairs = (server.rsplit(":", 1) for server in bootstrap.split(","))
    return [(host, int(port)) for host, port in pairs]


def find_clients(names: Sequence[str]) -> list[ClientKind]:
    """By name; ValueError says which there are, or what one of them lacks."""
    known = {kind.name: kind for kind in CLIENTS}
    found = []
    for name in names:
        kind = known.get(name)
        if kind is None:
            raise ValueError(f"there is no client {name!r}; there are: {', '.join(known)}")
        problem = kind.missing()
        if problem is not None:
            raise ValueError(f"client {name}: {problem}")
        found.append(kind)
    return found


@asynccontextmanager
async def open_clients(
    kinds: Sequence[ClientKind], world: World, bootstrap: str
) -> AsyncIterator[OpenClient]:
    """Of several kinds each process takes the next one."""
    if not kinds:
        raise ValueError("no client was given")
    async with kinds[0].opener(world, bootstrap) as first:
        if len(kinds) == 1:
            yield first
            return
        async with open_clients(kinds[1:], world, bootstrap) as others:
            count = 0

            def opened(spec: ClientSpec) -> AbstractAsyncContextManager[WorkloadClient]:
                nonlocal count
                count += 1
                return (first if count % len(kinds) == 0 else others)(spec)

            yield opened


@asynccontextmanager
async def _own(world: World, bootstrap: str) -> AsyncIterator[OpenClient]:
    servers = parse_servers(bootstrap)
    yield lambda spec: open_own_client(world, servers, spec)


@asynccontextmanager
async def _librdkafka(world: World, bootstrap: str) -> AsyncIterator[OpenClient]:
    from jepsen_tests.clients.librdkafka import open_librdkafka_client

    yield lambda spec: open_librdkafka_client(bootstrap, spec)


@asynccontextmanager
async def _kafka_python(world: World, bootstrap: str) -> AsyncIterator[OpenClient]:
    from jepsen_tests.clients.kafka_python import open_kafka_python_client

    yield lambda spec: open_kafka_python_client(bootstrap, spec)


@asynccontextmanager
async def _java(world: World, bootstrap: str) -> AsyncIterator[OpenClient]:
    from jepsen_tests.clients.java import open_helper

    async with open_helper(bootstrap) as helper:
        yield helper.open_client


def _needs(module: str, package: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        return None if find_spec(module) else f"{package} is not installed (make setup)"

    return missing


def _java_missing() -> str | None:
    from jepsen_tests.clients.java import missing

    return missing()


CLIENTS = (
    ClientKind("own", "kraftpy's own client", lambda: None, _own),
    ClientKind(
        "librdkafka",
        "confluent-kafka",
        _needs("confluent_kafka", "confluent-kafka"),
        _librdkafka,
    ),
    ClientKind(
        "kafka-python",
        "kafka-python",
        _needs("kafka", "kafka-python"),
        _kafka_python,
        has_consumer_protocol=False,
    ),
    ClientKind("java", "Apache Kafka's own, in one JVM", _java_missing, _java),
)
