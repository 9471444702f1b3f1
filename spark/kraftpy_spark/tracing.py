"""What a producer tells of single messages (jobs/trace_records.py), and how it gets to the topic.

Two ways: `DirectTraces` sends them at once, from a thread of its own and without waiting for an
answer, and may lose some; `SpooledTraces` writes them to a folder, from which `ship` sends them
whenever the topic can be reached. `TopicTeller` does the sending for both. Neither can fail or keep
whoever sends messages: what is too much is dropped, the oldest first, and counted.

Messages to the trace topic itself and to internal topics are not traced.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from kraftpy.client.blocking_clients import BlockingProducer
from kraftpy.client.settings import ProducerSettings
from kraftpy.world import Address
from kraftpy_spark.jobs.trace_records import (
    MESSAGE_ID,
    Tag,
    Trace,
    id_text,
    is_sampled,
    new_message_id,
)

__all__ = [
    "DirectTraces",
    "Outlet",
    "Sending",
    "SpooledTraces",
    "TellAll",
    "TopicTeller",
    "Tracer",
    "ship",
]

TellAll = Callable[[Sequence[bytes]], None]
"""Sends traces to the topic, and raises if it can't."""

_DIRECT_LIMIT = 10_000
_AT_A_TIME = 500
_SPOOL_FILE_BYTES = 1_000_000
_SPOOL_FILES = 64
_OPEN, _CLOSED = ".open", ".traces"


class Outlet(Protocol):
    def put(self, trace: Trace) -> None:
        """At once; never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Sending:
    """A message on its way, with the headers that it needs."""

    message_id: bytes
    topic: str
    partition: int
    key: bytes | None
    at_ms: int
    tags: tuple[Tag, ...]
    is_own: bool
    """To the trace topic, or to an internal one."""
    is_traced: bool

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """With the id also if it is not in the sample: so its readers leave it out, too, instead of
        judging it by its place.
        """
        own = () if self.is_own else ((MESSAGE_ID, self.message_id),)
        return (*own, *((key, value.encode()) for key, value in self.tags))


@dataclass(slots=True)
class Tracer:
    outlet: Outlet
    cluster: str
    address: str
    client_id: str
    trace_topic: str = "trace_topic"
    sample_rate: float = 1.0
    random_bits: Callable[[int], int] = secrets.randbits
    left_out: int = 0
    """Messages that are not in the sample."""

    def begin(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        now_ms: int,
        tags: Sequence[tuple[str, str]] = (),
    ) -> Sending:
        """Before a message is handed over."""
        message_id = new_message_id(now_ms, self.random_bits)
        is_own = topic == self.trace_topic or topic.startswith("__")
        is_traced = not is_own and is_sampled(message_id.hex(), self.sample_rate)
        self.left_out += not is_own and not is_traced
        made = tuple(Tag(*each) for each in tags)
        return Sending(message_id, topic, partition, key, now_ms, made, is_own, is_traced)

    def acknowledged(self, sending: Sending, offset: int, now_ms: int) -> None:
        self._tell(sending, now_ms, offset, None)

    def failed(self, sending: Sending, reason: str, now_ms: int) -> None:
        self._tell(sending, now_ms, None, reason)

    def _tell(self, sending: Sending, now_ms: int, offset: int | None, reason: str | None) -> None:
        if not sending.is_traced:
            return
        self.outlet.put(
            Trace(
                side="producer",
                message_id=id_text(sending.message_id, sending.topic, sending.partition, offset),
                key=None if sending.key is None else sending.key.decode(errors="replace"),
                at_ms=sending.at_ms,
                duration_ms=now_ms - sending.at_ms,
                status="ok" if reason is None else "failed",
                cluster=self.cluster,
                topic=sending.topic,
                partition=sending.partition,
                offset=offset,
                address=self.address,
                client_id=self.client_id,
                tags=sending.tags,
                reason=reason,
            )
        )


@dataclass(frozen=True, slots=True)
class TopicTeller:
    """Sends traces to a topic; with `acks=0`, without waiting for an answer."""

    bootstrap: Sequence[Address]
    topic: str
    acks: Literal[-1, 0, 1] = 0

    def __call__(self, traces: Sequence[bytes]) -> None:
        with BlockingProducer(self.bootstrap, ProducerSettings(acks=self.acks)) as producer:
            sent = [producer.send(self.topic, each) for each in traces]
            producer.flush()
        for each in sent:
            each.result()


class DirectTraces:
    """From a thread. `tell` is called there, and may block or fail as it likes."""

    def __init__(self, tell: TellAll, *, limit: int = _DIRECT_LIMIT) -> None:
        self._tell = tell
        self._limit = limit
        self._waiting: deque[Trace] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self.told = 0
        self.dropped = 0
        """Because there were too many, or because they could not be sent."""
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def put(self, trace: Trace) -> None:
        with self._changed:
            if len(self._waiting) == self._limit:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(trace)
            self._changed.notify()

    def close(self, timeout_seconds: float) -> None:
        """Send what is left, if that can be done in this time."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                count = min(_AT_A_TIME, len(self._waiting))
                taken = [self._waiting.popleft() for _ in range(count)]
            told = self._try([each.to_json().encode() for each in taken])
            with self._changed:
                self.told += told
                self.dropped += count - told

    def _try(self, traces: Sequence[bytes]) -> int:
        try:
            self._tell(traces)
        except Exception:
            return 0
        return len(traces)


@dataclass(slots=True)
class SpooledTraces:
    """One process at a time may write to a folder. What a dead one has left there is kept."""

    folder: Path
    file_bytes: int = _SPOOL_FILE_BYTES
    limit_files: int = _SPOOL_FILES
    dropped_files: int = 0
    failures: int = 0
    """Traces that the disk did not take."""
    _path: Path | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for left in self.folder.glob(f"*{_OPEN}"):
            left.rename(left.with_suffix(_CLOSED))

    def put(self, trace: Trace) -> None:
        try:
            self._write(trace.to_json().encode() + b"\n")
        except OSError:
            self.failures += 1

    def _write(self, line: bytes) -> None:
        if self._path is None:
            closed = sorted(self.folder.glob(f"*{_CLOSED}"))
            for oldest in closed[: max(0, len(closed) + 1 - self.limit_files)]:
                oldest.unlink(missing_ok=True)
                self.dropped_files += 1
            number = int(closed[-1].stem.partition("-")[0]) + 1 if closed else 0
            self._path = self.folder / f"{number:010d}-{uuid.uuid4().hex[:8]}{_OPEN}"
        with self._path.open("ab") as stream:
            stream.write(line)
            size = stream.tell()
        if size >= self.file_bytes:
            self.close()

    def close(self) -> None:
        """So that `ship` takes what is there."""
        if self._path is not None:
            self._path.rename(self._path.with_suffix(_CLOSED))
            self._path = None


def ship(folder: Path, tell: TellAll) -> int:
    """Send what is in closed files, and remove them; how many traces. Raises what `tell` raises.

    At least once: a trace that is told twice is the same to whoever makes chains of them. A last
    line that a dead process has not finished is left out.
    """
    count = 0
    for path in sorted(folder.glob(f"*{_CLOSED}")):
        lines = path.read_bytes().split(b"\n")[:-1]
        tell(lines)
        path.unlink()
        count += len(lines)
    return count
