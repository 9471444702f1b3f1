"""One transaction: begin, sends and polls, the group's offsets, commit; and what failures mean.

- Before the commit is asked for, a failure leads to an abort. The operation is `fail` either way,
  since nobody asked for a commit; if the abort fails too, the process ends.
- A commit without an answer is `info`, and never followed by an abort: the commit may still arrive,
  and an abort could end a later transaction than it was meant for, or be believed where it should
  not (KAFKA-17754).
- A commit that is refused in a way that leaves the transaction open is followed by an abort; only
  an abort that is confirmed makes the operation `fail`.
- Now and then a transaction is aborted on purpose, before any of its steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftpy.verify.workloads.outcomes import AfterCommit, ClientError, Effect
from kraftpy.verify.workloads.plans import Plan
from kraftpy.verify.workloads.port import PolledRecord
from kraftpy.verify.workloads.progress import Ended, Progress

if TYPE_CHECKING:
    from kraftpy.verify.workloads.process import ClientProcess

__all__ = ["transact"]

_ON_PURPOSE = "aborted on purpose"


class _OnPurpose(Exception):  # noqa: N818 (it names why)
    """The transaction is aborted because somebody wants to see that."""


async def transact(process: ClientProcess, plan: Plan, progress: Progress) -> None:
    """Carry out the transaction; returns if it is committed, raises Ended otherwise."""
    client = process.client
    try:
        if not process.is_initialized:
            await client.init_transactions()
            process.is_initialized = True
        await client.begin()
    except ClientError as failure:
        raise Ended(Effect.FAIL_AND_END, str(failure)) from failure
    _name(process, progress)
    try:
        await _steps(process, plan, progress)
    except _OnPurpose:
        await _abort(process, progress, _ON_PURPOSE)
        if "abort_at" in plan.meta:
            await _look_again(process, progress)
        raise Ended(Effect.FAIL, _ON_PURPOSE) from None
    except ClientError as failure:
        await _abort(process, progress, str(failure))
        raise Ended(Effect.FAIL, str(failure)) from failure
    progress.meta["commit_ns"] = process.tools.now_ns()
    try:
        await client.commit_transaction()
    except ClientError as failure:
        await _commit_failed(process, progress, failure)
    progress.meta["outcome"] = "committed"


async def _steps(process: ClientProcess, plan: Plan, progress: Progress) -> None:
    tools = process.tools
    is_slow = tools.random.random() < 0.5
    index = 0
    while index < len(progress.value):
        _perhaps_abort(process, plan, index)
        if index and is_slow:
            delay_ms = tools.random.uniform(0, tools.manners.intra_transaction_delay_ms)
            await tools.clock.sleep(delay_ms / 1000)
        await _micro(process, index, progress, plan)
        index += 1
    if plan.meta.get("pauses"):
        await tools.clock.sleep(tools.manners.pause_ms / 1000)
    _perhaps_abort(process, plan, index)
    if process.is_subscribed and progress.next_offsets:
        offsets = process.offsets_of(progress)
        progress.offsets_told(process.spec.group_id or "", offsets)
        await process.client.send_offsets(offsets)


async def _micro(process: ClientProcess, index: int, progress: Progress, plan: Plan) -> None:
    micro = progress.value[index]
    if micro[0] == "poll":
        polled = progress.polled(index, await process.poll())
        if plan.reaction is not None:
            sends, extras = plan.reaction(polled)
            await process.tools.topics.ensure([send[1] for send in sends])
            progress.value += sends
            progress.extras |= extras
        return
    record = process.outgoing(micro[1], micro[2], progress, is_transactional=True)
    [outcome] = await process.client.send([record])
    if isinstance(outcome, ClientError):
        raise outcome
    progress.sent(index, outcome)


def _perhaps_abort(process: ClientProcess, plan: Plan, step: int) -> None:
    if "abort_at" in plan.meta:
        aborts = plan.meta["abort_at"] == step
    else:
        aborts = process.tools.random.random() < process.tools.manners.abort_p
    if aborts:
        raise _OnPurpose


async def _abort(process: ClientProcess, progress: Progress, why: str) -> None:
    """Abort what nobody asked to commit; raises Ended only if that fails too."""
    try:
        await process.client.abort_transaction()
    except ClientError as failure:
        raise Ended(Effect.FAIL_AND_END, f"{why}; abort: {failure}") from failure
    progress.meta["outcome"] = "aborted"


async def _commit_failed(process: ClientProcess, progress: Progress, failure: ClientError) -> None:
    after = failure.meaning.after_commit
    if after is AfterCommit.WRONG_STATE:
        progress.meta["outcome"] = "commit-refused"
        raise Ended(Effect.FAIL_AND_END, f"commit: {failure}") from failure
    if after is not AfterCommit.ABORT:
        raise Ended(Effect.INFO, f"commit: {failure}") from failure
    try:
        await process.client.abort_transaction()
    except ClientError as second:
        raise Ended(Effect.INFO, f"commit: {failure}; abort: {second}") from second
    progress.meta["outcome"] = "aborted"
    raise Ended(Effect.FAIL, f"commit: {failure}; aborted") from failure


def _name(process: ClientProcess, progress: Progress) -> None:
    """Which producer this is, for the fencing rules."""
    progress.meta["transactional_id"] = process.spec.transactional_id
    name = process.client.producer_name()
    if name.producer_id >= 0:
        progress.meta["producer_id"] = name.producer_id
        progress.meta["producer_epoch"] = name.epoch


async def _look_again(process: ClientProcess, progress: Progress) -> None:
    """Where the consumer goes on by itself after an abort; then it is rewound (`_rewind`)."""
    try:
        records = await process.poll()
    except ClientError as failure:
        progress.meta["after_abort"] = str(failure)
        return
    firsts: dict[Any, PolledRecord] = {}
    for record in records:
        firsts.setdefault((record.topic, record.partition), record)
    told: dict[int, str] = {}
    for where, record in firsts.items():
        key = process.tools.keys.key_of(*where)
        if key is not None and where in progress.first_polled:
            first, next_offset = progress.first_polled[where], progress.next_offsets[where]
            told[key] = _went(record.offset, first, next_offset)
    progress.meta["after_abort"] = told
    # Those that came only now are polled again too.
    for where, record in firsts.items():
        progress.first_polled.setdefault(where, record.offset)


def _went(offset: int, first: int, next_offset: int) -> str:
    if offset == first:
        return "rewind"
    if offset < first:
        return "rewind-further"
    return "advance" if offset >= next_offset else "other"
