"""What `kraftpy up` tells people to try works as it is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.components import require
from support.kafka_jars import QUICK_JAVA, classpath
from support.up_process import running_up

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TIMEOUT_SECONDS = 200


def write_tool(path: Path, command: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)


@pytest.mark.compat
@pytest.mark.java
def test_the_examples_work_as_printed(tmp_path: Path) -> None:
    """kcat and Python produce, and Kafka's console consumer shows both."""
    require("kcat", "java")
    tools = tmp_path / "tools"
    tools.mkdir()
    write_tool(tools / "python3", sys.executable)
    java = f"{' '.join(QUICK_JAVA)} -cp '{classpath()}' {CONSOLE_CONSUMER}"
    write_tool(tools / "kafka-console-consumer.sh", java)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    with running_up(tmp_path) as up:
        *producers, consumer = [line.strip() for line in up.wait_ready()[2:]]
        assert len(producers) == 2
        for line in producers:
            done = subprocess.run(
                line,
                shell=True,
                capture_output=True,
                text=True,
                check=False,
                env=environment,
                timeout=TIMEOUT_SECONDS,
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), line
        shown = subprocess.run(
            f"{consumer} --max-messages 2 --timeout-ms 100000",
            shell=True,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=TIMEOUT_SECONDS,
        )
        assert shown.stdout == "hello\nhello\n", shown.stderr
        up.signal(signal.SIGINT)
        up.rest()
        assert up.process.returncode == 0
