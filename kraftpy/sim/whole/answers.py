"""What brokers tell clients, seen at the moment at which they say it.

A watched handler does what the handler does. Records that are acknowledged to a producer, or shown
to a consumer, are reported before the answer leaves: then nothing that happens later can excuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol, cast

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.faults.answers import WrappedHandler, is_of_replica
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k00_produce import ProduceRequest, ProduceResponse
from kraftpy.protocol.schema.k01_fetch import FetchRequest, FetchResponse
from kraftpy.protocol.schema.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kraftpy.protocol.tables import Response
from kraftpy.records.batch import RecordBatch
from kraftpy.records.walker import batch_at, walk_batches
from kraftpy.sim.cluster_data_rules import TrueRecord, records_in
from kraftpy.world import Buffer, FileSlice

__all__ = ["Place", "Witness", "watched"]

PRODUCE: Final = 0
FETCH: Final = 1
INIT_PRODUCER_ID: Final = 22
_ALL: Final = -1


class Place(NamedTuple):
    """A partition, by the name or the id of its topic, whichever the request had."""

    topic: str
    topic_id: Uuid
    partition: int


class Witness(Protocol):
    def acknowledged(self, node_id: int, place: Place, first_offset: int, count: int) -> None: ...

    def shown(
        self, node_id: int, place: Place, records: Iterator[tuple[int, TrueRecord]]
    ) -> None: ...

    def begun(self, producer_id: int, epoch: int) -> None:
        """A transactional producer is told its epoch."""
        ...


def watched(witness: Witness, node_id: int) -> Callable[[Handler], Handler]:
    """What puts a witness in front of a node's handlers."""

    def watch(handler: Handler) -> Handler:
        if handler.api_key in (PRODUCE, FETCH, INIT_PRODUCER_ID):
            return _WatchedHandler(handler, witness, node_id)
        return handler

    return watch


class _WatchedContext:
    """The request's context, which lets its answer be seen."""

    __slots__ = ("_context", "_see")

    def __init__(self, context: RequestContext, see: Callable[[Any], None]) -> None:
        self._context = context
        self._see = see

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def respond(self, response: Response) -> None:
        self._see(response)
        self._context.respond(response)

    def resume(self, work: Callable[[], Response | None]) -> None:
        self._context.resume(lambda: self.seen(work()))

    def seen(self, response: Response | None) -> Response | None:
        if response is not None:
            self._see(response)
        return response


class _WatchedHandler(WrappedHandler):
    def __init__(self, handler: Handler, witness: Witness, node_id: int) -> None:
        super().__init__(handler)
        self._witness = witness
        self._node_id = node_id

    def handle(self, request: Any, context: RequestContext) -> Response | None:
        see = self._see(request)
        if see is None:
            return super().handle(request, context)
        around = _WatchedContext(context, see)
        return around.seen(super().handle(request, cast("RequestContext", around)))

    def _see(self, request: Any) -> Callable[[Any], None] | None:
        """What looks at the answer; None if there is nothing to see."""
        if self.api_key == PRODUCE:
            return self._produced(request)
        if self.api_key == FETCH:
            return self._fetched(request)
        return self._identified(request)

    def _produced(self, request: ProduceRequest) -> Callable[[Any], None] | None:
        if request.acks != _ALL:
            return None
        # The frame is there for the moment only.
        counts = {
            Place(topic.name, topic.topic_id, data.index): _record_count(
                cast("Buffer | None", data.records)
            )
            for topic in request.topic_data
            for data in topic.partition_data
        }

        def see(response: ProduceResponse) -> None:
            for topic in response.responses:
                for result in topic.partition_responses:
                    place = Place(topic.name, topic.topic_id, result.index)
                    count = counts.get(place, 0)
                    if result.error_code == ErrorCode.NONE and count:
                        first_offset = result.base_offset
                        self._witness.acknowledged(self._node_id, place, first_offset, count)

        return see

    def _identified(self, request: InitProducerIdRequest) -> Callable[[Any], None] | None:
        if request.transactional_id is None:
            return None

        def see(response: InitProducerIdResponse) -> None:
            if response.error_code == ErrorCode.NONE:
                self._witness.begun(response.producer_id, response.producer_epoch)

        return see

    def _fetched(self, request: FetchRequest) -> Callable[[Any], None] | None:
        if is_of_replica(request):
            return None
        asked = {
            Place(topic.topic, topic.topic_id, each.partition): each.fetch_offset
            for topic in request.topics
            for each in topic.partitions
        }

        def see(response: FetchResponse) -> None:
            for topic in response.responses:
                for found in topic.partitions:
                    if found.error_code == ErrorCode.NONE and found.records is not None:
                        place = Place(topic.topic, topic.topic_id, found.partition_index)
                        records = _records_of(found.records, asked.get(place, 0))
                        self._witness.shown(self._node_id, place, records)

        return see


def _record_count(records: Buffer | None) -> int:
    batch = None if records is None else batch_at(records)
    return batch.records_count if isinstance(batch, RecordBatch) else 0


def _records_of(records: Buffer | FileSlice, start: int) -> Iterator[tuple[int, TrueRecord]]:
    if isinstance(records, FileSlice):
        data: Buffer = records.file.pread(records.length, records.position)
    else:
        data = records
    for batch in walk_batches(data):
        if isinstance(batch, RecordBatch):
            for each in records_in(bytes(batch.data)):
                if each[0] >= start:
                    yield each
