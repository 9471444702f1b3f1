"""For crash tests: no log lines of thousands of recoveries, and at the end how many there were."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kraftpy.log")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Only where these tests were asked for: otherwise this file is not known so early."""
    states = [
        value
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "crash_states"
    ]
    if states:
        terminalreporter.write_line(f"{sum(states)} crash states in {len(states)} workloads")
