"""Rows that are looked at twice: set aside in memory, and in a file if they are many."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile

import pyarrow as pa

__all__ = ["RowsAside"]

_IN_MEMORY_BYTES = 16 * 1024 * 1024


class RowsAside:
    """A context manager; what was set aside is gone afterwards."""

    def __init__(self, in_memory_bytes: int = _IN_MEMORY_BYTES) -> None:
        self._file = SpooledTemporaryFile(max_size=in_memory_bytes)  # noqa: SIM115 (see __exit__)

    def __enter__(self) -> RowsAside:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def take_in(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hands each on when it is set aside; there must be one."""
        first = next(batches)
        with pa.ipc.new_stream(self._file, first.schema) as writer:
            writer.write_batch(first)
            yield first
            for batch in batches:
                writer.write_batch(batch)
                yield batch

    def again(self) -> Iterator[pa.RecordBatch]:
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)
