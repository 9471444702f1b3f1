"""Keeps exceptions that the product logs: in a simulation nothing unforeseen may happen."""

from __future__ import annotations

import logging

__all__ = ["ErrorLog"]


class ErrorLog(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self.messages.append(f"{record.getMessage()} {record.exc_info[1]!r}")
