"""A group, as far as offsets, lists and deletion are concerned with it: any kind of group.

Of a group there may be two views: the newest, which operations go by, and the committed one, which
is all that readers may be shown. Methods that a read calls say `committed` in their names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import ClassVar, TypeAlias

from kraftpy.coordinator.outcome import CoordinatorRecord
from kraftpy.protocol.ids import Uuid

__all__ = ["CommitCheck", "Group", "GroupType"]

# Raises CoordinatorError for a partition that the member may not commit: by topic name, topic id
# (zero if not known) and number. One such partition spoils the request.
CommitCheck: TypeAlias = Callable[[str, Uuid, int], None]


class GroupType(StrEnum):
    """The kinds of groups, as ListGroups names them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Group(ABC):
    """One group. Each `validate_...` raises CoordinatorError with Kafka's code, or returns."""

    __slots__ = ("group_id",)

    group_type: ClassVar[GroupType]

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As Kafka's tools print it."""

    @property
    @abstractmethod
    def committed_state_name(self) -> str:
        """The same of what is committed."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """What the members speak about, e.g. "consumer"; empty if nobody has said."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members want the topic; also if that can't be known."""

    @abstractmethod
    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        *,
        is_transactional: bool,
        api_version: int,
    ) -> CommitCheck | None:
        """Whether the member may commit; `epoch` is a generation in classic groups.

        Returns what is still to be asked about single partitions, if anything is.
        """

    @abstractmethod
    def validate_committed_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether offsets may be read by this member; by anybody with neither id nor epoch."""

    @abstractmethod
    def validate_offset_delete(self) -> None:
        """Whether offsets may be deleted at all; those of subscribed topics may not anyway."""

    @abstractmethod
    def validate_delete(self) -> None:
        """Whether the group may be deleted."""

    @abstractmethod
    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """What deletes the group from the log; its offsets are not its own."""

    @abstractmethod
    def offset_retention_base_ms(self, commit_timestamp_ms: int) -> int | None:
        """Since when an offset that was committed then is not needed.

        None if it is needed still. Not asked for topics that the group is subscribed to.
        """
