"""Who may see and change settings: which right each kind of configuration resource asks for."""

from __future__ import annotations

from kraftpy.api.access import REFUSALS, Access
from kraftpy.metadata.records import ConfigResourceType
from kraftpy.protocol.errors import ErrorCode
from kraftpy.security.acl_terms import CLUSTER_NAME, AclOperation, ResourceType

__all__ = ["refuse_configs"]


def refuse_configs(
    access: Access, operation: AclOperation, resource_type: int, name: str
) -> ErrorCode | None:
    """Why this may not be done to the settings of a resource; None if it may.

    What there are no settings for is not refused here.
    """
    match resource_type:
        case ConfigResourceType.TOPIC:
            kind = ResourceType.TOPIC
        case ConfigResourceType.GROUP:
            kind = ResourceType.GROUP
        case (
            ConfigResourceType.BROKER
            | ConfigResourceType.BROKER_LOGGER
            | ConfigResourceType.CLIENT_METRICS
        ):
            kind, name = ResourceType.CLUSTER, CLUSTER_NAME
        case _:
            return None
    return None if access.may(operation, kind, name) else REFUSALS[kind]
