"""Topics that come into being because somebody asked about them (auto.create.topics.enable).

Whoever names a topic that isn't there gets LEADER_NOT_AVAILABLE at once and asks again; meanwhile
the creation is on its way to the controller. However many ask, and however often, one creation of a
topic is under way at a time, and after one that failed there is none for a while: its error is the
answer then. What is known of topics is bounded, so that inventing names fills no memory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftpy.broker.envelope import Sender, joined
from kraftpy.broker.forwarder import FORWARDING_TIMEOUT_MS, Forwarder
from kraftpy.protocol.codec import DecodeError
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.frames import decode_response, encode_request
from kraftpy.protocol.schema.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kraftpy.world import Clock

__all__ = ["AutoTopicCreation", "TopicTemplate"]

log = logging.getLogger(__name__)

# How many topics may be under way, or have failed lately.
_MAX_REMEMBERED: Final = 1_000
# How long a failure is the answer before the next attempt.
_HOLD_OFF_MS: Final = 1_000
_VERSION: Final = 7
_UNKNOWN: Final = ErrorCode.UNKNOWN_SERVER_ERROR
_CLIENT_ID: Final = "kraftpy-auto-create"


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """What a topic is created like."""

    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


class AutoTopicCreation:
    def __init__(
        self,
        forwarder: Forwarder,
        clock: Clock,
        template: TopicTemplate,
        special: Mapping[str, TopicTemplate] | None = None,
    ) -> None:
        """`special` topics, the internal ones, have templates of their own."""
        self._forwarder = forwarder
        self._clock = clock
        self._template = template
        self._special = special or {}
        self._under_way: dict[str, None] = {}
        # Code, and until when it is the answer.
        self._failures: dict[str, tuple[ErrorCode, int]] = {}

    def create(self, names: Sequence[str], sender: Sender | None = None) -> dict[str, ErrorCode]:
        """Have these topics created; what to say of each in the meantime.

        It is for this client, who must have the right to it, or else for the broker itself.
        """
        now_ms = self._clock.monotonic_ms()
        codes: dict[str, ErrorCode] = {}
        fresh: list[str] = []
        for name in dict.fromkeys(names):
            failure = self._failures.get(name)
            if failure is not None and now_ms < failure[1]:
                codes[name] = failure[0]
            elif name in self._under_way:
                codes[name] = ErrorCode.LEADER_NOT_AVAILABLE
            elif self._has_room(now_ms):
                self._failures.pop(name, None)
                self._under_way[name] = None
                fresh.append(name)
                codes[name] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if fresh:
            self._send(fresh, sender)
        return codes

    def _has_room(self, now_ms: int) -> bool:
        if len(self._under_way) + len(self._failures) >= _MAX_REMEMBERED:
            self._failures = {
                name: failure for name, failure in self._failures.items() if now_ms < failure[1]
            }
        return len(self._under_way) + len(self._failures) < _MAX_REMEMBERED

    def _send(self, names: list[str], sender: Sender | None) -> None:
        request = CreateTopicsRequest(
            topics=[self._creatable(name) for name in names], timeout_ms=FORWARDING_TIMEOUT_MS
        )

        def reply(outcome: bytes | ErrorCode) -> None:
            codes = outcome if isinstance(outcome, ErrorCode) else _decoded(outcome)
            self._finish(names, codes)

        def own_reply(outcome: CreateTopicsResponse | ErrorCode) -> None:
            self._finish(names, outcome if isinstance(outcome, ErrorCode) else _codes_of(outcome))

        if sender is None:
            self._forwarder.ask(request, own_reply, timeout_ms=FORWARDING_TIMEOUT_MS)
        else:
            frame = joined(encode_request(request, _VERSION, 0, _CLIENT_ID))
            self._forwarder.forward(frame, sender, reply, timeout_ms=FORWARDING_TIMEOUT_MS)

    def _creatable(self, name: str) -> CreatableTopic:
        template = self._special.get(name, self._template)
        return CreatableTopic(
            name=name,
            num_partitions=template.num_partitions,
            replication_factor=template.replication_factor,
            configs=[
                CreatableTopicConfig(name=key, value=value)
                for key, value in template.configs.items()
            ],
        )

    def _finish(self, names: list[str], codes: Mapping[str, ErrorCode] | ErrorCode) -> None:
        """The controller has answered, or hasn't: remember what went wrong."""
        hold_off_until_ms = self._clock.monotonic_ms() + _HOLD_OFF_MS
        for name in names:
            del self._under_way[name]
            code = codes if isinstance(codes, ErrorCode) else codes.get(name, _UNKNOWN)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                log.info("topic=%s can't be created automatically: %s", name, code.name)
                self._failures[name] = (code, hold_off_until_ms)


def _decoded(answer: bytes) -> dict[str, ErrorCode] | ErrorCode:
    try:
        _, response = decode_response(CreateTopicsResponse, _VERSION, answer)
    except DecodeError as error:
        log.error("the controller's answer is malformed: %s", error)
        return _UNKNOWN
    return _codes_of(response)


def _codes_of(response: CreateTopicsResponse) -> dict[str, ErrorCode] | ErrorCode:
    try:
        return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}
    except ValueError as error:
        log.error("the controller's answer is malformed: %s", error)
        return _UNKNOWN
