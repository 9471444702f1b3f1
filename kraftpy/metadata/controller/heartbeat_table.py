"""What the active controller knows of brokers from their heartbeats alone. No record holds it.

A broker has a session if it was heard within the session timeout. Being heard counts when the
heartbeat arrives, before it waits for its turn, so that a busy controller doesn't take live brokers
for dead. Each session is a timer on the table's own timing wheel, which a contact starts anew: that
costs the same with ten thousand brokers as with three. The table begins anew with each leadership:
everybody who is registered gets a session, and those who then stay silent are looked for
(suspicions.py).

Besides the time of contact, a broker tells how far it has replayed the metadata log. The controller
compares this with two offsets: that of the broker's registration, which it must have seen before it
may serve; and that of the last record of its controlled shutdown, which all others must have seen
before it may stop.

Invariants: the table has the brokers that are registered in the newest image, each under the epoch
of its registration; a broker that isn't fenced has a timer that runs or has expired; the expired
are in the order in which their sessions ended; what a broker has replayed never goes back.
"""

from __future__ import annotations

from kraftpy.metadata.controller.suspicions import Suspicions
from kraftpy.metadata.image import MetadataImage
from kraftpy.purgatory.wheel import TimerEntry, TimingWheel

__all__ = ["HeartbeatTable"]


class _Broker(TimerEntry):
    """A registered broker. The timer's deadline is the end of its session."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "metadata_offset",
        "registration_offset",
        "shutdown_offset",
    )

    def __init__(self, broker_id: int, broker_epoch: int, registration_offset: int) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.registration_offset = registration_offset
        self.metadata_offset = -1
        self.shutdown_offset: int | None = None


class HeartbeatTable:
    """Contacts, sessions and replayed offsets of all registered brokers."""

    __slots__ = ("_brokers", "_expired", "_session_timeout_ms", "_sessions", "_suspicions")

    def __init__(self, session_timeout_ms: int, probe_after_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._suspicions = Suspicions(probe_after_ms)
        self._brokers: dict[int, _Broker] = {}
        # The wheel follows the times that it is told; whatever it begins with is in the past.
        self._sessions: TimingWheel[_Broker] = TimingWheel(0)
        # Brokers whose sessions have ended by themselves, and of whom nothing was made of it yet.
        self._expired: dict[int, _Broker] = {}

    @classmethod
    def at_activation(
        cls, image: MetadataImage, session_timeout_ms: int, probe_after_ms: int, now_ms: int
    ) -> HeartbeatTable:
        """A new leadership: all have a fresh session, and shall be heard soon.

        Where the registrations stand in the log is not known, only that it is in the past.
        """
        table = cls(session_timeout_ms, probe_after_ms)
        for broker in image.brokers.values():
            last_offset = image.provenance.last_offset
            table.register(broker.broker_id, broker.broker_epoch, last_offset, now_ms)
            table._suspicions.suspect(broker.broker_id, now_ms + probe_after_ms)
        return table

    def register(
        self, broker_id: int, broker_epoch: int, registration_offset: int, now_ms: int
    ) -> None:
        """A broker registers, or amends the registration that it has in this epoch."""
        known = self._brokers.get(broker_id)
        if known is not None and known.broker_epoch == broker_epoch:
            known.registration_offset = registration_offset
        else:
            self.end_session(broker_id)
            self._brokers[broker_id] = _Broker(broker_id, broker_epoch, registration_offset)
        self.touch(broker_id, broker_epoch, now_ms)

    def remove(self, broker_id: int) -> None:
        """The broker is registered no more."""
        self.end_session(broker_id)
        del self._brokers[broker_id]

    # Sessions.

    def touch(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """A broker was heard of. One with another epoch is not the one that is registered."""
        broker = self._brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            return
        # A millisecond more than the timeout: silence of just that long is still in time.
        self._sessions.add(broker, now_ms + self._session_timeout_ms + 1, now_ms)
        self._expired.pop(broker_id, None)
        self._suspicions.clear(broker_id)

    def backdate(self, broker_id: int, since_ms: int, now_ms: int) -> None:
        """A broker's fresh session began earlier than now: nothing was heard of it since then."""
        broker = self._brokers.get(broker_id)
        if broker is not None:
            self._sessions.add(broker, since_ms + self._session_timeout_ms + 1, now_ms)

    def has_session(self, broker_id: int, now_ms: int) -> bool:
        broker = self._brokers.get(broker_id)
        return broker is not None and broker.is_pending and now_ms < broker.deadline_ms

    def end_session(self, broker_id: int) -> None:
        """The process is gone, or as good as gone; another one may take its place."""
        broker = self._brokers.get(broker_id)
        if broker is not None:
            self._sessions.cancel(broker)
        self._expired.pop(broker_id, None)
        self._suspicions.clear(broker_id)

    def oldest_expired(self, now_ms: int) -> int | None:
        """The broker that has been silent for longest, if that is longer than a session."""
        for broker in self._sessions.advance(now_ms):
            self._expired[broker.broker_id] = broker
        return next(iter(self._expired), None)

    def next_expiry_ms(self) -> int | None:
        """When to ask for the expired: no session ends before, if nothing is heard until then."""
        if self._expired:
            return next(iter(self._expired.values())).deadline_ms
        return self._sessions.next_deadline_ms()

    # Evidence.

    def note_disconnected(self, broker_id: int, now_ms: int) -> None:
        """Its heartbeat connection broke."""
        broker = self._brokers.get(broker_id)
        if broker is not None and (broker.is_pending or broker_id in self._expired):
            self._suspicions.suspect(broker_id, now_ms)

    def note_refused(self, broker_id: int) -> bool:
        """One of its listeners refused a connection; whether it must be dead."""
        return self._suspicions.refused(broker_id)

    def is_dead(self, broker_id: int) -> bool:
        """Whether evidence says so, and nothing was heard since."""
        return self._suspicions.is_dead(broker_id)

    def to_probe(self, now_ms: int) -> list[int]:
        """Brokers whose listeners should be tried now."""
        return self._suspicions.due(now_ms)

    def next_probe_ms(self) -> int | None:
        """When a broker is to be looked for, if nothing is heard until then."""
        return self._suspicions.next_probe_ms()

    def probed(self, broker_id: int, listener_count: int, now_ms: int) -> None:
        """All of a broker's listeners are being tried."""
        self._suspicions.probed(broker_id, listener_count, now_ms)

    # Offsets.

    def acknowledge(self, broker_id: int, metadata_offset: int) -> None:
        """The broker has replayed the log up to this offset."""
        broker = self._brokers[broker_id]
        broker.metadata_offset = max(broker.metadata_offset, metadata_offset)

    def metadata_offset(self, broker_id: int) -> int:
        """How far a broker has replayed the log; -1 before it was heard."""
        return self._brokers[broker_id].metadata_offset

    def is_caught_up(self, broker_id: int) -> bool:
        """Whether a broker has seen its own registration."""
        broker = self._brokers[broker_id]
        return broker.metadata_offset >= broker.registration_offset

    def shutdown_offset(self, broker_id: int) -> int | None:
        """The last record of a broker's controlled shutdown; None if it isn't known of one."""
        return self._brokers[broker_id].shutdown_offset

    def set_shutdown_offset(self, broker_id: int, offset: int) -> None:
        self._brokers[broker_id].shutdown_offset = offset
