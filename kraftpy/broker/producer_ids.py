"""Producer ids, for idempotent producers: unique in the cluster, handed out without asking anybody.

The controller gives each broker that asks a block of a thousand ids for itself alone. When a tenth
of the last block is left, the next one is asked for, so that producers hardly ever wait. Ids are
never given twice: what is left of a block when a broker stops is lost, as in Kafka. Whoever can't
be served at once waits for the block that is under way. If it doesn't come, all who wait are told
to ask again, and the next one to come makes the next attempt.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

import trio

from kraftpy.broker.controller_channel import ControllerChannel, ControllerUnreachable
from kraftpy.client.errors import UnsupportedVersion
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kraftpy.world import Buggify, never

__all__ = ["ProducerIdBlocks", "ProducerIdReply", "ProducerIds"]

log = logging.getLogger(__name__)

# Producers ask again by themselves after that, and their own patience is longer.
_ANSWER_TIMEOUT_MS: Final = 10_000
_PART_LEFT_TO_ASK: Final = 10

ProducerIdReply: TypeAlias = Callable[[int | ErrorCode], None]
"""Takes the new id, or why there is none now."""


class ProducerIdBlocks:
    """The ids that this broker may hand out. No I/O."""

    __slots__ = ("_blocks", "_left", "_newest_length")

    def __init__(self) -> None:
        self._blocks: deque[range] = deque()
        self._left = 0
        self._newest_length = 0

    @property
    def is_low(self) -> bool:
        """Whether another block should be asked for."""
        return self._left * _PART_LEFT_TO_ASK <= self._newest_length

    def add(self, first: int, length: int) -> None:
        self._blocks.append(range(first, first + length))
        self._left += length
        self._newest_length = length

    def take(self) -> int | None:
        """The next id; None when there is none left."""
        if not self._blocks:
            return None
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        self._left -= 1
        return block[0]


class ProducerIds:
    """Its tasks live in `nursery`; at most one of them at a time."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: ControllerChannel,
        nursery: trio.Nursery,
        buggify: Buggify = never,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._nursery = nursery
        self._buggify = buggify
        self._blocks = ProducerIdBlocks()
        self._waiting: deque[ProducerIdReply] = deque()
        self._is_asking = False

    def provide(self, reply: ProducerIdReply) -> None:
        """Have `reply` called once: at once when there is an id, later by another task if not."""
        producer_id = self._blocks.take()
        if producer_id is None:
            self._waiting.append(reply)
        if self._blocks.is_low and not self._is_asking:
            self._is_asking = True
            self._nursery.start_soon(self._ask, name="producer-ids")
        if producer_id is not None:
            reply(producer_id)

    async def _ask(self) -> None:
        """Get blocks until nobody waits, or until one can't be had."""
        try:
            while self._blocks.is_low and await self._ask_for_block():
                self._serve_waiting()
        finally:
            self._is_asking = False
        while self._waiting:
            self._waiting.popleft()(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def _ask_for_block(self) -> bool:
        request = AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        try:
            answer: AllocateProducerIdsResponse = await self._channel.request(
                request, timeout_ms=_ANSWER_TIMEOUT_MS
            )
        except (ControllerUnreachable, UnsupportedVersion) as error:
            log.warning("no producer ids: %s", error)
            return False
        if answer.error_code != ErrorCode.NONE or answer.producer_id_len < 1:
            log.warning("no producer ids error=%d", answer.error_code)
            return False
        is_short = self._buggify("producer-ids-wasted")
        self._blocks.add(answer.producer_id_start, 1 if is_short else answer.producer_id_len)
        return True

    def _serve_waiting(self) -> None:
        while self._waiting:
            producer_id = self._blocks.take()
            if producer_id is None:
                return
            self._waiting.popleft()(producer_id)
