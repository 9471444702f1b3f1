"""The ISR as a leader sees it: what the controller committed, and the one change it has proposed.

The leader proposes, the controller decides, and in between the leader does not know which of the
two ISRs holds: the controller may already elect from the new one. So until it knows, the leader
acts on the larger of the two (the maximal ISR) where it matters for committing records: a member
that is being added already has to have them, one that is being removed still has to.

A proposal is answered, or overtaken by metadata with a newer partition epoch. A refusal that
proves that nothing happened takes it back. One that does not prove it leaves it pending, without
being sent again, until metadata says how things are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kraftpy.log.offsets import UNKNOWN
from kraftpy.protocol.errors import ErrorCode

__all__ = ["CommittedIsr", "IsrAnswer", "IsrProposal", "IsrState", "Verdict", "verdict"]


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """What the controller has written, as of a partition epoch."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """A change that the leader asks for: by one member to add, or some to remove."""

    base: CommittedIsr
    isr: tuple[int, ...]
    # The incarnation of each member of `isr`, as the leader knows it; -1 if it doesn't.
    broker_epochs: tuple[int, ...]

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        added = tuple([member for member in self.isr if member not in self.base.isr])
        return self.base.isr + added


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """What the controller says about one partition."""

    error: ErrorCode
    leader_id: int = -1
    isr: tuple[int, ...] = ()
    leader_epoch: int = -1
    partition_epoch: int = -1


class Verdict(Enum):
    """What an error in the controller's answer means for a proposal."""

    COMMITTED = "committed"
    # The controller has certainly changed nothing.
    NOT_DONE = "not done"
    # Some earlier attempt may have been carried out; metadata will tell.
    IN_DOUBT = "in doubt"
    # Ask again.
    RETRY = "retry"


_VERDICTS = {
    ErrorCode.NONE: Verdict.COMMITTED,
    ErrorCode.INELIGIBLE_REPLICA: Verdict.NOT_DONE,
    ErrorCode.OPERATION_NOT_ATTEMPTED: Verdict.NOT_DONE,
    ErrorCode.FENCED_LEADER_EPOCH: Verdict.IN_DOUBT,
    ErrorCode.INVALID_UPDATE_VERSION: Verdict.IN_DOUBT,
    ErrorCode.INVALID_REQUEST: Verdict.IN_DOUBT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Verdict.IN_DOUBT,
    ErrorCode.UNKNOWN_TOPIC_ID: Verdict.IN_DOUBT,
    ErrorCode.NEW_LEADER_ELECTED: Verdict.IN_DOUBT,
}


def verdict(error: ErrorCode) -> Verdict:
    return _VERDICTS.get(error, Verdict.RETRY)


class IsrState:
    """Of one partition. Before any metadata, the epochs are -1."""

    __slots__ = ("_is_held", "committed", "maximal", "pending")

    def __init__(self) -> None:
        self.committed = CommittedIsr((), UNKNOWN, UNKNOWN)
        self.pending: IsrProposal | None = None
        # All who may be in the ISR, as far as this leader can know.
        self.maximal: tuple[int, ...] = ()
        # An answer left open what became of the proposal: it waits for metadata.
        self._is_held = False

    @property
    def to_send(self) -> IsrProposal | None:
        """What the controller should be asked for now; the same until something decides it."""
        return None if self._is_held else self.pending

    def propose(self, isr: tuple[int, ...], broker_epochs: tuple[int, ...]) -> None:
        """Only when nothing is pending: the next change waits until this one is decided."""
        self.pending = IsrProposal(self.committed, isr, broker_epochs)
        self.maximal = self.pending.maximal_isr

    def adopt(self, metadata: CommittedIsr, replicas: tuple[int, ...]) -> None:
        """Whatever was proposed before this partition epoch, this is how things are.

        An epoch that the controller's answer has brought already says nothing about what was
        proposed since then, which may be committed at this moment: that stays. Unless the
        controller can't ever agree, because the replicas are others than the leader thought.
        """
        if metadata.partition_epoch > self.committed.partition_epoch:
            self._commit(metadata)
        elif self.pending is not None and not all(each in replicas for each in self.pending.isr):
            self._commit(self.committed)

    def answered(self, proposal: IsrProposal, answer: IsrAnswer) -> Verdict | None:
        """What the controller's answer means; None if metadata has decided in the meantime."""
        if proposal is not self.pending:
            return None
        meaning = verdict(answer.error)
        if meaning is Verdict.COMMITTED and not self._is_of_now(answer):
            meaning = Verdict.IN_DOUBT
        match meaning:
            case Verdict.COMMITTED:
                self._commit(CommittedIsr(answer.isr, answer.leader_epoch, answer.partition_epoch))
            case Verdict.NOT_DONE:
                self._commit(self.committed)
            case Verdict.IN_DOUBT:
                self._is_held = True
            case Verdict.RETRY:
                pass
        return meaning

    def _is_of_now(self, answer: IsrAnswer) -> bool:
        return (
            answer.leader_epoch == self.committed.leader_epoch
            and answer.partition_epoch >= self.committed.partition_epoch
        )

    def _commit(self, committed: CommittedIsr) -> None:
        self.committed = committed
        self.maximal = committed.isr
        self.pending = None
        self._is_held = False
