"""Handlers of groups on real shards, over logs in memory, with a clock that is moved by hand."""

from __future__ import annotations

from random import Random
from typing import Any

from api.image_cluster import broker, topic, view_of
from api.recording import Bench, RecordingAnswer, payload
from coordinator.shard_kit import HandClock

from kraftpy.api.group_handlers import group_handlers
from kraftpy.broker.coordinator_lookup import CoordinatorLookup
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.memory_shard_log import MemoryShardLog
from kraftpy.coordinator.runtime import CoordinatorRuntime
from kraftpy.coordinator.shard import Shard
from kraftpy.coordinator.shard_writing import ShardSettings, ShardWorld
from kraftpy.protocol.coordinator_records import GROUP_RECORDS
from kraftpy.protocol.frames import decode_response
from kraftpy.protocol.registry import API
from kraftpy.protocol.tables import Request
from kraftpy.purgatory.timer import Timer

TOPIC = "__consumer_offsets"
PARTITIONS = 4


class Pending:
    """A request that may be answered later."""

    def __init__(self, request: Request, version: int, answer: RecordingAnswer) -> None:
        self._class = API[request.KEY].response_class
        self._version = version
        self._answer = answer

    @property
    def is_answered(self) -> bool:
        return bool(self._answer.outcome)

    @property
    def response(self) -> Any:
        assert self._answer.outcome == "sent", self._answer.outcome
        return decode_response(self._class, self._version, self._answer.sent[4:])[1]


class GroupRig:
    """A broker that leads all partitions; topic `t` has three partitions, `u` one."""

    def __init__(self, settings: GroupSettings | None = None, *, is_loaded: bool = True) -> None:
        self.clock = HandClock()
        self.timer = Timer("test", self.clock)
        self.cluster = view_of(
            broker(1),
            *topic("t", (1,), (1,), (1,)),
            *topic("u", (1,)),
            *topic(TOPIC, *[(1,)] * PARTITIONS),
        )
        self.lookup = CoordinatorLookup(TOPIC, self.cluster, PARTITIONS)
        random = Random(1)
        self.runtime: CoordinatorRuntime[GroupMachine] = CoordinatorRuntime(
            TOPIC,
            ShardWorld(
                self.clock,
                self.timer,
                Timer("test-slow", self.clock),
                ShardSettings(),
                GROUP_RECORDS,
            ),
            lambda context: GroupMachine(
                context, settings or GroupSettings(initial_rebalance_delay_ms=0), random
            ),
            load=self._load if is_loaded else lambda shard: None,
        )
        self.logs = [MemoryShardLog() for _ in range(PARTITIONS)]
        for partition, log in enumerate(self.logs):
            self.runtime.elected(partition, 0, log)
        self.bench = Bench(group_handlers(self.runtime, self.lookup, self.cluster))

    def _load(self, shard: Shard[GroupMachine]) -> None:
        shard.begin_loading(0)
        shard.activate()

    def send(self, request: Request, version: int) -> Pending:
        return Pending(request, version, self.bench.serve(payload(request, version)))

    def ask(self, request: Request, version: int) -> Any:
        """Send a request, let everything be committed, and return the answer."""
        pending = self.send(request, version)
        self.commit()
        return pending.response

    def commit(self) -> None:
        while self.timer.advance():
            pass
        for partition, log in enumerate(self.logs):
            log.high_watermark = log.log_end_offset
            self.runtime.high_watermark_moved(partition, log.high_watermark)

    def partition_of(self, group_id: str) -> int:
        return self.lookup.partition_of(group_id)
