"""pytest's own housekeeping can't fail a run."""

from __future__ import annotations

import warnings

import pytest


def test_what_another_run_still_uses_may_stay() -> None:
    """As an error, pytest's warning would end its cleaning of old directories, and the run."""
    warnings.warn(pytest.PytestWarning("(rm_rf) error removing /tmp/x\nbusy"), stacklevel=1)
