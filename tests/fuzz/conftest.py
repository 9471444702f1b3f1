"""Samples are those of the tests of each room."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / room) for room in ("protocol", "records", "log", "raft")]
