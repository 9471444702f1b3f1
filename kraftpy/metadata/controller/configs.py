"""Changes of settings: of topics, brokers, groups and subscriptions to client metrics.

Each resource of a request is accepted or refused as a whole, independently of the others. A broker
gets a record for every key that was named, also if its value stays: that is how people make a
broker read its key store again. For everything else, what changes nothing writes nothing.

One key means more than its value. With eligible leader replicas, who is eligible follows from
min.insync.replicas: a change forgets all of them, and all brokers must have one value, the
cluster's. (What unclean.leader.election.enable brings about is in elections.py.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from kraftpy.config import DynamicConfig, NodeConfig, TopicConfig, describe_topic
from kraftpy.metadata.controller.config_alterations import (
    Alteration,
    increments,
    kind_of,
    replacement,
)
from kraftpy.metadata.controller.config_checks import missing_resource, wrong_settings
from kraftpy.metadata.controller.result import Caller, ControllerResult, Refusal
from kraftpy.metadata.controller.view import MetadataView
from kraftpy.metadata.features import ELIGIBLE_LEADER_REPLICAS
from kraftpy.metadata.image import ConfigResource
from kraftpy.metadata.records import (
    ClearElrRecord,
    ConfigRecord,
    ConfigResourceType,
    MetadataRecord,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k33_alter_configs as k33
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.protocol.schema.k19_create_topics import CreatableTopicConfigs

__all__ = ["MIN_ISR", "ConfigControl"]

MIN_ISR: Final = "min.insync.replicas"


class _Named(NamedTuple):
    """A resource as a request names it; its type may be none that we know."""

    resource_type: int
    name: str


_R = TypeVar("_R", k33.AlterConfigsResource, k44.AlterConfigsResource)


class ConfigControl:
    def __init__(self, context: MetadataView, node: DynamicConfig) -> None:
        """`node` is this controller's own configuration, which gives topics their defaults."""
        self._context = context
        self._node = node
        # The settings of a topic without any of its own, and the configuration they are from.
        self._defaults: tuple[NodeConfig, list[CreatableTopicConfigs]] | None = None

    def incremental_alter_configs(
        self, request: k44.IncrementalAlterConfigsRequest, _caller: Caller
    ) -> ControllerResult[k44.IncrementalAlterConfigsResponse]:
        """Set, delete, append to or subtract from single keys."""
        alterations = self._judge(request.resources, increments)
        refusals, records = self._alter(alterations, is_dry=request.validate_only)
        responses = [
            k44.AlterConfigsResourceResponse(
                error_code=refusal.code if refusal else ErrorCode.NONE,
                error_message=refusal.message if refusal else None,
                resource_type=named.resource_type,
                resource_name=named.name,
            )
            for named, refusal in refusals.items()
        ]
        answer = k44.IncrementalAlterConfigsResponse(responses=responses)
        return ControllerResult(records, answer)

    def alter_configs(
        self, request: k33.AlterConfigsRequest, _caller: Caller
    ) -> ControllerResult[k33.AlterConfigsResponse]:
        """Replace all settings of resources: what is not named goes."""
        alterations = self._judge(request.resources, replacement)
        refusals, records = self._alter(alterations, is_dry=request.validate_only)
        responses = [
            k33.AlterConfigsResourceResponse(
                error_code=refusal.code if refusal else ErrorCode.NONE,
                error_message=refusal.message if refusal else None,
                resource_type=named.resource_type,
                resource_name=named.name,
            )
            for named, refusal in refusals.items()
        ]
        return ControllerResult(records, k33.AlterConfigsResponse(responses=responses))

    def _judge(
        self, resources: Iterable[_R], alter: Callable[[Mapping[str, str], _R], Alteration]
    ) -> dict[_Named, Alteration]:
        """What each resource is to become, by `alter`; named twice, a resource is refused."""
        alterations: dict[_Named, Alteration] = {}
        for resource in resources:
            named = _Named(resource.resource_type, resource.resource_name)
            alterations[named] = (
                _DUPLICATE_RESOURCE
                if named in alterations
                else alter(self._present(named), resource)
            )
        return alterations

    def new_topic_records(
        self, name: str, settings: Mapping[str, str]
    ) -> tuple[ConfigRecord, ...] | Refusal:
        """The records that give a topic which is being created its settings."""
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        refusal = wrong_settings(resource, {}, settings, self._node.current)
        if refusal is not None:
            return refusal
        return tuple(
            ConfigRecord(ConfigResourceType.TOPIC, name, key, value)
            for key, value in settings.items()
        )

    def describe_new_topic(self, settings: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Every setting that a topic has with these of its own, by name."""
        if settings:
            return self._describe(settings)
        # Most topics have none, and describing costs more than all the rest of creating one.
        if self._defaults is None or self._defaults[0] is not self._node.current:
            self._defaults = self._node.current, self._describe({})
        return self._defaults[1]

    def _describe(self, settings: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        topic = TopicConfig(settings, self._node.current)
        described = sorted(describe_topic(topic, self._node))
        return [
            CreatableTopicConfigs(
                name=each.name,
                value=each.value,
                read_only=each.read_only,
                config_source=each.source,
                is_sensitive=each.sensitive,
            )
            for each in described
        ]

    def _present(self, named: _Named) -> Mapping[str, str]:
        kind = kind_of(named.resource_type)
        return {} if kind is None else self._context.image.config(kind, named.name)

    def _alter(
        self, alterations: Mapping[_Named, Alteration], *, is_dry: bool
    ) -> tuple[dict[_Named, Refusal | None], tuple[MetadataRecord, ...]]:
        """What becomes of each resource, and the records of those that are accepted."""
        refusals: dict[_Named, Refusal | None] = {}
        records: list[MetadataRecord] = []
        for named, changes in alterations.items():
            if isinstance(changes, Refusal):
                refusals[named] = changes
                continue
            refusals[named] = refusal = self._refuse(named, changes)
            if refusal is None:
                resource = ConfigResource(ConfigResourceType(named.resource_type), named.name)
                records += self._records(resource, changes)
        return refusals, () if is_dry else tuple(records)

    def _refuse(self, named: _Named, changes: Mapping[str, str | None]) -> Refusal | None:
        kind = kind_of(named.resource_type)
        if kind is None:
            message = f"there is no type {named.resource_type} of resources"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
        resource = ConfigResource(kind, named.name)
        return (
            wrong_settings(resource, self._present(named), changes, self._node.current)
            or self._refuse_for_elr(resource, changes)
            or missing_resource(resource, self._context)
        )

    def _refuse_for_elr(
        self, resource: ConfigResource, changes: Mapping[str, str | None]
    ) -> Refusal | None:
        if not self._has_elr or resource.resource_type is not ConfigResourceType.BROKER:
            return None
        if MIN_ISR not in changes:
            return None
        if resource.name and changes[MIN_ISR] is not None:
            message = f"{MIN_ISR} can't differ between brokers with eligible leader replicas"
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        if not resource.name and changes[MIN_ISR] is None:
            message = f"the cluster needs its {MIN_ISR} for eligible leader replicas"
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        return None

    @property
    def _has_elr(self) -> bool:
        return bool(self._context.image.features.get(ELIGIBLE_LEADER_REPLICAS))

    def _records(
        self, resource: ConfigResource, changes: Mapping[str, str | None]
    ) -> list[MetadataRecord]:
        present = self._context.image.config(resource.resource_type, resource.name)
        is_broker = resource.resource_type is ConfigResourceType.BROKER
        records: list[MetadataRecord] = [
            ConfigRecord(resource.resource_type, resource.name, key, value)
            for key, value in changes.items()
            if is_broker or value != present.get(key)
        ]
        if self._has_elr and changes.get(MIN_ISR, present.get(MIN_ISR)) != present.get(MIN_ISR):
            records.append(ClearElrRecord("" if is_broker else resource.name))
        return records


_DUPLICATE_RESOURCE: Final = Refusal(
    ErrorCode.INVALID_REQUEST, "the request names the resource twice"
)
