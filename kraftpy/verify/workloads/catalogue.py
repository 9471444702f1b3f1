"""The workloads, W1 to W16: what each of them does, with which clients and topics, and what it may
expect of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kraftpy.verify.checkers import Expectations
from kraftpy.verify.workloads.cluster_words import Membership, Metadata
from kraftpy.verify.workloads.plans import Generator, Plan
from kraftpy.verify.workloads.port import ClientSpec
from kraftpy.verify.workloads.process import Manners
from kraftpy.verify.workloads.queue import ListAppend, QueueGenerator, QueueShape
from kraftpy.verify.workloads.transfers import AbortRewind, Bank, EosCopy, Fencing, shared_id
from kraftpy.verify.workloads.upkeep import AutoCommit, Compaction, LogOffsets, Reconfigure
from kraftpy.world import Random

__all__ = ["WORKLOADS", "Circumstances", "Drain", "Script", "Workload", "find_workload"]

_GROUP = "workload"
# Of W9, and of brokers' view of how long a transaction may last.
_SHORT_TRANSACTION_MS = 2_000
# Each step may be an abort on purpose, and there is a limit of time: who was away for long would
# never get through all that has piled up in one transaction.
_COPIED_AT_A_TIME = 32


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a run gives to its workload."""

    random: Random
    slots: int = 6
    brokers: tuple[int, ...] = (1, 2, 3)
    key_count: int = 10
    max_writes_per_key: int = 1024
    crash_mean_ms: float = 30_000
    group_protocol: Literal["classic", "consumer"] = "classic"
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    session_timeout_ms: int = 6_000

    @property
    def replication_factor(self) -> int:
        return min(3, len(self.brokers))

    @property
    def min_isr(self) -> int:
        return min(2, self.replication_factor)


SpecOf = Callable[[int, int], ClientSpec]


@dataclass(frozen=True, slots=True)
class Drain:
    """After the faults a workload goes on until a group has read these keys to their ends."""

    group_id: str
    keys: tuple[int, ...]
    end: Callable[[], None]
    """Tells the generator."""


@dataclass(frozen=True, slots=True)
class Script:
    """A workload in the circumstances of one run."""

    generator: Generator
    spec_of: SpecOf
    """By slot and process."""
    expectations: Expectations
    topic_configs: Mapping[str, str]
    replication_factor: int
    manners: Manners = field(default_factory=Manners)
    has_bare_members: bool = False
    reads_in_the_end: bool = True
    opening: Callable[[int], Plan] | None = None
    """What one process (of that number) does before all others begin, until it is ok."""
    drain: Drain | None = None
    rate_factor: float = 1.0
    """Operations a second, as a share of what was asked for."""
    acked_share: float = 0.5
    """Values that are acknowledged, for each operation of a cluster that is well."""


@dataclass(frozen=True, slots=True)
class Workload:
    id: str
    name: str
    summary: str
    build: Callable[[Circumstances], Script]


def find_workload(name: str) -> Workload:
    """By id or name; ValueError says which there are."""
    for workload in WORKLOADS:
        if name.lower() in (workload.id.lower(), workload.name):
            return workload
    names = ", ".join(f"{each.id} {each.name}" for each in WORKLOADS)
    raise ValueError(f"there is no workload {name!r}; there are: {names}")


def _script(
    about: Circumstances,
    name: str,
    generator: Generator,
    spec_of: SpecOf,
    *,
    configs: Mapping[str, str] | None = None,
    expects: Mapping[str, Any] | None = None,
    **more: Any,
) -> Script:
    return Script(
        generator,
        spec_of,
        Expectations(workload=name, **(expects or {})),
        {
            "min.insync.replicas": str(about.min_isr),
            # Records say when they were made by their value, not by a clock.
            "retention.ms": "-1",
            **(configs or {}),
        },
        about.replication_factor,
        **more,
    )


def _client(about: Circumstances, process: int, **more: Any) -> ClientSpec:
    return ClientSpec(
        client_id=f"p{process}",
        compression=about.compression,
        session_timeout_ms=about.session_timeout_ms,
        **more,
    )


def _plain(about: Circumstances) -> SpecOf:
    return lambda slot, process: _client(about, process)


def _grouped(about: Circumstances, **more: Any) -> SpecOf:
    return lambda slot, process: _client(
        about, process, group_id=_GROUP, group_protocol=about.group_protocol, **more
    )


def _transactional(about: Circumstances, *, has_group: bool = False) -> SpecOf:
    group = {"group_id": _GROUP, "group_protocol": about.group_protocol} if has_group else {}
    return lambda slot, process: _client(about, process, transactional_id=f"t{process}", **group)


def _shape(about: Circumstances, **more: Any) -> QueueShape:
    return QueueShape(
        key_count=about.key_count,
        max_writes_per_key=about.max_writes_per_key,
        crash_mean_ms=about.crash_mean_ms,
        **more,
    )


def _queue_assign(about: Circumstances) -> Script:
    generator = QueueGenerator(_shape(about), about.random)
    return _script(about, "queue-assign", generator, _plain(about))


def _queue_subscribe(about: Circumstances) -> Script:
    generator = QueueGenerator(_shape(about, subscription="subscribe"), about.random)
    return _script(about, "queue-subscribe", generator, _grouped(about))


def _queue_txn(about: Circumstances) -> Script:
    shape = _shape(about, subscription="both", is_transactional=True, max_micro=4)
    generator = QueueGenerator(shape, about.random)
    spec_of = _transactional(about, has_group=True)
    return _script(about, "queue-txn", generator, spec_of, acked_share=0.3)


def _list_append(about: Circumstances) -> Script:
    generator = ListAppend(_shape(about, send_p=0.6), about.random)
    return _script(about, "list-append", generator, _plain(about))


def _eos_copy(about: Circumstances) -> Script:
    inputs = 4
    generator = EosCopy(
        about.random, slots=about.slots, inputs=inputs, crash_mean_ms=about.crash_mean_ms
    )
    copier = _transactional(about, has_group=True)
    plain = _plain(about)

    def spec_of(slot: int, process: int) -> ClientSpec:
        if not generator.is_copier(slot):
            return plain(slot, process)
        return replace(copier(slot, process), max_poll_records=_COPIED_AT_A_TIME)

    expects = {"copy_inputs": tuple(generator.inputs)}
    return _script(
        about,
        "eos-copy",
        generator,
        spec_of,
        expects=expects,
        manners=Manners(abort_p=1 / 32),
        drain=Drain(_GROUP, tuple(generator.inputs), generator.end),
        acked_share=0.2,
    )


_CLEANED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}


def _bank(about: Circumstances) -> Script:
    generator = Bank(about.random, accounts=32, keys=4, crash_mean_ms=about.crash_mean_ms)
    expects = {"bank_total": generator.total, "compacted": True, "retention": True}
    return _script(
        about,
        "bank",
        generator,
        _transactional(about),
        configs=_CLEANED,
        expects=expects,
        manners=Manners(max_padding=4096),
        opening=generator.opening,
    )


def _abort_rewind(about: Circumstances) -> Script:
    generator = AbortRewind(about.random, slots=about.slots, keys=4)
    client = _transactional(about, has_group=True)
    plain = _plain(about)

    def spec_of(slot: int, process: int) -> ClientSpec:
        return (plain if generator.is_feeder(slot) else client)(slot, process)

    return _script(about, "abort-rewind", generator, spec_of, acked_share=0.2)


def _auto_commit(about: Circumstances) -> Script:
    generator = AutoCommit(about.random, key_count=4, crash_mean_ms=about.crash_mean_ms)
    spec_of = _grouped(about, commits_by_itself=True)
    return _script(about, "auto-commit", generator, spec_of, expects={"auto_commit": True})


def _fencing(about: Circumstances) -> Script:
    generator = Fencing(
        about.random, key_count=about.key_count, crash_mean_ms=about.crash_mean_ms / 3
    )

    def spec_of(slot: int, process: int) -> ClientSpec:
        return _client(
            about,
            process,
            transactional_id=None if generator.is_reader(slot) else shared_id(slot),
            transaction_timeout_ms=_SHORT_TRANSACTION_MS,
        )

    manners = Manners(pause_ms=3 * _SHORT_TRANSACTION_MS)
    return _script(about, "fencing", generator, spec_of, manners=manners, acked_share=0.2)


def _idempotent(about: Circumstances) -> Script:
    generator = QueueGenerator(_shape(about, sends_at_once=5), about.random)
    return _script(about, "idempotent", generator, _plain(about))


def _offsets(about: Circumstances) -> Script:
    generator = LogOffsets(_shape(about), about.random)
    return _script(about, "offsets", generator, _plain(about), expects={"retention": True})


def _metadata(about: Circumstances) -> Script:
    generator = Metadata(about.random, topics=6, brokers=about.brokers)
    return _script(
        about,
        "metadata",
        generator,
        _plain(about),
        reads_in_the_end=False,
        rate_factor=0.5,
        acked_share=0.0,
    )


def _membership(about: Circumstances) -> Script:
    generator = Membership(about.random, key_count=8, crash_mean_ms=about.crash_mean_ms)

    def spec_of(slot: int, process: int) -> ClientSpec:
        return _client(
            about,
            process,
            group_id=None if slot == 0 else _GROUP,
            group_protocol=about.group_protocol,
            group_instance_id=f"static-{slot}" if slot % 2 else None,
        )

    return _script(
        about,
        "membership",
        generator,
        spec_of,
        has_bare_members=True,
        reads_in_the_end=False,
        acked_share=0.05,
    )


def _compaction(about: Circumstances) -> Script:
    generator = Compaction(
        about.random, key_count=4, record_keys=16, crash_mean_ms=about.crash_mean_ms
    )
    return _script(
        about,
        "compaction",
        generator,
        _transactional(about),
        configs=_CLEANED,
        expects={"compacted": True, "retention": True},
        manners=Manners(max_padding=8192),
    )


def _early_read(about: Circumstances) -> Script:
    shape = _shape(about, is_transactional=True, max_micro=4, senders=0.75)
    generator = QueueGenerator(shape, about.random)
    return _script(
        about,
        "early-read",
        generator,
        _transactional(about),
        manners=Manners(intra_transaction_delay_ms=1_000),
        acked_share=0.2,
    )


def _reconfigure(about: Circumstances) -> Script:
    generator = Reconfigure(_shape(about), about.random, brokers=about.brokers)
    # A partition with one replica must still take writes.
    script = _script(
        about, "reconfigure", generator, _plain(about), configs={"min.insync.replicas": "1"}
    )
    return replace(script, rate_factor=0.7)


WORKLOADS = (
    Workload("W1", "queue-assign", "sends and polls of assigned partitions", _queue_assign),
    Workload("W2", "queue-subscribe", "the same by members of a group", _queue_subscribe),
    Workload("W3", "queue-txn", "sends, polls and offsets in transactions", _queue_txn),
    Workload("W4", "list-append", "appends, and reads of whole logs", _list_append),
    Workload("W5", "eos-copy", "a topic is copied exactly once while clients crash", _eos_copy),
    Workload("W6", "bank", "transactions move money between accounts", _bank),
    Workload("W7", "abort-rewind", "where consumers go on after an abort", _abort_rewind),
    Workload("W8", "auto-commit", "offsets that clients commit by themselves", _auto_commit),
    Workload("W9", "fencing", "producers that share a transactional id", _fencing),
    Workload("W10", "idempotent", "five batches in flight, and retries", _idempotent),
    Workload("W11", "offsets", "the ends of logs, while records are deleted", _offsets),
    Workload("W12", "metadata", "topics come, change and go; read through every broker", _metadata),
    Workload("W13", "membership", "members join, leave, crash, come back by name", _membership),
    Workload("W14", "compaction", "record keys written again, tombstones, cleaning", _compaction),
    Workload("W15", "early-read", "many slow transactions, and few who read", _early_read),
    Workload("W16", "reconfigure", "replica sets from three to one and back", _reconfigure),
)
