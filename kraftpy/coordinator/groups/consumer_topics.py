"""What consumer groups need to know of topics: their ids, their partitions, and a hash of both.

A group is rebalanced when the hash of the topics that it reads has changed. Kafka also puts the
racks of replicas into it, for the sake of assignors that look at racks. There are none here, so a
broker that moves to another rack rebalances nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kraftpy.metadata.changes import ImageChanges, TopicChange
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.ids import ZERO_UUID, Uuid

__all__ = ["ConsumerTopics", "changed_topics"]


class ConsumerTopics:
    __slots__ = ("_image",)

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image

    @property
    def image(self) -> MetadataImage:
        return self._image()

    def ids(self, names: Iterable[str]) -> tuple[Uuid, ...]:
        """The ids of those that exist, in the order of the ids."""
        topics = self._image().topics
        found = [topics.get(name) for name in names]
        return tuple(sorted(topic.topic_id for topic in found if topic is not None))

    def id_of(self, name: str) -> Uuid:
        """Zero, which nobody's id is, for a topic that does not exist."""
        topic = self._image().topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def partition_count(self, topic_id: Uuid) -> int:
        topic = self._image().topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def hash_of(self, names: Iterable[str]) -> int:
        """One number of 64 bits for the topics and their partition counts; 0 if none exists."""
        # With OpenSSL behind it, which a node without such groups does not need.
        from hashlib import blake2b

        topics = self._image().topics
        digest = blake2b(digest_size=8)
        is_nothing = True
        for name in sorted(names):
            topic = topics.get(name)
            if topic is not None:
                is_nothing = False
                digest.update(topic.topic_id)
                digest.update(len(topic.partitions).to_bytes(4, "big"))
        return 0 if is_nothing else int.from_bytes(digest.digest(), "big", signed=True)


def changed_topics(changes: ImageChanges) -> set[str]:
    """Names of topics that came, went, or have more partitions than before."""
    return {name for change in changes.topics if (name := _changed_name(change)) is not None}


def _changed_name(change: TopicChange) -> str | None:
    before, after = change.before, change.after
    if before is None or after is None:
        topic = before or after
        return None if topic is None else topic.name
    return after.name if len(before.partitions) != len(after.partitions) else None
