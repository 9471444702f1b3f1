"""The ports: everything a node may ask of the machine it runs on.

Four of them, Clock, Rng, Network and Disk, bundled as a World. Product code receives a World and
reaches time, randomness, sockets and files in no other way; that is what makes a whole cluster
runnable under one seed. Each port has two adapters with one contract (tests/contract): the real
one, on trio and the operating system, and the memory twin, which is the simulator's foundation.

Conventions that hold for both:

- A call without `await` never waits: it does what can be done now. A call with `await` may take
  long, and is a checkpoint.
- Failures are the operating system's: ConnectionResetError, ConnectionRefusedError,
  BrokenPipeError, FileNotFoundError, FileExistsError, or OSError with its errno (EIO, ENOSPC). The
  memory twins raise the same ones, so that an error path tried in simulation is the one that runs
  in production.
- Times are seconds as float where trio wants them and milliseconds as int (`_ms`) where Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    # Importing trio takes a tenth of a second, which commands without a loop need not pay.
    import trio

__all__ = [
    "LATE_SECONDS",
    "Address",
    "Bell",
    "Buffer",
    "Buggify",
    "Clock",
    "Disk",
    "DiskSpace",
    "File",
    "FileLock",
    "FileSlice",
    "FileStat",
    "Listener",
    "Network",
    "Random",
    "Rng",
    "SocketOptions",
    "Stream",
    "World",
    "never",
]

Buggify: TypeAlias = Callable[[str], bool]
Buffer: TypeAlias = bytes | bytearray | memoryview
Address: TypeAlias = tuple[str, int]


class Bell(Protocol):
    """What a task waits at that has something to do at a moment, or when it is told so.

    It clears the bell, looks what there is to do and when, and waits until then. Who has news for
    it rings. One task may wait at a time.
    """

    def ring(self) -> None:
        """Wake whoever waits, or let the next wait end at once, unless it is cleared before."""
        ...

    def clear(self) -> None: ...

    async def wait_until(self, deadline: float) -> None:
        """Until it rings or `monotonic()` has reached `deadline` (inf: for ever)."""
        ...


class Clock(Protocol):
    """Time.

    Timeouts, leases and sessions use monotonic time only; wall time is for records and logs.

    A node's clock may drift or its wall time jump in simulation; only this facade knows.
    """

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def monotonic_ms(self) -> int:
        """The same in whole milliseconds, for cores that take `now_ms`."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump either way."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    async def sleep_until(self, deadline: float) -> None:
        """Sleep until `monotonic()` has reached `deadline`."""
        ...

    def bell(self) -> Bell:
        """A new one, by the time of this clock."""
        ...

    def move_on_after(self, seconds: float) -> trio.CancelScope:
        """A scope whose body is cancelled, quietly, after that time."""
        ...

    def fail_after(self, seconds: float) -> AbstractContextManager[trio.CancelScope]:
        """The same, raising trio.TooSlowError when the time ran out."""
        ...


class Rng(Protocol):
    """Randomness, as independent streams named by purpose (`election`, `jitter`, `uuid`, ...).

    A draw from one stream never shifts another, so that adding a draw leaves the rest of a seed's
    run as it was. Asking twice for a name gives the same stream object.
    """

    def stream(self, purpose: str) -> Random: ...


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """Kernel buffer sizes; None leaves the system's default (Kafka's -1)."""

    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None


class Stream(Protocol):
    """An ordered, reliable stream of bytes between two addresses: a TCP connection.

    Sending and receiving never wait; who has nothing to do awaits wait_readable or wait_writable,
    from at most one task each. A broken connection raises a ConnectionError from whichever call
    meets it first; using a stream after `close` raises trio.ClosedResourceError, also in a task
    that waits.
    """

    @property
    def local_address(self) -> Address: ...

    @property
    def remote_address(self) -> Address: ...

    def receive_into(self, buffer: memoryview) -> int | None:
        """Fill `buffer` with bytes that are there.

        None: none yet. 0: the peer has finished sending.
        """
        ...

    def send(self, parts: Sequence[Buffer], *, more: bool = False) -> int:
        """Hand over as many bytes of `parts` as fit now and say how many; 0 means: wait_writable.

        `more` announces that further bytes follow at once, so that small packets are joined.
        """
        ...

    def send_slice(self, part: FileSlice, skip: int, *, more: bool = False) -> int:
        """As `send`, for a file slice less its first `skip` bytes; the bytes never enter Python."""
        ...

    async def wait_readable(self) -> None:
        """Return when receive_into would give bytes, 0 or an error."""
        ...

    async def wait_writable(self) -> None: ...

    def finish(self) -> None:
        """Half-close: no more bytes will be sent; receiving goes on."""
        ...

    def close(self) -> None:
        """Close in order; bytes already handed over are still delivered. Idempotent."""
        ...

    def reset(self) -> None:
        """Close at once: the peer sees a reset, what was in flight is dropped. Idempotent."""
        ...


class Listener(Protocol):
    """A bound socket.

    Connections queue in its backlog from `listen` on, whether accepted or not.
    """

    @property
    def address(self) -> Address:
        """Host and the port really bound, when 0 was asked for."""
        ...

    async def accept(self) -> Stream:
        """The next connection. OSError when the system can't give it now, as when descriptors
        have run out: it stays in the backlog, and the caller tries again after a pause.
        """
        ...

    def close(self) -> None:
        """Free the port; a task in `accept` gets trio.ClosedResourceError. Idempotent."""
        ...


class Network(Protocol):
    """The way to other processes."""

    async def listen(
        self,
        host: str | None,
        port: int,
        *,
        backlog: int = 50,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> Listener:
        """Bind; host None means every interface. `options` apply to accepted streams."""
        ...

    async def connect(
        self,
        host: str,
        port: int,
        *,
        options: SocketOptions = SocketOptions(),  # noqa: B008 (frozen)
    ) -> Stream:
        """Connect; ConnectionRefusedError is evidence that nobody listens, a timeout is none."""
        ...


class File(Protocol):
    """An open file. Positions are explicit; there is no cursor to share or to lose.

    `pread` and `pwrite` work on the page cache in place, which is what the hot path wants; `read`
    is for bytes that may be cold. Nothing is durable before `sync` or `sync_data` has returned,
    and a name not before its directory is synced. A sync that failed has lost what was unsynced:
    it must not be retried and believed.
    """

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes at `position`; short only at the end of the file."""
        ...

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; short only at the end of the file."""
        ...

    def pwrite(self, parts: Sequence[Buffer], position: int) -> int:
        """Write all parts, one behind the other, and return their length.

        On OSError (ENOSPC, EIO) any prefix may have been written: the caller truncates.
        """
        ...

    def truncate(self, size: int) -> None:
        """Set the size; grown space reads as zeros."""
        ...

    async def read(self, length: int, position: int) -> bytes:
        """As `pread`, without holding up the loop when the bytes must come from the medium."""
        ...

    def resident(self, position: int, length: int) -> bool:
        """Would reading this range, or sending it as a slice, be done without waiting for the
        medium?
        """
        ...

    async def warm(self, position: int, length: int) -> None:
        """Bring the range into the page cache."""
        ...

    async def sync(self) -> None:
        """Make data and size durable (fsync)."""
        ...

    async def sync_data(self) -> None:
        """Make data durable, with what is needed to read it back (fdatasync)."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A range of a file, as it travels from the log through the codec to the socket: never as
    bytes.
    """

    file: File
    position: int
    length: int

    def __len__(self) -> int:
        return self.length


class FileLock(Protocol):
    """An exclusive lock that the system drops when the process dies."""

    def release(self) -> None:
        """Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class FileStat:
    size: int
    is_directory: bool
    modified_ms: int


@dataclass(frozen=True, slots=True)
class DiskSpace:
    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """Files by absolute path, `/` between names.

    Opening is quick enough for the loop; whatever walks or changes directories is awaited.
    """

    def open(
        self, path: str, *, write: bool = False, create: bool = False, exclusive: bool = False
    ) -> File:
        """Open for reading, or with `write` for both; `create` makes it when absent.

        `exclusive` (with create) raises FileExistsError when it is there already.
        """
        ...

    def lock(self, path: str) -> FileLock:
        """Create and lock `path`; BlockingIOError when another holder has it."""
        ...

    async def rename(self, old: str, new: str) -> None:
        """Atomically; an existing file `new` is replaced."""
        ...

    async def unlink(self, path: str) -> None: ...

    async def make_directory(self, path: str) -> None:
        """With its parents; an existing directory is fine."""
        ...

    async def remove_directory(self, path: str) -> None:
        """An empty one."""
        ...

    async def remove_tree(self, path: str) -> None:
        """A directory and the files in it; after an error some may be left.

        IsADirectoryError if there is a directory among them.
        """
        ...

    async def list_directory(self, path: str) -> list[str]:
        """Names, sorted."""
        ...

    async def stat(self, path: str) -> FileStat: ...

    async def sync_directory(self, path: str) -> None:
        """Make the names in this directory durable."""
        ...

    async def space(self, path: str) -> DiskSpace:
        """Of the file system that holds `path`."""
        ...


# What is done late for once is late by this: less than anybody's patience.
LATE_SECONDS = 0.1


def never(site: str) -> bool:
    """`buggify` in production: no site ever fires."""
    return False


@dataclass(frozen=True, slots=True)
class World:
    """One node's view of the machine.

    `buggify(site)` is asked at places where a rare but legal choice could be made (a tiny buffer,
    a late answer, a roll right now). It is constant False in production; a simulation answers by
    its seed.
    """

    clock: Clock
    rng: Rng
    network: Network
    disk: Disk
    buggify: Buggify = never

    async def dawdle(self, site: str) -> None:
        """Be late for once; never in production."""
        if self.buggify(site):
            await self.clock.sleep(LATE_SECONDS)
