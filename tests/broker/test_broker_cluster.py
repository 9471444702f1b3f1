"""Brokers that replicate, with a real controller: faults, failovers, and what is never lost."""

from __future__ import annotations

import errno

import pytest
import trio
from hosted_cluster import Cluster, in_cluster

from kraftpy.broker.fetcher_manager import fetcher_number
from kraftpy.broker.fetcher_steps import FetcherSettings
from kraftpy.log.clean_shutdown import previous_broker_epoch
from kraftpy.log.errors import StorageError
from kraftpy.log.log_config import LogConfig
from kraftpy.metadata.records import DIRECTORY_UNASSIGNED
from kraftpy.sim.runner import run_simulation
from kraftpy.world.memory_disk_crash import CrashPolicy
from kraftpy.world.memory_disk_faults import SlowDisk, WriteError


@pytest.mark.parametrize("seed", range(3))
def test_records_reach_every_replica(seed: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        for number in range(3):
            await cluster.commit("t", b"a%d" % number, b"b", partition_id=number)
        for broker in cluster.brokers.values():
            for number in range(3):
                assert broker.values("t", number) == [b"a%d" % number, b"b"]
        await cluster.until(
            lambda: all(
                broker.partition("t", number).log.high_watermark == 2
                for broker in cluster.brokers.values()
                for number in range(3)
            )
        )

    run_simulation(in_cluster(scenario), seed=seed, time_limit_seconds=300)


@pytest.mark.parametrize("seed", range(3))
def test_a_clean_stop_hands_over_and_comes_back(seed: int) -> None:
    """CTL-73, CTL-74, CTL-76, REP-120: leaders move; the next start knows, and recovers nothing."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.create("t", [1, 2, 3])
        await cluster.commit("t", b"a")
        epoch = cluster.brokers[1].lifecycle.broker_epoch
        await cluster.stop(1)
        assert cluster.record("t").leader != 1
        disk = cluster.simulation.machine("b1").disk
        assert await previous_broker_epoch(disk, ["/data/a"]) == epoch
        await cluster.commit("t", b"b")
        await cluster.start(1)
        broker = cluster.brokers[1]
        assert broker.logs.directories[0].was_clean
        await cluster.until(lambda: 1 in cluster.record("t").isr)
        assert broker.values("t") == [b"a", b"b"]

    run_simulation(in_cluster(scenario), seed=seed, time_limit_seconds=300)


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_leader_loses_nothing_that_was_committed(seed: int) -> None:
    """REP-123, REP-95: the rest of what it had gives way to what its successor wrote."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.create("t", [1, 2, 3])
        await cluster.commit("t", b"committed")
        # The others are cut off, and so do not get this one.
        for other in ("b2", "b3"):
            cluster.part("b1", other)
        cluster.append("t", b"not committed")
        assert cluster.brokers[1].values("t") == [b"committed", b"not committed"]
        await cluster.kill(1)
        await cluster.until(lambda: cluster.record("t").leader in (2, 3))
        await cluster.settle()
        await cluster.commit("t", b"of the successor")
        for other in ("b2", "b3"):
            cluster.rejoin("b1", other)
        await cluster.start(1)
        await cluster.until(lambda: sorted(cluster.record("t").isr) == [1, 2, 3])
        for broker in cluster.brokers.values():
            assert broker.values("t") == [b"committed", b"of the successor"]

    run_simulation(in_cluster(scenario), seed=seed, time_limit_seconds=300)


@pytest.mark.parametrize("seed", range(3))
def test_a_failed_disk_costs_its_own_partitions_only(seed: int) -> None:
    """REP-11, KRF-115: their leaders move to other brokers, those of the other disk stay."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2, directories="ab")
        await cluster.create("t", [1, 2], [1, 2], [1, 2], [1, 2])
        await cluster.until(
            lambda: all(
                DIRECTORY_UNASSIGNED not in cluster.record("t", number).directories
                for number in range(4)
            )
        )
        for number in range(4):
            await cluster.commit("t", b"before", partition_id=number)
        lost = [name[1] for name in cluster.brokers[1].logs.directories[0].logs]
        assert len(lost) == 2
        cluster.simulation.machine("b1").disk.inject(WriteError(paths="/data/a/*", error=errno.EIO))
        with pytest.raises(StorageError):
            cluster.append("t", b"lost", partition_id=lost[0])
        await cluster.until(
            lambda: (
                [number for number in range(4) if cluster.record("t", number).leader == 2]
                == sorted(lost)
            ),
            seconds=5,
        )
        await cluster.settle()
        for number in range(4):
            await cluster.commit("t", b"after", partition_id=number)
            leader = cluster.brokers[cluster.record("t", number).leader]
            assert leader.values("t", number) == [b"before", b"after"]

    run_simulation(in_cluster(scenario), seed=seed, time_limit_seconds=300)


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_follower_leaves_and_comes_back(seed: int) -> None:
    """REP-111, REP-114, REP-115: it holds the high watermark for 10 to 15 seconds, no longer."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.create("t", [1, 2, 3])
        await cluster.commit("t", b"a")
        cluster.part("b1", "b3")
        began = trio.current_time()
        await cluster.commit("t", b"b")
        assert 9 <= trio.current_time() - began <= 16
        assert cluster.record("t").isr == (1, 2)
        cluster.rejoin("b1", "b3")
        await cluster.until(lambda: cluster.record("t").isr == (1, 2, 3))
        assert cluster.brokers[3].values("t") == [b"a", b"b"]

    run_simulation(in_cluster(scenario), seed=seed, time_limit_seconds=300)


@pytest.mark.parametrize("seed", range(10))
def test_leaders_change_in_the_middle_of_fetches(seed: int) -> None:
    """REP-97, REP-98, REP-100: whatever was under way, all replicas end alike, with everything."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.create("t", [1, 2, 3], [2, 3, 1])
        random = cluster.simulation.rng.stream("leaders")
        committed: dict[int, list[bytes]] = {0: [], 1: []}
        for round_number in range(12):
            for number in (0, 1):
                value = b"%d-%d" % (number, round_number)
                end = cluster.append("t", value, partition_id=number)
                leader = cluster.leader("t", number)
                epoch = leader.leader_epoch
                await trio.sleep(random.random() * 0.01)
                if random.random() < 0.5:
                    await cluster.elect("t", number, random.choice([1, 2, 3]))
                await cluster.settle()
                if leader.is_leader and leader.leader_epoch == epoch:
                    await cluster.until(lambda a=leader, b=end: a.log.high_watermark >= b)
                    committed[number].append(value)
        for number in (0, 1):
            await cluster.commit("t", b"last", partition_id=number)
            logs = [broker.values("t", number) for broker in cluster.brokers.values()]
            assert logs[0] == logs[1] == logs[2]
            kept = [value for value in logs[0] if value in committed[number]]
            assert kept == committed[number]

    run_simulation(in_cluster(scenario), seed=seed, time_limit_seconds=600)


@pytest.mark.parametrize("seed", range(3))
def test_flushed_records_survive_the_loss_of_all_power(seed: int) -> None:
    """Decision 8: with flush.messages=1 a follower has on disk what its fetch says that it has."""

    async def scenario(cluster: Cluster) -> None:
        config = LogConfig(segment_index_bytes=4800, flush_messages=1)
        await cluster.start(1, 2, 3, config=config)
        await cluster.create("t", [1, 2, 3])
        for follower in ("b2", "b3"):
            cluster.simulation.machine(follower).disk.inject(
                SlowDisk(paths="*.log", least_seconds=0.5)
            )
        for number in range(5):
            await cluster.commit("t", b"%d" % number)
        for broker in cluster.brokers.values():
            cluster.simulation.vanish(broker.host, CrashPolicy.DROP_ALL)
            broker.scope.cancel()
            await broker.ended.wait()
        # Without the leader of then: the followers must have it by themselves. (None of them is
        # elected: after an unclean end only what the others have is trusted.)
        await cluster.start(2, 3)
        for broker_id in (2, 3):
            found = cluster.brokers[broker_id].values("t")
            assert found == [b"%d" % number for number in range(5)]

    run_simulation(in_cluster(scenario), seed=seed, time_limit_seconds=300)


def test_a_deletion_is_followed_to_its_end() -> None:
    """controller.md 10.6: every broker's report is in, and the metadata forgets the topic."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2)
        await cluster.create("t", [1, 2], [2, 1])
        await cluster.commit("t", b"x")
        await cluster.delete("t")
        assert len(cluster.controller.image.pending_deletions) == 1
        await trio.sleep(66)
        assert len(cluster.controller.image.pending_deletions) == 0

    run_simulation(in_cluster(scenario), seed=1, time_limit_seconds=300)


def test_fetchers_are_shared_and_handed_out_anew() -> None:
    """REP-51, REP-52, REP-53, REP-54: one for each leader and number, while it has partitions."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.create("t", *[[1, 2]] * 6)
        await cluster.create("u", [3, 2])
        fetchers = cluster.brokers[2].fetchers
        assert sorted(each.name for each in fetchers.fetchers) == [
            "ReplicaFetcherThread-0-1",
            "ReplicaFetcherThread-0-3",
        ]
        [of_one] = [each for each in fetchers.fetchers if each.name.endswith("-1")]
        await cluster.create("v", [1, 2])
        assert len(fetchers.fetchers) == 2
        assert ("v", 0) in of_one.partitions
        await fetchers.change_settings(FetcherSettings(broker_id=2), 3)
        names = {name for each in fetchers.fetchers for name in each.partitions}
        assert names == {("t", number) for number in range(6)} | {("u", 0), ("v", 0)}
        assert len(fetchers.fetchers) == 4
        # With the old settings none goes on.
        assert of_one not in fetchers.fetchers
        for each in fetchers.fetchers:
            for name in each.partitions:
                assert f"-{fetcher_number(name, 3)}-" in each.name
        for number in range(6):
            await cluster.commit("t", b"x", partition_id=number)
        await cluster.delete("u")
        assert len(fetchers.fetchers) == 3

    run_simulation(in_cluster(scenario), seed=1, time_limit_seconds=300)
