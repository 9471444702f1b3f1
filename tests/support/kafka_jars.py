"""Apache Kafka itself, as the other side of a comparison: its jars, and a way to run its classes.

The jars of the release in pom.xml come from Maven Central once for each machine, into
`~/.cache/kraftpy/kafka-4.3.1` (54 MB, about 20 s). KRAFTPY_KAFKA_JARS names a folder that holds
them already. An old release of the clients comes in the same way, by pom-clients.xml, with a logger
for whoever wants to hear what a client complains of. Tests that use this carry the marker `java`.

    done = run_java(Path(__file__).with_name("DumpConfigs.java"), "argument")
    done = run_java(Path(__file__).with_name("Probe.java"), "argument", logs=True, release="3.9")
    broker = subprocess.Popen([*QUICK_JAVA, "-cp", classpath(), "kafka.Kafka", "server.properties"])
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
OLD_CLIENTS_VERSION = "3.9.1"
OLD_CLIENTS_POM = Path(__file__).with_name("pom-clients.xml")
STREAMS_POM = Path(__file__).with_name("pom-streams.xml")
SPARK_VERSION = "4.2.0"
SPARK_POM = Path(__file__).parents[2] / "spark" / "jars" / "pom.xml"
RESOLVE_TIMEOUT_SECONDS = 240
# In a JVM of some seconds the better compiler and a collector with threads of its own do not pay.
QUICK_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
QUICK_JAVA = ("java", *QUICK_JAVA_OPTIONS)
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def classpath() -> str:
    """A class path with all of Kafka; skips the running test where it can't be had."""
    return f"{jar_folder()}/*"


def jar_folder() -> Path:
    given = os.environ.get("KRAFTPY_KAFKA_JARS")
    if given:
        return Path(given)
    return _resolved(KAFKA_VERSION, POM)


def old_clients_folder() -> Path:
    return _resolved(OLD_CLIENTS_VERSION, OLD_CLIENTS_POM)


def streams_folder() -> Path:
    """Kafka Streams and the clients that it uses."""
    return _resolved(f"streams-{KAFKA_VERSION}", STREAMS_POM)


def spark_connector_folder() -> Path:
    """Spark's own connector to Kafka, where `make spark-jars` puts it too."""
    return _resolved(f"connector-of-spark-{SPARK_VERSION}", SPARK_POM)


def _resolved(version: str, pom: Path) -> Path:
    folder = cache_folder() / f"kafka-{version}"
    if not _is_current(folder, pom):
        require("java", "mvn")
        failure = _resolve(folder, pom)
        if failure:
            pytest.skip(f"missing: the jars of Apache Kafka {version} ({failure})")
    return folder


def run_java(
    program: Path | str,
    *arguments: str,
    stdin: str = "",
    timeout_seconds: float = 270,
    release: str = "4.3",
    logs: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a single-file Java program, or a class by its name, with Kafka on the class path.

    Release 3.9 has the clients alone. With `logs`, warnings of the clients are on standard error.
    """
    require("java")
    path = classpath() if release == "4.3" else f"{old_clients_folder()}/*"
    options = []
    if logs:
        [logger] = old_clients_folder().glob("slf4j-simple-*.jar")
        path = f"{path}:{logger}"
        options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    return subprocess.run(
        [*QUICK_JAVA, *options, "-cp", path, str(program), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_seconds,
    )


def _is_current(folder: Path, pom: Path) -> bool:
    """Whether the jars are those of today's pom; its copy is written last."""
    try:
        return (folder / pom.name).read_bytes() == pom.read_bytes()
    except FileNotFoundError:
        return False


@cache
def _resolve(folder: Path, pom: Path) -> str:
    """Fetch the jars; the empty string, or why not. A second call waits for the first one's."""
    with exclusively(folder.with_name(f"{folder.name}.lock")):
        if _is_current(folder, pom):
            return ""
        fresh = folder.with_name(f"{folder.name}.fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            done = subprocess.run(
                ["mvn", "-B", "-q", "-f", pom, COPY_DEPENDENCIES, f"-DoutputDirectory={fresh}"],
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
        shutil.copy(pom, fresh)
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    return ""
