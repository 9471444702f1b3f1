"""What tests need besides Python: commands of the machine, and how they are had.

A test calls `require("java", "mvn")` before it uses them. A command that is missing is installed
where that can be done by a package client: as root on a machine with apt-get. Where it can't, the
test skips with one line that says what was missed; tests/conftest.py makes that skip a failure
under `CI=true`. Call it inside a test or a fixture, not at the top of a module, where conftest
would not see the skip.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

INSTALL_TIMEOUT_SECONDS = 240
# Kafka 4's brokers and tools are compiled for this release of Java.
JAVA_MIN_VERSION = 17


def _has_jdk() -> bool:
    """Whether a JDK is there: running a single source file needs the compiler, not a JRE alone."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        return False
    shown = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r"(\d+)", shown.stdout + shown.stderr)
    return found is not None and int(found[1]) >= JAVA_MIN_VERSION


def _has(command: str) -> Callable[[], bool]:
    return lambda: shutil.which(command) is not None


@dataclass(frozen=True)
class Component:
    what: str
    is_present: Callable[[], bool]
    debian_package: str | None


COMPONENTS = {
    "java": Component(f"a JDK {JAVA_MIN_VERSION} or newer", _has_jdk, "default-jdk-headless"),
    "mvn": Component("Maven (mvn)", _has("mvn"), "maven"),
    "kcat": Component("kcat", _has("kcat"), "kcat"),
    "go": Component("Go", _has("go"), "golang-go"),
    "node": Component("Node.js", _has("node"), "nodejs"),
    "npm": Component("npm", _has("npm"), "npm"),
    "ip": Component("the ip command (iproute2)", _has("ip"), "iproute2"),
    "root": Component("the rights of root", lambda: os.geteuid() == 0, None),
}


def require(*names: str) -> None:
    """Skip the running test unless all of these are there or can be installed."""
    missing = [f"{COMPONENTS[name].what} ({reason})" for name in names if (reason := obtain(name))]
    if missing:
        pytest.skip(f"missing: {'; '.join(missing)}")


@cache
def obtain(name: str) -> str:
    """Have one component; the empty string, or why it can't be had. Asked once in a process."""
    component = COMPONENTS[name]
    if component.is_present():
        return ""
    if component.debian_package is None:
        return "it can't be installed"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return f"install it, in Debian by: apt-get install {component.debian_package}"
    with exclusively(cache_folder() / "apt.lock"):
        # Another worker may have installed it while this one waited.
        if not component.is_present():
            failure = _apt_install(component.debian_package)
            if failure:
                return failure
    return "" if component.is_present() else f"{component.debian_package} does not bring it"


def cache_folder() -> Path:
    """Where tests keep what they have fetched; KRAFTPY_CACHE puts it elsewhere."""
    folder = Path(os.environ.get("KRAFTPY_CACHE", "~/.cache/kraftpy")).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def exclusively(lock_file: Path) -> Iterator[None]:
    """Hold a lock between processes: the workers of one run, and several runs on one machine."""
    with lock_file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _apt_install(package: str) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", package]
    said = ""
    # The package lists may be old or absent: the second attempt brings them up to date first.
    for command in (install, ["apt-get", "update", "-qq"], install):
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=INSTALL_TIMEOUT_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"apt-get took longer than {INSTALL_TIMEOUT_SECONDS} s"
        if done.returncode == 0 and command is install:
            return ""
        said = done.stderr.strip().rpartition("\n")[2] or said
    return f"apt-get install {package} failed: {said}"
