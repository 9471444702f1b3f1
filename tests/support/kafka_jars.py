"""Apache Kafka itself, as the other side of a comparison: its jars, and a way to run its classes.

The jars of the release in pom.xml come from Maven Central once for each machine, into
`~/.cache/kraftpy/kafka-4.3.1` (54 MB, about 20 s). KRAFTPY_KAFKA_JARS names a folder that holds
them already. Tests that use this carry the marker `java`.

    done = run_java(Path(__file__).with_name("DumpConfigs.java"), "argument")
    broker = subprocess.Popen(["java", "-cp", classpath(), "kafka.Kafka", "server.properties"])
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from support.components import cache_folder, exclusively, require

KAFKA_VERSION = "4.3.1"
POM = Path(__file__).with_name("pom.xml")
RESOLVE_TIMEOUT_SECONDS = 240
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def classpath() -> str:
    """A class path with all of Kafka; skips the running test where it can't be had."""
    return f"{jar_folder()}/*"


def jar_folder() -> Path:
    given = os.environ.get("KRAFTPY_KAFKA_JARS")
    if given:
        return Path(given)
    folder = cache_folder() / f"kafka-{KAFKA_VERSION}"
    if not _is_current(folder):
        require("java", "mvn")
        failure = _resolve(folder)
        if failure:
            pytest.skip(f"missing: the jars of Apache Kafka {KAFKA_VERSION} ({failure})")
    return folder


def run_java(
    program: Path | str, *arguments: str, stdin: str = "", timeout_seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a single-file Java program, or a class by its name, with Kafka on the class path."""
    require("java")
    return subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath(), str(program), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_seconds,
    )


def _is_current(folder: Path) -> bool:
    """Whether the jars are those of today's pom.xml; its copy is written last."""
    try:
        return (folder / POM.name).read_bytes() == POM.read_bytes()
    except FileNotFoundError:
        return False


@cache
def _resolve(folder: Path) -> str:
    """Fetch the jars; the empty string, or why not. A second call waits for the first one's."""
    with exclusively(folder.with_name(f"{folder.name}.lock")):
        if _is_current(folder):
            return ""
        fresh = folder.with_name(f"{folder.name}.fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            done = subprocess.run(
                ["mvn", "-B", "-q", "-f", POM, COPY_DEPENDENCIES, f"-DoutputDirectory={fresh}"],
                capture_output=True,
                text=True,
                check=False,
                timeout=RESOLVE_TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"Maven took longer than {RESOLVE_TIMEOUT_SECONDS} s"
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip().splitlines()
            return f"Maven: {said[0] if said else f'exit code {done.returncode}'}"
        shutil.copy(POM, fresh)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    return ""
