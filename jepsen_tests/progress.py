"""Progress for people, on standard error: one line that is written over, or now and then a new one
where that can't be done.
"""

from __future__ import annotations

from typing import TextIO

__all__ = ["ProgressLine"]

_EVERY_SECONDS = 10.0


class ProgressLine:
    """A RunEvents."""

    def __init__(self, stream: TextIO, title: str, seconds: float) -> None:
        self._stream = stream
        self._title = title
        self._seconds = seconds
        self._is_terminal = stream.isatty()
        self._told_at = 0.0
        self._last = {"ok": 0, "fail": 0, "info": 0}
        self._last_at = 0.0

    def phase(self, name: str) -> None:
        self._say(f"{self._title}: {name}", is_last=not self._is_terminal)

    def tick(self, seconds: float, counts: dict[str, int]) -> None:
        if not self._is_terminal and seconds - self._told_at < _EVERY_SECONDS:
            return
        self._told_at = seconds
        passed = max(seconds - self._last_at, 0.001)
        rates = ", ".join(
            f"{kind} {count} ({(count - self._last.get(kind, 0)) / passed:.0f}/s)"
            for kind, count in counts.items()
        )
        self._last, self._last_at = counts, seconds
        self._say(
            f"{self._title}: {seconds:.0f} of {self._seconds:g} s, {rates}",
            is_last=not self._is_terminal,
        )

    def end(self, text: str) -> None:
        self._say(text, is_last=True)

    def _say(self, text: str, *, is_last: bool) -> None:
        if self._is_terminal:
            text = f"\r{text:<79.79}"
        self._stream.write(text + ("\n" if is_last else ""))
        self._stream.flush()
