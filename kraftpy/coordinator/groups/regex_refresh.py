"""The topics behind the patterns of a consumer group, found out in the background.

All patterns of a group are resolved together, at a heartbeat, when one of them is new, or topics
were created since, or the last time is long ago; not more often than every ten seconds. The member
that brings a new pattern is answered at once and has no topics of it until then. Topics that the
member whose heartbeat it was may not describe are left out for the whole group, as in Kafka.

The work is done in pieces between other things. Its result is written like any other change, and
gives the group a new epoch if it is news.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Final

from kraftpy.coordinator.groups.consumer_core import ConsumerCore
from kraftpy.coordinator.groups.consumer_draft import GroupDraft
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.coordinator.groups.consumer_records import ResolvedRegex
from kraftpy.coordinator.groups.regex_pattern import compile_pattern
from kraftpy.coordinator.outcome import CoordinatorError, Outcome
from kraftpy.metadata.changes import ImageChanges

__all__ = ["RegexRefresh"]

log = logging.getLogger(__name__)

_MIN_INTERVAL_MS: Final = 10_000
# About a millisecond's worth: names that are matched, times the size of the pattern.
_PIECE: Final = 10_000


class RegexRefresh:
    __slots__ = ("_core", "_newest_topic_version")

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        # The metadata that last brought a new topic.
        self._newest_topic_version = -1

    def loaded(self) -> None:
        """Topics may have come while nobody was looking."""
        self._newest_topic_version = self._core.topics.image.provenance.last_offset

    def metadata_changed(self, changes: ImageChanges) -> None:
        if any(change.before is None for change in changes.topics):
            self._newest_topic_version = changes.after.provenance.last_offset

    def start_if_due(self, draft: GroupDraft, may_describe: Callable[[str], bool]) -> None:
        """`may_describe` says which topics the member that asks may know of (CGP-44)."""
        regexes = draft.regexes()
        if regexes and self._is_due(draft, regexes):
            group_id = draft.group.group_id
            self._core.context.background.start(
                f"{group_id}-regex",
                self._resolve(group_id, may_describe),
                lambda result: self._resolved(group_id, result),
            )

    def _is_due(self, draft: GroupDraft, regexes: Sequence[str]) -> bool:
        known = [draft.resolved(regex) for regex in regexes]
        found = [resolved for resolved in known if resolved is not None]
        if not found:
            return True
        now_ms = self._core.context.clock.wall_ms()
        last_ms = max(resolved.timestamp_ms for resolved in found)
        # A clock that was set back does not keep a group waiting.
        if last_ms <= now_ms <= last_ms + _MIN_INTERVAL_MS:
            return False
        if len(found) < len(known):
            return True
        if min(resolved.metadata_version for resolved in found) < self._newest_topic_version:
            return True
        interval_ms = self._core.settings.consumer_regex_refresh_interval_ms
        return not last_ms <= now_ms < last_ms + interval_ms

    def _resolve(
        self, group_id: str, may_describe: Callable[[str], bool]
    ) -> Generator[None, None, dict[str, ResolvedRegex]]:
        group = self._core.directory.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return {}
        image = self._core.topics.image
        names = list(image.topics)
        resolved = {}
        for regex in sorted(group.regex_readers):
            topics: list[str] = []
            try:
                pattern = compile_pattern(regex)
            except CoordinatorError:
                # Accepted by another coordinator, with other bounds: it matches nothing here.
                log.warning("group=%r regex=%r can't be compiled", group_id, regex)
            else:
                names_in_a_piece = _PIECE // pattern.programsize + 1
                for start in range(0, len(names), names_in_a_piece):
                    piece = names[start : start + names_in_a_piece]
                    topics += [
                        name for name in piece if pattern.fullmatch(name) and may_describe(name)
                    ]
                    yield
            resolved[regex] = ResolvedRegex(
                tuple(topics),
                image.provenance.last_offset,
                self._core.context.clock.wall_ms(),
            )
        return resolved

    def _resolved(
        self, group_id: str, result: dict[str, ResolvedRegex] | Exception
    ) -> Outcome[None]:
        if isinstance(result, Exception):
            log.error("group=%r patterns can't be resolved", group_id, exc_info=result)
            return Outcome()
        group = self._core.directory.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return Outcome()
        draft = GroupDraft(group)
        is_news = False
        for regex, resolved in result.items():
            if regex in group.regex_readers:
                known = group.resolved_regexes.get(regex)
                is_news |= known is None or known.topics != resolved.topics
                draft.set_regex(regex, resolved)
        metadata_hash = self._core.topics.hash_of(draft.topic_names())
        if is_news or metadata_hash != draft.metadata_hash:
            draft.bump(metadata_hash)
        return self._core.finish(draft, None)
