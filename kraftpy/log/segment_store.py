"""The files of one segment, data and indexes, as a unit: synced, renamed, moved, closed together.

What makes a segment exist is its data file. Of the indexes any may be missing: that of transactions
because there were none, the others because a crash has taken them.
"""

from __future__ import annotations

from contextlib import suppress
from sys import intern

from kraftpy.log.handles import HandlePool, PooledFile
from kraftpy.log.index import OffsetIndex, TimeIndex
from kraftpy.log.segment_files import SEGMENT_KINDS, FileKind, file_name
from kraftpy.log.transactions import TransactionIndex
from kraftpy.world import Disk

__all__ = ["SegmentStore"]


class SegmentStore:
    """The foundation of Segment."""

    __slots__ = (
        "_files",
        "base_offset",
        "log_file",
        "offset_index",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        pool: HandlePool,
        directory: str,
        base_offset: int,
        *,
        index_bytes: int,
        has_transaction_index: bool,
        suffix: str,
    ) -> None:
        """None of the files is opened yet."""
        # In the order of SEGMENT_KINDS. Their names are those of every log's first segment, mostly.
        self._files = tuple(
            pool.file_in(
                directory, intern(file_name(base_offset, kind, suffix)), write=True, create=True
            )
            for kind in SEGMENT_KINDS
        )
        self.base_offset = base_offset
        self.log_file, offset_file, time_file, transaction_file = self._files
        self.offset_index = OffsetIndex(offset_file, base_offset, index_bytes)
        self.time_index = TimeIndex(time_file, base_offset, index_bytes)
        self.transaction_index = TransactionIndex(
            transaction_file, base_offset, exists=has_transaction_index
        )

    @property
    def files(self) -> list[PooledFile]:
        """Those that exist, the data first."""
        return [
            file
            for kind, file in zip(SEGMENT_KINDS, self._files, strict=True)
            if kind is not FileKind.TRANSACTION_INDEX or self.transaction_index.exists
        ]

    def write_out(self) -> None:
        """Give the files what is only in memory, before they are synced."""
        self.offset_index.write_out()
        self.time_index.write_out()

    async def sync(self) -> None:
        """Make data and indexes durable."""
        await self.log_file.sync()
        await self.offset_index.sync()
        await self.time_index.sync()
        await self.transaction_index.sync()

    async def rename(self, disk: Disk, directory: str, suffix: str) -> None:
        """Give the files another suffix, or none.

        What makes a segment exist is its data file, so that goes first on the way out and comes
        last on the way in. Readers are not disturbed.
        """
        files = list(zip(SEGMENT_KINDS, self._files, strict=True))
        for kind, file in files if suffix else reversed(files):
            new_path = f"{directory}/{file_name(self.base_offset, kind, suffix)}"
            if kind is FileKind.LOG:
                await disk.rename(file.path, new_path)
            else:
                # There may be none: of transactions, or because a crash has taken it.
                with suppress(FileNotFoundError):
                    await disk.rename(file.path, new_path)
            file.moved(new_path)

    def moved(self, directory: str) -> None:
        """The directory was renamed."""
        for file in self._files:
            file.moved(f"{directory}/{file.path.rpartition('/')[2]}")

    def close(self) -> None:
        """No more use. An untouched index is left as it is."""
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()
        self.log_file.close()

    def close_untouched(self) -> None:
        """Close without a change to any file: the directory is offline."""
        for file in self._files:
            file.close()
