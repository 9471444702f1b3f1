"""DescribeAcls (29): the access control entries that a filter means, from this node's image."""

from __future__ import annotations

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata.describing import describe_acls
from kraftpy.protocol.schema.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse

__all__ = ["DescribeAclsHandler"]


class DescribeAclsHandler(Handler):
    api_key = 29

    def __init__(self, cluster: BrokerMetadata) -> None:
        self._cluster = cluster

    def handle(self, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
        return describe_acls(self._cluster.image, request)
