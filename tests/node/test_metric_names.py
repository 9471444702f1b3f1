"""Every metric of the network, the controller and replication that has a meaning here is served.

Under Kafka's name, in Prometheus form. docs/not-done.md tells which have no meaning.
"""

from __future__ import annotations

import re

import pytest
import trio
from effects.node_effects import a_leader_and_a_follower, quorum_leader
from support.simulated_nodes import SimulatedNodes, run_nodes

from kraftpy.observe.prometheus import exposition
from kraftpy.protocol.errors import ErrorCode

REQUEST_TIMES = (
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ThrottleTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "TotalTimeMs",
    "RequestBytes",
)
CONTROLLER = (
    "ActiveControllerCount",
    "OfflinePartitionsCount",
    "PreferredReplicaImbalanceCount",
    "GlobalTopicCount",
    "GlobalPartitionCount",
    "TopicsToDeleteCount",
    "ReplicasToDeleteCount",
    "TopicsIneligibleToDeleteCount",
    "ReplicasIneligibleToDeleteCount",
    "ControllerState",
    "LastAppliedRecordOffset",
    "LastCommittedRecordOffset",
    "LastAppliedRecordTimestamp",
    "LastAppliedRecordLagMs",
    "FencedBrokerCount",
    "ActiveBrokerCount",
    "TimedOutBrokerHeartbeatCount",
    "NewActiveControllersCount",
    "MetadataErrorCount",
)
STATES = (
    "AutoLeaderBalance",
    "ControlledShutdown",
    "ControllerChange",
    "IsrChange",
    "LeaderElection",
    "ManualLeaderBalance",
    "PartitionReassignment",
    "TopicChange",
    "TopicDeletion",
    "UncleanLeaderElectionEnable",
)
TOPIC_METERS = (
    "MessagesInPerSec",
    "BytesInPerSec",
    "BytesOutPerSec",
    "BytesRejectedPerSec",
    "TotalProduceRequestsPerSec",
    "TotalFetchRequestsPerSec",
    "FailedProduceRequestsPerSec",
    "FailedFetchRequestsPerSec",
    "ReplicationBytesInPerSec",
    "ReplicationBytesOutPerSec",
)
REPLICA_MANAGER = (
    "PartitionCount",
    "LeaderCount",
    "OfflineReplicaCount",
    "UnderReplicatedPartitions",
    "UnderMinIsrPartitionCount",
    "AtMinIsrPartitionCount",
    "IsrExpandsPerSec",
    "IsrShrinksPerSec",
    "FailedIsrUpdatesPerSec",
)
GROUPS = (
    "NumOffsets",
    "NumGroups",
    "NumGroupsPreparingRebalance",
    "NumGroupsCompletingRebalance",
    "NumGroupsStable",
    "NumGroupsDead",
    "NumGroupsEmpty",
)
GROUP_COUNTERS = (
    "offset-commit-count",
    "offset-expiration-count",
    "offset-deletion-count",
    "group-completed-rebalance-count",
    "consumer-group-rebalance-count",
)
LOADS = ("partition-load-time-max", "partition-load-time-avg")
# Type, name, and the labels that it must have.
EXPECTED = (
    *(("kafka.network:RequestMetrics", name, "request") for name in REQUEST_TIMES),
    ("kafka.network:RequestMetrics", "RequestsPerSec", "request version"),
    ("kafka.network:RequestMetrics", "ErrorsPerSec", "request error"),
    ("kafka.network:Acceptor", "AcceptorBlockedPercent", "listener"),
    ("kafka.network:SocketServer", "MemoryPoolAvailable", ""),
    ("kafka.network:SocketServer", "MemoryPoolUsed", ""),
    *(("kafka.controller:KafkaController", name, "") for name in CONTROLLER),
    *(("kafka.controller:ControllerStats", f"{name}RateAndTimeMs", "") for name in STATES),
    ("kafka.controller:ControllerStats", "UncleanLeaderElectionsPerSec", ""),
    ("kafka.controller:ControllerEventManager", "EventQueueTimeMs", ""),
    ("kafka.controller:ControllerEventManager", "EventQueueProcessingTimeMs", ""),
    ("kafka.controller:ControllerEventManager", "EventQueueSize", ""),
    *(("kafka.server:BrokerTopicMetrics", name, "") for name in TOPIC_METERS),
    *(("kafka.server:BrokerTopicMetrics", name, "topic") for name in TOPIC_METERS[:6]),
    *(("kafka.server:ReplicaManager", name, "") for name in REPLICA_MANAGER),
    ("kafka.server:ReplicaFetcherManager", "MaxLag", "clientId"),
    ("kafka.server:ReplicaFetcherManager", "MinFetchRate", "clientId"),
    ("kafka.server:ReplicaFetcherManager", "FailedPartitionsCount", "clientId"),
    ("kafka.server:FetcherStats", "RequestsPerSec", "clientId brokerHost brokerPort"),
    ("kafka.server:FetcherStats", "BytesPerSec", "clientId brokerHost brokerPort"),
    ("kafka.server:DelayedOperationPurgatory", "PurgatorySize", "delayedOperation"),
    ("kafka.server:DelayedOperationPurgatory", "NumDelayedOperations", "delayedOperation"),
    ("kafka.server:FetchSessionCache", "NumIncrementalFetchSessions", ""),
    ("kafka.server:FetchSessionCache", "NumIncrementalFetchPartitionsCached", ""),
    ("kafka.server:FetchSessionCache", "IncrementalFetchSessionEvictionsPerSec", ""),
    ("kafka.server:KafkaServer", "BrokerState", ""),
    *(("kafka.coordinator.group:GroupMetadataManager", name, "") for name in GROUPS),
    *(("kafka.server:group-coordinator-metrics", name, "") for name in GROUP_COUNTERS),
    ("kafka.server:group-coordinator-metrics", "group-count", "protocol"),
    ("kafka.server:group-coordinator-metrics", "consumer-group-count", "state"),
    ("kafka.server:group-coordinator-metrics", "num-partitions", "state"),
    *(("kafka.server:group-coordinator-metrics", name, "") for name in LOADS),
    *(("kafka.server:transaction-coordinator-metrics", name, "") for name in LOADS),
    ("kafka.server:AddPartitionsToTxnManager", "VerificationTimeMs", ""),
    ("kafka.server:AddPartitionsToTxnManager", "VerificationFailureRate", ""),
    (
        "kafka.coordinator.transaction:TransactionMarkerChannelManager",
        "UnknownDestinationQueueSize",
        "",
    ),
)


@pytest.fixture(scope="module")
def page() -> str:
    """What two nodes with some traffic show, one after the other."""
    pages: list[str] = []

    async def scenario(rig: SimulatedNodes) -> None:
        leader = await a_leader_and_a_follower(rig, {"message.max.bytes": "5000"})
        assert (await rig.produce("t", rig.batch(b"v"), of=leader)).error_code == ErrorCode.NONE
        refused = await rig.produce("t", rig.batch(bytes(10_000)), of=leader)
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await rig.fetch("t", of=leader)).records
        await rig.fetch("t", offset=999, of=leader)
        await trio.sleep(5)
        assert await quorum_leader(rig)
        pages.extend(exposition(node.registry) for node in rig.nodes.values())

    run_nodes(scenario)
    return "\n".join(pages)


@pytest.mark.parametrize(("kind", "name", "labels"), EXPECTED)
def test_a_metric_is_served(page: str, kind: str, name: str, labels: str) -> None:
    """NET-61, CTL-126, REP-119: with the labels that tell its subjects apart."""
    domain, _, type_ = kind.partition(":")
    family = re.sub(r"\W", "_", f"{domain}_{type_}_{name}").lower().removesuffix("persec")
    number = r"(?:[-+.e0-9]+|[-+]Inf)"
    lines = re.findall(
        rf"^{family}(?:_total|_count)?(?:{{(.*)}})? {number}$", page, flags=re.MULTILINE
    )
    assert lines, f"{family} is not served"
    found = [set(re.findall(r'(\w+)="', line)) for line in lines]
    assert set(labels.lower().split()) in found
