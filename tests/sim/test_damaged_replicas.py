"""JEP-154: damage to fewer replicas than min ISR loses nothing that was acknowledged, and heals.

Three nodes in virtual time. One is killed, its log is damaged where it would notice, and it comes
back: it must refetch what it can't trust, and be as good a leader as any other then.
"""

from __future__ import annotations

from random import Random

import pytest
import trio
from support.simulated_nodes import SimulatedNodes, run_nodes

from kraftpy.faults.damage import Change, draw_flip, draw_stray
from kraftpy.protocol.errors import ErrorCode
from kraftpy.records.builder import BatchBuilder
from kraftpy.records.walker import records_of, walk_batches
from kraftpy.world.memory_disk import MemoryDisk

NODES = ("n1", "n2", "n3")
BATCHES = 12
SEGMENT = f"/data/t-0/{0:020d}.log"
SETTINGS = {"broker.session.timeout.ms": "3000", "min.insync.replicas": "2"}


def some_batches(count: int) -> bytes:
    data = b""
    for number in range(count):
        builder = BatchBuilder(base_offset=number)
        builder.append(b"key", b"value %d" % number * 20, timestamp_ms=number)
        data += bytes(builder.build())
    return data


def segment(rig: SimulatedNodes, name: str) -> bytes:
    file = rig.simulation.machine(name).disk.open(SEGMENT)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def damage(disk: MemoryDisk, kind: str, random: Random) -> None:
    file = disk.open(SEGMENT, write=True)
    data = file.pread(file.size(), 0)
    if kind == "cut":
        file.truncate(random.randrange(1, len(data)))
    else:
        change = (draw_flip if kind == "flip" else draw_stray)(data, random)
        assert change is not None
        file.pwrite([change.data], change.position)
    assert file.pread(file.size(), 0) != data
    file.close()


async def leader_of(rig: SimulatedNodes, *, of: str) -> tuple[int, list[int]]:
    topic = await rig.describe("t", of=of)
    return topic.partitions[0].leader_id, topic.partitions[0].isr_nodes


async def until_whole(rig: SimulatedNodes, *, of: str) -> int:
    while True:
        leader, isr = await leader_of(rig, of=of)
        if len(isr) == len(NODES) and leader > 0:
            return leader
        await trio.sleep(0.5)


async def values(rig: SimulatedNodes, *, of: str) -> list[bytes]:
    found: list[bytes] = []
    while True:
        answer = await rig.fetch("t", offset=len(found), of=of)
        assert answer.error_code == ErrorCode.NONE
        batches = list(walk_batches(bytes(answer.records or b"")))
        if not batches:
            return found
        assert all(each.is_valid for each in batches)
        found += [r.value or b"" for each in batches for r in records_of(each, max_bytes=1 << 20)]


@pytest.mark.parametrize("kind", ["flip", "stray", "cut"])
def test_a_damaged_replica_loses_nothing_and_heals(kind: str) -> None:
    """JEP-154: one of three, with min ISR 2; then it leads, and gives everything."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start(*NODES, settings=SETTINGS)
        await rig.create("t", replicas=3)
        leader, _ = await leader_of(rig, of="n1")
        sent = [b"value %d" % number * 20 for number in range(BATCHES)]
        for value in sent:
            result = await rig.produce("t", rig.batch(value), of=f"n{leader}")
            assert result.error_code == ErrorCode.NONE
        await until_whole(rig, of=f"n{leader}")
        topic = await rig.describe("t", of=f"n{leader}")
        victim = next(f"n{each}" for each in topic.partitions[0].replica_nodes if each != leader)
        whole = segment(rig, victim)
        rig.kill(victim)
        await rig.ended[victim].wait()
        damage(rig.simulation.machine(victim).disk, kind, Random(154))
        assert segment(rig, victim) != whole
        await rig.start_with(victim, rig.config(victim, NODES, SETTINGS))
        leader = await until_whole(rig, of=f"n{leader}")
        assert await values(rig, of=f"n{leader}") == sent
        assert segment(rig, victim) == segment(rig, f"n{leader}")
        # It is as good as the others: it comes after the leader, and has everything.
        await rig.stop(f"n{leader}")
        while (await leader_of(rig, of=victim))[0] != int(victim[1:]):  # noqa: ASYNC110
            await trio.sleep(0.5)
        assert await values(rig, of=victim) == sent

    run_nodes(scenario)


@pytest.mark.parametrize("draw", [draw_flip, draw_stray])
def test_damage_is_where_a_checksum_notices(draw: object) -> None:
    """JEP-154: under 500 seeds, in one batch and no other."""
    data = some_batches(6)
    for seed in range(500):
        change = draw(data, Random(seed))  # type: ignore[operator]
        assert isinstance(change, Change)
        damaged = data[: change.position] + change.data
        damaged += data[len(damaged) :]
        assert len(damaged) == len(data)
        found = list(walk_batches(damaged))
        assert [each.base_offset for each in found] == list(range(6))
        assert sum(not each.is_valid for each in found) == 1
    assert draw(b"", Random(1)) is None  # type: ignore[operator]
