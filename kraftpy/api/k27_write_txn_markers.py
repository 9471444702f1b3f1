"""WriteTxnMarkers (27): a transaction coordinator has the ends of transactions written here.

Kafka's tools send it too, to end a transaction that hangs because no coordinator knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.marker_writer import MarkerWriter
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k27_write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["WriteTxnMarkersHandler"]


class WriteTxnMarkersHandler(Handler):
    api_key = 27
    is_exempt = True

    def __init__(self, writer: MarkerWriter) -> None:
        self._writer = writer

    def handle(self, request: WriteTxnMarkersRequest, context: RequestContext) -> None:
        if not context.access.may_cluster(AclOperation.ALTER, is_probe=True):
            context.require(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        self._writer.write(request, context.respond)

    def error_answer(
        self,
        request: WriteTxnMarkersRequest,
        context: RequestContext,
        code: ErrorCode,
        message: str,
    ) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=code
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def error_codes(self, response: WriteTxnMarkersResponse) -> Iterator[int]:
        for marker in response.markers:
            for topic in marker.topics:
                for result in topic.partitions:
                    yield result.error_code
