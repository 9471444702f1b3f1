"""A fetcher of a simulated broker: the product's core, stepped by events of the heap.

It does one thing at a time, as the task in trio does, and takes the next step some time after the
last one. Changes of logs take time too; one whose partition has been taken away by then is not
made, as if it had not begun.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kraftpy.broker.fetcher_core import FetcherCore
from kraftpy.broker.fetcher_steps import (
    ChangeLogs,
    Fetch,
    FetcherSettings,
    FindOffsets,
    Idle,
    LogChange,
    UnlimitedTraffic,
)
from kraftpy.broker.partition import Partition
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.protocol.schema.k01_fetch import FetchRequest, FetchResponse
from kraftpy.protocol.schema.k02_list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftpy.sim.cluster_network import ClusterNetwork

if TYPE_CHECKING:
    from kraftpy.sim.cluster_broker import SimulatedBroker

__all__ = ["SimulatedFetcher"]

_ANSWER_LIMIT_US = 1_000_000
_CALM_PAUSE_US = 50_000


class SimulatedFetcher:
    __slots__ = (
        "_broker",
        "_change_us",
        "_changes",
        "_core",
        "_is_asking",
        "_make",
        "_network",
        "_pause_us",
        "_source_id",
        "_turn",
    )

    def __init__(
        self,
        broker: SimulatedBroker,
        source_id: int,
        network: ClusterNetwork,
        *,
        pause_us: int,
        change_us: int,
        make: Callable[[LogChange], None],
    ) -> None:
        """It waits for `pause_us` after an answer without records, while faults happen. `make`
        changes a log, which takes `change_us`.
        """
        self._broker = broker
        self._source_id = source_id
        self._network = network
        self._pause_us = pause_us
        self._change_us = change_us
        self._make = make
        self._core = FetcherCore(
            FetcherSettings(broker_id=broker.node_id, backoff_ms=500, first_backoff_ms=20),
            UnlimitedTraffic(),
            lambda: broker.broker_epoch,
        )
        # The number of what is waited for; whatever has another comes too late.
        self._turn = 0
        self._is_asking = False
        # Changes of logs that are under way.
        self._changes: list[LogChange] = []

    def add(self, partition: Partition) -> None:
        self.remove(partition.topic_partition)
        self._core.add(partition)
        if not self._is_asking and not self._changes:
            self._go_on(self._broker.task_delay_us())

    def remove(self, name: TopicPartition) -> None:
        self._core.remove((name,))
        had_changes = bool(self._changes)
        self._changes = [each for each in self._changes if each.partition.topic_partition != name]
        if had_changes and not self._changes:
            self._go_on(self._broker.task_delay_us())

    def interrupted(self) -> None:
        """The process was paused: whatever was to come did not."""
        if self._is_asking:
            self._lost(self._turn)
        elif self._changes:
            self._change_soon()
        else:
            self._go_on(self._broker.task_delay_us())

    def _go_on(self, delay_us: int) -> None:
        self._turn += 1
        self._broker.plan(delay_us, partial(self._step, self._turn))

    def _step(self, turn: int) -> None:
        if turn != self._turn:
            return
        now_ms = self._broker.node.now_ms()
        step = self._core.next_step(now_ms)
        match step:
            case Idle(until_ms=until_ms):
                # Without a time, somebody will add a partition.
                if until_ms is not None:
                    self._go_on(1_000 * max(1, until_ms - now_ms))
            case ChangeLogs(changes=changes):
                self._changes = list(changes)
                self._change_soon()
            case Fetch(request=request) | FindOffsets(request=request):
                self._ask(request)

    def _change_soon(self) -> None:
        self._turn += 1
        self._broker.plan(self._change_us, partial(self._change, self._turn))

    def _change(self, turn: int) -> None:
        if turn != self._turn:
            return
        changes, self._changes = self._changes, []
        for change in changes:
            self._make(change)
            self._core.changed(change, self._broker.node.now_ms())
        self._go_on(self._broker.task_delay_us())

    def _ask(self, request: FetchRequest | ListOffsetsRequest) -> None:
        self._turn += 1
        self._is_asking = True
        self._broker.plan(_ANSWER_LIMIT_US, partial(self._lost, self._turn))
        heard = partial(self._hear, self._broker.node.incarnation, self._turn)
        self._network.fetch(self._broker.node_id, self._source_id, request, heard)

    def _lost(self, turn: int) -> None:
        if turn == self._turn and self._is_asking:
            self._is_asking = False
            self._core.failed_request(self._broker.node.now_ms(), "no answer")
            self._go_on(self._broker.task_delay_us())

    def _hear(self, incarnation: int, turn: int, response: object) -> None:
        node = self._broker.node
        if incarnation != node.incarnation or node.paused or turn != self._turn:
            return
        self._is_asking = False
        delay_us = min(self._pause_us, _CALM_PAUSE_US) if self._broker.is_calm else self._pause_us
        if isinstance(response, FetchResponse):
            self._core.answered(response, node.now_ms())
            if any(data.records for each in response.responses for data in each.partitions):
                delay_us = 0
        elif isinstance(response, ListOffsetsResponse):
            self._core.offsets_answered(response, node.now_ms())
        self._go_on(delay_us + self._broker.task_delay_us())
