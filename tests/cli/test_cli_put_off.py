"""Stand-ins for modules that are imported and seldom used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftpy.cli.put_off import put_off

NAME = "seldom_used"


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A module that can be imported, and notes when it is loaded."""
    tmp_path.joinpath(f"{NAME}.py").write_text(
        "import sys\nsys.loads.append(__name__)\nVALUE = object()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    noted: list[str] = []
    monkeypatch.setattr(sys, "loads", noted, raising=False)
    yield noted
    sys.modules.pop(NAME, None)


def test_module_is_loaded_with_the_first_look(loads: list[str]) -> None:
    put_off(NAME)
    module = importlib.import_module(NAME)
    assert loads == []
    value = module.VALUE
    assert loads == [NAME]
    # Who imports it now gets the module itself; who has the stand-in, the same things.
    itself = importlib.import_module(NAME)
    assert itself is not module
    assert itself.VALUE is value
    assert module.VALUE is value
    assert module.__file__ == itself.__file__
    assert loads == [NAME]


def test_names_that_are_imported(loads: list[str]) -> None:
    put_off(NAME)
    found: dict[str, object] = {}
    exec(f"from {NAME} import VALUE", found)
    assert loads == [NAME]
    assert found["VALUE"] is sys.modules[NAME].VALUE


def test_name_that_does_not_exist(loads: list[str]) -> None:
    put_off(NAME)
    with pytest.raises(AttributeError, match=f"module '{NAME}' has no attribute 'OTHER'"):
        _ = importlib.import_module(NAME).OTHER


def test_module_that_is_there_already_stays(loads: list[str]) -> None:
    module = importlib.import_module(NAME)
    put_off(NAME)
    assert importlib.import_module(NAME) is module


def test_module_that_does_not_exist() -> None:
    put_off("no_module_of_this_name")
    try:
        with pytest.raises(ModuleNotFoundError):
            _ = importlib.import_module("no_module_of_this_name").VALUE
    finally:
        sys.modules.pop("no_module_of_this_name", None)
