"""Which deletions of topics this broker has finished, for its heartbeats.

The metadata lists the replicas of removed topics whose files may still be somewhere; a broker says
when its part is gone. It does not remember what it deleted: it looks at what there is. So a process
that ended between unlinking and telling leaves nothing undone, nor does a topic that was removed
before this broker had made a log for it.

What lies in a directory that is offline can't be seen. Then only what was seen to go counts.
"""

from __future__ import annotations

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.log.partitions import Partitions
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.ids import Uuid

__all__ = ["DeletedTopics"]


class DeletedTopics:
    __slots__ = ("_broker_id", "_logs", "_unlinked", "told")

    def __init__(self, broker_id: int, logs: Partitions) -> None:
        self._broker_id = broker_id
        self._logs = logs
        # Seen to go by this process, as long as the metadata waits for them.
        self._unlinked: dict[tuple[Uuid, int], None] = {}
        # What was finished when somebody asked last.
        self.told: list[Uuid] = []

    def unlinked(self, topic_partition: TopicPartition, topic_id: Uuid | None) -> None:
        if topic_id is not None:
            self._unlinked[topic_id, topic_partition[1]] = None

    def finished(self, image: MetadataImage) -> list[Uuid]:
        """The topics that `image` waits for this broker to delete, and that are gone from it."""
        finished: list[Uuid] = []
        self.told = finished
        if not image.pending_deletions:
            self._unlinked.clear()
            return finished
        for topic_id, pending in image.pending_deletions.items():
            mine = [each for each in pending.replicas if each.broker_id == self._broker_id]
            if mine and all(
                self._is_gone((pending.name, each.partition_id), topic_id) for each in mine
            ):
                finished.append(topic_id)
        self._unlinked = {
            key: None for key in self._unlinked if image.pending_deletions.get(key[0]) is not None
        }
        return finished

    def _is_gone(self, topic_partition: TopicPartition, topic_id: Uuid) -> bool:
        if (topic_id, topic_partition[1]) in self._unlinked:
            return True
        logs = self._logs
        if not all(each.is_online for each in logs.directories):
            return False
        if logs.get(topic_partition) is not None and logs.topic_id(topic_partition) in (
            topic_id,
            None,
        ):
            return False
        return not any(each.is_removing(topic_partition, topic_id) for each in logs.directories)
