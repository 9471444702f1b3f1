"""Whether a controller's answer is true: all that it says is committed, and in the past it says.

Answers are judged when they leave the controller, before any network can lose them.
"""

from __future__ import annotations

from typing import Any

from kraftpy.metadata.records import PartitionRecord
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k19_create_topics import CreateTopicsRequest
from kraftpy.protocol.schema.k20_delete_topics import DeleteTopicsRequest
from kraftpy.protocol.schema.k44_incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kraftpy.protocol.schema.k56_alter_partition import (
    AlterPartitionRequest,
    RequestPartitionData,
    ResponsePartitionData,
)
from kraftpy.protocol.schema.k62_broker_registration import BrokerRegistrationRequest
from kraftpy.protocol.schema.k63_broker_heartbeat import BrokerHeartbeatRequest
from kraftpy.sim.cluster_truth import ClusterTruth
from kraftpy.sim.quorum_invariants import InvariantViolated

__all__ = ["check_answer", "epoch_at_arrival"]

_UNKNOWN_EPOCH = -1
_SET = 0


def epoch_at_arrival(truth: ClusterTruth, request: Any) -> int | None:
    """The committed epoch of the broker that asks; None if it has none, or isn't one."""
    truth.advance()
    broker_id = getattr(request, "broker_id", None)
    broker = None if broker_id is None else truth.image.brokers.get(broker_id)
    return None if broker is None else broker.broker_epoch


def check_answer(truth: ClusterTruth, request: Any, response: Any, epoch_then: int | None) -> None:
    """`epoch_then` is what `epoch_at_arrival` gave when the request came."""
    truth.advance()
    match request:
        case BrokerHeartbeatRequest() | AlterPartitionRequest():
            if epoch_then is not None and request.broker_epoch < epoch_then:
                raise InvariantViolated("stale-epoch-served", f"{request} at {epoch_then}")
    match request:
        case CreateTopicsRequest():
            for topic in response.topics:
                if not topic.error_code and topic.topic_id not in truth.created:
                    raise InvariantViolated("answer-uncommitted", f"created {topic}")
        case DeleteTopicsRequest():
            for topic in response.responses:
                if not topic.error_code and topic.topic_id not in truth.removed:
                    raise InvariantViolated("answer-uncommitted", f"deleted {topic}")
        case BrokerRegistrationRequest():
            key = (request.broker_id, response.broker_epoch)
            if truth.registered.get(key) != request.incarnation_id:
                raise InvariantViolated("answer-uncommitted", f"registered {key}")
        case BrokerHeartbeatRequest():
            key = (request.broker_id, request.broker_epoch)
            if not response.is_fenced and key not in truth.unfenced:
                raise InvariantViolated("answer-uncommitted", f"unfenced {key}")
        case IncrementalAlterConfigsRequest():
            for resource, answer in zip(request.resources, response.responses, strict=True):
                if not answer.error_code:
                    _check_settings(truth, resource)
        case AlterPartitionRequest():
            _check_alteration(truth, request, response)


def _check_settings(truth: ClusterTruth, resource: AlterConfigsResource) -> None:
    for config in resource.configs:
        setting = (resource.resource_type, resource.resource_name, config.name, config.value)
        if config.config_operation == _SET and setting not in truth.settings:
            raise InvariantViolated("answer-uncommitted", f"set {setting}")


def _check_alteration(truth: ClusterTruth, request: AlterPartitionRequest, response: Any) -> None:
    for asked_topic, topic in zip(request.topics, response.topics, strict=True):
        for asked, answer in zip(asked_topic.partitions, topic.partitions, strict=True):
            if answer.error_code != ErrorCode.NONE:
                continue
            key = (asked_topic.topic_id, asked.partition_index, answer.partition_epoch)
            if key not in truth.versions:
                raise InvariantViolated("answer-uncommitted", f"altered {answer}")
            version, offset = truth.versions[key]
            _check_version(version, asked, answer)
            if version.partition_epoch == asked.partition_epoch:
                continue
            brokers = truth.image_at(offset).brokers
            before, _ = truth.versions[key[0], key[1], asked.partition_epoch]
            for member in asked.new_isr_with_epochs:
                broker = brokers.get(member.broker_id)
                if member.broker_epoch == _UNKNOWN_EPOCH and member.broker_id in before.isr:
                    # It has not fetched from this leader yet. If it were another process by now,
                    # it would have left the ISR, and the partition epoch would be another.
                    continue
                if broker is None or broker.broker_epoch != member.broker_epoch:
                    raise InvariantViolated("stale-member", f"{member} of {asked}: {broker}")


def _check_version(
    version: PartitionRecord, asked: RequestPartitionData, answer: ResponsePartitionData
) -> None:
    if (version.leader, version.leader_epoch, list(version.isr)) != (
        answer.leader_id,
        answer.leader_epoch,
        answer.isr,
    ):
        raise InvariantViolated("answer-differs", f"{answer}, truly {version}")
    if not 0 <= answer.partition_epoch - asked.partition_epoch <= 1:
        raise InvariantViolated("alteration-overtaken", f"{answer} to {asked}")
    if asked.leader_epoch > answer.leader_epoch:
        raise InvariantViolated("alteration-overtaken", f"{answer} to {asked}")
