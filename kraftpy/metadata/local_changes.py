"""What changes between two images mean for the replicas of one broker.

Deletions come first where somebody acts on this: a topic may have been removed and made again under
its name between the two images, and then its old partition goes before its new one comes.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftpy.metadata.changes import ImageChanges, PartitionChange
from kraftpy.protocol.ids import Uuid

__all__ = ["LocalChanges", "local_changes"]


@dataclass(frozen=True, slots=True)
class LocalChanges:
    """One broker's part, each list by topic name and partition.

    - deletions: it had a replica and has none any more
    - leaders: it leads, and the partition epoch differs
    - elected_leaders: those of them whose leader epoch differs
    - followers: it has a replica, another or nobody leads, and the partition epoch differs
    - directories: its replica has another directory id than before, or is new
    """

    deletions: tuple[PartitionChange, ...]
    leaders: tuple[PartitionChange, ...]
    elected_leaders: tuple[PartitionChange, ...]
    followers: tuple[PartitionChange, ...]
    directories: tuple[tuple[PartitionChange, Uuid], ...]


def local_changes(changes: ImageChanges, broker_id: int) -> LocalChanges:
    deletions: list[PartitionChange] = []
    leaders: list[PartitionChange] = []
    elected_leaders: list[PartitionChange] = []
    followers: list[PartitionChange] = []
    directories: list[tuple[PartitionChange, Uuid]] = []
    for change in changes.partitions():
        before, after = change.before, change.after
        old_directory = before.directory_of(broker_id) if before else None
        directory = after.directory_of(broker_id) if after else None
        if after is None or directory is None:
            if old_directory is not None:
                deletions.append(change)
            continue
        if directory != old_directory:
            directories.append((change, directory))
        if before is not None and before.partition_epoch == after.partition_epoch:
            continue
        if after.leader != broker_id:
            followers.append(change)
            continue
        leaders.append(change)
        if before is None or before.leader_epoch != after.leader_epoch:
            elected_leaders.append(change)
    return LocalChanges(
        tuple(deletions),
        tuple(leaders),
        tuple(elected_leaders),
        tuple(followers),
        tuple(directories),
    )
