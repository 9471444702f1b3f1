"""CRC-32C, and what is not loaded for its sake."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from kraftpy.records import checksum
from kraftpy.records.checksum import crc32c

CHECK_VALUE = 0xE3069283
"""Of the digits 1 to 9, as the catalogues of such checksums give it."""


def test_check_value() -> None:
    assert crc32c(b"123456789") == CHECK_VALUE
    assert crc32c(memoryview(b"6789"), crc32c(bytearray(b"12345"))) == CHECK_VALUE
    assert crc32c(b"") == 0


def test_library_is_loaded_on_first_use_without_its_package() -> None:
    """The package would import 37 modules for its version number."""
    program = (
        "import sys, kraftpy.records.checksum as checksum;"
        "print([name for name in sys.modules if name.startswith('crc32c')]);"
        "print(hex(checksum.crc32c(b'123456789')));"
        "print([name for name in ('crc32c', 'importlib.metadata') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdout.split("\n") == ["[]", hex(CHECK_VALUE), "[]", ""]


def test_package_where_the_extension_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_: None)
    assert checksum._extension() is None
    monkeypatch.undo()
    monkeypatch.setattr(checksum, "_extension", lambda: None)
    assert checksum._of_library.__wrapped__()(b"123456789") == CHECK_VALUE
