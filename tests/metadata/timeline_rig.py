"""Records that happen in a controller's memory at once, and operations that end at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.result import ControllerResult, Outcome, Part
from kraftpy.metadata.image import Provenance
from kraftpy.metadata.records import MetadataRecord

T = TypeVar("T")


def let_happen(
    context: ControllerContext, records: Sequence[MetadataRecord], provenance: Provenance
) -> None:
    for _ in context.appending(records, lambda: provenance):
        pass


def finished(outcome: Outcome[T]) -> ControllerResult[T]:
    """What comes of an operation that writes nothing before it is done, but may rest."""
    while isinstance(outcome, Part):
        assert outcome.records == ()
        outcome = outcome.proceed(0)
    return outcome
