"""Who may have the controller decide: checks before a request is handed to it.

Most requests need one right to the whole cluster. The others are judged item by item: what is
refused does not reach the controller, and stands in the answer beside what it says of the rest.
Items that a request names twice go through, because the controller refuses them all the same, and
in Kafka that error comes first.

A topic is looked up in the image of this node. One that isn't there yet is as good as unknown to
those who could not do everything to it: the controller may be ahead, and must not be asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kraftpy.api.access import Access
from kraftpy.api.config_access import refuse_configs
from kraftpy.metadata.image import MetadataImage
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID, Uuid
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k37_create_partitions as k37
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.protocol.tables import Request
from kraftpy.security.acl_terms import AclOperation, ResourceType

__all__ = ["CLUSTER_OPERATIONS", "ITEM_CHECKS", "NEED_AUTHORIZER", "Screened"]

_TOPIC: Final = ResourceType.TOPIC
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED

CLUSTER_OPERATIONS: Final[Mapping[int, AclOperation]] = {
    **dict.fromkeys((30, 31, 43, 45, 51, 57, 64), AclOperation.ALTER),
    46: AclOperation.DESCRIBE,
    49: AclOperation.ALTER_CONFIGS,
    **dict.fromkeys((56, 62, 63, 67, 70, 73), AclOperation.CLUSTER_ACTION),
}
"""Of the APIs that need one right to the cluster, by their keys."""

NEED_AUTHORIZER: Final = (30, 31)
"""What makes no sense without one."""


class Screened(NamedTuple):
    """What is left of a request for the controller, and what completes its answer."""

    request: Request
    complete: Callable[[Any], None]


_Check: TypeAlias = Callable[[Any, Access, MetadataImage], Screened]


def _create_topics(
    request: k19.CreateTopicsRequest, access: Access, image: MetadataImage
) -> Screened:
    """NET-72 and NET-74. Who may not describe settings gets a topic without seeing them."""
    may_all = access.may_cluster(AclOperation.CREATE, is_probe=True)
    times_named = Counter(topic.name for topic in request.topics)
    kept, refused = [], []
    for topic in request.topics:
        is_single = times_named[topic.name] == 1
        if may_all or not is_single or access.may(AclOperation.CREATE, _TOPIC, topic.name):
            kept.append(topic)
        else:
            refused.append(
                k19.CreatableTopicResult(
                    name=topic.name, error_code=_DENIED, error_message="Authorization failed."
                )
            )

    def complete(response: k19.CreateTopicsResponse) -> None:
        for result in response.topics:
            is_shown = access.may(AclOperation.DESCRIBE_CONFIGS, _TOPIC, result.name, is_probe=True)
            if result.error_code == ErrorCode.NONE and not is_shown:
                result.topic_config_error_code = _DENIED
                result.num_partitions = result.replication_factor = -1
                result.configs = []
        response.topics += refused

    rest = k19.CreateTopicsRequest(
        topics=kept, timeout_ms=request.timeout_ms, validate_only=request.validate_only
    )
    return Screened(rest, complete)


def _delete_topics(
    request: k20.DeleteTopicsRequest, access: Access, image: MetadataImage
) -> Screened:
    may_all = access.may_cluster(AclOperation.DELETE, is_probe=True)
    # Up to version 5 topics are named in a list of names.
    times_named = Counter([*request.topic_names, *(topic.name for topic in request.topics)])
    times_identified = Counter(topic.topic_id for topic in request.topics)
    refused: list[k20.DeletableTopicResult] = []

    def may_pass(name: str | None, topic_id: Uuid) -> bool:
        if name is not None and topic_id == ZERO_UUID:
            is_single = times_named[name] == 1
        else:
            # Both, or none, is refused by the controller.
            is_single = name is None and times_identified[topic_id] == 1
        if may_all or not is_single:
            return True
        result = _refuse_deletion(name, topic_id, access, image)
        if result is not None:
            refused.append(result)
        return result is None

    rest = k20.DeleteTopicsRequest(
        topics=[topic for topic in request.topics if may_pass(topic.name, topic.topic_id)],
        topic_names=[name for name in request.topic_names if may_pass(name, ZERO_UUID)],
        timeout_ms=request.timeout_ms,
    )

    def complete(response: k20.DeleteTopicsResponse) -> None:
        response.responses += refused

    return Screened(rest, complete)


def _refuse_deletion(
    name: str | None, topic_id: Uuid, access: Access, image: MetadataImage
) -> k20.DeletableTopicResult | None:
    """Topics that one may not describe are not revealed: neither that they are there, nor, by
    their ids, what they are called.
    """
    known = image.topic_by_id(topic_id) if name is None else image.topics.get(name)
    if name is None and known is None:
        if topic_id == ZERO_UUID:
            return None
        code = ErrorCode.UNKNOWN_TOPIC_ID
        return k20.DeletableTopicResult(
            name=None, topic_id=topic_id, error_code=code, error_message=code.message
        )
    actual_name = name if known is None else known.name
    assert actual_name is not None
    code = _DENIED
    if access.may(AclOperation.DESCRIBE, _TOPIC, actual_name):
        if access.may(AclOperation.DELETE, _TOPIC, actual_name):
            return None
        if known is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        shown_name: str | None = actual_name
    else:
        shown_name = name
    return k20.DeletableTopicResult(
        name=shown_name, topic_id=topic_id, error_code=code, error_message=code.message
    )


def _create_partitions(
    request: k37.CreatePartitionsRequest, access: Access, image: MetadataImage
) -> Screened:
    times_named = Counter(topic.name for topic in request.topics)
    kept, refused = [], []
    for topic in request.topics:
        if times_named[topic.name] > 1 or access.may(AclOperation.ALTER, _TOPIC, topic.name):
            kept.append(topic)
        else:
            refused.append(
                k37.CreatePartitionsTopicResult(
                    name=topic.name, error_code=_DENIED, error_message=_DENIED.message
                )
            )
    rest = k37.CreatePartitionsRequest(
        topics=kept, timeout_ms=request.timeout_ms, validate_only=request.validate_only
    )

    def complete(response: k37.CreatePartitionsResponse) -> None:
        response.results += refused

    return Screened(rest, complete)


def _alter_configs(
    request: k33.AlterConfigsRequest, access: Access, image: MetadataImage
) -> Screened:
    kept, refused = _split_configs(request.resources, access, k33.AlterConfigsResourceResponse)
    rest = k33.AlterConfigsRequest(resources=kept, validate_only=request.validate_only)

    def complete(response: k33.AlterConfigsResponse) -> None:
        response.responses += refused

    return Screened(rest, complete)


def _incremental_alter_configs(
    request: k44.IncrementalAlterConfigsRequest, access: Access, image: MetadataImage
) -> Screened:
    kept, refused = _split_configs(request.resources, access, k44.AlterConfigsResourceResponse)
    rest = k44.IncrementalAlterConfigsRequest(resources=kept, validate_only=request.validate_only)

    def complete(response: k44.IncrementalAlterConfigsResponse) -> None:
        response.responses += refused

    return Screened(rest, complete)


def _split_configs(
    resources: Sequence[Any], access: Access, result_class: type[Any]
) -> tuple[list[Any], list[Any]]:
    """The resources whose settings may be changed, and answers for the others."""
    times_named = Counter((each.resource_type, each.resource_name) for each in resources)
    kept, refused = [], []
    for each in resources:
        kind, name = each.resource_type, each.resource_name
        code = None
        if times_named[kind, name] == 1:
            code = refuse_configs(access, AclOperation.ALTER_CONFIGS, kind, name)
        if code is None:
            kept.append(each)
        else:
            refused.append(
                result_class(
                    error_code=code,
                    error_message=code.message,
                    resource_type=kind,
                    resource_name=name,
                )
            )
    return kept, refused


ITEM_CHECKS: Final[Mapping[int, _Check]] = {
    19: _create_topics,
    20: _delete_topics,
    33: _alter_configs,
    37: _create_partitions,
    44: _incremental_alter_configs,
}
"""Of the APIs whose items are judged one by one."""
