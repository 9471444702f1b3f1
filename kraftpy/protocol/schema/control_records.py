"""Keys and values of control records: the entries that brokers write into logs themselves.

On the wire an int16 version stands before ControlRecordTypeSchema and EndTxnMarker; the others have
their version as a field.
"""

from __future__ import annotations

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.tables import (
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)


class ControlRecordTypeSchema(Message, versions="0", flexible="none"):
    """The key of every control record: what the record is."""

    type: int = int16()


class EndTxnMarker(Message, versions="0", flexible="none"):
    """The end of a transaction: commit and abort markers have the same value."""

    coordinator_epoch: int = int32()


class LeaderChangeMessageVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """Raft: a leader's first record of its epoch."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeMessageVoter] = array(LeaderChangeMessageVoter)
    granting_voters: list[LeaderChangeMessageVoter] = array(LeaderChangeMessageVoter)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a snapshot."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a snapshot."""

    version: int = int16()


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The version of the Raft protocol in force."""

    version: int = int16()
    kraft_version: int = int16()


class Endpoint(Struct):
    name: str = string(key=True)
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersRecordVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters in force."""

    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)
