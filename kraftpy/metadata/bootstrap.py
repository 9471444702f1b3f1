"""`bootstrap.checkpoint`: what a new cluster's metadata begins with.

`storage format` writes it into every directory, in the layout of a snapshot. It is never
replicated: the first controller that finds an empty log writes these records to it, and from then
on the log alone counts. The level of metadata.version comes first, then other features above 0 by
name, then users' credentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kraftpy.log.checkpoints import AtomicFile
from kraftpy.log.errors import StorageError
from kraftpy.metadata.batches import build_batch, read_batch
from kraftpy.metadata.record_format import MetadataRecordError, RecordDecoder
from kraftpy.metadata.records import (
    METADATA_VERSION,
    FeatureLevelRecord,
    MetadataRecord,
    UserScramCredentialRecord,
)
from kraftpy.raft.log_state import BOOTSTRAP_SNAPSHOT
from kraftpy.raft.snapshot_content import data_batches, snapshot_foot, snapshot_head
from kraftpy.raft.voters import VoterSet
from kraftpy.records.errors import RecordDataError
from kraftpy.records.walker import walk_batches
from kraftpy.world import Disk

__all__ = [
    "BOOTSTRAP_CHECKPOINT",
    "bootstrap_records",
    "bootstrap_voters",
    "read_bootstrap",
    "write_bootstrap",
]

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"

_EPOCH: Final = BOOTSTRAP_SNAPSHOT.epoch


def bootstrap_records(
    levels: Mapping[str, int], credentials: Iterable[UserScramCredentialRecord] = ()
) -> tuple[MetadataRecord, ...]:
    """The records of a new cluster; `levels` has metadata.version and no kraft.version."""
    others = sorted((name, level) for name, level in levels.items() if name != METADATA_VERSION)
    return (
        FeatureLevelRecord(METADATA_VERSION, levels[METADATA_VERSION]),
        *(FeatureLevelRecord(name, level) for name, level in others if level > 0),
        *credentials,
    )


async def write_bootstrap(
    disk: Disk, directory: str, records: tuple[MetadataRecord, ...], timestamp_ms: int
) -> None:
    """Write the file; durable when this returns."""
    head, base_offset = snapshot_head(
        epoch=_EPOCH, timestamp_ms=timestamp_ms, voters=VoterSet(), kraft_version=0
    )
    body = build_batch(records, base_offset=base_offset, epoch=_EPOCH, timestamp_ms=timestamp_ms)
    foot = snapshot_foot(
        base_offset=base_offset + len(records), epoch=_EPOCH, timestamp_ms=timestamp_ms
    )
    await AtomicFile(disk, f"{directory}/{BOOTSTRAP_CHECKPOINT}").replace(bytes(head + body + foot))


async def read_bootstrap(disk: Disk, directory: str) -> tuple[MetadataRecord, ...] | None:
    """What a new cluster begins with; None without the file. StorageError if it can't be right."""
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        data = await file.read(file.size(), 0)
    finally:
        file.close()
    decoder = RecordDecoder()
    try:
        return tuple(
            record
            for batch in data_batches(walk_batches(data))
            for record in read_batch(batch, decoder)
        )
    except (RecordDataError, MetadataRecordError) as error:
        raise StorageError(
            f"{path}: {error}; if this cluster has never run, remove {directory}/meta.properties "
            "and format the directory again"
        ) from error


def bootstrap_voters(voters: VoterSet, timestamp_ms: int) -> bytes:
    """The content of the snapshot 0-0: the first voters, at kraft.version 1, and no metadata."""
    head, end_offset = snapshot_head(
        epoch=_EPOCH, timestamp_ms=timestamp_ms, voters=voters, kraft_version=1
    )
    foot = snapshot_foot(base_offset=end_offset, epoch=_EPOCH, timestamp_ms=timestamp_ms)
    return bytes(head + foot)
