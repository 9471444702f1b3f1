"""Faults of real processes: each really happens, and after healing nothing is left of it.

A cluster is opened for several of them, because that is what takes the time.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from jepsen_cluster_kit import FIRST, TOPIC, create_topic, eventually, insist, opened_cluster, until

from jepsen_tests.cluster import JepsenCluster, NotHereError
from jepsen_tests.nemeses import nemesis_of
from kraftpy.client.admin_operations import (
    ConfigKind,
    describe_configs,
    describe_topics,
    list_topics,
)
from kraftpy.faults.language import (
    AddVoter,
    BusyMachine,
    ChangeConfig,
    CutTail,
    Decommission,
    DiskError,
    DiskFull,
    ElectLeaders,
    FlipBits,
    Kill,
    NoDescriptors,
    Partition,
    Pause,
    PowerLoss,
    Reassign,
    RecreateTopic,
    RemoveVoter,
    Restart,
    RollingRestart,
    Stop,
    TornWrite,
    Wipe,
)
from kraftpy.faults.switchboard import FaultRefusedError
from kraftpy.verify.history import Recorder

NODES = (1, 2, 3)


def is_stopped(pid: int) -> Callable[[], Awaitable[bool]]:
    """As the system shows it."""

    async def is_so() -> bool:
        shown = await trio.Path(f"/proc/{pid}/stat").read_text()
        return shown.rpartition(")")[2].split()[0] == "T"

    return is_so


async def is_well(cluster: JepsenCluster) -> None:
    """Nothing is left: all nodes run, answer, and are in sync again."""
    await cluster.heal(seconds=120)
    assert cluster.running == cluster.awake == cluster.node_ids
    assert await cluster.links.cut_count() == 0
    assert cluster.pressure.busy_pids == []
    await eventually(cluster, lambda view: len(view.partitions[FIRST].isr) == 3)


async def test_faults_of_processes_happen_and_heal(tmp_path: Path) -> None:
    """N2 to N4, N27: JEP-91, JEP-92, JEP-93, JEP-116"""
    async with opened_cluster(tmp_path) as cluster:
        await create_topic(cluster, [1, 2, 3])
        pid = cluster.processes.pid

        await cluster.apply(Kill(2))
        assert cluster.running == (1, 3)
        with pytest.raises(FaultRefusedError, match="node 2 does not run: kill node=2"):
            await cluster.apply(Kill(2))
        before = pid(1)
        await cluster.apply(Pause(1))
        await until(is_stopped(before))
        assert cluster.awake == (3,)
        await is_well(cluster)
        assert pid(1) == before
        assert not await is_stopped(before)()

        await cluster.apply(Restart(3))
        await cluster.apply(Stop(2))
        assert cluster.running == (1, 3)
        await is_well(cluster)
        before = pid(3)
        await cluster.apply(RollingRestart((2, 3)))
        assert pid(3) != before

        before = pid(1)
        allowed = resource.prlimit(before, resource.RLIMIT_NOFILE)
        await cluster.apply(NoDescriptors(1))
        used = len(os.listdir(f"/proc/{before}/fd"))
        assert resource.prlimit(before, resource.RLIMIT_NOFILE)[0] < used + 50 < allowed[0]
        await cluster.apply(BusyMachine(2))
        busy = cluster.pressure.busy_pids
        assert len(busy) == 2
        await is_well(cluster)
        assert not {f"{each}" for each in busy} & set(os.listdir("/proc"))
        if pid(1) == before:
            assert resource.prlimit(before, resource.RLIMIT_NOFILE) == allowed

        # All of that was asked for; this is not.
        assert not cluster.deaths
        os.kill(pid(2), signal.SIGKILL)

        async def is_noted() -> bool:
            return [death.node_id for death in cluster.deaths] == [2]

        await until(is_noted)


async def test_faults_of_disks_happen_and_heal(tmp_path: Path) -> None:
    """N8 to N11, N13, N14: JEP-97 to JEP-100, JEP-102, JEP-103. A node that can't keep what it is
    told ends; whatever it lost, it has again from the others.
    """
    async with opened_cluster(tmp_path, network="proxy") as cluster:
        await create_topic(cluster, [2, 1, 3])
        for fault in (DiskFull(1), DiskError(1, "sync"), DiskError(1, "write"), TornWrite(1)):
            await cluster.apply(fault)

            async def has_ended() -> bool:
                # Something to write, so that it notices.
                await insist(cluster, ChangeConfig(TOPIC, "retention.ms", "900000"))
                return 1 not in cluster.running

            await until(has_ended)
            await is_well(cluster)

        await cluster.apply(PowerLoss(3))
        assert cluster.running == (1, 2)
        with pytest.raises(NotHereError, match="no log with anything in it"):
            await cluster.apply(FlipBits(3))
        with pytest.raises(FaultRefusedError, match="node 1 runs: cut-tail"):
            await cluster.apply(CutTail(1, 10))
        await is_well(cluster)
        assert not cluster.deaths


async def test_changes_by_administrators_happen_and_heal(tmp_path: Path) -> None:
    """N16 to N20, N26, F20: JEP-105 to JEP-109, JEP-115"""
    async with opened_cluster(tmp_path, nodes=4) as cluster:
        await create_topic(cluster, [4, 2, 3])
        admin = cluster.admin

        await cluster.apply(Kill(4))
        await eventually(cluster, lambda view: view.partitions[FIRST].leader in (2, 3))
        await cluster.apply(Wipe(4))
        assert f"{TOPIC}-0" not in os.listdir(cluster.plan(4).data_dir)
        await is_well(cluster)
        await insist(cluster, ElectLeaders())
        await eventually(cluster, lambda view: view.partitions[FIRST].leader == 4)

        await insist(cluster, Reassign(TOPIC, 0, (1, 2, 3)))
        await eventually(cluster, lambda view: view.partitions[FIRST].replicas == (1, 2, 3))

        await insist(cluster, ChangeConfig(TOPIC, "retention.ms", "123456"))

        async def is_set() -> bool:
            configs = await admin.run(describe_configs(ConfigKind.TOPIC, TOPIC))
            return {each.name: each.value for each in configs}["retention.ms"] == "123456"

        await until(is_set)
        before = (await admin.run(describe_topics([TOPIC])))[TOPIC].topic_id
        await insist(cluster, RecreateTopic(TOPIC))

        async def is_another() -> bool:
            # A broker may know of the deletion and not yet of the new topic.
            topic = (await admin.run(list_topics())).get(TOPIC)
            return topic is not None and topic.topic_id != before and len(topic.partitions) == 1

        await until(is_another)

        await insist(cluster, RemoveVoter(3))
        await eventually(cluster, lambda view: view.voters == (1, 2))
        await insist(cluster, AddVoter(3))
        await eventually(cluster, lambda view: view.voters == (1, 2, 3))

        await insist(cluster, Reassign(TOPIC, 0, (4, 1, 2)))
        await eventually(cluster, lambda view: view.partitions[FIRST].replicas == (4, 1, 2))
        await insist(cluster, Decommission(4))
        assert cluster.running == (1, 2, 3)
        await eventually(cluster, lambda view: 4 not in view.partitions[FIRST].replicas)
        with pytest.raises(NotHereError, match="a node that votes"):
            await cluster.apply(Decommission(1))
        await cluster.heal(seconds=120)
        assert cluster.running == (1, 2, 3, 4)
        assert not cluster.deaths


async def test_a_nemesis_strikes_says_so_and_heals(tmp_path: Path) -> None:
    """Every window is two events, with the faults and what was seen of them. And a cluster says who
    leads: the leader that is cut off is replaced.
    """
    async with opened_cluster(tmp_path) as cluster:
        await create_topic(cluster, [2, 1, 3])
        await eventually(
            cluster,
            lambda view: view.leaders == (2,) and view.controller in NODES and view.voters == NODES,
        )
        await cluster.apply(Partition((2,), (1, 3)))
        await eventually(cluster, lambda view: view.partitions[FIRST].leader in (1, 3))
        await is_well(cluster)

        nemesis = nemesis_of(["isolate-leader", "kill", "hold", "membership"])
        # The recorder wants time that goes forward, and nothing more.
        recorder = Recorder(iter(range(10**9)).__next__)
        random = Random(5)

        def values_of(name: str) -> list[Any]:
            return [each.value for each in recorder.events if each.value["name"] == name]

        def has_struck(name: str) -> bool:
            """Something was done, and something seen of it."""
            values = values_of(name)
            return all(any(value.get(part) for value in values) for part in ("faults", "effects"))

        with trio.fail_after(240):
            # A window that a busy machine has slept through is left out.
            while not (has_struck("isolate-leader") and has_struck("kill")):
                await nemesis.run(cluster, recorder, random, seconds=6)
                await nemesis.heal(cluster, seconds=120)
        await is_well(cluster)
        assert nemesis.skipped.keys() >= {"membership"}
        for name in ("isolate-leader", "kill"):
            phases = [value["phase"] for value in values_of(name)]
            assert phases == ["start", "end"] * (len(phases) // 2)
        assert not cluster.deaths
