"""The ground truth at the end of a run: what every replica holds, and what coordinators decided.

A raw client, or the simulator, reads every replica of every key from its log start to its end, and
asks coordinators for their states. With it checkers can say where an unread value went (lost, or
there but never delivered), whether replicas agree, and what no client can see by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Audit", "AuditedBatch", "AuditedRecord", "ReplicaAudit"]


@dataclass(frozen=True, slots=True)
class AuditedRecord:
    offset: int
    value: int | None
    """None where its header did not parse."""
    operation: int | None = None
    """The index of the operation that sent it, if the record says so."""


@dataclass(frozen=True, slots=True)
class AuditedBatch:
    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    kind: Literal["data", "commit", "abort"] = "data"
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    records: tuple[AuditedRecord, ...] = ()

    @property
    def identity(self) -> tuple[object, ...]:
        """What two replicas must agree on."""
        return (
            self.base_offset,
            self.last_offset,
            self.leader_epoch,
            self.crc,
            self.kind,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
        )


@dataclass(frozen=True, slots=True)
class ReplicaAudit:
    key: int
    node: int
    log_start: int
    last_stable: int
    high_watermark: int
    log_end: int
    batches: tuple[AuditedBatch, ...]
    is_leader: bool = False


@dataclass(frozen=True, slots=True)
class Audit:
    replicas: tuple[ReplicaAudit, ...] = ()
    expected_replicas: Mapping[int, int] = field(default_factory=dict)
    """How many replicas each key has; one of them unread makes the run inconclusive."""
    decisions: Mapping[tuple[int, int], Literal["commit", "abort"]] = field(default_factory=dict)
    """What the coordinator decided for (producer id, producer epoch), where it still knows."""
    committed_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """By (group, key)."""
