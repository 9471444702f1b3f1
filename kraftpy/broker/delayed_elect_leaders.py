"""An ElectLeaders that waits until this broker's own metadata shows the leaders.

The controller has answered, so the elections are committed; but whoever asked would be told of the
old leaders if it asked this broker now. As in delayed_produce.py, each partition begins as timed
out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kraftpy.log.checkpoints import TopicPartition
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.records import NO_LEADER
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k43_elect_leaders import PartitionResult
from kraftpy.purgatory.operation import DelayedOperation

__all__ = ["DelayedElectLeaders", "PendingElection"]


class PendingElection:
    """A leader that was elected, and is perhaps not known here yet."""

    __slots__ = ("_is_preferred", "answer", "topic_partition")

    def __init__(
        self, topic_partition: TopicPartition, answer: PartitionResult, *, is_preferred: bool
    ) -> None:
        self.topic_partition = topic_partition
        self.answer = answer
        self._is_preferred = is_preferred

    def is_shown(self, image: MetadataImage) -> bool:
        """What was removed since is nobody's concern any more."""
        name, index = self.topic_partition
        topic = image.topics.get(name)
        partition = None if topic is None else image.partition(topic.topic_id, index)
        if partition is None:
            return True
        if self._is_preferred:
            return partition.leader == partition.replicas[0]
        return partition.leader != NO_LEADER


class DelayedElectLeaders(DelayedOperation):
    __slots__ = ("_image", "_pending", "_respond")

    def __init__(
        self,
        delay_ms: int,
        pending: Sequence[PendingElection],
        image: Callable[[], MetadataImage],
        *,
        respond: Callable[[], None],
    ) -> None:
        """`image` is what this broker knows now; `respond` sends the answer that the pending ones
        are parts of.
        """
        super().__init__(delay_ms)
        self._pending = list(pending)
        self._image = image
        self._respond = respond
        for each in pending:
            each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT

    def try_complete(self) -> bool:
        image = self._image()
        still_pending = []
        for each in self._pending:
            if each.is_shown(image):
                each.answer.error_code = ErrorCode.NONE
            else:
                still_pending.append(each)
        self._pending = still_pending
        return not still_pending and self.force_complete()

    def on_complete(self) -> None:
        self._respond()
