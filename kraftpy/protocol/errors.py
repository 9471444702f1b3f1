"""Kafka's error codes: what a client is told, and what it may do about it.

`retriable` is how a Java client sees the code: the same request may succeed later. Some of these
also mean that the client's view of topics is stale, `refreshes_metadata`; a client refreshes it
before it tries again.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ErrorCode"]

RETRY = 1
REFRESH = 2


class ErrorCode(IntEnum):
    """Every code under Kafka's name for it; an int on the wire and in messages."""

    message: str
    retriable: bool
    refreshes_metadata: bool

    def __new__(cls, code: int, message: str = "", advice: int = 0) -> ErrorCode:
        error = int.__new__(cls, code)
        error._value_ = code
        error.message = message
        error.retriable = bool(advice & RETRY)
        error.refreshes_metadata = bool(advice & REFRESH)
        return error

    UNKNOWN_SERVER_ERROR = -1, "The server met a failure it did not expect."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = 1, "The offset lies outside the partition's log."
    CORRUPT_MESSAGE = (
        2,
        "The batch is corrupt: its checksum, its size, or a null key where keys are needed.",
        RETRY,
    )
    UNKNOWN_TOPIC_OR_PARTITION = (
        3,
        "This broker does not know the topic or partition, or does not know it yet.",
        RETRY | REFRESH,
    )
    INVALID_FETCH_SIZE = 4, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = (
        5,
        "The partition has no leader at the moment; an election is under way.",
        RETRY | REFRESH,
    )
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "This broker does not lead the partition, or holds no replica of it.",
        RETRY | REFRESH,
    )
    REQUEST_TIMED_OUT = 7, "The request took longer than it was allowed to.", RETRY
    BROKER_NOT_AVAILABLE = 8, "The broker is down or shutting down."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available on this broker.", RETRY | REFRESH
    MESSAGE_TOO_LARGE = 10, "The batch is larger than max.message.bytes allows."
    STALE_CONTROLLER_EPOCH = 11, "The controller epoch is older than the current one."
    OFFSET_METADATA_TOO_LARGE = 12, "The metadata string stored with the offset is too long."
    NETWORK_EXCEPTION = 13, "The connection broke before an answer came.", RETRY | REFRESH
    COORDINATOR_LOAD_IN_PROGRESS = 14, "The coordinator is still loading its state.", RETRY
    COORDINATOR_NOT_AVAILABLE = 15, "There is no coordinator at the moment.", RETRY
    NOT_COORDINATOR = 16, "Another broker coordinates this.", RETRY
    INVALID_TOPIC_EXCEPTION = 17, "The topic name is not valid."
    RECORD_LIST_TOO_LARGE = 18, "The batch is larger than a log segment."
    NOT_ENOUGH_REPLICAS = (
        19,
        "Fewer replicas are in sync than min.insync.replicas asks for; nothing was written.",
        RETRY,
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "The batch was written, but fewer replicas are in sync than min.insync.replicas asks for.",
        RETRY,
    )
    INVALID_REQUIRED_ACKS = 21, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, "The group has moved on to another generation."
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        "The member's protocols and the group's have nothing in common.",
    )
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, "The session timeout is outside the range that the broker allows."
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; the member has to join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offset commit is too large."
    TOPIC_AUTHORIZATION_FAILED = 29, "The principal may not do this with the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "The principal may not do this with the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "The principal may not do this with the cluster."
    INVALID_TIMESTAMP = 32, "The record's timestamp is out of range."
    UNSUPPORTED_SASL_MECHANISM = 33, "The SASL mechanism is not enabled."
    ILLEGAL_SASL_STATE = 34, "The SASL request came out of order."
    UNSUPPORTED_VERSION = 35, "The API version is not supported."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = (
        38,
        "The replication factor is not valid, or there are too few brokers for it.",
    )
    INVALID_REPLICA_ASSIGNMENT = 39, "The replica assignment is not valid."
    INVALID_CONFIG = 40, "The configuration is not valid."
    NOT_CONTROLLER = 41, "This node is not the active controller.", RETRY
    INVALID_REQUEST = 42, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, "The message format is too old for this."
    POLICY_VIOLATION = 44, "A policy of the cluster refuses the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, "The producer's sequence number leaves a gap."
    DUPLICATE_SEQUENCE_NUMBER = 46, "The producer's sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, "The producer epoch is older than the current one."
    INVALID_TXN_STATE = 48, "The transaction is in a state that does not allow this."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, "The transaction timeout is larger than the broker allows."
    CONCURRENT_TRANSACTIONS = (
        51,
        "The previous transaction of this producer is still being completed.",
        RETRY,
    )
    TRANSACTION_COORDINATOR_FENCED = 52, "Another coordinator has taken over the transaction."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53,
        "The principal may not do this with the transactional id.",
    )
    SECURITY_DISABLED = 54, "No authorizer is configured."
    OPERATION_NOT_ATTEMPTED = 55, "Not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, "The disk failed.", RETRY | REFRESH
    LOG_DIR_NOT_FOUND = 57, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The broker no longer has a state for this producer."
    REASSIGNMENT_IN_PROGRESS = 60, "The partition's replicas are being moved."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The delegation token belongs to another owner."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "Delegation tokens can't be managed over this connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (
        65,
        "The principal may not do this with the delegation token.",
    )
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The principal's type is not valid."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, "The broker no longer has this fetch session.", RETRY
    INVALID_FETCH_SESSION_EPOCH = 71, "The fetch session's epoch is not the one expected.", RETRY
    LISTENER_NOT_FOUND = (
        72,
        "The leader has no listener of the name that the request came in on.",
        RETRY | REFRESH,
    )
    TOPIC_DELETION_DISABLED = 73, "Deleting topics is disabled."
    FENCED_LEADER_EPOCH = 74, "The leader epoch is older than the current one.", RETRY | REFRESH
    UNKNOWN_LEADER_EPOCH = 75, "The leader epoch is newer than the one this broker knows.", RETRY
    UNSUPPORTED_COMPRESSION_TYPE = 76, "The compression type is not supported here."
    STALE_BROKER_EPOCH = 77, "The broker epoch is older than the current one."
    OFFSET_NOT_AVAILABLE = 78, "The new leader does not know its high watermark yet.", RETRY
    MEMBER_ID_REQUIRED = 79, "Join again with the member id in this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", RETRY | REFRESH
    GROUP_MAX_SIZE_REACHED = 81, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this static member's instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No eligible leader is available.", RETRY | REFRESH
    ELECTION_NOT_NEEDED = 84, "The partition already has the leader wanted.", RETRY | REFRESH
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No replicas of the partition are being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is still subscribed to the topic."
    INVALID_RECORD = 87, "The broker's validation refused a record."
    UNSTABLE_OFFSET_COMMIT = 88, "Offsets of an open transaction are pending.", RETRY
    THROTTLING_QUOTA_EXCEEDED = 89, "The quota for changes by the controller is used up.", RETRY
    PRODUCER_FENCED = 90, "A newer instance of this producer has taken over."
    RESOURCE_NOT_FOUND = 91, "There is no such resource."
    DUPLICATE_RESOURCE = 92, "The request names a resource twice."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "The voter sets of sender and receiver differ."
    INVALID_UPDATE_VERSION = (
        95,
        "The version, epoch or level given is not one that can follow the current one.",
    )
    FEATURE_UPDATE_FAILED = 96, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, "The forwarded principal can't be read."
    SNAPSHOT_NOT_FOUND = 98, "The snapshot is not there any more."
    POSITION_OUT_OF_RANGE = 99, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = (
        100,
        "This broker does not know the topic id, or does not know it yet.",
        RETRY | REFRESH,
    )
    DUPLICATE_BROKER_REGISTRATION = 101, "A live broker is registered under this id."
    BROKER_ID_NOT_REGISTERED = 102, "No broker is registered under this id."
    INCONSISTENT_TOPIC_ID = 103, "The topic's id is not the one in the request.", RETRY | REFRESH
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id is not the one in the request."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        "The fetch session uses topic ids and names side by side.",
        RETRY,
    )
    INELIGIBLE_REPLICA = 107, "The replica may not join the in-sync replicas."
    NEW_LEADER_ELECTED = 108, "The change was made and gave the partition a new leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset is in tiered storage only."
    FENCED_MEMBER_EPOCH = (
        110,
        "The coordinator has fenced the member's epoch; the member has to join anew.",
    )
    UNRELEASED_INSTANCE_ID = 111, "The instance id is still in use by another member."
    UNSUPPORTED_ASSIGNOR = 112, "The group coordinator has no such assignor."
    STALE_MEMBER_EPOCH = 113, "The member epoch is out of date; try again with a newer one."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request went to a node of the wrong kind."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "There is no such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The telemetry subscription has changed."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker takes."
    INVALID_REGISTRATION = 119, "The registration is not valid."
    TRANSACTION_ABORTABLE = 120, "The transaction failed, and its producer has to abort it."
    INVALID_RECORD_STATE = 121, "The record is in a state that does not allow this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The broker no longer has this share session.", RETRY
    INVALID_SHARE_SESSION_EPOCH = 123, "The share session's epoch is not the one expected.", RETRY
    FENCED_STATE_EPOCH = 124, "The share state's epoch is older than the current one."
    INVALID_VOTER_KEY = 125, "The voter key is not the receiver's."
    DUPLICATE_VOTER = 126, "The quorum has this voter already."
    VOTER_NOT_FOUND = 127, "The quorum has no such voter."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client has to start again from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology epoch is older than the group's."
    SHARE_SESSION_LIMIT_REACHED = (
        133,
        "The broker has as many share sessions as it may have.",
        RETRY,
    )
