"""Which anomalies fail a run: what its configuration does not promise is not held against it.

Checkers say of each finding whether it is bad in the safe configuration. Here, findings that the
run's own configuration explains become allowed; never the other way round. What is allowed is
still reported.

    always              A17, T1, T6, T4 and T5 with ww edges: the checkers say so themselves
    subscribe           A15 and A16 (likewise, for each process)
    read_uncommitted    A5, A8, T3, T4
    idempotence off     A2, A14, A19
    acks=1 or 0         A3, A4, A20, A23 in runs with leader changes
    power loss of min ISR replicas with unsynced data   A3, A4
    compaction          A13, A15: a record is gone when a newer one has its record key
    unclean elections   A1, A3, A4, A21, if the run shows that one took place
    topics made again   whatever compares what a key was with what it is, for their keys alone: its
                        offsets, positions and epochs, and commits of its groups; T13 if an input
                        or an output was made again, T14 if any key was. (A9 and T8 do not look
                        at such keys at all.)

Where acked records may vanish, their offsets are given out again, and ends move back: then A20 and
A23 follow from the allowed loss itself, and are allowed with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kraftpy.verify.checkers.expectations import Expectations
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.history import History

__all__ = ["Matrix"]

LOSS: Final = ("A3", "A4", "A20", "A23")
ORDER: Final = ("A13", "A14", "A15", "A16", "A18", "A19", "A21")
PLACES: Final = ("A24", "A25", "A28", "G5", "G7")
OF_A_KEY: Final = frozenset(("A1", *LOSS, *ORDER, *PLACES, "A12", "T3"))


def _is_uncommitted(expected: Expectations, history: History) -> bool:
    return expected.isolation == "read_uncommitted"


def _may_repeat(expected: Expectations, history: History) -> bool:
    return not expected.is_idempotent


def _acks_early(expected: Expectations, history: History) -> bool:
    return expected.acks != "all" and expected.leaders_changed


def _lost_power(expected: Expectations, history: History) -> bool:
    return expected.lost_unsynced_data


def _is_compacted(expected: Expectations, history: History) -> bool:
    return expected.compacted


def _elected_uncleanly(expected: Expectations, history: History) -> bool:
    """Enabled, and seen among the effects of the nemesis."""
    return expected.unclean_elections_enabled and any(
        "unclean" in str(effect)
        for event in history.nemesis_events
        for effect in event.value.get("effects", ())
    )


CONDITIONS: Final[tuple[tuple[Callable[[Expectations, History], bool], tuple[str, ...]], ...]] = (
    (_is_uncommitted, ("A5", "A8", "T3", "T4")),
    (_may_repeat, ("A2", "A14", "A19")),
    (_acks_early, LOSS),
    (_lost_power, LOSS),
    (_is_compacted, ("A13", "A15")),
    (_elected_uncleanly, (*LOSS, "A1", "A21")),
)


class Matrix:
    """For one run."""

    def __init__(self, expectations: Expectations, history: History) -> None:
        self._allowed = frozenset(
            id_ for holds, ids in CONDITIONS if holds(expectations, history) for id_ in ids
        )
        self._recreated = expectations.recreated_keys
        self._has_new_outputs = not self._recreated.issubset(expectations.copy_inputs)

    def judge(self, anomaly: Anomaly) -> Anomaly:
        if anomaly.is_bad and (anomaly.id in self._allowed or self._began_anew(anomaly)):
            return replace(anomaly, is_bad=False)
        return anomaly

    def _began_anew(self, anomaly: Anomaly) -> bool:
        if anomaly.id == "T14":
            # The accounts of one bank are in all of its keys.
            return bool(self._recreated)
        if anomaly.id == "T13":
            # Which output a value has no copy in, nobody can tell.
            return anomaly.key in self._recreated or self._has_new_outputs
        return anomaly.id in OF_A_KEY and anomaly.key in self._recreated
