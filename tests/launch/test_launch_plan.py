"""Ports that are chosen, and nodes that are planned."""

from __future__ import annotations

import errno
import random

import pytest
import trio

from kraftpy.config import NodeConfig, from_mapping
from kraftpy.launch.errors import LaunchError
from kraftpy.launch.plan import Place, combined_shape, plan_nodes, ports_needed, split_shape
from kraftpy.launch.ports import choose_ports
from kraftpy.launch.preparation import check_settings
from kraftpy.world import Address, SocketOptions


class OneListener:
    def __init__(self, network: PortsOnly, port: int) -> None:
        self._network = network
        self.address: Address = ("127.0.0.1", port)

    def close(self) -> None:
        self._network.held.discard(self.address[1])

    async def accept(self) -> None:
        raise AssertionError("nobody connects")


class PortsOnly:
    """A network on which some ports are taken."""

    def __init__(self, *taken: int, error: int = errno.EADDRINUSE) -> None:
        self.taken = frozenset(taken)
        self.error = error
        self.held: set[int] = set()
        self.most_held = 0
        self.attempts = 0

    async def listen(
        self,
        host: str | None,
        port: int,
        *,
        backlog: int = 50,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> OneListener:
        await trio.lowlevel.checkpoint()
        self.attempts += 1
        if port in self.taken or port in self.held:
            raise OSError(self.error, f"cannot listen on {host}:{port}")
        self.held.add(port)
        self.most_held = max(self.most_held, len(self.held))
        return OneListener(self, port)

    async def connect(self, host: str, port: int, **options: object) -> None:
        raise AssertionError("nobody connects")


async def chosen(network: PortsOnly, count: int = 9, base: int | None = None) -> list[int]:
    ports = await choose_ports(
        network,
        random.Random(7),
        host="127.0.0.1",
        count=count,
        base=base,
    )
    assert network.held == set()
    assert network.most_held >= count
    return ports


async def test_usual_ports_when_all_are_free() -> None:
    assert await chosen(PortsOnly()) == list(range(9092, 9101))


async def test_others_when_one_of_the_usual_is_taken() -> None:
    """They lie below those of outgoing connections, and none is given twice."""
    ports = await chosen(PortsOnly(9100, *range(12_000, 20_000)))
    assert len(set(ports)) == 9
    assert all(10_000 <= port < 32_768 and not 12_000 <= port < 20_000 for port in ports)


async def test_the_last_free_ports_are_found_wherever_they_are() -> None:
    free = [10_001, 20_000, 32_767]
    network = PortsOnly(9092, *(port for port in range(10_000, 32_768) if port not in free))
    assert sorted(await chosen(network, count=3)) == free
    with pytest.raises(LaunchError, match="4 free ports are needed"):
        await chosen(network, count=4)


async def test_given_ports() -> None:
    assert await chosen(PortsOnly(9092), count=3, base=19_092) == [19_092, 19_093, 19_094]
    assert await chosen(PortsOnly(), count=3, base=65_533) == [65_533, 65_534, 65_535]
    with pytest.raises(LaunchError, match="from 65534 on there are too few"):
        await chosen(PortsOnly(), count=3, base=65_534)
    with pytest.raises(LaunchError, match=r"19092 to 19094 are needed: .*127\.0\.0\.1:19093"):
        await chosen(PortsOnly(19_093), count=3, base=19_092)


async def test_an_address_that_is_not_ours_is_said_at_once() -> None:
    everything = PortsOnly(*range(65_536), error=errno.EADDRNOTAVAIL)
    with pytest.raises(LaunchError, match="cannot listen on"):
        await chosen(everything)
    assert everything.attempts == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize(
    "shape",
    [combined_shape(1), combined_shape(3), split_shape(controllers=3, brokers=2)],
    ids=["one", "three", "split"],
)
def test_plans_are_configurations(shape: dict[int, tuple[str, ...]], host: str) -> None:
    """Each port once and in order; every node knows all voters and no other nodes' files."""
    ports = list(range(9092, 9092 + ports_needed(shape)))
    plans = plan_nodes(shape, ports, host=host, directory="/c", settings={"num.partitions": "7"})
    given = [port for plan in plans for port in (plan.port, plan.controller_port, plan.http_port)]
    assert [port for port in given if port is not None] == ports
    assert len({plan.data_dir for plan in plans}) == len(plans)
    voters = [(p.node_id, host, p.controller_port) for p in plans if "controller" in p.roles]
    for plan, config in zip(plans, check_settings(plans, {}), strict=True):
        assert isinstance(config, NodeConfig)
        assert config.warnings == ()
        assert config.node_id == plan.node_id
        assert config.topology.roles == plan.roles
        assert list(config.topology.voters) == voters
        listeners = [endpoint.port for endpoint in config.topology.listeners]
        assert listeners == [p for p in (plan.port, plan.controller_port) if p is not None]
        assert {endpoint.host for endpoint in config.topology.listeners} == {host}
        assert config["num.partitions"] == 7
        assert config["kraftpy.http.port"] == plan.http_port
        brokers = sum("broker" in roles for roles in shape.values())
        assert config["default.replication.factor"] == min(3, brokers)


def test_a_setting_may_be_one_of_ours() -> None:
    """--set is stronger than settings for development."""
    [plan] = plan_nodes(
        combined_shape(1), [1, 2, 3], host="h", directory="/c", settings={"num.partitions": "1"}
    )
    assert NodeConfig(from_mapping(plan.settings, "test"))["num.partitions"] == 1


def test_a_node_may_live_elsewhere() -> None:
    """In a network namespace, or behind a door: its own addresses, and what others are told."""
    shape = combined_shape(3)
    places = {
        2: Place(host="198.18.0.2", prefix=("ip", "netns", "exec", "two")),
        3: Place(advertised="127.0.0.1:7"),
    }
    one, two, three = plan_nodes(
        shape,
        range(1, 1 + ports_needed(shape)),
        host="127.0.0.1",
        directory="/cluster",
        settings={},
        places=places,
    )
    assert [plan.address for plan in (one, two, three)] == [
        *("127.0.0.1:1", "198.18.0.2:4", "127.0.0.1:7"),
    ]
    assert two.settings["listeners"] == "PLAINTEXT://198.18.0.2:4,CONTROLLER://198.18.0.2:5"
    assert two.settings["kraftpy.http.host"] == "198.18.0.2"
    assert "2@198.18.0.2:5" in one.settings["controller.quorum.voters"]
    assert "advertised.listeners" not in two.settings
    assert three.settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:7"
    assert three.host == "127.0.0.1"
