"""Transactional writes that await their coordinator's word (KIP-890), for one log.

A transactional batch that begins a transaction on a partition is appended only after the
coordinator has confirmed that it knows of the transaction. In between, an abort marker may arrive:
the answer is then about a transaction that is over. So the leader gives out a guard before it asks,
the append must bring the guard that is still wanted, and the first transactional batch or marker
takes it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["NO_GUARD", "Verification", "VerificationGuard", "Verifications"]


class VerificationGuard:
    """A token equal to nothing but itself, for as long as anybody holds it."""

    __slots__ = ()


# Comes with an append that was not verified; it never fits.
NO_GUARD: Final = VerificationGuard()


@dataclass(slots=True)
class Verification:
    """What one producer waits for. Version 2 of transactions is told by `supports_epoch_bump`."""

    guard: VerificationGuard
    epoch: int
    lowest_sequence: int
    started_ms: int
    supports_epoch_bump: bool


class Verifications:
    """At most one for each producer id."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[int, Verification] = {}

    def start(
        self, producer_id: int, *, epoch: int, sequence: int, now_ms: int, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """The guard to append with. Writes of one producer share it.

        Of several writes that wait, the lowest sequence must go first: were a later one written,
        the earlier never could be.
        """
        waiting = self._waiting.get(producer_id)
        if waiting is None:
            waiting = Verification(
                VerificationGuard(), epoch, sequence, now_ms, supports_epoch_bump
            )
            self._waiting[producer_id] = waiting
        elif epoch > waiting.epoch:
            waiting.epoch = epoch
            waiting.lowest_sequence = sequence
        elif epoch == waiting.epoch:
            waiting.lowest_sequence = min(waiting.lowest_sequence, sequence)
        return waiting.guard

    def get(self, producer_id: int) -> Verification | None:
        return self._waiting.get(producer_id)

    def accepts(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Whether `guard` was given for what still waits."""
        waiting = self._waiting.get(producer_id)
        return waiting is not None and waiting.guard is guard

    def batch_written(self, producer_id: int) -> None:
        """A transactional batch is in the log: the transaction is open, no guard is needed."""
        self._waiting.pop(producer_id, None)

    def marker_written(self, producer_id: int, marker_epoch: int) -> None:
        """A transaction has ended, and what was verified for it is void.

        Except where the marker brought the epoch that the waiting write already uses: that write
        belongs to the next transaction.
        """
        waiting = self._waiting.get(producer_id)
        if waiting is not None and not (
            waiting.supports_epoch_bump and waiting.epoch == marker_epoch
        ):
            del self._waiting[producer_id]

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget who was given a guard and never came back."""
        self._waiting = {
            producer_id: waiting
            for producer_id, waiting in self._waiting.items()
            if now_ms - waiting.started_ms < expiration_ms
        }
