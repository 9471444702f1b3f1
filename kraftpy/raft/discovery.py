"""Finding the leader, and what is known of peers that can't be it: evidence (design, decision 14).

Who knows no leader asks a bootstrap server, or a voter that it knows, with a Fetch; the answer
names the leader. A node that is proved dead is not waited for: voters campaign after their rank
times a short step, so that two survivors don't collide. The same holds once after a start, when a
majority can be reached and nobody knows a leader. A pre-vote decides, so haste costs no safety.
"""

from __future__ import annotations

from kraftpy.raft.election_state import NO_LEADER
from kraftpy.raft.quorum import Quorum
from kraftpy.raft.roles import Follower, Unattached
from kraftpy.raft.voters import Endpoint

__all__ = ["Discovery"]

# Made-up ids of bootstrap servers, whose real ones aren't known, count down from here.
_FIRST_BOOTSTRAP_ID = -2


class Discovery:
    __slots__ = ("_next_ms", "_quorum")

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._next_ms = 0

    def peers(self) -> list[tuple[int, Endpoint]]:
        """Whom to ask for the leader: bootstrap servers, known voters, a leader that was silent.

        Kafka asks bootstrap servers alone, and a broker that was given one is lost without it. An
        observer whose leader comes back in its old epoch hears nothing new from anybody else.
        """
        quorum = self._quorum
        config = quorum.config
        candidates = [
            (_FIRST_BOOTSTRAP_ID - place, server)
            for place, server in enumerate(config.bootstrap_servers)
        ]
        for voter in quorum.voters.latest.voters:
            address = voter.endpoint(config.listener)
            if address is not None:
                candidates.append((voter.key.node_id, address))
        role = quorum.role
        if isinstance(role, Follower):
            address = quorum.address(role.leader_endpoints)
            if address is not None:
                candidates.append((quorum.election.leader_id, address))
        own = quorum.address(config.endpoints)
        known = {} if own is None else {(own.host, own.port): None}
        found = []
        for node_id, address in candidates:
            where = (address.host, address.port)
            if node_id != quorum.local.node_id and where not in known:
                known[where] = None
                found.append((node_id, address))
        return found

    def next_peer(self) -> tuple[int, Endpoint] | None:
        """A random peer that may be asked now; one question at a time, and not too many."""
        quorum = self._quorum
        now_ms = quorum.now_ms
        if now_ms < self._next_ms or quorum.connections.fetches_anywhere(now_ms):
            return None
        ready = [peer for peer in self.peers() if quorum.connections.is_ready(peer[0], now_ms)]
        if not ready:
            return None
        self._next_ms = now_ms + quorum.config.retry_backoff_ms
        return ready[quorum.random.randrange(len(ready))]

    def next_deadline_ms(self) -> int | None:
        if self._next_ms > self._quorum.now_ms:
            return self._next_ms
        return None

    def note_contact(self, node_id: int) -> None:
        """A node has spoken: it lives, and counts among those that can be reached."""
        quorum = self._quorum
        role = quorum.role
        if node_id <= _FIRST_BOOTSTRAP_ID:
            node_id = self._voter_id(node_id)
        if isinstance(role, Follower) and node_id == quorum.election.leader_id:
            role.leader_is_dead = False
        if (
            not isinstance(role, Unattached)
            or quorum.has_campaigned
            or quorum.election.leader_id != NO_LEADER
            or quorum.voters.latest.find(node_id) is None
            or node_id in role.reached
        ):
            return
        role.reached[node_id] = None
        if quorum.is_voter and len(role.reached) + 1 >= quorum.voters.latest.majority:
            role.election_deadline_ms = min(
                role.election_deadline_ms, quorum.now_ms + self._patience_ms(NO_LEADER)
            )

    def note_dead(self, node_id: int) -> None:
        """There is evidence that a node is dead; a follower of it looks for another leader."""
        quorum = self._quorum
        node_id = self._voter_id(node_id)
        role = quorum.role
        if isinstance(role, Follower) and node_id == quorum.election.leader_id:
            role.leader_is_dead = True
            if quorum.is_voter:
                role.fetch_deadline_ms = min(
                    role.fetch_deadline_ms, quorum.now_ms + self._patience_ms(node_id)
                )

    def _patience_ms(self, dead_id: int) -> int:
        """How long to leave the election to voters of a lower rank."""
        quorum = self._quorum
        rank = quorum.voters.latest.rank(quorum.local.node_id, without=dead_id)
        return rank * quorum.config.evidence_step_ms

    def _voter_id(self, node_id: int) -> int:
        """The voter behind a bootstrap server's made-up id, if it is one."""
        if node_id > _FIRST_BOOTSTRAP_ID:
            return node_id
        servers = self._quorum.config.bootstrap_servers
        place = _FIRST_BOOTSTRAP_ID - node_id
        if place < len(servers):
            server = servers[place]
            for voter in self._quorum.voters.latest.voters:
                for endpoint in voter.endpoints:
                    if (endpoint.host, endpoint.port) == (server.host, server.port):
                        return voter.key.node_id
        return node_id
