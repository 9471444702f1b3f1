"""DescribeClientQuotas (48): the quotas of the entities that are asked for (KIP-546)."""

from __future__ import annotations

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata.describing import describe_client_quotas
from kraftpy.protocol.schema.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kraftpy.security.acl_terms import AclOperation

__all__ = ["DescribeClientQuotasHandler"]


class DescribeClientQuotasHandler(Handler):
    api_key = 48
    cluster_operation = AclOperation.DESCRIBE_CONFIGS

    def __init__(self, cluster: BrokerMetadata) -> None:
        self._cluster = cluster

    def handle(
        self, request: DescribeClientQuotasRequest, context: RequestContext
    ) -> DescribeClientQuotasResponse:
        return describe_client_quotas(self._cluster.image, request)
