"""What a broker takes from its configuration."""

from __future__ import annotations

import pytest

from kraftpy.config import NodeConfig, from_mapping
from kraftpy.node.broker_settings import broker_identity
from kraftpy.protocol.ids import Uuid
from kraftpy.world.real import real_world

DIRECTORIES = {"/a": Uuid(b"a" * 16), "/b": Uuid(b"b" * 16), "/c": Uuid(b"c" * 16)}


@pytest.mark.parametrize(
    ("cordoned", "expected"), [("", ""), ("/b", "b"), ("/c,/a", "ac"), ("*", "abc")]
)
def test_the_controller_is_told_of_cordoned_directories(cordoned: str, expected: str) -> None:
    """KRF 18: else it would place replicas where no directory takes them."""
    config = NodeConfig(
        from_mapping(
            {
                "process.roles": "broker",
                "node.id": "7",
                "controller.quorum.voters": "1@127.0.0.1:9093",
                "controller.listener.names": "CONTROLLER",
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": ",".join(DIRECTORIES),
                "cordoned.log.dirs": cordoned,
            },
            "the test",
        )
    )
    identity = broker_identity(config, "cluster", (), DIRECTORIES, real_world())
    assert identity.directory_ids == tuple(DIRECTORIES.values())
    assert identity.cordoned_directory_ids == tuple(DIRECTORIES[f"/{each}"] for each in expected)
