"""Changes of the voter set: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853, section 10).

The leader makes one change at a time, of one voter, and only when the last one is committed, so
that any majority of the old set meets any majority of the new one. The new set counts as soon as
it is in the log. A new voter must have caught up as an observer first, or the quorum would wait.

At kraft.version 0 the voters are configured, and none of that is possible. They still report who
they are to each new leader, which remembers it in memory. When all of them have, kraft.version can
become 1: one control batch says so and names the same voters, now with their directories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import ZERO_UUID
from kraftpy.protocol.schema import k18_api_versions as api_versions
from kraftpy.protocol.schema import k80_add_raft_voter as add_voter
from kraftpy.protocol.schema import k81_remove_raft_voter as remove_voter
from kraftpy.protocol.schema import k82_update_raft_voter as update_voter
from kraftpy.protocol.schema.control_records import KRaftVersionRecord
from kraftpy.raft import rpc
from kraftpy.raft.quorum import Quorum
from kraftpy.raft.replication import Replication
from kraftpy.raft.roles import Follower, Leader
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

__all__ = ["KRAFT_VERSION_FEATURE", "KRAFT_VERSION_MAX", "Membership", "UpgradeRefusal"]

KRAFT_VERSION_FEATURE = "kraft.version"
KRAFT_VERSION_MAX = 1
# No node has more listeners, and no name in the DNS is longer. What a request may put into the log
# has to have an end.
_MAX_LISTENERS = 64
_MAX_NAME_LENGTH = 255
# An observer that has not fetched for this long is not taken for one that keeps up.
_OBSERVER_FRESH_MS = 3_600_000

_Response: TypeAlias = (
    type[add_voter.AddRaftVoterResponse] | type[remove_voter.RemoveRaftVoterResponse]
)


class UpgradeRefusal(NamedTuple):
    """Why kraft.version stays what it is, in Kafka's code and in words."""

    error: ErrorCode
    message: str


@dataclass(slots=True)
class _Change:
    """The one change that is under way."""

    request_id: int
    response: _Response
    deadline_ms: int
    # The voter to add, while its node is being asked what it can do.
    candidate: Voter | None = None
    waits_for_commit: bool = True
    # Of the voters record, once it is in the log.
    offset: int | None = None


class Membership:
    __slots__ = ("_change", "_quorum", "_replication", "_reported")

    def __init__(self, quorum: Quorum, replication: Replication) -> None:
        self._quorum = quorum
        self._replication = replication
        self._change: _Change | None = None
        # What voters have told this leader of themselves at kraft.version 0, by node id.
        self._reported: dict[int, Voter] = {}
        quorum.watch_leadership(self._fail_without_leader)

    # The gate.

    def _closed(self, *, needs_kraft_version: bool) -> ErrorCode:
        """Why no change may begin now, in Kafka's order of reasons."""
        quorum = self._quorum
        role = quorum.role
        if self._change is not None:
            return ErrorCode.REQUEST_TIMED_OUT
        if not isinstance(role, Leader) or role.high_watermark is None:
            return ErrorCode.REQUEST_TIMED_OUT
        if needs_kraft_version and quorum.kraft_versions.latest < 1:
            return ErrorCode.UNSUPPORTED_VERSION
        if not self.last_change_is_committed():
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE

    def last_change_is_committed(self) -> bool:
        role = self._quorum.role
        return (
            isinstance(role, Leader)
            and role.high_watermark is not None
            and self._quorum.voters.latest_offset < role.high_watermark
        )

    def _refuse(self, request_id: int, response: _Response, error: ErrorCode) -> None:
        answer = response(error_code=error, error_message=error.message if error else None)
        self._quorum.reply(request_id, answer)

    # Add.

    def on_add(self, request_id: int, request: add_voter.AddRaftVoterRequest) -> None:
        quorum = self._quorum
        response = add_voter.AddRaftVoterResponse
        endpoints = _endpoints(request.listeners)
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        address = quorum.address(endpoints)
        if rpc.has_wrong_cluster(quorum, request.cluster_id):
            error = ErrorCode.INCONSISTENT_CLUSTER_ID
        elif (error := rpc.check_request_to_leader(quorum, epoch=quorum.epoch)) is not (
            ErrorCode.NONE
        ):
            pass
        elif request.voter_id < 0 or key.directory_id == ZERO_UUID or address is None:
            error = ErrorCode.INVALID_REQUEST
        elif (error := self._closed(needs_kraft_version=True)) is not ErrorCode.NONE:
            pass
        elif quorum.voters.latest.find(request.voter_id) is not None:
            error = ErrorCode.DUPLICATE_VOTER
        if error is not ErrorCode.NONE or address is None:
            self._refuse(request_id, response, error)
            return
        self._change = _Change(
            request_id,
            response,
            quorum.now_ms + quorum.config.request_timeout_ms,
            candidate=Voter(key, endpoints),
            waits_for_commit=request.ack_when_committed,
        )
        question = api_versions.ApiVersionsRequest(
            client_software_name="kraftpy", client_software_version="0"
        )
        quorum.send(key.node_id, address, question, is_fetch=False)

    def _keeps_up(self, key: ReplicaKey) -> bool:
        role = self._quorum.role
        progress = role.progress.get(key) if isinstance(role, Leader) else None
        return (
            progress is not None
            and progress.last_caught_up_ms >= 0
            and self._quorum.now_ms - progress.last_fetch_ms < _OBSERVER_FRESH_MS
        )

    def on_api_versions(self, node_id: int, response: api_versions.ApiVersionsResponse) -> None:
        """The new node has said what it can do; now it can be written into the log."""
        quorum = self._quorum
        change = self._change
        if change is None or change.candidate is None or change.offset is not None:
            return
        if change.candidate.key.node_id != node_id:
            return
        lowest = highest = 0
        for feature in response.supported_features:
            if feature.name == KRAFT_VERSION_FEATURE:
                lowest, highest = feature.min_version, feature.max_version
        if response.error_code:
            self._finish(ErrorCode.REQUEST_TIMED_OUT)
        elif not lowest <= quorum.kraft_versions.latest <= highest:
            self._finish(ErrorCode.INVALID_REQUEST)
        elif not self._keeps_up(change.candidate.key):
            self._finish(ErrorCode.REQUEST_TIMED_OUT)
        else:
            voter = Voter(change.candidate.key, change.candidate.endpoints, lowest, highest)
            voters = quorum.voters.latest.adding(voter)
            change.offset = self._replication.append_control([voters.to_record()])
            if not change.waits_for_commit:
                self._finish(ErrorCode.NONE)

    def on_api_versions_failed(self, node_id: int) -> None:
        change = self._change
        if (
            change is not None
            and change.candidate is not None
            and change.offset is None
            and change.candidate.key.node_id == node_id
        ):
            self._finish(ErrorCode.REQUEST_TIMED_OUT)

    # Remove.

    def on_remove(self, request_id: int, request: remove_voter.RemoveRaftVoterRequest) -> None:
        quorum = self._quorum
        response = remove_voter.RemoveRaftVoterResponse
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        voters = quorum.voters.latest
        if rpc.has_wrong_cluster(quorum, request.cluster_id):
            error = ErrorCode.INCONSISTENT_CLUSTER_ID
        elif (error := rpc.check_request_to_leader(quorum, epoch=quorum.epoch)) is not (
            ErrorCode.NONE
        ):
            pass
        elif key.directory_id == ZERO_UUID:
            error = ErrorCode.INVALID_REQUEST
        elif (error := self._closed(needs_kraft_version=True)) is ErrorCode.NONE:
            voter = voters.find(key.node_id)
            if voter is None or voter.key != key or len(voters) == 1:
                error = ErrorCode.VOTER_NOT_FOUND
        if error is not ErrorCode.NONE:
            self._refuse(request_id, response, error)
            return
        change = _Change(request_id, response, quorum.now_ms + quorum.config.request_timeout_ms)
        change.offset = self._replication.append_control([voters.removing(key.node_id).to_record()])
        self._change = change

    # Update.

    def on_update(
        self, request: update_voter.UpdateRaftVoterRequest
    ) -> update_voter.UpdateRaftVoterResponse:
        quorum = self._quorum
        if rpc.has_wrong_cluster(quorum, request.cluster_id):
            error = ErrorCode.INCONSISTENT_CLUSTER_ID
            return update_voter.UpdateRaftVoterResponse(error_code=error)
        error = rpc.check_request_to_leader(quorum, epoch=request.current_leader_epoch)
        if error is ErrorCode.NONE:
            error = self._update(request)
        election = quorum.election
        response = update_voter.UpdateRaftVoterResponse(error_code=error)
        response.current_leader.leader_id = election.leader_id
        response.current_leader.leader_epoch = election.epoch
        address = rpc.leader_address(quorum)
        if address is not None:
            response.current_leader.host = address.host
            response.current_leader.port = address.port
        return response

    def _update(self, request: update_voter.UpdateRaftVoterRequest) -> ErrorCode:
        quorum = self._quorum
        error = self._closed(needs_kraft_version=False)
        if error is not ErrorCode.NONE:
            return error
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        versions = request.kraft_version_feature
        finalized = quorum.kraft_versions.latest
        endpoints = _endpoints(request.listeners)
        if (
            key.directory_id == ZERO_UUID
            or not versions.min_supported_version <= finalized <= versions.max_supported_version
            or quorum.address(endpoints) is None
        ):
            return ErrorCode.INVALID_REQUEST
        voter = quorum.voters.latest.find(key.node_id)
        if voter is None or not voter.key.stands_for(key):
            return ErrorCode.VOTER_NOT_FOUND
        role = quorum.role
        if isinstance(role, Leader):
            self._replication.note_contact(role, key)
        updated = Voter(
            key, endpoints, versions.min_supported_version, versions.max_supported_version
        )
        if finalized == 0:
            self._reported[key.node_id] = updated
        elif updated != voter:
            voters = quorum.voters.latest.updating(updated)
            self._replication.append_control([voters.to_record()])
        return ErrorCode.NONE

    # From kraft.version 0 to 1.

    def upgrade_refusal(self, kraft_version: int) -> UpgradeRefusal | None:
        """Why kraft.version can't become this one now; None if it can, or is it already."""
        quorum = self._quorum
        present = quorum.kraft_versions.latest
        if not isinstance(quorum.role, Leader):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return UpgradeRefusal(error, error.message)
        if kraft_version == present:
            return None
        invalid = ErrorCode.INVALID_UPDATE_VERSION
        if kraft_version < present:
            return UpgradeRefusal(invalid, f"kraft.version {present} can't be lowered")
        if kraft_version > KRAFT_VERSION_MAX:
            return UpgradeRefusal(invalid, f"kraft.version {kraft_version} is not known")
        voters = self._known_voters()
        missing = [node_id for node_id in quorum.voters.latest.ids if voters.find(node_id) is None]
        if missing:
            names = ", ".join(map(str, missing))
            return UpgradeRefusal(invalid, f"voters have not reported their directory: {names}")
        unable = [
            str(voter.key.node_id)
            for voter in voters.voters
            if not voter.min_kraft_version <= kraft_version <= voter.max_kraft_version
        ]
        if unable:
            reason = f"voters don't support kraft.version {kraft_version}: {', '.join(unable)}"
            return UpgradeRefusal(invalid, reason)
        error = self._closed(needs_kraft_version=False)
        return None if error is ErrorCode.NONE else UpgradeRefusal(error, error.message)

    def upgrade(self, kraft_version: int) -> int:
        """Write it, as `upgrade_refusal` allows; the offset whose commit makes it final."""
        quorum = self._quorum
        if kraft_version == quorum.kraft_versions.latest:
            return quorum.kraft_versions.latest_offset
        known = self._known_voters()
        self._reported.clear()
        role = quorum.role
        if isinstance(role, Leader):
            # Their keys have directories from now on; what is known of their progress stays known.
            for voter in known.voters:
                progress = role.progress.pop(ReplicaKey(voter.key.node_id), None)
                if progress is not None:
                    role.progress[voter.key] = replace(progress, key=voter.key)
        voters = known.to_record()
        return self._replication.append_control(
            [KRaftVersionRecord(kraft_version=kraft_version), voters]
        )

    def _known_voters(self) -> VoterSet:
        """The voters that have said who they are, this leader among them."""
        quorum = self._quorum
        own = {quorum.local.node_id: Voter(quorum.local, quorum.config.endpoints)}
        known = self._reported | own
        return VoterSet(known[node_id] for node_id in quorum.voters.latest.ids if node_id in known)

    # Under way.

    def poll(self, role: Leader) -> None:
        """Answer a change that is committed or late; resign if it took this leader out."""
        quorum = self._quorum
        change = self._change
        if change is not None:
            if change.offset is not None and (role.high_watermark or 0) > change.offset:
                self._finish(ErrorCode.NONE)
            elif quorum.now_ms >= change.deadline_ms:
                self._finish(ErrorCode.REQUEST_TIMED_OUT)
        if not quorum.is_voter and self.last_change_is_committed():
            quorum.become_resigned()

    def _finish(self, error: ErrorCode) -> None:
        change = self._change
        self._change = None
        if change is not None:
            self._refuse(change.request_id, change.response, error)

    def _fail_without_leader(self) -> None:
        self._reported.clear()
        self._finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @property
    def is_busy(self) -> bool:
        """Whether a change is under way."""
        return self._change is not None

    def next_deadline_ms(self) -> int | None:
        return None if self._change is None else self._change.deadline_ms

    # As a follower.

    def send_update(self, role: Follower, node_id: int, address: Endpoint) -> bool:
        """Tell the leader that this voter's entry is out of date, if it is; whether it was."""
        quorum = self._quorum
        if role.has_updated_voter or quorum.now_ms < role.update_voter_deadline_ms:
            return False
        voter = quorum.voters.latest.find(quorum.local.node_id)
        if voter is None or not voter.key.stands_for(quorum.local):
            return False
        role.update_voter_deadline_ms = quorum.now_ms + quorum.config.fetch_timeout_ms
        mine = Voter(quorum.local, quorum.config.endpoints)
        if quorum.kraft_versions.latest >= 1 and voter == mine:
            return False
        request = update_voter.UpdateRaftVoterRequest(
            cluster_id=quorum.config.cluster_id,
            current_leader_epoch=quorum.epoch,
            voter_id=quorum.local.node_id,
            voter_directory_id=quorum.local.directory_id,
            listeners=[
                update_voter.Listener(name=each.name, host=each.host, port=each.port)
                for each in quorum.config.endpoints
            ],
            kraft_version_feature=update_voter.KRaftVersionFeature(
                min_supported_version=mine.min_kraft_version,
                max_supported_version=mine.max_kraft_version,
            ),
        )
        quorum.send(node_id, address, request, is_fetch=False)
        return True

    def on_update_response(self, role: Follower) -> None:
        quorum = self._quorum
        role.has_updated_voter = quorum.kraft_versions.latest < 1
        role.fetch_deadline_ms = quorum.now_ms + quorum.config.fetch_timeout_ms

    def send_auto_join(self, role: Follower, node_id: int, address: Endpoint) -> bool:
        """A controller that is no voter makes itself one; whether it asked."""
        quorum = self._quorum
        config = quorum.config
        if not config.auto_join or not config.is_controller or quorum.is_voter:
            return False
        if quorum.kraft_versions.latest < 1 or quorum.now_ms < role.update_voter_deadline_ms:
            return False
        role.update_voter_deadline_ms = quorum.now_ms + config.fetch_timeout_ms
        stale = quorum.voters.latest.find(quorum.local.node_id)
        request: remove_voter.RemoveRaftVoterRequest | add_voter.AddRaftVoterRequest
        if stale is not None:
            request = remove_voter.RemoveRaftVoterRequest(
                cluster_id=config.cluster_id,
                voter_id=stale.key.node_id,
                voter_directory_id=stale.key.directory_id,
            )
        else:
            request = add_voter.AddRaftVoterRequest(
                cluster_id=config.cluster_id,
                timeout_ms=config.request_timeout_ms,
                voter_id=quorum.local.node_id,
                voter_directory_id=quorum.local.directory_id,
                listeners=[
                    add_voter.Listener(name=each.name, host=each.host, port=each.port)
                    for each in config.endpoints
                ],
                ack_when_committed=False,
            )
        quorum.send(node_id, address, request, is_fetch=False)
        return True


def _endpoints(
    listeners: Sequence[add_voter.Listener] | Sequence[update_voter.Listener],
) -> tuple[Endpoint, ...]:
    """What a voter says of its listeners; nothing if that is more than any voter has to say."""
    if len(listeners) > _MAX_LISTENERS or any(
        max(len(each.name), len(each.host)) > _MAX_NAME_LENGTH for each in listeners
    ):
        return ()
    return tuple(Endpoint(each.name, each.host, each.port) for each in listeners)
