"""Every workload against whole nodes in virtual time: the code that the process suite runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from jepsen.simulated_workloads import simulate

from kraftpy.verify.history import History
from kraftpy.verify.workloads import catalogue
from kraftpy.verify.workloads.catalogue import WORKLOADS
from kraftpy.verify.workloads.own_client import OwnClient, open_own_client
from kraftpy.verify.workloads.port import ClientSpec, PolledRecord
from kraftpy.world import Address, World

# What a run of each must have done at least once for its verdict to say anything.
PURPOSES = {
    "queue-assign": ["assign", "send", "poll"],
    "queue-subscribe": ["subscribe", "send", "poll"],
    "queue-txn": ["assign", "subscribe", "txn"],
    "list-append": ["assign", "send", "poll"],
    "eos-copy": ["subscribe", "send", "txn"],
    "bank": ["send", "poll"],
    "abort-rewind": ["subscribe", "txn", "committed"],
    "auto-commit": ["subscribe", "committed"],
    "fencing": ["init_producer", "send", "poll"],
    "idempotent": ["send", "poll"],
    "offsets": ["end_offsets", "delete_records"],
    "metadata": ["md_create", "md_write", "md_read", "md_delete"],
    "membership": ["join_view", "commit", "committed", "leave"],
    "compaction": ["send", "poll"],
    "early-read": ["send", "poll"],
    "reconfigure": ["reassign", "send", "poll"],
}
# A classic group waits for its members, also for those that are gone.
OTHERS: dict[str, dict[str, Any]] = {
    "membership": {"seconds": 20, "crash_mean_ms": 10_000},
}


@pytest.mark.parametrize("name", [workload.name for workload in WORKLOADS])
def test_a_workload_is_valid_while_a_node_dies_and_comes_back(name: str) -> None:
    """JEP-11, JEP-12 and JEP-13 to JEP-23, as far as one seed goes: W1 to W16."""
    run = simulate(name, **{"seconds": 6, **OTHERS.get(name, {})})
    assert run.verdict.bad == ()
    for kind in PURPOSES[name]:
        assert run.kinds[kind, "ok"], f"no {kind} was ok"
    assert run.is_drained
    if run.final is not None and run.audit is not None:
        assert run.final.is_complete
        keys = run.audit.expected_replicas
        assert len(run.audit.replicas) == sum(keys.values()) > 0
        assert {replica.key for replica in run.audit.replicas} == set(keys)


def test_copiers_take_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """JEP-13: a transaction over all that has piled up would hardly ever get through."""
    monkeypatch.setattr(catalogue, "_COPIED_AT_A_TIME", 2)
    run = simulate("eos-copy", seconds=1, kills=False)
    assert run.is_drained
    polled = [
        sum(map(len, micro[1].values()))
        for operation in run.history.operations
        if operation.f == "txn"
        for micro in operation.value
        if micro[0] == "poll" and len(micro) > 1
    ]
    assert max(polled) == 2


def test_bare_members_speak_the_consumer_protocol_too() -> None:
    """JEP-19: with members that own what they were told to, under both protocols."""
    run = simulate("membership", seconds=6, group_protocol="consumer")
    assert run.verdict.bad == ()
    views = [each.value for each in run.history.operations if each.f == "join_view"]
    assert any(view.get("assignment") for view in views)


def test_aborted_transactions_are_classified() -> None:
    """JEP-8, W7: our consumer goes on behind what an aborted transaction has polled."""
    run = simulate("abort-rewind", kills=False)
    went = [
        way
        for operation in run.history.operations
        for way in dict(operation.meta.get("after_abort") or {}).values()
    ]
    assert went
    assert set(went) <= {"advance", "rewind", "rewind-further", "other"}


def test_one_seed_is_one_history() -> None:
    """JEP-12: the executor takes nothing from anywhere but its World."""
    first, second = (simulate("queue-txn", seed=5, seconds=3).history for _ in range(2))
    assert _told(first) == _told(second)


def _told(history: History) -> list[Any]:
    return [(event.time_ns, event.process, event.f, event.value) for event in history.events]


class LossyClient(OwnClient):
    """Forgets a record now and then, as a bad client, or a bad broker, would."""

    count = 0

    async def poll(self, timeout_ms: int) -> list[PolledRecord]:
        kept = []
        for record in await super().poll(timeout_ms):
            LossyClient.count += 1
            if LossyClient.count % 20:
                kept.append(record)
        return kept


@asynccontextmanager
async def open_lossy_client(
    world: World, bootstrap: list[Address], spec: ClientSpec
) -> AsyncIterator[LossyClient]:
    async with open_own_client(world, bootstrap, spec) as client:
        client.__class__ = LossyClient
        yield client  # type: ignore[misc]


def test_a_lost_record_is_found() -> None:
    """The whole chain can fail: generator, executor, history, checkers."""
    run = simulate("queue-assign", kills=False, open_client=open_lossy_client)
    assert {each.id for each in run.verdict.bad} & {"A3", "A4", "A13", "A15"}
