"""Where a fetch session (KIP-227) stands, for whoever fetches: consumers and followers alike.

The first request of a session has the epoch 0 and names every partition; if the other side has room
it answers with the session's id. From then on each request has the next epoch, and tells what has
changed. Whenever the two may disagree (a lost answer, an error about the session), the next request
is a full one again, which replaces the old session. Without room there is no session (id 0): every
request is a full one.
"""

from __future__ import annotations

from typing import Final

from kraftpy.protocol.errors import ErrorCode

__all__ = ["INITIAL_EPOCH", "NO_SESSION", "SessionTerm", "epoch_after"]

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1


def epoch_after(epoch: int) -> int:
    """That of a session's next request. It never becomes the initial one again."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class SessionTerm:
    __slots__ = ("epoch", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH

    @property
    def is_incremental(self) -> bool:
        """Whether there is a session, so that a request tells changes only."""
        return self.epoch != INITIAL_EPOCH

    def answered(self, code: int, session_id: int) -> bool:
        """Whether what the answer says about partitions is about what was asked."""
        if code != ErrorCode.NONE:
            if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = NO_SESSION
            self.epoch = INITIAL_EPOCH
            return False
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH if session_id == NO_SESSION else epoch_after(self.epoch)
        return True

    def lost(self) -> None:
        """No answer: nobody knows what the other side has heard."""
        self.epoch = INITIAL_EPOCH
