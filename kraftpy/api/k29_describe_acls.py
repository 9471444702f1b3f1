"""DescribeAcls (29): the access control entries that a filter means, from this node's image.

Without an authorizer entries would protect nothing; who asks for them is told so.
"""

from __future__ import annotations

from kraftpy.api.access import NO_AUTHORIZER
from kraftpy.api.handler import ApiError, Handler, RequestContext
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata.describing import describe_acls
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kraftpy.security.acl_terms import AclOperation

__all__ = ["DescribeAclsHandler"]


class DescribeAclsHandler(Handler):
    api_key = 29
    cluster_operation = AclOperation.DESCRIBE

    def __init__(self, cluster: BrokerMetadata) -> None:
        self._cluster = cluster

    def handle(self, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
        if not context.access.is_limited:
            raise ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return describe_acls(self._cluster.image, request)
