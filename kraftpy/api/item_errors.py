"""Error answers of administrative APIs, which mostly report errors for each item asked for.

When a request as a whole fails, every item of it must say so: a client looks at the items, and
takes a list without them for nothing done. So the answer is built from the request. Controllers
and the brokers that forward to them use the same table, since either may be the one that fails.

The codes in an answer are for the metric that counts them, and for recognizing NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from kraftpy.api.handler import Handler, RequestContext
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k30_create_acls as k30
from kraftpy.protocol.schema import k31_delete_acls as k31
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k37_create_partitions as k37
from kraftpy.protocol.schema import k43_elect_leaders as k43
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.protocol.schema import k45_alter_partition_reassignments as k45
from kraftpy.protocol.schema import k49_alter_client_quotas as k49
from kraftpy.protocol.schema import k51_alter_user_scram_credentials as k51
from kraftpy.protocol.tables import Response

__all__ = ["AdministrativeHandler"]

_Failure: TypeAlias = Callable[[Any, int, ErrorCode, str], Response]
_Codes: TypeAlias = Callable[[Any], Iterable[int]]

_FIRST_DELETION_BY_ID: Final = 6
_FIRST_ELECTION_WITH_ERROR: Final = 1


class AdministrativeHandler(Handler):
    """The handler of any administrative API: what its failures look like."""

    def __init__(self, api_key: int) -> None:
        self.api_key = api_key

    def error_answer(
        self, request: Any, context: RequestContext, code: ErrorCode, message: str
    ) -> Response | None:
        failure = _FAILURES.get(self.api_key)
        if failure is None:
            return super().error_answer(request, context, code, message)
        return failure(request, context.api_version, code, message)

    def error_codes(self, response: Any) -> Iterable[int]:
        if hasattr(response, "error_code"):
            yield response.error_code
        yield from _ITEM_CODES.get(self.api_key, _no_items)(response)


def _create_topics(
    request: k19.CreateTopicsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return k19.CreateTopicsResponse(
        topics=[
            k19.CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


def _delete_topics(
    request: k20.DeleteTopicsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    topics = request.topics
    if version < _FIRST_DELETION_BY_ID:
        topics = [k20.DeleteTopicState(name=name) for name in request.topic_names]
    return k20.DeleteTopicsResponse(
        responses=[
            k20.DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
            )
            for topic in topics
        ]
    )


def _create_acls(
    request: k30.CreateAclsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return k30.CreateAclsResponse(
        results=[
            k30.AclCreationResult(error_code=code, error_message=message) for _ in request.creations
        ]
    )


def _delete_acls(
    request: k31.DeleteAclsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return k31.DeleteAclsResponse(
        filter_results=[
            k31.DeleteAclsFilterResult(error_code=code, error_message=message)
            for _ in request.filters
        ]
    )


def _alter_configs(
    request: k33.AlterConfigsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return k33.AlterConfigsResponse(
        responses=[
            k33.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _incremental_alter_configs(
    request: k44.IncrementalAlterConfigsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return k44.IncrementalAlterConfigsResponse(
        responses=[
            k44.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


def _create_partitions(
    request: k37.CreatePartitionsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return k37.CreatePartitionsResponse(
        results=[
            k37.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


def _elect_leaders(
    request: k43.ElectLeadersRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return k43.ElectLeadersResponse(
        error_code=code if version >= _FIRST_ELECTION_WITH_ERROR else ErrorCode.NONE,
        replica_election_results=[
            k43.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    k43.PartitionResult(
                        partition_id=partition, error_code=code, error_message=message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_reassignments(
    request: k45.AlterPartitionReassignmentsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return k45.AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            k45.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    k45.ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=code,
                        error_message=message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _alter_client_quotas(
    request: k49.AlterClientQuotasRequest, version: int, code: ErrorCode, message: str
) -> Response:
    return k49.AlterClientQuotasResponse(
        entries=[
            k49.ResponseEntryData(error_code=code, error_message=message, entity=entry.entity)
            for entry in request.entries
        ]
    )


def _alter_scram_credentials(
    request: k51.AlterUserScramCredentialsRequest, version: int, code: ErrorCode, message: str
) -> Response:
    deleted = [deletion.name for deletion in request.deletions]
    users = dict.fromkeys([*deleted, *(upsertion.name for upsertion in request.upsertions)])
    return k51.AlterUserScramCredentialsResponse(
        results=[
            k51.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
            for user in users
        ]
    )


_FAILURES: Final[Mapping[int, _Failure]] = {
    19: _create_topics,
    20: _delete_topics,
    30: _create_acls,
    31: _delete_acls,
    33: _alter_configs,
    37: _create_partitions,
    43: _elect_leaders,
    44: _incremental_alter_configs,
    45: _alter_reassignments,
    49: _alter_client_quotas,
    51: _alter_scram_credentials,
}
"""Of the APIs whose answers carry more than an error code of their own."""


def _no_items(response: Any) -> Iterable[int]:
    return ()


def _codes_in(items_name: str) -> _Codes:
    return lambda response: [item.error_code for item in getattr(response, items_name)]


def _codes_below(groups_name: str, items_name: str) -> _Codes:
    return lambda response: [
        item.error_code
        for group in getattr(response, groups_name)
        for item in getattr(group, items_name)
    ]


_ITEM_CODES: Final[Mapping[int, _Codes]] = {
    19: _codes_in("topics"),
    20: _codes_in("responses"),
    30: _codes_in("results"),
    31: _codes_in("filter_results"),
    33: _codes_in("responses"),
    37: _codes_in("results"),
    43: _codes_below("replica_election_results", "partition_result"),
    44: _codes_in("responses"),
    45: _codes_below("responses", "partitions"),
    49: _codes_in("entries"),
    51: _codes_in("results"),
    55: _codes_below("topics", "partitions"),
    56: _codes_below("topics", "partitions"),
    57: _codes_in("results"),
}
