"""What differs between two images: the language in which publishers are told of the news.

Changes are computed from the images themselves, never gathered on the way from one to the other.
So they are right by construction, and there is one way for all: for a few records replayed, for
a snapshot loaded over older state, for a publisher that begins with nothing. Maps share what has
not changed, which makes it cheap: a look at each chunk, and into those that differ.

A thing whose new state equals its old one is no change, with one exception: a resource's settings
count as changed when somebody has set them, even to what they were. Brokers reload key stores and
the like on this sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, compress, islice
from operator import is_not
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kraftpy.metadata.image import (
    ConfigResource,
    EntityQuotas,
    MetadataImage,
    QuotaKey,
    ScramUser,
    TopicImage,
)
from kraftpy.metadata.records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    PartitionRecord,
    PendingDeletionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)
from kraftpy.metadata.sorted_map import Change, K, SortedMap
from kraftpy.protocol.ids import Uuid

__all__ = ["ImageChanges", "PartitionChange", "TopicChange"]

T = TypeVar("T")
V = TypeVar("V")


class PartitionChange(NamedTuple):
    """A partition of a topic as it was and as it is; None where it did not or does not exist."""

    topic: TopicImage
    partition_id: int
    before: PartitionRecord | None
    after: PartitionRecord | None


class TopicChange(NamedTuple):
    """A topic as it was and as it is; both have the same id if both are there."""

    before: TopicImage | None
    after: TopicImage | None

    def partitions(self) -> Iterator[PartitionChange]:
        """The partitions that differ, in their order."""
        topic = self.after or self.before
        if topic is None:
            return
        old = self.before.partitions if self.before else ()
        new = self.after.partitions if self.after else ()
        shared = min(len(old), len(new))
        # Of a large topic most partitions are the same, and this is all that they cost.
        for number in compress(range(shared), map(is_not, old, new)):
            if old[number] != new[number]:
                yield PartitionChange(topic, number, old[number], new[number])
        for number in range(shared, len(old)):
            yield PartitionChange(topic, number, old[number], None)
        for number in range(shared, len(new)):
            yield PartitionChange(topic, number, None, new[number])


class _part(Generic[T]):  # noqa: N801 (it stands where a decorator does)
    """A part that is computed once, when it is asked for first.

    functools.cached_property takes a lock for that, up to Python 3.11, and parts are many.
    """

    __slots__ = ("_compute", "_name")

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__

    def __get__(self, changes: ImageChanges, owner: type[ImageChanges]) -> T:
        # What it leaves on the instance is found there from now on.
        value = vars(changes)[self._name] = self._compute(changes)
        return value


class ImageChanges:
    """Everything that differs between `before` and `after`, each part computed when asked for."""

    def __init__(self, before: MetadataImage, after: MetadataImage) -> None:
        self.before = before
        self.after = after

    @_part
    def topics(self) -> tuple[TopicChange, ...]:
        """Topics in the order of their names.

        One that was removed and made again under its name is two changes: the old topic goes first.
        """
        changes: list[TopicChange] = []
        for change in _real_changes(self.before.topics, self.after.topics):
            before, after = change.before, change.after
            if before and after and before.topic_id != after.topic_id:
                changes += (TopicChange(before, None), TopicChange(None, after))
            else:
                changes.append(TopicChange(before, after))
        return tuple(changes)

    @_part
    def _partitions(self) -> tuple[PartitionChange, ...]:
        return tuple([change for topic in self.topics for change in topic.partitions()])

    def partitions(self) -> Iterator[PartitionChange]:
        """Partitions by topic and number."""
        return iter(self._partitions)

    def in_parts(self, size: int) -> Iterator[ImageChanges]:
        """The same with so many partitions at a time; the last part has all other changes too."""
        changes = chain.from_iterable(topic.partitions() for topic in self.topics)
        taken = tuple(islice(changes, size))
        while following := tuple(islice(changes, size)):
            part = ImageChanges(self.before, self.after)
            for name in _PARTS:
                # As if it had been computed.
                vars(part)[name] = ()
            vars(part)["_partitions"] = taken
            yield part
            taken = following
        last = ImageChanges(self.before, self.after)
        vars(last)["_partitions"] = taken
        yield last

    @_part
    def pending_deletions(self) -> tuple[Change[Uuid, PendingDeletionRecord], ...]:
        return _real_changes(self.before.pending_deletions, self.after.pending_deletions)

    @_part
    def brokers(self) -> tuple[Change[int, RegisterBrokerRecord], ...]:
        return _real_changes(self.before.brokers, self.after.brokers)

    @_part
    def controllers(self) -> tuple[Change[int, RegisterControllerRecord], ...]:
        return _real_changes(self.before.controllers, self.after.controllers)

    @_part
    def features(self) -> tuple[Change[str, int], ...]:
        return _real_changes(self.before.features, self.after.features)

    @_part
    def configs(self) -> tuple[Change[ConfigResource, Mapping[str, str]], ...]:
        """Resources whose settings were set, also if nothing in them differs."""
        return tuple(self.before.configs.differences(self.after.configs))

    @_part
    def client_quotas(self) -> tuple[Change[QuotaKey, EntityQuotas], ...]:
        return _real_changes(self.before.client_quotas, self.after.client_quotas)

    @_part
    def access_control_entries(self) -> tuple[Change[Uuid, AccessControlEntryRecord], ...]:
        return _real_changes(self.before.access_control_entries, self.after.access_control_entries)

    @_part
    def scram_credentials(self) -> tuple[Change[ScramUser, UserScramCredentialRecord], ...]:
        return _real_changes(self.before.scram_credentials, self.after.scram_credentials)

    @_part
    def delegation_tokens(self) -> tuple[Change[str, DelegationTokenRecord], ...]:
        return _real_changes(self.before.delegation_tokens, self.after.delegation_tokens)


_PARTS: Final = tuple(
    name for name, value in vars(ImageChanges).items() if isinstance(value, _part)
)


def _real_changes(before: SortedMap[K, V], after: SortedMap[K, V]) -> tuple[Change[K, V], ...]:
    # One map for both is the rule: most records change one part of an image.
    if before is after:
        return ()
    return tuple([change for change in before.differences(after) if change.before != change.after])
