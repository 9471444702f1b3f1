"""A missing component is one line, whichever way it is missing."""

from __future__ import annotations

import os

import pytest
from support import components
from support.components import Component


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two components that no machine has: one without a package, one with a package of no one."""
    table = {
        "absent": Component("a unicorn", lambda: False, None),
        "unknown": Component("a griffin", lambda: False, "kraftpy-no-such-package"),
        "present": Component("air", lambda: True, None),
    }
    for name, component in table.items():
        monkeypatch.setitem(components.COMPONENTS, name, component)
    # Without rights there is nothing to try, so the test installs nothing on any machine.
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.mark.usefixtures("absent")
def test_what_is_missing_is_said_in_one_line() -> None:
    with pytest.raises(pytest.skip.Exception) as skipped:
        components.require("present", "absent", "unknown")
    assert str(skipped.value) == (
        "missing: a unicorn (it can't be installed); a griffin "
        "(install it, in Debian by: apt-get install kraftpy-no-such-package)"
    )


@pytest.mark.usefixtures("absent")
def test_what_is_present_does_not_skip() -> None:
    components.require("present")
