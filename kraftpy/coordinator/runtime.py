"""The shards of one internal topic that this broker leads.

The broker says which partitions it leads and in which epoch (`elected`, `resigned`), how far they
are committed, and what the cluster looks like. A new shard has to be loaded; the runtime says so to
`load`, which is the broker's, because reading a log takes time. Until then, and for partitions that
are led elsewhere, requests get the error that tells the client to wait or to look elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from kraftpy.coordinator.batch import Producer
from kraftpy.coordinator.failures import not_coordinator
from kraftpy.coordinator.outcome import CoordinatorError, Outcome, Reply
from kraftpy.coordinator.ports import Machine, ShardContext, ShardLog
from kraftpy.coordinator.shard import Shard
from kraftpy.coordinator.shard_writing import ShardWorld
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import EMPTY_IMAGE, MetadataImage
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.control import EndTransactionMarker

__all__ = ["CoordinatorRuntime"]

_Machine = TypeVar("_Machine", bound=Machine)
_Answer = TypeVar("_Answer")


class CoordinatorRuntime(Generic[_Machine]):
    def __init__(
        self,
        topic: str,
        world: ShardWorld,
        make_machine: Callable[[ShardContext], _Machine],
        *,
        load: Callable[[Shard[_Machine]], None],
    ) -> None:
        """`load` has a new shard's log replayed, and then activates it or fails it."""
        self.topic = topic
        self._world = world
        self._make_machine = make_machine
        self._load = load
        self._shards: dict[int, Shard[_Machine]] = {}
        self._image = EMPTY_IMAGE

    # Requests.

    def write(
        self,
        partition: int,
        operation: Callable[[_Machine], Outcome[_Answer]],
        reply: Reply[_Answer],
    ) -> None:
        """Carry an operation out; the reply comes when its records are committed."""
        shard = self._shards.get(partition)
        if shard is None:
            reply(not_coordinator())
        else:
            shard.write(operation, reply)

    def write_transactional(
        self,
        partition: int,
        operation: Callable[[_Machine], Outcome[_Answer]],
        reply: Reply[_Answer],
        producer: Producer,
    ) -> None:
        """The same, as a part of a producer's transaction."""
        shard = self._shards.get(partition)
        if shard is None:
            reply(not_coordinator())
        else:
            shard.write_transactional(operation, reply, producer)

    def complete_transaction(
        self,
        partition: int,
        marker: EndTransactionMarker,
        reply: Reply[EndTransactionMarker],
        producer: Producer,
        transaction_version: int,
    ) -> None:
        """Write the marker that ends a producer's transaction in a shard."""
        shard = self._shards.get(partition)
        if shard is None:
            reply(CoordinatorError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        else:
            shard.complete_transaction(marker, reply, producer, transaction_version)

    def read(self, partition: int, operation: Callable[[_Machine], _Answer]) -> _Answer:
        """What an operation finds in committed state. Raises CoordinatorError."""
        shard = self._shards.get(partition)
        if shard is None:
            raise not_coordinator()
        return shard.read(operation)

    def shards(self) -> Iterator[Shard[_Machine]]:
        """All of them, also those that can't be asked, in the order of their partitions."""
        return iter([self._shards[partition] for partition in sorted(self._shards)])

    # What the broker tells.

    def elected(self, partition: int, leader_epoch: int, shard_log: ShardLog) -> None:
        """This broker leads the partition. One that is known, or older, is old news (CRT-18)."""
        shard = self._shards.get(partition)
        if shard is not None and shard.leader_epoch >= leader_epoch:
            return
        self._remove(partition)
        self._start(partition, leader_epoch, shard_log)

    def resigned(self, partition: int, leader_epoch: int | None) -> None:
        """This broker no longer leads it; None for the epoch if the partition is gone."""
        shard = self._shards.get(partition)
        if shard is not None and (leader_epoch is None or leader_epoch >= shard.leader_epoch):
            self._remove(partition)

    def high_watermark_moved(self, partition: int, high_watermark: int) -> None:
        shard = self._shards.get(partition)
        if shard is not None:
            shard.high_watermark_moved(high_watermark)

    def publish(self, changes: ImageChanges, image: MetadataImage) -> None:
        """Metadata has changed; to be told before the elections in it."""
        self._image = image
        for shard in list(self._shards.values()):
            shard.metadata_changed(changes, image)

    def close(self) -> None:
        for partition in list(self._shards):
            self._remove(partition)

    def _start(self, partition: int, leader_epoch: int, shard_log: ShardLog) -> None:
        shard = self._shards[partition] = Shard(
            partition,
            leader_epoch,
            shard_log,
            self._world,
            self._make_machine,
            image=self._image,
            reload=self._reload,
        )
        self._load(shard)

    def _remove(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def _reload(self, shard: Shard[_Machine]) -> None:
        if self._shards.get(shard.partition) is shard:
            self._start(shard.partition, shard.leader_epoch, shard.log)
