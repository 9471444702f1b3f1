"""Seeded bugs of the Raft core, each one replacing one method of the product (testing.md 10.5).

The quorum simulation must find every one of them; see seeded_bugs.py for how.
"""

from __future__ import annotations

from typing import Any

from seeded_bugs import Bug, Suite

from kraftpy.protocol.errors import ErrorCode
from kraftpy.raft.effects import Reply, Send, TruncateLog
from kraftpy.raft.election_state import ElectionState
from kraftpy.raft.elections import Elections
from kraftpy.raft.log_state import LogState
from kraftpy.raft.membership import Membership
from kraftpy.raft.quorum import Quorum
from kraftpy.raft.replication import Replication
from kraftpy.raft.roles import Leader, Prospective, Unattached
from kraftpy.sim.quorum_simulation import run_quorum

EVENTS = 4_000


def vote_not_persisted(self: Quorum, key: Any) -> None:
    self.election = ElectionState(self.election.epoch, self.election.leader_id, key)
    if isinstance(self.role, Unattached | Prospective):
        self.role.election_deadline_ms = self.now_ms + self.election_timeout()


def answer_before_the_promise_is_durable(self: Quorum, request_id: int, response: Any) -> None:
    self.effects.append(Reply(request_id, response, 0))


def fetch_before_the_log_is_durable(
    self: Quorum, node_id: int, address: Any, request: Any, *, is_fetch: bool
) -> None:
    correlation_id = self.connections.sent(node_id, self.now_ms, is_fetch=is_fetch)
    self.effects.append(Send(node_id, address, correlation_id, request, self.promise_token))


def election_without_log_check(self: LogState, *, end_offset: int, epoch: int) -> bool:
    return True


def second_vote_in_an_epoch(self: Elections, candidate: Any, *, up_to_date: bool) -> bool:
    return isinstance(self._quorum.role, Unattached | Prospective) and up_to_date


def candidate_at(ends: list[int]) -> int:
    return sorted(ends, reverse=True)[len(ends) // 2]


def ends_of(self: Replication, role: Leader, own_end: int) -> list[int]:
    quorum = self._quorum
    return [
        own_end
        if voter.key.node_id == quorum.local.node_id
        else getattr(role.progress.get(voter.key), "end_offset", -1)
        for voter in quorum.voters.latest.voters
    ]


def commit(self: Replication, role: Leader, offset: int) -> None:
    if offset > role.epoch_start_offset and offset > (role.high_watermark or 0):
        role.high_watermark = offset
        self._quorum.advance_high_watermark(offset)


def watermark_by_the_leader_alone(self: Replication, role: Leader) -> None:
    commit(self, role, self._quorum.log.durable_end_offset)


def watermark_counts_unsynced_data(self: Replication, role: Leader) -> None:
    commit(self, role, candidate_at(ends_of(self, role, self._quorum.log.end_offset)))


def watermark_counts_observers(self: Replication, role: Leader) -> None:
    ends = [progress.end_offset for progress in role.progress.values()]
    commit(self, role, candidate_at([*ends, self._quorum.log.durable_end_offset]))


def watermark_counts_a_removed_leader(self: Replication, role: Leader) -> None:
    ends = ends_of(self, role, self._quorum.log.durable_end_offset)
    if not self._quorum.is_voter:
        ends[0] = self._quorum.log.durable_end_offset
    commit(self, role, candidate_at(ends))


def watermark_falls(self: Replication, role: Leader) -> None:
    offset = candidate_at(ends_of(self, role, self._quorum.log.durable_end_offset))
    if offset > role.epoch_start_offset:
        role.high_watermark = offset
        self._quorum.advance_high_watermark(offset)


def old_epoch_committed_by_counting(self: Replication, role: Leader) -> None:
    offset = candidate_at(ends_of(self, role, self._quorum.log.durable_end_offset))
    if offset > (role.high_watermark or 0):
        role.high_watermark = offset
        self._quorum.advance_high_watermark(offset)


def two_voter_changes_at_once(self: Membership, *, needs_kraft_version: bool) -> ErrorCode:
    role = self._quorum.role
    if not isinstance(role, Leader) or role.high_watermark is None:
        return ErrorCode.REQUEST_TIMED_OUT
    if needs_kraft_version and self._quorum.kraft_versions.latest < 1:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def voters_survive_truncation(self: Quorum, end_offset: int) -> None:
    self.token += 1
    self.log.truncate(end_offset)
    self.effects.append(TruncateLog(end_offset, self.token))


def truncate_to_the_watermark(self: Replication, leader_end: Any) -> int:
    return self._quorum.log.high_watermark


def any_fetch_is_valid(self: Replication, asked: Any, data: Any) -> bool:
    return True


_start = Quorum.start


def restarted_leader_campaigns_in_its_epoch(self: Quorum) -> None:
    if self.election.leader_id == self.local.node_id and self.is_voter:
        self.role = self._candidate()
    else:
        _start(self)


_install = LogState.install
_trim = LogState.trim


def snapshot_without_epoch(self: LogState, snapshot_id: Any, token: int) -> Any:
    older = _install(self, snapshot_id, token)
    self.last_epoch = 0
    return older


def log_starts_behind_its_snapshot(self: LogState, oldest_kept: Any) -> Any:
    removed = _trim(self, oldest_kept)
    return (*removed, oldest_kept)


def follower_believes_the_leaders_watermark(self: LogState, offset: int) -> bool:
    if offset <= self.high_watermark:
        return False
    self.high_watermark = offset + 1
    return True


BUGS = (
    Bug("vote not persisted", Quorum, "vote_for", vote_not_persisted),
    Bug(
        "answer before the promise is durable",
        Quorum,
        "reply",
        answer_before_the_promise_is_durable,
    ),
    Bug("fetch before the log is durable", Quorum, "send", fetch_before_the_log_is_durable),
    Bug("election without log check", LogState, "is_covered_by", election_without_log_check),
    Bug("second vote in an epoch", Elections, "grants_vote", second_vote_in_an_epoch),
    Bug(
        "high watermark by the leader alone",
        Replication,
        "update_high_watermark",
        watermark_by_the_leader_alone,
    ),
    Bug(
        "high watermark counts unsynced data",
        Replication,
        "update_high_watermark",
        watermark_counts_unsynced_data,
    ),
    Bug(
        "high watermark counts observers",
        Replication,
        "update_high_watermark",
        watermark_counts_observers,
    ),
    Bug(
        "high watermark counts a removed leader",
        Replication,
        "update_high_watermark",
        watermark_counts_a_removed_leader,
    ),
    Bug("high watermark falls", Replication, "update_high_watermark", watermark_falls),
    Bug(
        "old epoch committed by counting",
        Replication,
        "update_high_watermark",
        old_epoch_committed_by_counting,
    ),
    Bug("two voter changes at once", Membership, "_closed", two_voter_changes_at_once),
    Bug("voters survive truncation", Quorum, "truncate", voters_survive_truncation),
    Bug("truncate to the watermark", Replication, "_common_end", truncate_to_the_watermark),
    Bug("any fetch is valid", Replication, "_place", any_fetch_is_valid),
    Bug(
        "restarted leader campaigns in its epoch",
        Quorum,
        "start",
        restarted_leader_campaigns_in_its_epoch,
    ),
    Bug("snapshot without epoch", LogState, "install", snapshot_without_epoch),
    Bug("log starts behind its snapshot", LogState, "trim", log_starts_behind_its_snapshot),
    Bug(
        "follower believes the leader's watermark",
        LogState,
        "advance_high_watermark",
        follower_believes_the_leaders_watermark,
    ),
)


def run(seed: int) -> None:
    run_quorum(seed, EVENTS)


SUITE = Suite("raft", "L2, quorum", BUGS, run)
