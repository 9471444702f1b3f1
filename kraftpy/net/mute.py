"""When a connection may be served: Kafka's mute state machine, as data.

Everything that changes the state of muting is in this file.

| state | meaning |
| --- | --- |
| NOT_MUTED | nothing is outstanding, nothing is throttled |
| MUTED | muted, with nothing to wait for: the one state that `try_unmute` ends |
| MUTED_AND_RESPONSE_PENDING | an answer has not left yet |
| MUTED_AND_THROTTLED | every answer has left, the throttle time runs |
| MUTED_AND_THROTTLED_AND_RESPONSE_PENDING | both |

So frames are served again when the answer has left *and* the throttle time is over, in whichever
order. With the run-ahead window (design, decision 5) "the answer" is all outstanding ones: the
connection raises REQUEST_RECEIVED for the first of them and RESPONSE_SENT for the last. A throttle
that comes while another runs only moves the deadline, which is the connection's matter.
"""

from __future__ import annotations

from enum import IntEnum

from kraftpy.world import InternalInvariant

__all__ = ["TRANSITIONS", "Mute", "MuteEvent", "MuteState"]


# IntEnum and not Enum: its members hash at the speed of integers, and these are dictionary keys
# on the path of every request.
class MuteState(IntEnum):
    NOT_MUTED = 0
    MUTED = 1
    MUTED_AND_RESPONSE_PENDING = 2
    MUTED_AND_THROTTLED = 3
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = 4


class MuteEvent(IntEnum):
    MUTE = 0
    REQUEST_RECEIVED = 1
    RESPONSE_SENT = 2
    THROTTLE_STARTED = 3
    THROTTLE_ENDED = 4


TRANSITIONS: dict[tuple[MuteState, MuteEvent], MuteState] = {
    (MuteState.NOT_MUTED, MuteEvent.MUTE): MuteState.MUTED,
    (MuteState.MUTED, MuteEvent.REQUEST_RECEIVED): MuteState.MUTED_AND_RESPONSE_PENDING,
    (
        MuteState.MUTED_AND_RESPONSE_PENDING,
        MuteEvent.THROTTLE_STARTED,
    ): MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
    (MuteState.MUTED_AND_RESPONSE_PENDING, MuteEvent.RESPONSE_SENT): MuteState.MUTED,
    (
        MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
        MuteEvent.RESPONSE_SENT,
    ): MuteState.MUTED_AND_THROTTLED,
    (MuteState.MUTED_AND_THROTTLED, MuteEvent.THROTTLE_ENDED): MuteState.MUTED,
    (
        MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
        MuteEvent.THROTTLE_ENDED,
    ): MuteState.MUTED_AND_RESPONSE_PENDING,
}


class Mute:
    """The state of one connection. An event that the table doesn't know is our own bug."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = MuteState.NOT_MUTED

    def on(self, event: MuteEvent) -> None:
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise InternalInvariant(f"mute.illegal state={self.state.name} event={event.name}")
        self.state = following

    def try_unmute(self) -> bool:
        """Whether the connection is not muted any more."""
        if self.state is MuteState.MUTED:
            self.state = MuteState.NOT_MUTED
        return self.state is MuteState.NOT_MUTED

    @property
    def is_throttled(self) -> bool:
        return self.state >= MuteState.MUTED_AND_THROTTLED
