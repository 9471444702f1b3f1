"""How a controller is, for people and for tests."""

from __future__ import annotations

from dataclasses import dataclass

from kraftpy.metadata.controller.event_queue import ControllerState

__all__ = ["ControllerDescription"]


@dataclass(frozen=True, slots=True)
class ControllerDescription:
    is_active: bool
    epoch: int
    leader_id: int
    state: ControllerState
    queue_size: int
    parked_count: int
    committed_offset: int
    applied_offset: int
    timers: tuple[str, ...]
