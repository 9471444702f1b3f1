"""All live APIs of Kafka 4.3: keys, names, versions, and where they are served.

A row is all that negotiation and dispatch need. The message classes behind it are imported when
they are first asked for, so that a node pays only for the APIs it uses.

Keys 4 to 7 belonged to ZooKeeper's time and are retired. Produce is advertised from version 0 on,
though served from 3 on: librdkafka before 2.11.1 takes a range without 0 to mean that the broker
can't store compressed batches.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftpy.protocol.tables import Request, Response

__all__ = ["API", "ApiSpec", "request_header_version", "response_header_version"]

BROKER = ("broker",)
CONTROLLER = ("controller",)
BOTH = ("broker", "controller")

_API_VERSIONS_KEY = 18


class ApiSpec:
    """One API.

    `min_version` to `max_version` are served. With `latest_unstable` the tables know one version
    more, which is not offered to anybody. `flexible_version` is the first with tagged fields, None
    when there is none yet. `advertised_min_version` is what ApiVersions says.
    """

    __slots__ = (
        "_request_class",
        "_response_class",
        "advertised_min_version",
        "flexible_version",
        "key",
        "latest_unstable",
        "listeners",
        "max_version",
        "min_version",
        "name",
    )

    def __init__(  # noqa: PLR0917 (a row of a table)
        self,
        key: int,
        name: str,
        min_version: int,
        max_version: int,
        flexible_version: int | None,
        listeners: tuple[str, ...],
        *,
        latest_unstable: bool = False,
        advertised_min_version: int | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_version = flexible_version
        self.listeners = listeners
        self.latest_unstable = latest_unstable
        self.advertised_min_version = (
            min_version if advertised_min_version is None else advertised_min_version
        )
        self._request_class: type[Request] | None = None
        self._response_class: type[Response] | None = None

    def __repr__(self) -> str:
        return f"<ApiSpec {self.key} {self.name} {self.min_version}-{self.max_version}>"

    @property
    def module_name(self) -> str:
        """`k00_produce`: the module of its tables, and of its handler."""
        words = "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name
        )
        return f"k{self.key:02d}{words}"

    @property
    def request_class(self) -> type[Request]:
        if self._request_class is None:
            self._load()
        assert self._request_class is not None
        return self._request_class

    @property
    def response_class(self) -> type[Response]:
        if self._response_class is None:
            self._load()
        assert self._response_class is not None
        return self._response_class

    def _load(self) -> None:
        module = import_module(f"kraftpy.protocol.schema.{self.module_name}")
        self._request_class = getattr(module, f"{self.name}Request")
        self._response_class = getattr(module, f"{self.name}Response")

    def is_flexible(self, version: int) -> bool:
        return self.flexible_version is not None and version >= self.flexible_version


# fmt: off
_ROWS = (
    ApiSpec(0, "Produce", 3, 13, 9, BROKER, advertised_min_version=0),
    ApiSpec(1, "Fetch", 4, 18, 12, BOTH),
    ApiSpec(2, "ListOffsets", 1, 11, 6, BROKER),
    ApiSpec(3, "Metadata", 0, 13, 9, BROKER),
    ApiSpec(8, "OffsetCommit", 2, 10, 8, BROKER),
    ApiSpec(9, "OffsetFetch", 1, 10, 6, BROKER),
    ApiSpec(10, "FindCoordinator", 0, 6, 3, BROKER),
    ApiSpec(11, "JoinGroup", 0, 9, 6, BROKER),
    ApiSpec(12, "Heartbeat", 0, 4, 4, BROKER),
    ApiSpec(13, "LeaveGroup", 0, 5, 4, BROKER),
    ApiSpec(14, "SyncGroup", 0, 5, 4, BROKER),
    ApiSpec(15, "DescribeGroups", 0, 6, 5, BROKER),
    ApiSpec(16, "ListGroups", 0, 5, 3, BROKER),
    ApiSpec(17, "SaslHandshake", 0, 1, None, BOTH),
    ApiSpec(18, "ApiVersions", 0, 4, 3, BOTH),
    ApiSpec(19, "CreateTopics", 2, 7, 5, BOTH),
    ApiSpec(20, "DeleteTopics", 1, 6, 4, BOTH),
    ApiSpec(21, "DeleteRecords", 0, 2, 2, BROKER),
    ApiSpec(22, "InitProducerId", 0, 5, 2, BROKER, latest_unstable=True),
    ApiSpec(23, "OffsetForLeaderEpoch", 2, 4, 4, BROKER),
    ApiSpec(24, "AddPartitionsToTxn", 0, 5, 3, BROKER),
    ApiSpec(25, "AddOffsetsToTxn", 0, 4, 3, BROKER),
    ApiSpec(26, "EndTxn", 0, 5, 3, BROKER),
    ApiSpec(27, "WriteTxnMarkers", 1, 2, 1, BROKER),
    ApiSpec(28, "TxnOffsetCommit", 0, 5, 3, BROKER),
    ApiSpec(29, "DescribeAcls", 1, 3, 2, BOTH),
    ApiSpec(30, "CreateAcls", 1, 3, 2, BOTH),
    ApiSpec(31, "DeleteAcls", 1, 3, 2, BOTH),
    ApiSpec(32, "DescribeConfigs", 1, 4, 4, BOTH),
    ApiSpec(33, "AlterConfigs", 0, 2, 2, BOTH),
    ApiSpec(34, "AlterReplicaLogDirs", 1, 2, 2, BROKER),
    ApiSpec(35, "DescribeLogDirs", 1, 5, 2, BROKER),
    ApiSpec(36, "SaslAuthenticate", 0, 2, 2, BOTH),
    ApiSpec(37, "CreatePartitions", 0, 3, 2, BOTH),
    ApiSpec(38, "CreateDelegationToken", 1, 3, 2, BOTH),
    ApiSpec(39, "RenewDelegationToken", 1, 2, 2, BOTH),
    ApiSpec(40, "ExpireDelegationToken", 1, 2, 2, BOTH),
    ApiSpec(41, "DescribeDelegationToken", 1, 3, 2, BOTH),
    ApiSpec(42, "DeleteGroups", 0, 2, 2, BROKER),
    ApiSpec(43, "ElectLeaders", 0, 2, 2, BOTH),
    ApiSpec(44, "IncrementalAlterConfigs", 0, 1, 1, BOTH),
    ApiSpec(45, "AlterPartitionReassignments", 0, 1, 0, BOTH),
    ApiSpec(46, "ListPartitionReassignments", 0, 0, 0, BOTH),
    ApiSpec(47, "OffsetDelete", 0, 0, None, BROKER),
    ApiSpec(48, "DescribeClientQuotas", 0, 1, 1, BROKER),
    ApiSpec(49, "AlterClientQuotas", 0, 1, 1, BOTH),
    ApiSpec(50, "DescribeUserScramCredentials", 0, 0, 0, BOTH),
    ApiSpec(51, "AlterUserScramCredentials", 0, 0, 0, BOTH),
    ApiSpec(52, "Vote", 0, 2, 0, CONTROLLER),
    ApiSpec(53, "BeginQuorumEpoch", 0, 1, 1, CONTROLLER),
    ApiSpec(54, "EndQuorumEpoch", 0, 1, 1, CONTROLLER),
    ApiSpec(55, "DescribeQuorum", 0, 2, 0, BOTH),
    ApiSpec(56, "AlterPartition", 2, 3, 0, CONTROLLER),
    ApiSpec(57, "UpdateFeatures", 0, 2, 0, BOTH),
    ApiSpec(58, "Envelope", 0, 0, 0, CONTROLLER),
    ApiSpec(59, "FetchSnapshot", 0, 1, 0, CONTROLLER),
    ApiSpec(60, "DescribeCluster", 0, 2, 0, BOTH),
    ApiSpec(61, "DescribeProducers", 0, 0, 0, BROKER),
    ApiSpec(62, "BrokerRegistration", 0, 4, 0, CONTROLLER),
    ApiSpec(63, "BrokerHeartbeat", 0, 2, 0, CONTROLLER),
    ApiSpec(64, "UnregisterBroker", 0, 0, 0, BOTH),
    ApiSpec(65, "DescribeTransactions", 0, 0, 0, BROKER),
    ApiSpec(66, "ListTransactions", 0, 2, 0, BROKER),
    ApiSpec(67, "AllocateProducerIds", 0, 0, 0, CONTROLLER),
    ApiSpec(68, "ConsumerGroupHeartbeat", 0, 1, 0, BROKER),
    ApiSpec(69, "ConsumerGroupDescribe", 0, 1, 0, BROKER),
    ApiSpec(70, "ControllerRegistration", 0, 0, 0, CONTROLLER),
    ApiSpec(71, "GetTelemetrySubscriptions", 0, 0, 0, BROKER),
    ApiSpec(72, "PushTelemetry", 0, 0, 0, BROKER),
    ApiSpec(73, "AssignReplicasToDirs", 0, 0, 0, CONTROLLER),
    ApiSpec(74, "ListConfigResources", 0, 1, 0, BROKER),
    ApiSpec(75, "DescribeTopicPartitions", 0, 0, 0, BROKER),
    ApiSpec(76, "ShareGroupHeartbeat", 1, 1, 0, BROKER),
    ApiSpec(77, "ShareGroupDescribe", 1, 1, 0, BROKER),
    ApiSpec(78, "ShareFetch", 1, 2, 0, BROKER),
    ApiSpec(79, "ShareAcknowledge", 1, 2, 0, BROKER),
    ApiSpec(80, "AddRaftVoter", 0, 1, 0, BOTH),
    ApiSpec(81, "RemoveRaftVoter", 0, 0, 0, BOTH),
    ApiSpec(82, "UpdateRaftVoter", 0, 0, 0, CONTROLLER),
    ApiSpec(83, "InitializeShareGroupState", 0, 0, 0, BROKER),
    ApiSpec(84, "ReadShareGroupState", 0, 0, 0, BROKER),
    ApiSpec(85, "WriteShareGroupState", 0, 1, 0, BROKER),
    ApiSpec(86, "DeleteShareGroupState", 0, 0, 0, BROKER),
    ApiSpec(87, "ReadShareGroupStateSummary", 0, 1, 0, BROKER),
    ApiSpec(88, "StreamsGroupHeartbeat", 0, 0, 0, BROKER),
    ApiSpec(89, "StreamsGroupDescribe", 0, 0, 0, BROKER),
    ApiSpec(90, "DescribeShareGroupOffsets", 0, 1, 0, BROKER),
    ApiSpec(91, "AlterShareGroupOffsets", 0, 0, 0, BROKER),
    ApiSpec(92, "DeleteShareGroupOffsets", 0, 0, 0, BROKER),
)
# fmt: on

API: dict[int, ApiSpec] = {spec.key: spec for spec in _ROWS}


def request_header_version(key: int, version: int) -> int:
    """2 for flexible versions, otherwise 1; for versions beyond the known range too."""
    return 2 if API[key].is_flexible(version) else 1


def response_header_version(key: int, version: int) -> int:
    """1 for flexible versions, otherwise 0; always 0 for ApiVersions, which a client sends before
    it can know what the node speaks.
    """
    return 1 if key != _API_VERSIONS_KEY and API[key].is_flexible(version) else 0
