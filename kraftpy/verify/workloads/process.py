"""One process of a history: a client that does one operation after the other, and says how it went.

Which end an operation has follows from its failures (`outcomes.py`) and from what it was:

- A read changes nothing, so one that failed certainly did not happen.
- Writes without a transaction: `ok` if all are acknowledged, `fail` if certainly none was made,
  else `info`.
- A poll under `subscribe` commits before it ends. If only that fails the poll is `ok`, with a
  remark: what was read was real.
- Transactions: see `transacting.py`.

After `info`, and after a failure that ends a producer, the process is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kraftpy.client.calls import TopicPartition
from kraftpy.verify.history import Event, Recorder
from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.outcomes import ClientError, Effect
from kraftpy.verify.workloads.payload import Content, OutgoingRecord, encode
from kraftpy.verify.workloads.plans import Plan
from kraftpy.verify.workloads.port import (
    ClientSpec,
    CommittedOffset,
    PolledRecord,
    WorkloadAdmin,
    WorkloadClient,
)
from kraftpy.verify.workloads.progress import Ended, Progress
from kraftpy.verify.workloads.raw_member import RawMember
from kraftpy.verify.workloads.topics import Topics
from kraftpy.verify.workloads.transacting import transact
from kraftpy.world import Clock, Random

__all__ = ["ClientProcess", "Manners", "Tools"]

# What an operation may take at most; clients give up long before.
_HANG_SECONDS = 120.0
_WHOLE_READ_SECONDS = 10.0
_END_OF_ID = ";"
CONFIG_KEY = "retention.ms"
_READS = ("poll", "committed", "end_offsets", "md_read", "debug", "group_state")


@dataclass(frozen=True, slots=True)
class Manners:
    """How clients behave, besides what they are told to do."""

    poll_ms: int = 100
    abort_p: float = 1 / 16
    intra_transaction_delay_ms: int = 200
    max_padding: int = 256
    pause_ms: int = 0
    """Of a transaction that is to outlast its time."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What all processes of a run share."""

    recorder: Recorder
    now_ns: Callable[[], int]
    """The recorder's clock."""
    clock: Clock
    random: Random
    keys: KeySpace
    topics: Topics
    admin: WorkloadAdmin
    manners: Manners
    observe: Callable[[Event], None]


class ClientProcess:
    def __init__(
        self,
        number: int,
        client: WorkloadClient,
        spec: ClientSpec,
        tools: Tools,
        member: RawMember | None = None,
    ) -> None:
        self.number = number
        self.client = client
        self.spec = spec
        self.tools = tools
        self.is_over = False
        self.is_fresh = True
        self.is_subscribed = False
        self.is_initialized = False
        self.operation = 0
        self._member = member
        self._commits = 0
        self._handlers: dict[str, Callable[[Plan, Progress], Awaitable[None]]] = {
            "assign": self._assign,
            "subscribe": self._subscribe,
            "send": self._micro,
            "poll": self._micro,
            "txn": self._micro,
            "crash": self._crash,
            "commit": self._commit,
            "committed": self._committed,
            "end_offsets": self._end_offsets,
            "delete_records": self._delete_records,
            "debug": self._debug,
            "init_producer": self._init_producer,
            "join_view": self._join_view,
            "leave": self._leave,
            "md_create": self._md_create,
            "md_delete": self._md_delete,
            "md_write": self._md_write,
            "md_read": self._md_read,
            "reassign": self._reassign,
        }

    async def perform(self, plan: Plan) -> Event:
        """Carry one operation out and record it."""
        tools = self.tools
        value = plan.value
        if self._member is not None and plan.f == "join_view":
            value = self._member.told()
        elif self._member is not None and plan.f == "leave":
            value = self._member.leaving()
        meta: dict[str, Any] = {"client": self.client.library, **plan.meta}
        if plan.f in ("subscribe", "commit", "committed") and self.spec.group_id is not None:
            meta["group"] = self.spec.group_id
        if plan.f == "commit" and self._member is not None:
            meta |= self._member.identity()
        invocation = tools.recorder.invoke(self.number, plan.f, value, meta)
        self.operation = invocation.event.index
        progress = Progress(plan, tools.keys)
        ended: Ended | None = None
        try:
            with tools.clock.move_on_after(_HANG_SECONDS) as scope:
                await self._handlers[plan.f](plan, progress)
            if scope.cancelled_caught:
                ended = Ended(Effect.INFO, f"the client did not answer in {_HANG_SECONDS:g} s")
        except ClientError as failure:
            ended = Ended.by(failure)
        except Ended as end:
            ended = end
        rebalance = self._rebalances()
        if ended is None:
            event = invocation.ok(progress.value, progress.remark, rebalance, progress.meta)
            self.is_fresh = False
        else:
            is_read = plan.f in _READS and not plan.meta.get("transactional")
            is_certain = ended.effect is not Effect.INFO or is_read
            record = invocation.fail if is_certain else invocation.info
            event = record(ended.error, progress.value, rebalance, progress.meta)
            self.is_over = not is_certain or ended.effect is Effect.FAIL_AND_END
            if not self.is_over:
                await self._rewind(progress)
        tools.observe(event)
        return event

    async def _rewind(self, progress: Progress) -> None:
        """What was polled by an operation that failed is polled again: no library does it."""
        try:
            for where, offset in progress.first_polled.items():
                await self.client.seek(where, offset)
        except ClientError:
            # It could go on anywhere; better that it does not.
            self.is_over = True

    def _rebalances(self) -> list[dict[str, Any]]:
        keys = self.tools.keys
        return [
            {"kind": note.kind, "keys": [keys.key_of(*where) for where in note.partitions]}
            for note in self.client.take_rebalances()
        ]

    # Records.

    def outgoing(
        self, key: int, value: int, progress: Progress, *, is_transactional: bool
    ) -> tuple[TopicPartition, OutgoingRecord]:
        extras = progress.extras.get((key, value), {})
        content = Content(key, value, self.number, self.operation, is_transactional, extras)
        padding = self.tools.random.randint(0, self.tools.manners.max_padding)
        return self.tools.keys.where(key), encode(content, padding=padding)

    async def poll(self) -> list[PolledRecord]:
        return await self.client.poll(self.tools.manners.poll_ms)

    def commit_id(self) -> str:
        """Unique for each commit, so that a read tells which one it saw. It says where it ends:
        librdkafka stores, and reads, what lies behind a text in memory, too.
        """
        self._commits += 1
        return f"{self.number}.{self._commits}{_END_OF_ID}"

    def offsets_of(self, progress: Progress) -> dict[TopicPartition, CommittedOffset]:
        identity = self.commit_id()
        return {
            where: CommittedOffset(offset, identity)
            for where, offset in progress.next_offsets.items()
        }

    async def _micro(self, plan: Plan, progress: Progress) -> None:
        keys = [micro[1] for micro in progress.value if micro[0] == "send"]
        await self.tools.topics.ensure(keys)
        if plan.meta.get("transactional"):
            await transact(self, plan, progress)
        elif keys:
            await self._send(progress)
        elif "whole" in plan.meta:
            await self._read_whole(plan.meta["whole"], progress)
        else:
            await self._poll_all(progress)

    async def _send(self, progress: Progress) -> None:
        records = [
            self.outgoing(key, value, progress, is_transactional=False)
            for _, key, value in progress.value
        ]
        failures: list[ClientError] = []
        for index, outcome in enumerate(await self.client.send(records)):
            if isinstance(outcome, ClientError):
                failures.append(outcome)
            else:
                progress.sent(index, outcome)
        if not failures:
            return
        effects = [failure.meaning.effect for failure in failures]
        if len(failures) < len(records) or Effect.INFO in effects:
            raise Ended(Effect.INFO, str(failures[0]))
        worst = Effect.FAIL_AND_END if Effect.FAIL_AND_END in effects else Effect.FAIL
        raise Ended(worst, str(failures[0]))

    async def _poll_all(self, progress: Progress) -> None:
        for index in range(len(progress.value)):
            progress.polled(index, await self.poll())
        if not self.is_subscribed or self.spec.commits_by_itself or not progress.next_offsets:
            return
        offsets = self.offsets_of(progress)
        progress.offsets_told(self.spec.group_id or "", offsets)
        try:
            await self.client.commit(offsets)
        except ClientError as failure:
            progress.remark = f"commit: {failure}"

    async def _read_whole(self, key: int, progress: Progress) -> None:
        """From the beginning, where the position is, to the end that the log has now."""
        where = self.tools.keys.where(key)
        end = (await self.tools.admin.log_ends([where]))[where].last_stable
        progress.polled(0, ())
        with self.tools.clock.move_on_after(_WHOLE_READ_SECONDS):
            while progress.next_offsets.get(where, 0) < end:
                progress.polled(0, await self.poll())
        if progress.next_offsets.get(where, 0) < end:
            raise Ended(Effect.FAIL, f"not read to offset {end} in {_WHOLE_READ_SECONDS:g} s")

    # What a client reads from.

    async def _assign(self, plan: Plan, progress: Progress) -> None:
        await self.tools.topics.ensure(plan.value)
        wheres = [self.tools.keys.where(key) for key in plan.value]
        from_beginning = bool(plan.meta.get("seek_to_beginning"))
        self.is_fresh = True
        await self.client.assign(wheres, from_beginning=from_beginning)
        self.is_subscribed = False

    async def _subscribe(self, plan: Plan, progress: Progress) -> None:
        await self.tools.topics.ensure(plan.value)
        self.is_fresh = True
        await self.client.subscribe(self.tools.keys.topics(plan.value))
        self.is_subscribed = True

    async def _crash(self, plan: Plan, progress: Progress) -> None:
        raise Ended(Effect.INFO, "crash")

    # Offsets.

    async def _commit(self, plan: Plan, progress: Progress) -> None:
        keys = self.tools.keys
        offsets = {
            keys.where(key): CommittedOffset(offset, identity)
            for key, (offset, identity) in plan.value.items()
        }
        if self._member is not None:
            await self.tools.topics.ensure(plan.value)
            await self._member.commit(offsets)
        else:
            await self.client.commit(offsets)

    async def _committed(self, plan: Plan, progress: Progress) -> None:
        keys = self.tools.keys
        wheres = [keys.where(key) for key in plan.value]
        reader = self.client if self._member is None else self._member
        found = await reader.committed(wheres)
        progress.value = {
            key: _pair(found[where]) for key, where in zip(plan.value, wheres, strict=True)
        }

    async def _end_offsets(self, plan: Plan, progress: Progress) -> None:
        await self.tools.topics.ensure(plan.value)
        wheres = [self.tools.keys.where(key) for key in plan.value]
        found = await self.tools.admin.log_ends(wheres)
        progress.value = {
            key: list(found[where]) for key, where in zip(plan.value, wheres, strict=True)
        }

    async def _delete_records(self, plan: Plan, progress: Progress) -> None:
        keys = self.tools.keys
        await self.tools.admin.delete_records(
            {keys.where(key): offset for key, offset in plan.value.items()}
        )

    # Producers and members.

    async def _init_producer(self, plan: Plan, progress: Progress) -> None:
        name = await self.client.init_transactions()
        self.is_initialized = True
        progress.value = {
            **plan.value,
            "producer_id": name.producer_id,
            "producer_epoch": name.epoch,
        }

    async def _join_view(self, plan: Plan, progress: Progress) -> None:
        await self.tools.topics.ensure(plan.value["subscribed"])
        progress.value = await self._bare.join(plan.value["subscribed"])

    async def _leave(self, plan: Plan, progress: Progress) -> None:
        progress.value = self._bare.leaving()
        await self._bare.leave()
        # It comes back as somebody else.
        self.is_over = True

    @property
    def _bare(self) -> RawMember:
        if self._member is None:
            raise ValueError("this workload has no bare members")
        return self._member

    # The cluster.

    async def _debug(self, plan: Plan, progress: Progress) -> None:
        progress.value = await self.tools.topics.describe(plan.value)

    async def _md_create(self, plan: Plan, progress: Progress) -> None:
        said = plan.value
        topic_id = await self.tools.admin.create_topic(
            said["topic"], said["partitions"], 3, {CONFIG_KEY: str(said["value"])}
        )
        progress.value = {**said, "id": topic_id}

    async def _md_delete(self, plan: Plan, progress: Progress) -> None:
        await self.tools.admin.delete_topic(plan.value["topic"])

    async def _md_write(self, plan: Plan, progress: Progress) -> None:
        said = plan.value
        await self.tools.admin.set_config(said["topic"], CONFIG_KEY, str(said["value"]))

    async def _md_read(self, plan: Plan, progress: Progress) -> None:
        if plan.value["via"] == "controller":
            exists = await self.tools.admin.topic_exists(plan.value["topic"])
            progress.value = {**plan.value, "exists": exists}
            return
        view = await self.tools.admin.describe_topic(
            plan.value["topic"], config_keys=[CONFIG_KEY], via=plan.value["via"]
        )
        progress.value = {**plan.value, "exists": view is not None}
        if view is not None:
            progress.value |= {
                "id": view.topic_id,
                "partitions": len(view.partitions),
                "value": int(view.configs[CONFIG_KEY] or 0),
            }

    async def _reassign(self, plan: Plan, progress: Progress) -> None:
        await self.tools.topics.ensure(plan.value)
        for key, replicas in plan.value.items():
            await self.tools.admin.reassign(self.tools.keys.where(key), replicas)


def _pair(found: CommittedOffset | None) -> list[Any] | None:
    """What a client commits by itself has no id."""
    if found is None:
        return None
    identity, end, _ = found.metadata.partition(_END_OF_ID)
    return [found.offset, identity + end if end else None]
