"""Bad input, side by side with Apache Kafka: the same error for the same item.

Words are our own, and there are some wherever Kafka has some. What differs is listed, with the
reason.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from compat.bad_requests import CASES, CREATION, FILLING, codes_in
from support.kafka_jars import QUICK_JAVA, classpath
from support.ports import unused_ports

from kraftpy.client.blocking import BlockingConnection
from kraftpy.client.errors import ConnectionLost, NegotiationFailed
from kraftpy.protocol.errors import ErrorCode

pytestmark = [pytest.mark.compat, pytest.mark.java]

START_SECONDS = 120
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
Codes = list[tuple[str, str, bool]]

# Kafka's handler fails: it does not answer, or with UNKNOWN_SERVER_ERROR for all items.
KAFKA_FAILS = {"produce: null": "INVALID_RECORD", "alter: retention.ms 9 1": "INVALID_REQUEST"}
# Kafka answers for all items with the error of one; here the others are served.
ALONE = ("produce: no length", "produce: magic 5", "describe configs: 77 x")
# Another code, on purpose.
OTHER_CODES = {
    # Kafka says that the server is at fault.
    "produce: unknown codec": "UNSUPPORTED_COMPRESSION_TYPE",
    # Kafka's brokers refuse to speak for others; here the controller is asked, and knows it better.
    "alter: 4 99": "BROKER_ID_NOT_REGISTERED",
}


@contextmanager
def formatted_process(
    folder: Path, formatting: Sequence[str], running: Sequence[str], config_text: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A node with this configuration, which is formatted and has been started."""
    folder.mkdir()
    config = folder / "node.properties"
    config.write_text(config_text)
    identity = ["-t", CLUSTER_ID, "-c", str(config)]
    subprocess.run([*formatting, *identity], check=True, capture_output=True, cwd=folder)
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [*running, str(config)], stdout=output, stderr=output, cwd=folder
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(60)
            finally:
                process.kill()
                process.wait()


@contextmanager
def node(
    folder: Path, formatting: Sequence[str], running: Sequence[str], settings: str = ""
) -> Iterator[int]:
    """The port of a node that is formatted and runs, and has the topics."""
    port = unused_ports(2)
    config = (
        "process.roles=broker,controller\nnode.id=1\n"
        f"controller.quorum.voters=1@127.0.0.1:{port + 1}\n"
        "controller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}\n"
        f"log.dirs={folder}/data\n"
        f"{settings}"
    )
    with formatted_process(folder, formatting, running, config) as process:
        prepare(port, process)
        yield port


def prepare(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, "it did not start"
        try:
            with BlockingConnection(("127.0.0.1", port)) as connection:
                created = connection.request(CREATION)
                assert {each.error_code for each in created.topics} <= {
                    ErrorCode.NONE,
                    ErrorCode.TOPIC_ALREADY_EXISTS,
                }
                filled = connection.request(FILLING, max_version=12)
                if all(code == "NONE" for _, code, _ in codes_in(filled)):
                    return
        except (ConnectionLost, NegotiationFailed, AssertionError):
            assert time.monotonic() < deadline, "it did not become ready"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Of Kafka, and of kraftpy."""
    root = tmp_path_factory.mktemp("side-by-side")
    java = [*QUICK_JAVA, "-Xmx512m", "-cp", classpath()]
    own = [sys.executable, "-m", "kraftpy.cli.main"]
    with (
        node(
            root / "kafka", [*java, "kafka.tools.StorageTool", "format"], [*java, "kafka.Kafka"]
        ) as kafka,
        node(root / "kraftpy", [*own, "storage", "format"], [*own, "node"]) as kraftpy,
    ):
        yield kafka, kraftpy


def ask(port: int, name: str) -> Codes:
    request, max_version = CASES[name]
    with BlockingConnection(("127.0.0.1", port)) as connection:
        answer: Any = connection.request(request, max_version=max_version)
        return sorted(codes_in(answer))


@pytest.mark.parametrize("name", CASES)
def test_the_same_error_for_the_same_item(ports: tuple[int, int], name: str) -> None:
    """NET-73, NET-80, NET-92: and in one and the same connection nothing else suffers."""
    kafka_port, own_port = ports
    own = ask(own_port, name)
    if name in KAFKA_FAILS:
        assert sorted(code for _, code, _ in own) == sorted([KAFKA_FAILS[name], "NONE"])
        return
    kafka = ask(kafka_port, name)
    if name in ALONE:
        wrong = {code for _, code, _ in kafka}
        assert len(wrong) == 1
        assert {code for _, code, _ in own} == wrong | {"NONE"}
        return
    expected = [(place, code) for place, code, _ in kafka]
    if name in OTHER_CODES:
        expected = [(at, code if code == "NONE" else OTHER_CODES[name]) for at, code in expected]
    assert [(place, code) for place, code, _ in own] == expected
    silent = [
        place for (place, _, said), (_, _, says) in zip(kafka, own, strict=True) if said > says
    ]
    assert silent == [], "Kafka says why"
