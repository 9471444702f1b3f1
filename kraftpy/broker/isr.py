"""The ISR as a leader sees it: what the controller committed, and the one change it has proposed.

The leader proposes, the controller decides, and in between the leader does not know which of the
two ISRs holds: the controller may already elect from the new one. So until it knows, the leader
acts on the larger of the two (the maximal ISR) where it matters for committing records: a member
that is being added already has to have them, one that is being removed still has to.

A proposal is answered, or overtaken by metadata with a newer partition epoch. A refusal that
proves that nothing happened takes it back. One that does not prove it leaves it pending, without
being sent again, until metadata says how things are.

An answer may come before the metadata of the same change, and then says who is in the ISR, but not
by which min.insync.replicas the controller has judged the ISR to be large enough: that setting may
have been raised just before, so that who has left the ISR is an eligible leader now (ELR). Hence,
for committing, answers only add to what metadata has told last. Whoever was in the ISR since then
has to have the records, and the ISR of that metadata has to be large enough, which means that there
was no eligible leader besides. So the maximal ISR has all members of the controller's ISR and ELR.
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


def _together(some: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return some + tuple([each for each in others if each not in some])


class IsrState:
    """Of one partition. Before any metadata, the epochs are -1."""

    __slots__ = ("_is_held", "_told", "_told_since", "committed", "maximal", "pending")

    def __init__(self) -> None:
        # The newest that is known, be it by metadata or by an answer.
        self.committed = CommittedIsr((), UNKNOWN, UNKNOWN)
        # What metadata has told last, and everybody who was in the ISR since then.
        self._told = self.committed
        self._told_since: tuple[int, ...] = ()
        self.pending: IsrProposal | None = None
        # All who may be in the ISR or the ELR, as far as this leader can know.
        self.maximal: tuple[int, ...] = ()
        # An answer left open what became of the proposal: it waits for metadata.
        self._is_held = False

    @property
    def certain_size(self) -> int:
        """What the ISR has for certain, whichever of those that are known holds."""
        return min(len(self.committed.isr), len(self._told.isr))

    @property
    def to_send(self) -> IsrProposal | None:
        """What the controller should be asked for now; the same until something decides it."""
        return None if self._is_held else self.pending

    def propose(self, isr: tuple[int, ...], broker_epochs: tuple[int, ...]) -> None:
        """Only when nothing is pending: the next change waits until this one is decided."""
        self.pending = IsrProposal(self.committed, isr, broker_epochs)
        self.maximal = _together(self._told_since, isr)

    def adopt(self, metadata: CommittedIsr, replicas: tuple[int, ...]) -> None:
        """Whatever was proposed before this partition epoch, this is how things are.

        An epoch that the controller's answer has brought already says nothing about what was
        proposed since then, which may be committed at this moment: that stays. Unless the
        controller can't ever agree, because the replicas are others than the leader thought.
        """
        is_news = metadata.partition_epoch > self.committed.partition_epoch
        pending = self.pending
        self.committed = self._told = metadata
        self._told_since = self.maximal = metadata.isr
        if pending is None:
            return
        if is_news or not all(each in replicas for each in pending.isr):
            self._decide()
        else:
            self.maximal = _together(metadata.isr, pending.isr)

    def answered(self, proposal: IsrProposal, answer: IsrAnswer) -> Verdict | None:
        """What the controller's answer means; None if metadata has decided in the meantime."""
        if proposal is not self.pending:
            return None
        meaning = verdict(answer.error)
        if meaning is Verdict.COMMITTED and not self._is_of_now(answer):
            meaning = Verdict.IN_DOUBT
        match meaning:
            case Verdict.COMMITTED:
                self.committed = CommittedIsr(
                    answer.isr, answer.leader_epoch, answer.partition_epoch
                )
                self._told_since = _together(self._told_since, answer.isr)
                self._decide()
            case Verdict.NOT_DONE:
                self._decide()
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

    def _decide(self) -> None:
        """Nothing is pending any more."""
        self.pending = None
        self._is_held = False
        self.maximal = self._told_since
