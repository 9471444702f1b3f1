"""DescribeUserScramCredentials (50): who can log in by SCRAM, and how; never with what."""

from __future__ import annotations

from collections.abc import Iterator

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.broker.metadata_view import BrokerMetadata
from kraftpy.metadata.describing import describe_user_scram_credentials
from kraftpy.protocol.schema.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kraftpy.security.acl_terms import AclOperation

__all__ = ["DescribeUserScramCredentialsHandler"]


class DescribeUserScramCredentialsHandler(Handler):
    api_key = 50
    cluster_operation = AclOperation.DESCRIBE

    def __init__(self, cluster: BrokerMetadata) -> None:
        self._cluster = cluster

    def handle(
        self, request: DescribeUserScramCredentialsRequest, context: RequestContext
    ) -> DescribeUserScramCredentialsResponse:
        return describe_user_scram_credentials(self._cluster.image, request)

    def error_codes(self, response: DescribeUserScramCredentialsResponse) -> Iterator[int]:
        yield response.error_code
        for result in response.results:
            yield result.error_code
