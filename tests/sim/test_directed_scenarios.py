"""The directed scenarios of the specification's section 5.4, on whole nodes (JEP-127)."""

from __future__ import annotations

import pytest
import trio
from directed_stage import TOPIC, Stage, tell

from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError
from kraftpy.client.group_offsets import OffsetAndMetadata
from kraftpy.faults.language import ClockJump, Delay, Kill, OneWay, Partition, Pause, PowerLoss
from kraftpy.sim.whole.system import CLIENT
from kraftpy.world import memory_disk_faults as disks

PRODUCE, FETCH, END_TXN, WRITE_TXN_MARKERS, ALTER_PARTITION = 0, 1, 26, 27, 56
SEEDS = (1,)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("api_key", [END_TXN, PRODUCE])
def test_a_request_of_a_transaction_that_comes_too_late(seed: int, api_key: int) -> None:
    """Scenarios 1 and 2, JEP-127, F1: its producer has gone, and another transaction runs."""

    async def story(stage: Stage) -> None:
        async with trio.open_nursery() as nursery:
            first = await nursery.start(stage.keep_producer, "x")
            await first.init_transactions()
            first.begin_transaction()
            if api_key == END_TXN:
                await first.wait(await first.send(TOPIC, b"late", partition=0))
            hold = stage.hold(api_key, source=CLIENT, targets=stage.machines.node_ids)
            # Less than the time after which it would ask again.
            with trio.move_on_after(1):
                if api_key == PRODUCE:
                    await first.send(TOPIC, b"late", partition=0)
                await first.commit_transaction()
            assert stage.held
            async with stage.producer(transactional_id="x") as second:
                await second.init_transactions()
                second.begin_transaction()
                await second.wait(await second.send(TOPIC, b"next", partition=0))
                hold.release()
                await trio.sleep(5)
                await second.commit_transaction()
            nursery.cancel_scope.cancel()
        assert await stage.read() == [b"next"]

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_hangs_and_comes_back(seed: int) -> None:
    """Scenario 3: another one leads by then; what the old one had alone is cut off."""

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        old = stage.leader
        end = await stage.machines.apply(Pause(old))
        await stage.until(lambda: stage.leader not in (old, -1))
        assert await stage.send(b"after")
        assert end is not None
        end()
        assert await stage.send(b"later")
        assert await stage.read() == [b"before", b"after", b"later"]

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_is_cut_off_with_one_follower(seed: int) -> None:
    """Scenario 4: both sides of 2 and 3 are written to. What all replicas were asked for is either
    acknowledged on the larger side and kept, or not acknowledged.
    """

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        old, friend = stage.leader, stage.followers[0]
        rest = tuple(each for each in stage.machines.node_ids if each not in (old, friend))
        inside = stage.simulation.world("inside")
        fabric = stage.simulation.fabric
        # Each client is on one side.
        away = [("inside", f"n{each}") for each in rest]
        away += [(CLIENT, f"n{each}") for each in (old, friend)]
        end = await stage.machines.apply(Partition((old, friend), rest))
        for client, node in away:
            fabric.cut(client, node)
            fabric.cut(node, client)
        acknowledged: dict[bytes, bool] = {}

        async def send_inside(value: bytes, acks: int) -> None:
            acknowledged[value] = await stage.send(value, inside, acks=acks)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_inside, b"alone", 1)
            nursery.start_soon(send_inside, b"in doubt", -1)
            await stage.until(lambda: stage.leader in rest)
            assert await stage.send(b"after", delivery_timeout_ms=60_000)
            assert await stage.send(b"one", acks=1, delivery_timeout_ms=60_000)
        assert end is not None
        end()
        for client, node in away:
            fabric.heal(client, node)
            fabric.heal(node, client)
        await stage.until(lambda: stage.record is not None and len(stage.record.isr) == 5)
        assert acknowledged == {b"alone": True, b"in doubt": False}
        # The old leader's own records are gone: nobody else had a majority of them.
        assert await stage.read() == [b"before", b"after", b"one"]

    nodes = (1, 2, 3, 4, 5)
    configs = {"min.insync.replicas": "3"}
    tell(story, seed, replicas=5, controllers=nodes, brokers=nodes, min_isr=3, configs=configs)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_replica_standing(seed: int) -> None:
    """Scenario 6: it was in sync, it loses power and with it the end of its log, and it is the only
    one that comes back. It must not lead: another one has what was acknowledged.
    """

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        last, (first_away, second_away) = stage.leader, stage.followers
        await stage.machines.kill(first_away)
        await stage.until(lambda: stage.record is not None and len(stage.record.isr) == 2)
        assert await stage.send(b"acknowledged")
        # In good order, so that it may be elected when it is back.
        await stage.machines.stop(second_away)
        await stage.until(lambda: stage.record is not None and stage.record.isr == (last,))
        await stage.machines.apply(PowerLoss(last, "drop-all"))
        stage.machines.start(last)
        await stage.until(lambda: last in stage.machines.running)
        await trio.sleep(15)
        assert stage.leader == -1
        stage.machines.start(second_away)
        await stage.until(lambda: stage.leader == second_away)
        stage.machines.start(first_away)
        assert await stage.send(b"after", delivery_timeout_ms=60_000)
        assert await stage.read() == [b"before", b"acknowledged", b"after"]

    # Nothing is flushed: replication alone keeps it.
    tell(
        story,
        seed,
        controllers=(1, 2, 3),
        brokers=(4, 5, 6),
        flushes=False,
        configs={"flush.messages": "9223372036854775807"},
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_goes_and_comes_in_one_batch(seed: int) -> None:
    """Scenario 13: its broker hears of both at once. What it has is of before, and what came since
    it gets from the leader.
    """

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        assert stage.record is not None
        replicas = list(stage.record.replicas)
        away = stage.followers[0]
        [other] = [each for each in stage.swarm.brokers if each not in replicas]
        rest = tuple(each for each in stage.machines.node_ids if each != away)
        end = await stage.machines.apply(Partition((away,), rest))
        await stage.move([other if each == away else each for each in replicas])
        await stage.until(lambda: stage.record is not None and away not in stage.record.replicas)
        assert await stage.send(b"without", delivery_timeout_ms=60_000)
        await stage.move(replicas)
        epoch = stage.record.leader_epoch
        assert end is not None
        end()
        await stage.until(lambda: stage.record is not None and away in stage.record.isr)
        assert stage.record.leader_epoch >= epoch
        assert await stage.send(b"after", delivery_timeout_ms=60_000)
        assert await stage.read() == [b"before", b"without", b"after"]

    tell(story, seed, brokers=(1, 2, 3, 4))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_observer_behind_a_snapshot(seed: int) -> None:
    """Scenario 14: while it was away the logs of all voters began anew behind snapshots. It loads
    one in small pieces, dies half way, and begins again.
    """

    async def story(stage: Stage) -> None:
        observer = 4

        def start_of(node_id: int) -> int:
            node = stage.watch.hosts[node_id].node
            return 0 if node is None or node.quorum is None else node.quorum.driver.log.start_offset

        await stage.machines.kill(observer)
        for number in range(6):
            await stage.create(f"topic-{number}", replicas=2)
        await stage.until(lambda: all(start_of(each) > 0 for each in (1, 2, 3)))
        end = await stage.machines.apply(Delay((observer,), (1, 2, 3), 200))
        stage.machines.start(observer)
        await trio.sleep(2)
        assert start_of(observer) == 0
        await stage.machines.kill(observer)
        stage.machines.start(observer)
        await trio.sleep(2)
        assert end is not None
        end()
        await stage.until(lambda: start_of(observer) > 0)
        assert await stage.send(b"after", delivery_timeout_ms=60_000)

    settings = {
        "metadata.log.max.record.bytes.between.snapshots": "1000",
        "metadata.max.retention.bytes": "1000",
        "controller.quorum.fetch.snapshot.max.bytes": "100",
    }
    tell(story, seed, settings=settings, brokers=(1, 2, 3, 4))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_dies_between_its_append_and_the_commit(seed: int) -> None:
    """Scenario 5: followers get nothing, so the record may be lost, and is not acknowledged."""

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        old, followers = stage.leader, tuple(stage.followers)
        end = await stage.machines.apply(OneWay((old,), followers))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.send, b"perhaps")
            await trio.sleep(0.3)
            await stage.machines.apply(Kill(old))
        assert end is not None
        end()
        await stage.until(lambda: stage.leader not in (old, -1))
        assert await stage.send(b"after")
        stage.machines.start(old)
        values = await stage.read()
        assert [value for value in values if value != b"perhaps"] == [b"before", b"after"]

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_leader_fails_after_the_other(seed: int) -> None:
    """Scenario 7: the new one is cut off at the moment of its election, and the old one is back."""

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        first = stage.leader
        await stage.machines.kill(first)
        await stage.until(lambda: stage.leader not in (first, -1))
        second = stage.leader
        others = tuple(each for each in stage.machines.node_ids if each != second)
        end = await stage.machines.apply(Partition((second,), others))
        stage.machines.start(first)
        await stage.until(lambda: stage.leader not in (second, -1))
        assert await stage.send(b"after")
        assert end is not None
        end()
        assert await stage.read() == [b"before", b"after"]

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_lose_power_and_a_majority_comes_back(seed: int) -> None:
    """Scenario 8: the metadata goes on; the partition may have to wait for who was in sync last. In
    flush mode nothing is lost.
    """

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        away = stage.followers[0]
        for each in stage.machines.node_ids:
            await stage.machines.apply(PowerLoss(each, "drop-all"))
        for each in stage.machines.node_ids:
            if each != away:
                stage.machines.start(each)
        await stage.create("another", replicas=2)
        stage.machines.start(away)
        assert await stage.send(b"after", delivery_timeout_ms=60_000)
        assert await stage.read() == [b"before", b"after"]

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_coordinator_dies_before_its_markers_arrive(seed: int) -> None:
    """Scenario 9: the transaction is decided; the next coordinator carries the decision out."""

    async def story(stage: Stage) -> None:
        nodes = stage.machines.node_ids
        async with stage.producer(transactional_id="x", delivery_timeout_ms=60_000) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.wait(await producer.send(TOPIC, b"decided", partition=0))
            for source in nodes:
                stage.hold(WRITE_TXN_MARKERS, source=f"n{source}", targets=nodes)
            with trio.move_on_after(10):
                await producer.commit_transaction()
            topics = stage.watch.truth.image.topics["__transaction_state"]
            for leader in {record.leader for record in topics.partitions}:
                await stage.machines.kill(leader)
                stage.machines.start(leader)
                await trio.sleep(8)

        assert await stage.read() == [b"decided"]

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_was_asleep_commits(seed: int, protocol: str) -> None:
    """Scenario 10, G4: its group has gone on without it."""

    async def story(stage: Stage) -> None:
        assert await stage.send(b"one")
        sleeper = stage.simulation.world("sleeper")
        place = TopicPartition(TOPIC, 0)
        settings = {"group_id": "g", "group_protocol": protocol, "max_poll_interval_ms": 600_000}
        if protocol == "classic":
            settings |= {"session_timeout_ms": 2_000, "heartbeat_interval_ms": 500}
        async with stage.consumer(sleeper, **settings) as first:
            first.subscribe([TOPIC])
            while not await first.poll(1_000):
                pass
            stage.simulation.pause("sleeper")
            async with stage.consumer(**settings) as second:
                second.subscribe([TOPIC])
                with trio.fail_after(120):
                    while not await second.poll(1_000):
                        pass
                await second.commit({place: OffsetAndMetadata(1)})
                stage.simulation.resume("sleeper")
                with pytest.raises(KafkaError):
                    await first.commit({place: OffsetAndMetadata(0)})
                assert (await second.committed([place]))[place] == OffsetAndMetadata(1)

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("hours", [-1, 1])
def test_the_leaders_clock_jumps(seed: int, hours: int) -> None:
    """Scenario 11: fresh records stay, and open transactions go on: they have monotonic time."""

    async def story(stage: Stage) -> None:
        async with stage.producer(transactional_id="x", transaction_timeout_ms=60_000) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.wait(await producer.send(TOPIC, b"in doubt", partition=0))
            for each in stage.machines.node_ids:
                await stage.machines.apply(ClockJump(each, hours * 3_600_000))
            await trio.sleep(10)
            await producer.commit_transaction()
        assert await stage.send(b"after")
        await trio.sleep(5)
        assert await stage.read() == [b"in doubt", b"after"]

    configs = {"retention.ms": "7200000", "segment.ms": "2000"}
    tell(story, seed, configs=configs, settings={"log.retention.check.interval.ms": "1000"})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("api_key", [FETCH, ALTER_PARTITION])
def test_an_old_request_between_brokers_arrives_in_another_epoch(seed: int, api_key: int) -> None:
    """Scenario 12: it is refused, or has no effect."""

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        old = stage.leader
        source = stage.followers[0] if api_key == FETCH else old
        hold = stage.hold(api_key, source=f"n{source}", targets=stage.machines.node_ids)
        if api_key == ALTER_PARTITION:
            laggard = stage.followers[1]
            end = await stage.machines.apply(OneWay((laggard,), (old,)))
            await trio.sleep(5)
            assert end is not None
            end()
        assert await stage.send(b"between", delivery_timeout_ms=60_000)
        end = await stage.machines.apply(Pause(old))
        await stage.until(lambda: stage.leader not in (old, -1))
        assert end is not None
        end()
        hold.release()
        assert await stage.send(b"after", delivery_timeout_ms=60_000)
        assert await stage.read() == [b"before", b"between", b"after"]

    tell(story, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("paths", ["*__cluster_metadata*", f"*/{TOPIC}-0/*"])
def test_a_sync_fails(seed: int, paths: str) -> None:
    """Scenario 15: of the controller's metadata, or of a leader's log. The node stops rather than
    say that something is safe; the others go on.
    """

    async def story(stage: Stage) -> None:
        assert await stage.send(b"before")
        node = stage.controller if "metadata" in paths else stage.leader
        stage.expect_to_stop(node)
        disk = stage.simulation.machine(f"n{node}").disk
        disk.inject(disks.SyncError(paths=paths))
        await stage.send(b"perhaps", delivery_timeout_ms=60_000)
        await stage.until(lambda: node not in stage.machines.running)
        assert await stage.send(b"after", delivery_timeout_ms=60_000)
        disk.heal()
        stage.machines.start(node)
        values = await stage.read()
        assert [value for value in values if value != b"perhaps"] == [b"before", b"after"]

    tell(story, seed)
