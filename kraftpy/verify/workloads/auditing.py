"""The audit at the end of a run: every replica of every key, read from its log start to its end.

Bare requests to each broker, as a consumer that is content with whatever replica it meets; so the
audit depends on no client's idea of who leads. Beside the logs it takes what coordinators know:
the last decision of each transactional id, and the offsets of groups.

Replicas that have only just heard of the newest high watermark are given a moment; one that does
not come to it is left as it is, and the checkers see what it lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import KafkaError, error_code, failure_of
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from kraftpy.protocol.schema.k65_describe_transactions import DescribeTransactionsRequest
from kraftpy.protocol.schema.k66_list_transactions import ListTransactionsRequest
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import ControlType, control_type
from kraftpy.records.errors import RecordDataError
from kraftpy.records.walker import records_of, walk_batches
from kraftpy.verify.checkers import Audit, AuditedBatch, AuditedRecord, ReplicaAudit
from kraftpy.verify.workloads.keys import KeySpace
from kraftpy.verify.workloads.outcomes import ClientError
from kraftpy.verify.workloads.own_admin import OwnAdmin
from kraftpy.verify.workloads.own_client import client_error
from kraftpy.verify.workloads.payload import Content, decode
from kraftpy.verify.workloads.raw_client import RawClient
from kraftpy.world import Address, Clock

__all__ = ["Auditor"]

_LAST_WITH_NAMES = 12
_FETCH_BYTES = 8 * 1024 * 1024
_MAX_BATCH_BYTES = 64 * 1024 * 1024
_COMMITTED = 1
_AGAIN_SECONDS = 0.2
_Decision = Literal["commit", "abort"]
_DECISIONS: dict[str, _Decision] = {
    "PrepareCommit": "commit",
    "CompleteCommit": "commit",
    "PrepareAbort": "abort",
    "CompleteAbort": "abort",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    start: int
    last_stable: int
    high_watermark: int
    data: bytes


class Auditor:
    def __init__(self, raw: RawClient, admin: OwnAdmin, keys: KeySpace, clock: Clock) -> None:
        self._raw = raw
        self._admin = admin
        self._keys = keys
        self._clock = clock

    async def audit(
        self, keys: Sequence[int], groups: Sequence[str], *, patience_seconds: float = 30.0
    ) -> Audit:
        """What can't be read in that time is missing; raises ClientError if nobody answers."""
        deadline = self._clock.monotonic() + patience_seconds
        addresses = await self._admin.addresses()
        replicas: list[ReplicaAudit] = []
        expected: dict[int, int] = {}
        for key in keys:
            where = self._keys.where(key)
            view = await self._admin.describe_topic(where.topic)
            if view is None:
                continue
            about = view.partitions[where.partition]
            expected[key] = len(about.replicas)
            # The leader first: how far the others have to come.
            order = sorted(about.replicas, key=lambda node: node != about.leader_id)
            high_watermark = 0
            for node in order:
                if node not in addresses:
                    continue
                replica = await self._replica(
                    key,
                    node,
                    addresses[node],
                    high_watermark=high_watermark,
                    deadline=deadline,
                    is_leader=node == about.leader_id,
                )
                if replica is not None:
                    replicas.append(replica)
                    high_watermark = max(high_watermark, replica.high_watermark)
        return Audit(
            tuple(replicas),
            expected,
            await self._decisions(list(addresses.values())),
            await self._committed(groups),
        )

    async def _replica(
        self,
        key: int,
        node: int,
        address: Address,
        *,
        high_watermark: int,
        deadline: float,
        is_leader: bool,
    ) -> ReplicaAudit | None:
        where = self._keys.where(key)
        while True:
            try:
                first = await self._fetch(address, where, 0, _COMMITTED)
                if first.high_watermark >= high_watermark or self._clock.monotonic() > deadline:
                    return await self._read(key, node, address, first, is_leader)
            except ClientError:
                if self._clock.monotonic() > deadline:
                    return None
            await self._clock.sleep(_AGAIN_SECONDS)

    async def _read(
        self, key: int, node: int, address: Address, first: _Answer, is_leader: bool
    ) -> ReplicaAudit:
        where = self._keys.where(key)
        position = first.start
        batches: list[AuditedBatch] = []
        while position < first.high_watermark:
            answer = await self._fetch(address, where, position, 0)
            found = [_batch(batch) for batch in walk_batches(answer.data)]
            if not found:
                break
            batches += [batch for batch in found if batch.last_offset >= position]
            position = found[-1].last_offset + 1
        return ReplicaAudit(
            key,
            node,
            first.start,
            first.last_stable,
            first.high_watermark,
            max(position, first.high_watermark),
            tuple(batches),
            is_leader,
        )

    async def _fetch(
        self, address: Address, where: TopicPartition, offset: int, isolation: int
    ) -> _Answer:
        partition = FetchPartition(
            partition=where.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCH_BYTES,
            isolation_level=isolation,
            topics=[FetchTopic(topic=where.topic, partitions=[partition])],
        )
        answer = await self._raw.request(address, request, max_version=_LAST_WITH_NAMES)
        _require(answer.error_code)
        [found] = answer.responses[0].partitions
        if error_code(found.error_code) == ErrorCode.OFFSET_OUT_OF_RANGE and offset == 0:
            # Records were deleted from the front: the answer says where the log begins.
            return _Answer(
                found.log_start_offset, found.last_stable_offset, found.high_watermark, b""
            )
        _require(found.error_code)
        return _Answer(
            found.log_start_offset,
            found.last_stable_offset,
            found.high_watermark,
            bytes(found.records or b""),
        )

    async def _decisions(self, addresses: Sequence[Address]) -> dict[tuple[int, int], _Decision]:
        decided: dict[tuple[int, int], _Decision] = {}
        for address in addresses:
            try:
                listed = await self._raw.request(address, ListTransactionsRequest())
                _require(listed.error_code)
                ids = [each.transactional_id for each in listed.transaction_states]
                request = DescribeTransactionsRequest(transactional_ids=ids)
                described = await self._raw.request(address, request)
            except ClientError:
                # What one coordinator knows can't be asked of another.
                continue
            for each in described.transaction_states:
                decision = _DECISIONS.get(each.transaction_state)
                if each.error_code == ErrorCode.NONE and decision is not None:
                    decided[each.producer_id, each.producer_epoch] = decision
        return decided

    async def _committed(self, groups: Sequence[str]) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for group in groups:
            for where, offset in (await self._admin.group_offsets(group)).items():
                key = self._keys.key_of(*where)
                if key is not None:
                    found[group, key] = offset
        return found


def _require(number: int) -> None:
    failure: KafkaError | None = failure_of(number)
    if failure is not None:
        raise client_error(failure, may_be_repeated=False)


def _batch(batch: Any) -> AuditedBatch:
    """A batch as it is in the log; the workloads write the newest format only."""
    if not isinstance(batch, RecordBatch):
        raise ClientError("OLD_FORMAT", client_error(ValueError()).meaning, repr(batch))
    kind: Literal["data", "commit", "abort"] = "data"
    records: list[AuditedRecord] = []
    try:
        found = list(records_of(batch, max_bytes=_MAX_BATCH_BYTES))
    except RecordDataError:
        # Its header can still be compared with that of the other replicas.
        found = []
    for record in found:
        if batch.is_control:
            is_commit = control_type(record) is ControlType.COMMIT
            kind = "commit" if is_commit else "abort"
            continue
        content = decode(
            record.value, key=record.key, time_ms=record.timestamp_ms, headers=record.headers
        )
        if isinstance(content, Content):
            # A tombstone has no room to say which operation it is of.
            operation = None if record.value is None else content.operation
            records.append(AuditedRecord(record.offset, content.value, operation))
        else:
            records.append(AuditedRecord(record.offset, None))
    return AuditedBatch(
        batch.base_offset,
        batch.last_offset,
        batch.leader_epoch,
        batch.crc,
        kind,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        tuple(records),
    )
