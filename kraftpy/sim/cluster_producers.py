"""Idempotent producers of the simulated cluster, with transactions in some seeds.

Each has one batch under way, which it sends until it is acknowledged, to whomever it is told to
lead; then the next one. Whoever has acknowledged all before must take it, or know it already and
say where it is. The ends of transactions are written as a coordinator does it, in the same order.

Now and then a broken producer leaves a sequence out: nobody may take that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple, TypeAlias

from kraftpy.broker.partition import ALL_IN_SYNC
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.control import EndTransactionMarker, build_end_transaction
from kraftpy.records.validation import AppendOrigin
from kraftpy.sim.cluster_data_rules import DataRules, PartitionKey
from kraftpy.sim.cluster_network import CLIENT, ClusterNetwork
from kraftpy.sim.cluster_swarm import ClusterSwarm

__all__ = ["BATCH_MAX", "WALL_MS", "OnProduced", "Produced", "SequencedProducers"]

BATCH_MAX = 3
# Records are as old as each other.
WALL_MS = 1_767_225_600_000
_ENDS = 0.3
_GAP = 0.03
# So many that what comes late is not the next one by then.
_LEFT_OUT = 1_000_000


class Produced(NamedTuple):
    """An answer to a producer."""

    code: ErrorCode
    # What is found where the answer says that the first record is; None if nothing is.
    value: bytes | None
    # Whether the leader is one by the truth of that moment, and must know what was acknowledged.
    is_judged: bool


OnProduced: TypeAlias = Callable[[Produced], None]


class _Producer:
    """What it has under way is `records`, of which the first has this value."""

    __slots__ = (
        "count",
        "first_value",
        "is_marker",
        "is_open",
        "producer_id",
        "records",
        "sequence",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.sequence = 0
        # Whether its transaction is open, or might be.
        self.is_open = False
        self.records: bytes | None = None
        self.is_marker = False
        self.first_value = b""
        self.count = 0


class SequencedProducers:
    """One for each partition."""

    __slots__ = ("_last_id", "_network", "_next_value", "_producers", "_random", "_rules", "_swarm")

    def __init__(
        self,
        network: ClusterNetwork,
        rules: DataRules | None,
        swarm: ClusterSwarm,
        random: Random,
        next_value: Callable[[], bytes],
    ) -> None:
        self._network = network
        self._rules = rules
        self._swarm = swarm
        self._random = random
        self._next_value = next_value
        self._producers: dict[PartitionKey, _Producer] = {}
        self._last_id = 0

    @property
    def _may_be_forgotten(self) -> bool:
        """Where records are deleted, a log that is read anew has lost what they told of producers.

        Real logs have snapshots of them; these have not.
        """
        return self._swarm.deletions > 0

    def act(self, key: PartitionKey, broker_id: int) -> None:
        """Send what is under way, or the next thing, to that broker."""
        replicas = self._network.replicas.get(broker_id)
        if replicas is None:
            return
        producer = self._producers.get(key)
        if producer is None:
            self._last_id += 1
            producer = self._producers[key] = _Producer(self._last_id)
        records = producer.records
        if records is None:
            records = producer.records = self._next(producer)
        leaves_out = self._random.random() < _GAP and not self._may_be_forgotten
        if leaves_out and not producer.is_marker and producer.sequence > 0:
            gap = self._batch(producer, producer.sequence + _LEFT_OUT)
            refused = partial(self._refused, key, producer)
            arrive = partial(replicas.produce, key, gap, ALL_IN_SYNC, refused)
        else:
            origin = AppendOrigin.COORDINATOR if producer.is_marker else AppendOrigin.CLIENT
            answered = partial(self._answered, key, producer, records)
            arrive = partial(replicas.produce, key, records, ALL_IN_SYNC, answered, origin)
        self._network.carry(CLIENT, broker_id, arrive)

    def _next(self, producer: _Producer) -> bytes:
        producer.is_marker = producer.is_open and self._random.random() < _ENDS
        if producer.is_marker:
            marker = EndTransactionMarker(self._random.random() < 0.5, 0)
            return bytes(
                build_end_transaction(
                    marker,
                    producer_id=producer.producer_id,
                    producer_epoch=0,
                    timestamp_ms=WALL_MS,
                )
            )
        producer.is_open = self._swarm.transactional
        producer.count = self._random.randint(1, BATCH_MAX)
        return self._batch(producer, producer.sequence)

    def _batch(self, producer: _Producer, sequence: int) -> bytes:
        builder = BatchBuilder(
            producer_id=producer.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=self._swarm.transactional,
        )
        values = [self._next_value() for _ in range(producer.count)]
        for value in values:
            builder.append(None, value, timestamp_ms=WALL_MS)
        if sequence == producer.sequence:
            producer.first_value = values[0]
        return bytes(builder.build())

    def _answered(
        self,
        key: PartitionKey,
        producer: _Producer,
        records: bytes,
        answer: Produced,
    ) -> None:
        if producer.records is not records or self._producers.get(key) is not producer:
            return
        if answer.code is ErrorCode.NONE:
            if not producer.is_marker:
                if answer.is_judged and self._rules is not None and answer.value is not None:
                    self._rules.placed(key, producer.first_value, answer.value)
                producer.sequence += producer.count
            else:
                producer.is_open = False
            producer.records = None
        elif answer.code in _REFUSALS:
            if answer.is_judged and self._rules is not None and not self._may_be_forgotten:
                self._rules.refused(
                    key, f"{producer.producer_id} at {producer.sequence}: {answer.code!r}"
                )
            # It was an old leader, or the cluster has lost what it had; then somebody else begins.
            if self._random.random() < 0.2:
                del self._producers[key]

    def _refused(self, key: PartitionKey, producer: _Producer, answer: Produced) -> None:
        """An answer to a batch that has left sequences out."""
        if answer.code is ErrorCode.NONE and answer.is_judged and self._rules is not None:
            self._rules.gap_taken(key, f"{producer.producer_id} at {producer.sequence}")


_REFUSALS = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
)
