"""The commands beside `node`, called in this process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest

from kraftpy import __version__
from kraftpy.cli.bootstrap import parse_servers
from kraftpy.cli.main import COMMANDS, main
from kraftpy.protocol.ids import ZERO_UUID, format_uuid, parse_uuid, random_uuid

Captured = pytest.CaptureFixture[str]


def test_version_names_the_protocol(capsys: Captured) -> None:
    assert main(["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"kraftpy {__version__}"
    assert second.startswith("protocol of Apache Kafka 4.3: ")
    assert "Metadata 0-13, " in second
    assert "ApiVersions 0-4, CreateTopics 2-7, " in second


def test_without_a_command_there_is_help(capsys: Captured) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().err
    assert all(command.name in shown for command in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nodes"], "there is no command 'nodes'; choose from up, node"),
        (["--quiet", "node"], "options go behind the command: --quiet"),
        (["storage"], "required: VERB"),
        (["api-versions", "-b", "host"], "'host' is not HOST:PORT"),
        (["api-versions", "-b", "host:99999"], "'host:99999' is not HOST:PORT"),
    ],
)
def test_wrong_command_lines(capsys: Captured, arguments: list[str], complaint: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help_with_examples(capsys: Captured, command: object) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command.name, "--help"])  # type: ignore[attr-defined]
    assert stopped.value.code == 0
    assert "examples:" in capsys.readouterr().out


def test_random_uuids(capsys: Captured) -> None:
    for _ in range(100):
        assert main(["storage", "random-uuid"]) == 0
    texts = capsys.readouterr().out.split()
    assert len(set(texts)) == 100
    for text in texts:
        uuid = parse_uuid(text)
        assert uuid != ZERO_UUID
        assert (uuid[6] >> 4, uuid[8] >> 6) == (4, 2)


class Numbers(random.Random):
    """Randomness that gives the numbers it was made with."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def getrandbits(self, count: int, /) -> int:
        return self.numbers.pop(0)


def test_no_uuid_looks_like_an_option() -> None:
    """62 in the first six bits would be written as a dash."""
    source = Numbers(62 << 122, 5 << 122)
    assert format_uuid(random_uuid(source))[0] == "F"
    assert source.numbers == []


def test_config_list(capsys: Captured) -> None:
    assert main(["config", "list", "--format", "json"]) == 0
    keys = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert keys["num.partitions"]["default"] == "1"
    assert keys["node.id"]["default"] == "(must be set)"
    assert main(["config", "list", "--for", "topic"]) == 0
    assert "retention.ms" in capsys.readouterr().out


def test_config_describe(capsys: Captured) -> None:
    assert main(["config", "describe", "socket.request.max.bytes"]) == 0
    shown = capsys.readouterr().out
    assert "type: int" in shown
    assert "default: 104857600" in shown


def test_config_describe_of_an_unknown_key(capsys: Captured) -> None:
    assert main(["config", "describe", "num.partition"]) == 2
    assert "did you mean num.partitions?" in capsys.readouterr().err


def test_nobody_to_ask(capsys: Captured) -> None:
    """Port 1 is nobody's. The message says what to do."""
    assert main(["api-versions", "-b", "127.0.0.1:1"]) == 1
    shown = capsys.readouterr().err
    assert "127.0.0.1:1: refused" in shown
    assert "`kraftpy node` starts one" in shown


def test_servers() -> None:
    assert parse_servers("a:1, [::1]:2,b.c:65535") == [("a", 1), ("::1", 2), ("b.c", 65535)]


def test_reader_that_leaves_is_no_crash() -> None:
    """`kraftpy config list | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kraftpy.cli.main", "config", "list"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
