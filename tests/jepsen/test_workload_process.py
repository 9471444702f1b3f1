"""How operations end: a client that fails as it is told to, and what the history says then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio

from kraftpy.client.calls import TopicPartition
from kraftpy.verify.history import Event, Recorder
from kraftpy.verify.workloads.catalogue import Circumstances, Script, find_workload
from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.outcomes import (
    UNKNOWN,
    AfterCommit,
    ClientError,
    Effect,
    Meaning,
)
from kraftpy.verify.workloads.payload import Content, OutgoingRecord, encode
from kraftpy.verify.workloads.plans import Plan, SlotState
from kraftpy.verify.workloads.port import (
    Ack,
    ClientSpec,
    CommittedOffset,
    PolledRecord,
    ProducerName,
    RebalanceNote,
    WorkloadClient,
)
from kraftpy.verify.workloads.process import ClientProcess, Manners, Tools
from kraftpy.verify.workloads.session import Pace, Session
from kraftpy.verify.workloads.topics import Topics
from kraftpy.world import World
from kraftpy.world.real import real_world

KEYS = KeySpace()
REFUSED = ClientError("MESSAGE_TOO_LARGE", Meaning(Effect.FAIL, AfterCommit.ABORT))
FENCED = ClientError("PRODUCER_FENCED", Meaning(Effect.FAIL_AND_END, AfterCommit.NO_ABORT))
TIMED_OUT = ClientError("REQUEST_TIMED_OUT", UNKNOWN)
ABORTABLE = ClientError("TRANSACTION_ABORTABLE", Meaning(Effect.INFO, AfterCommit.ABORT))
WRONG_STATE = ClientError("INVALID_TXN_STATE", Meaning(Effect.INFO, AfterCommit.WRONG_STATE))


class ScriptedClient:
    """Does what it is asked, but fails where `failures` has something for a call."""

    library = "scripted"

    def __init__(self) -> None:
        self.failures: dict[str, ClientError] = {}
        self.calls: list[Any] = []
        self.acks: list[Ack | ClientError] = []
        self.polls: list[list[PolledRecord]] = []
        self.rebalances: list[RebalanceNote] = []

    def _do(self, name: str, *about: Any) -> None:
        self.calls.append((name, *about) if about else name)
        if name in self.failures:
            raise self.failures[name]

    @property
    def names(self) -> list[str]:
        return [each if isinstance(each, str) else each[0] for each in self.calls]

    async def send(
        self, records: Sequence[tuple[TopicPartition, OutgoingRecord]]
    ) -> list[Ack | ClientError]:
        self._do("send")
        found = []
        for where, _ in records:
            found.append(self.acks.pop(0) if self.acks else Ack(where.partition, 7))
        return found

    async def assign(self, wheres: Iterable[TopicPartition], *, from_beginning: bool) -> None:
        self._do("assign")

    async def subscribe(self, topics: Iterable[str]) -> None:
        self._do("subscribe", list(topics))

    async def poll(self, timeout_ms: int) -> list[PolledRecord]:
        self._do("poll")
        return self.polls.pop(0) if self.polls else []

    async def seek(self, where: TopicPartition, offset: int) -> None:
        self._do("seek", where, offset)

    def take_rebalances(self) -> list[RebalanceNote]:
        taken, self.rebalances = self.rebalances, []
        return taken

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._do("commit", {where: each.offset for where, each in offsets.items()})

    async def committed(
        self, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        self._do("committed")
        return dict.fromkeys(wheres)

    async def init_transactions(self) -> ProducerName:
        self._do("init")
        return ProducerName(1, 0)

    def producer_name(self) -> ProducerName:
        return ProducerName(1, 0)

    async def begin(self) -> None:
        self._do("begin")

    async def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._do("send_offsets", {where: each.offset for where, each in offsets.items()})

    async def commit_transaction(self) -> None:
        self._do("commit_transaction")

    async def abort_transaction(self) -> None:
        self._do("abort_transaction")


class Admin:
    """Topics can be made, or not."""

    def __init__(self) -> None:
        self.failure: ClientError | None = None
        self.created: list[str] = []

    async def create_topic(self, name: str, *about: Any) -> str:
        if self.failure is not None:
            raise self.failure
        self.created.append(name)
        return "id"

    async def describe_topic(self, name: str) -> None:
        """Nobody knows anything."""


def process_with(
    client: ScriptedClient,
    *,
    spec: ClientSpec | None = None,
    admin: Admin | None = None,
    abort_p: float = 0.0,
) -> ClientProcess:
    world = real_world()
    asked: Any = admin or Admin()
    tools = Tools(
        Recorder(lambda: 0),
        lambda: 0,
        world.clock,
        Random(1),
        KEYS,
        Topics(asked, KEYS, replication_factor=3, configs={}),
        asked,
        Manners(abort_p=abort_p, intra_transaction_delay_ms=0),
        lambda event: None,
    )
    return ClientProcess(0, client, spec or ClientSpec("p0"), tools)


def record(offset: int, key: int = 0) -> PolledRecord:
    made = encode(Content(key, offset))
    where = KEYS.where(key)
    return PolledRecord(*where, offset, made.key, made.value, made.timestamp_ms, made.headers)


SEND = Plan("send", [["send", 0, 5]])
SENDS = Plan("send", [["send", 0, 5], ["send", 0, 6]])
POLL = Plan("poll", [["poll"]])


def transaction(*micro: list[Any], **meta: Any) -> Plan:
    return Plan("txn", list(micro), {"transactional": True, **meta})


async def test_an_acknowledged_send_is_ok() -> None:
    client = ScriptedClient()
    event = await process_with(client).perform(SEND)
    assert (event.type, event.value) == ("ok", [["send", 0, [7, 5]]])


@pytest.mark.parametrize(
    ("failure", "kind", "is_over"),
    [(REFUSED, "fail", False), (FENCED, "fail", True), (TIMED_OUT, "info", True)],
    ids=lambda each: each.name if isinstance(each, ClientError) else None,
)
async def test_a_send_that_failed(failure: ClientError, kind: str, is_over: bool) -> None:
    """JEP-2, JEP-6: only what certainly did not happen is `fail`; who is fenced is over."""
    client = ScriptedClient()
    client.acks = [failure]
    process = process_with(client)
    event = await process.perform(SEND)
    assert (event.type, event.value, process.is_over) == (kind, [["send", 0, 5]], is_over)


@pytest.mark.parametrize(
    ("acks", "kind", "value"),
    [
        ([Ack(0, 3), Ack(0, 4)], "ok", [["send", 0, [3, 5]], ["send", 0, [4, 6]]]),
        ([Ack(0, 3), REFUSED], "info", [["send", 0, [3, 5]], ["send", 0, 6]]),
        ([REFUSED, TIMED_OUT], "info", [["send", 0, 5], ["send", 0, 6]]),
        ([REFUSED, REFUSED], "fail", [["send", 0, 5], ["send", 0, 6]]),
    ],
)
async def test_several_sends_at_once(
    acks: list[Ack | ClientError], kind: str, value: list[Any]
) -> None:
    """JEP-3, JEP-16: what was learned stays; one that happened makes the whole no failure."""
    client = ScriptedClient()
    client.acks = acks
    event = await process_with(client).perform(SENDS)
    assert (event.type, event.value) == (kind, value)


async def test_a_topic_that_can_t_be_made_leaves_nothing_behind() -> None:
    client, admin = ScriptedClient(), Admin()
    admin.failure = TIMED_OUT
    process = process_with(client, admin=admin)
    event = await process.perform(SEND)
    assert (event.type, process.is_over, client.calls) == ("fail", False, [])
    admin.failure = ClientError("TOPIC_ALREADY_EXISTS", UNKNOWN)
    assert (await process.perform(SEND)).type == "ok"


async def test_a_read_that_failed_did_not_happen() -> None:
    client = ScriptedClient()
    client.failures["poll"] = TIMED_OUT
    process = process_with(client)
    assert (await process.perform(POLL)).type == "fail"
    assert not process.is_over


async def test_a_poll_of_a_member_commits_and_a_failed_commit_is_a_remark() -> None:
    """Section 2.5, 2: what was read was real."""
    client = ScriptedClient()
    client.polls = [[record(4), record(5)], [record(6)]]
    process = process_with(client, spec=ClientSpec("p0", group_id="g"))
    await process.perform(Plan("subscribe", [0]))
    event = await process.perform(POLL)
    assert ("commit", {("t0", 0): 6}) in client.calls
    assert (event.type, event.error) == ("ok", None)
    assert event.meta["offsets"] == {"group": "g", "offsets": {0: [6, "0.1;"]}}
    client.failures["commit"] = TIMED_OUT
    event = await process.perform(POLL)
    assert (event.type, event.error) == ("ok", "commit: REQUEST_TIMED_OUT")


async def test_rebalances_are_in_the_operation_in_which_they_came() -> None:
    client = ScriptedClient()
    client.rebalances = [RebalanceNote("revoked", (TopicPartition("t1", 0),))]
    event = await process_with(client).perform(POLL)
    assert event.rebalance == [{"kind": "revoked", "keys": [2]}]


async def test_a_transaction_from_begin_to_commit() -> None:
    client = ScriptedClient()
    client.polls = [[record(4, key=2)]]
    process = process_with(client, spec=ClientSpec("p0", transactional_id="t", group_id="g"))
    await process.perform(Plan("subscribe", [2]))
    event = await process.perform(transaction(["poll"], ["send", 0, 5]))
    assert client.names[1:] == [
        "init",
        "begin",
        "poll",
        "send",
        "send_offsets",
        "commit_transaction",
    ]
    assert event.type == "ok"
    assert event.value == [["poll", {2: [[4, 4]]}], ["send", 0, [7, 5]]]
    assert event.meta["outcome"] == "committed"
    assert event.meta["offsets"]["offsets"] == {2: [5, "0.1;"]}
    assert (event.meta["producer_id"], event.meta["transactional_id"]) == (1, "t")


@pytest.mark.parametrize(
    ("where", "abort", "kind", "is_over", "outcome"),
    [
        # Before the commit is asked for: fail, whatever the abort says.
        ("send", None, "fail", False, "aborted"),
        ("send", TIMED_OUT, "fail", True, None),
        ("send_offsets", None, "fail", False, "aborted"),
        ("begin", None, "fail", True, None),
        ("init", None, "fail", True, None),
    ],
)
async def test_failures_before_the_commit(
    where: str, abort: ClientError | None, kind: str, is_over: bool, outcome: str | None
) -> None:
    """Section 2.5, 4."""
    client = ScriptedClient()
    client.polls = [[record(4)]]
    client.failures[where] = TIMED_OUT
    if abort is not None:
        client.failures["abort_transaction"] = abort
    process = process_with(client, spec=ClientSpec("p0", transactional_id="t", group_id="g"))
    await process.perform(Plan("subscribe", [0]))
    event = await process.perform(transaction(["poll"], ["send", 0, 5]))
    assert (event.type, process.is_over, event.meta.get("outcome")) == (kind, is_over, outcome)
    assert "commit_transaction" not in client.names


@pytest.mark.parametrize(
    ("failure", "abort", "kind", "aborts", "outcome"),
    [
        (TIMED_OUT, None, "info", False, None),
        (FENCED, None, "info", False, None),
        (WRONG_STATE, None, "fail", False, "commit-refused"),
        (ABORTABLE, None, "fail", True, "aborted"),
        (ABORTABLE, TIMED_OUT, "info", True, None),
    ],
    ids=lambda each: each.name if isinstance(each, ClientError) else None,
)
async def test_failures_of_the_commit(
    failure: ClientError, abort: ClientError | None, kind: str, aborts: bool, outcome: str | None
) -> None:
    """JEP-7 (F1): after a commit that nobody answered there is never an abort."""
    client = ScriptedClient()
    client.failures["commit_transaction"] = failure
    if abort is not None:
        client.failures["abort_transaction"] = abort
    event = await process_with(client).perform(transaction(["send", 0, 5]))
    assert (event.type, event.meta.get("outcome")) == (kind, outcome)
    assert ("abort_transaction" in client.names) is aborts
    assert event.value == [["send", 0, [7, 5]]]


async def test_what_an_aborted_transaction_has_polled_is_polled_again() -> None:
    """JEP-8 (F2): the client goes back to the first record of the operation, of each key."""
    client = ScriptedClient()
    client.polls = [[record(4), record(5), record(2, key=2)]]
    process = process_with(client, abort_p=0.0)
    client.failures["send"] = REFUSED
    event = await process.perform(transaction(["poll"], ["send", 0, 9]))
    assert event.type == "fail"
    assert event.value[0] == ["poll", {0: [[4, 4], [5, 5]], 2: [[2, 2]]}]
    seeks = [call[1:] for call in client.calls if call[0] == "seek"]
    assert seeks == [(TopicPartition("t0", 0), 4), (TopicPartition("t1", 0), 2)]


@pytest.mark.parametrize(
    ("next_offset", "way"), [(6, "advance"), (4, "rewind"), (3, "rewind-further"), (5, "other")]
)
async def test_where_a_consumer_goes_on_after_an_abort(next_offset: int, way: str) -> None:
    """JEP-8, W7."""
    client = ScriptedClient()
    client.polls = [[record(4), record(5)], [record(next_offset)]]
    event = await process_with(client).perform(transaction(["poll"], ["poll"], abort_at=1))
    assert (event.type, event.meta["after_abort"]) == ("fail", {0: way})
    assert client.names[-1] == "seek"


async def test_some_transactions_are_aborted_on_purpose() -> None:
    """Section 2.5, 3: before any step, and before the commit."""
    client = ScriptedClient()
    process = process_with(client, abort_p=0.2)
    plan = transaction(["send", 0, 5], ["send", 0, 6])
    events = [await process.perform(plan) for _ in range(400)]
    purposeful = [event for event in events if event.error == "aborted on purpose"]
    assert len(purposeful) == pytest.approx(400 * (1 - 0.8**3), rel=0.15)
    steps = {sum(isinstance(micro[2], list) for micro in event.value) for event in purposeful}
    assert steps == {0, 1, 2}


async def test_a_crash_is_info_and_the_end() -> None:
    process = process_with(ScriptedClient())
    event = await process.perform(Plan("crash"))
    assert (event.type, process.is_over) == ("info", True)


class Once:
    """Every process does one thing, and some of them are never heard of again."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def next(self, state: SlotState) -> Plan | None:
        return SEND

    def observe(self, event: Event) -> None:
        self.seen.append(event)


def session_with(
    open_client: Callable[[ClientSpec], AbstractAsyncContextManager[WorkloadClient]],
    pace: Pace,
    generator: Once | None = None,
    world: World | None = None,
) -> Session:
    built = find_workload("queue-assign").build(Circumstances(Random(1)))
    script: Script = replace(built, generator=generator or Once())
    asked: Any = Admin()
    return Session(
        world or real_world(),
        [],
        script,
        pace=pace,
        recorder=Recorder(lambda: 0),
        open_client=open_client,
        admin=asked,
        random=Random(1),
        keys=KEYS,
    )


async def test_a_process_with_an_unknown_outcome_is_followed_by_a_new_one() -> None:
    """JEP-2: slot + number of slots, fresh clients, a fresh transactional id."""
    opened: list[str] = []
    enough = trio.Event()

    @asynccontextmanager
    async def open_client(spec: ClientSpec) -> AsyncIterator[ScriptedClient]:
        opened.append(spec.client_id)
        if len(opened) >= 9:
            enough.set()
        client = ScriptedClient()
        client.acks = [Ack(0, 1), TIMED_OUT]
        yield client

    generator = Once()
    session = session_with(open_client, Pace(slots=3, rate=10_000), generator)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.run, 3600)
            with trio.fail_after(60):
                await enough.wait()
            scope.cancel()
    numbers = sorted(int(each.removeprefix("p")) for each in opened)
    assert numbers[:6] == [0, 1, 2, 3, 4, 5]
    assert len(numbers) == len(set(numbers))
    for event in generator.seen:
        retired = [each for each in generator.seen if each.process == event.process]
        assert [each.type for each in retired] in (["ok", "info"], ["ok"])


class StepClock:
    """A clock that goes on by a second whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.move_on_after = trio.move_on_after

    def monotonic(self) -> float:
        self.now += 1
        return self.now

    def monotonic_ms(self) -> int:
        return int(1000 * self.monotonic())


@pytest.mark.parametrize("brings_all", [True, False])
async def test_the_final_read_goes_on_until_all_is_seen_or_says_what_is_not(
    brings_all: bool,
) -> None:
    """JEP-10: to the highest offset that anybody was told of, with fresh clients each round."""
    clients: list[ScriptedClient] = []

    @asynccontextmanager
    async def open_client(spec: ClientSpec) -> AsyncIterator[ScriptedClient]:
        client = ScriptedClient()
        client.polls = [[record(7)], [], [record(8), record(3, key=1)]]
        if brings_all and len(clients) == 3:
            client.polls.append([record(9)])
        clients.append(client)
        yield client

    clock: Any = StepClock()
    session = session_with(
        open_client,
        Pace(slots=1, final_read_seconds=200, final_round_seconds=10),
        world=replace(real_world(), clock=clock),
    )
    session.known.highest = {0: 9, 1: 2}
    found = await session.final_read()
    assert found.behind == ({} if brings_all else {0: 9})
    assert found.is_complete is brings_all
    assert [client.names[:2] for client in clients] == [["assign", "poll"]] * len(clients)
    if brings_all:
        assert len(clients) == 4
    else:
        # Two hundred seconds, in rounds of ten.
        assert len(clients) in range(10, 21)


async def test_the_final_read_waits_for_nothing_of_a_log_that_began_anew() -> None:
    """JEP-10: offsets of a deleted topic are not there for anybody; those acked since are."""
    clients: list[ScriptedClient] = []

    @asynccontextmanager
    async def open_client(spec: ClientSpec) -> AsyncIterator[ScriptedClient]:
        client = ScriptedClient()
        client.polls = [[record(0), record(1)], [record(2), record(2, key=1)], []]
        clients.append(client)
        yield client

    clock: Any = StepClock()
    session = session_with(
        open_client,
        Pace(slots=1, final_read_seconds=200, final_round_seconds=10),
        world=replace(real_world(), clock=clock),
    )
    recorder = session._tools.recorder
    sends = [recorder.invoke(number, "send", [["send", 0, number]]) for number in range(3)]
    sends[0].ok([["send", 0, [50, 0]]])
    made_again = recorder.nemesis({"name": "recreate-topic", "phase": "end"}).index
    # Begun before, and acknowledged by the old topic.
    sends[1].ok([["send", 0, [51, 1]]])
    recorder.invoke(3, "send", [["send", 0, 3]]).ok([["send", 0, [2, 3]]])
    recorder.invoke(4, "poll", [["poll"]]).ok([["poll", {0: [[49, 49]]}]])
    # Nothing was sent to key 3 after it began anew.
    session.known.highest = {0: 51, 1: 2, 3: 70}
    found = await session.final_read({0: made_again, 3: made_again})
    assert found.is_complete
    [client] = clients
    # All of them were asked for, and records came until there were those that count.
    assert client.names[:3] == ["assign", "poll", "poll"]
    assert session._targets({0: made_again, 3: made_again}) == {0: 2, 1: 2, 3: -1}
