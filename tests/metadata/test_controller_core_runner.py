"""The controller in trio: wakes in time, carries effects out in order, replies once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from controller_core_rig import (
    BOOTSTRAP,
    CALLER,
    WHOLE_BOOTSTRAP,
    Create,
    Look,
    Rig,
    Write,
    topic,
    whole_controls,
)

from kraftpy.metadata import records as r
from kraftpy.metadata.committed_feed import CommittedFeed
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.controller import Controller
from kraftpy.metadata.controller.effects import Answer, Refuse
from kraftpy.metadata.controller.metrics import ControllerMetrics
from kraftpy.metadata.controller.parts import assemble
from kraftpy.metadata.controller.periodic import PeriodicTask
from kraftpy.metadata.controller.result import Caller, ControllerResult
from kraftpy.metadata.controller.runner import ControllerRunner
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.features import supported_features
from kraftpy.metadata.publisher import LoaderFault, MetadataLoader
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k62_broker_registration as k62
from kraftpy.protocol.schema import k63_broker_heartbeat as k63
from kraftpy.raft.driver import open_driver
from kraftpy.raft.effects import ProposalRefused
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.storage import metadata_log_config
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from kraftpy.world import InternalInvariant, World
from kraftpy.world.memory_clock import MemoryClock
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_network import MemoryFabric
from kraftpy.world.memory_rng import MemoryRng

SEED = 7
Outcome = Answer | Refuse


@asynccontextmanager
async def memory_world() -> AsyncIterator[tuple[World, MemoryFabric]]:
    fabric = MemoryFabric(MemoryRng(SEED, "network"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fabric.run)
        network = fabric.host("controller")
        yield World(MemoryClock(), MemoryRng(SEED, "controller"), network, MemoryDisk()), fabric
        nursery.cancel_scope.cancel()


class HandQuorum:
    """Raft in the test's hand, on the rig's log."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.resigned: list[int] = []
        self.proposals = 0
        self.refusal: ProposalRefused | None = None
        self.lands_later = False
        self.heard_ms: dict[int, int] = {}

    @property
    def log_end_offset(self) -> int:
        return self.rig.end_offset

    def last_heard_ms(self, node_id: int) -> int | None:
        return self.heard_ms.get(node_id)

    def propose(self, epoch: int, values: tuple[bytes, ...]) -> int | ProposalRefused:
        self.proposals += 1
        if self.refusal is not None:
            return self.refusal
        if self.lands_later:
            self.rig.append_control(epoch)
        base_offset = self.rig.end_offset
        self.rig.append_values(epoch, values)
        return base_offset

    def resign(self, epoch: int) -> None:
        self.resigned.append(epoch)


@asynccontextmanager
async def running(
    rig: Rig,
) -> AsyncIterator[tuple[ControllerRunner, HandQuorum, list[Outcome], MemoryFabric]]:
    async with memory_world() as (world, fabric):
        quorum = HandQuorum(rig)
        runner = ControllerRunner(rig.controller, quorum, world)
        replies: list[Outcome] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runner.run)
            yield runner, quorum, replies, fabric
            nursery.cancel_scope.cancel()


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked(0.001)


async def test_a_request_wakes_the_task_and_is_replied_to(autojump_clock: object) -> None:
    """CTL-17, CTL-18: nothing happens in the caller's task, and nobody spins when idle."""
    rig = Rig()
    async with running(rig) as (runner, quorum, replies, _):
        rig.append_control(1)
        rig.commit()
        runner.leader_changed(1, 1)
        await settle()
        assert quorum.proposals == 1
        runner.submit(Create(("a",)), CALLER, replies.append)
        assert quorum.proposals == 1
        await settle()
        assert quorum.proposals == 2
        assert replies == []
        rig.commit()
        await settle()
        assert replies == [Answer(1, ("a",))]
        assert runner.describe().is_active
        runner.resign()
        await settle()
        assert quorum.resigned == [1]


async def test_deferred_events_come_at_their_time(autojump_clock: object) -> None:
    times: list[float] = []

    def note(now_ms: int) -> ControllerResult[bool]:
        times.append(now_ms - start_ms)
        return ControllerResult((), False)

    rig = Rig((PeriodicTask("note", None, note, 200, 100),))
    async with running(rig) as (runner, _, _, _):
        start_ms = int(trio.current_time() * 1000)
        runner.leader_changed(1, 1)
        await trio.sleep(0.95)
        assert times == [100, 300, 500, 700, 900]
        runner.leadership_lost(1)
        await trio.sleep(2)
        assert len(times) == 5


@pytest.mark.parametrize("how", ["refused", "lands later"])
async def test_an_append_without_its_place_ends_the_leadership(
    how: str, autojump_clock: object
) -> None:
    """CTL-15, CTL-24: and what was to follow it is not appended either."""
    rig = Rig()
    async with running(rig) as (runner, quorum, replies, _):
        runner.leader_changed(1, 1)
        await settle()
        proposals = quorum.proposals
        if how == "refused":
            quorum.refusal = ProposalRefused(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            quorum.lands_later = True
        names = tuple(map(str, range(10_001)))
        runner.submit(Create(names, is_atomic=False), CALLER, replies.append)
        await settle()
        assert quorum.proposals == proposals + 1
        assert [reply.code for reply in replies if isinstance(reply, Refuse)] == [
            ErrorCode.NOT_CONTROLLER
        ]
        assert quorum.resigned == [1]
        assert rig.names == []


async def test_whoever_waits_is_told_when_the_task_ends(autojump_clock: object) -> None:
    rig = Rig()
    async with running(rig) as (runner, _, replies, _):
        runner.leader_changed(1, 1)
        await settle()
        runner.submit(Create(("a",)), CALLER, replies.append)
        await settle()
        runner.submit(Look(), CALLER, replies.append)
    runner.submit(Look(), CALLER, replies.append)
    assert [(type(reply), reply.request_id) for reply in replies] == [(Refuse, 1), (Refuse, 2)]


async def test_a_broken_invariant_ends_the_node(autojump_clock: object) -> None:
    """JEP-137: rather than to go on wrong."""
    rig = Rig()
    with pytest.RaisesGroup(
        pytest.RaisesExc(InternalInvariant), allow_unwrapped=True, flatten_subgroups=True
    ):
        async with running(rig) as (runner, _, replies, _):
            runner.leader_changed(1, 1)
            bad = r.RemoveTopicRecord(topic("unknown").topic_id)
            runner.submit(Write((bad,)), CALLER, replies.append)
            await trio.sleep(1)


async def test_probes_report_refusals_and_nothing_else(autojump_clock: object) -> None:
    """Decision 14: a port that nobody listens on is evidence, an open one is none."""
    fenced: list[int] = []

    def fence_dead(broker_id: int) -> ControllerResult[object]:
        fenced.append(broker_id)
        return ControllerResult((), None)

    rig = Rig()
    object.__setattr__(rig.parts, "fence_dead", fence_dead)
    rig.append(
        1,
        *BOOTSTRAP,
        *(
            r.RegisterBrokerRecord(
                number, Uuid(bytes([number] * 16)), 10, (r.Endpoint("L", host, 9092, 0),)
            )
            for number, host in ((1, "dead"), (2, "alive"), (3, "lost"), (4, "nowhere"))
        ),
    )
    rig.commit()
    async with running(rig) as (runner, _, _, fabric):
        fabric.host("dead")
        await fabric.host("alive").listen(None, 9092)
        fabric.host("lost")
        fabric.cut("controller", "lost")
        runner.leader_changed(1, 1)
        await trio.sleep(0.29)
        assert fenced == []
        await trio.sleep(0.2)
        assert fenced == [1]
        await trio.sleep(5)
        assert not {2, 3, 4}.intersection(fenced)
        runner.note_contact(2, 10)
        runner.note_disconnected(2)
        await settle()
        assert 2 not in fenced


@pytest.mark.parametrize(
    ("heard_ago_ms", "led_ms", "ends_after_ms"),
    [
        (2_000, 60_000, 7_001),
        # It led for a moment only: whoever names a leader has just heard of it.
        (50_000, 1_000, 8_001),
        (20_000, 60_000, 0),
        (None, 60_000, 9_001),
    ],
)
async def test_the_session_of_a_silent_predecessor_goes_on(
    heard_ago_ms: int | None, led_ms: int, ends_after_ms: int, autojump_clock: object
) -> None:
    """A paused leader is silent since before the election. All others have a fresh session."""
    rig = Rig()
    registrations = (
        r.RegisterBrokerRecord(number, Uuid(bytes([number] * 16)), 10, ()) for number in (1, 2, 3)
    )
    rig.append(1, *BOOTSTRAP, *registrations)
    rig.commit()
    async with running(rig) as (runner, quorum, _, _):
        await trio.sleep(100)
        runner.leader_changed(2, 3)
        await trio.sleep(50)
        runner.leader_changed(3, 2)
        await trio.sleep(led_ms / 1000)
        now_ms = int(trio.current_time() * 1000)
        # Who led before is not meant, however long ago it was heard of.
        quorum.heard_ms = {3: 1}
        if heard_ago_ms is not None:
            quorum.heard_ms[2] = now_ms - heard_ago_ms
        runner.leader_changed(4, r.NO_LEADER)
        runner.leader_changed(4, 1)
        heartbeats = rig.context.heartbeats
        assert heartbeats is not None
        ends = {}
        for number in (1, 2, 3):
            ends[number] = next(
                ms for ms in range(20_000) if not heartbeats.has_session(number, now_ms + ms)
            )
        assert ends == {1: 9_001, 2: ends_after_ms, 3: 9_001}


# All of it: Raft, the feed, the loader, and every operation.


@asynccontextmanager
async def whole_controller(
    world: World, bootstrap: tuple[r.MetadataRecord, ...]
) -> AsyncIterator[tuple[ControllerRunner, ControllerContext]]:
    voters = VoterSet([Voter(ReplicaKey(1), (Endpoint("C", "controller", 9093),))])
    config = RaftConfig(
        cluster_id="cluster",
        local=ReplicaKey(1, Uuid(b"d" * 16)),
        endpoints=(Endpoint("C", "controller", 9093),),
        static_voters=voters,
    )
    driver = await open_driver(world, config, "/metadata", metadata_log_config())
    faults: list[LoaderFault] = []
    loader = MetadataLoader(faults.append, is_strict=True)
    settings = ControllerSettings(1, "cluster", features=supported_features())
    context = ControllerContext(settings)
    parts = assemble(whole_controls(context), bootstrap, loader.open_transaction)
    metrics = ControllerMetrics(MetricRegistry(), world.clock.monotonic_ms(), world.clock.wall_ms)
    controller = Controller(context, parts, metrics)
    loader.install(controller)
    runner = ControllerRunner(controller, driver, world)
    feed = CommittedFeed(driver.log, loader, runner, node_id=1, clock=world.clock)
    driver.listen(feed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed.run)
        nursery.start_soon(runner.run)
        await nursery.start(driver.run)
        yield runner, context
        nursery.cancel_scope.cancel()
    assert not faults


async def ask(runner: ControllerRunner, request: object, version: int) -> object:
    """The answer to a request, however long it takes."""
    done = trio.Event()
    outcomes: list[Outcome] = []

    def reply(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    runner.submit(request, Caller(version), reply)
    await done.wait()
    (outcome,) = outcomes
    assert isinstance(outcome, Answer), outcome
    return outcome.response


async def test_a_topic_on_a_broker_through_raft_and_again_after_a_restart(
    autojump_clock: object,
) -> None:
    """CTL-1, CTL-3, CTL-5, CTL-11, CTL-86: from an empty disk; then the same disk once more."""
    async with memory_world() as (world, _):
        async with whole_controller(world, WHOLE_BOOTSTRAP) as (runner, context):
            await trio.sleep(10)
            first = runner.describe()
            assert first.is_active
            assert first.epoch >= 1
            await _make_topic(runner)
            (partition,) = context.stable.topics["orders"].partitions
            assert (partition.leader, partition.isr) == (1, (1,))
            offset = context.stable.provenance.last_offset
            await trio.sleep(2.1)
            # KRF-105: a sign of life every half second.
            assert context.stable.provenance.last_offset == offset + 4
        async with whole_controller(world, WHOLE_BOOTSTRAP) as (runner, context):
            await trio.sleep(10)
            assert runner.describe().is_active
            assert runner.describe().epoch > first.epoch
            assert list(context.stable.topics) == ["orders"]


async def _make_topic(runner: ControllerRunner) -> None:
    registered = await ask(
        runner,
        k62.BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="cluster",
            incarnation_id=Uuid(b"i" * 16),
            listeners=[
                k62.Listener(name="PLAINTEXT", host="broker", port=9092, security_protocol=0)
            ],
            features=[
                k62.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, low, high in supported_features()
            ],
            log_dirs=[Uuid(b"l" * 16)],
        ),
        4,
    )
    assert isinstance(registered, k62.BrokerRegistrationResponse)
    heartbeat = k63.BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=registered.broker_epoch, current_metadata_offset=1 << 40
    )
    beaten = await ask(runner, heartbeat, 2)
    assert isinstance(beaten, k63.BrokerHeartbeatResponse)
    assert not beaten.is_fenced
    created = await ask(
        runner,
        k19.CreateTopicsRequest(
            topics=[k19.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)]
        ),
        7,
    )
    assert isinstance(created, k19.CreateTopicsResponse)
    assert [result.error_code for result in created.topics] == [ErrorCode.NONE]
