"""Keys of a history, and the partitions that stand behind them.

Key k is partition `k % P` of topic `<prefix><k // P>`: a bijection, so that an answer that names
another partition than the one written to is seen (anomaly `misrouted`).
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftpy.client.calls import TopicPartition

__all__ = ["KeySpace"]


class KeySpace:
    __slots__ = ("partitions_per_topic", "prefix")

    def __init__(self, prefix: str = "t", partitions_per_topic: int = 2) -> None:
        if partitions_per_topic < 1:
            raise ValueError("a topic has at least one partition")
        self.prefix = prefix
        self.partitions_per_topic = partitions_per_topic

    def where(self, key: int) -> TopicPartition:
        if key < 0:
            raise ValueError(f"there is no key {key}")
        topic, partition = divmod(key, self.partitions_per_topic)
        return TopicPartition(f"{self.prefix}{topic}", partition)

    def key_of(self, topic: str, partition: int) -> int | None:
        """The key of a partition; None if it is not one of this space."""
        number = topic.removeprefix(self.prefix)
        is_ours = topic.startswith(self.prefix) and number.isascii() and number.isdigit()
        if not is_ours or not 0 <= partition < self.partitions_per_topic:
            return None
        if str(int(number)) != number:
            return None
        return int(number) * self.partitions_per_topic + partition

    def topics(self, keys: Iterable[int]) -> list[str]:
        """The topics of these keys, each once, in the order of the keys."""
        return list(dict.fromkeys(self.where(key).topic for key in keys))

    def keys_of(self, topic: str) -> list[int]:
        """All keys of a topic."""
        found = (self.key_of(topic, number) for number in range(self.partitions_per_topic))
        return [key for key in found if key is not None]
