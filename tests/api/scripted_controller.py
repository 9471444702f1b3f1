"""A controller that says what it is told to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kraftpy.metadata.controller.effects import Answer, Refuse
from kraftpy.metadata.controller.result import Caller
from kraftpy.metadata.controller.runner import Reply
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.tables import Response


@dataclass
class ScriptedController:
    """Answers everything with `outcome`, at once or when told to."""

    refusal: ErrorCode | None = ErrorCode.NOT_CONTROLLER
    answer: Response | None = None
    is_slow: bool = False
    asked: list[tuple[Any, Caller]] = field(default_factory=list)
    events: list[tuple[str, int]] = field(default_factory=list)
    waiting: list[Reply] = field(default_factory=list)

    def submit(self, request: Any, caller: Caller, reply: Reply) -> None:
        self.asked.append((request, caller))
        self.events.append(("submit", getattr(request, "broker_id", -1)))
        self.waiting.append(reply)
        if not self.is_slow:
            self.reply()

    def reply(self) -> None:
        reply = self.waiting.pop(0)
        if self.answer is not None:
            reply(Answer(1, self.answer))
        elif self.refusal is not None:
            reply(Refuse(1, self.refusal, "by script"))

    def note_contact(self, broker_id: int, broker_epoch: int) -> None:
        self.events.append(("contact", broker_id))

    def note_disconnected(self, broker_id: int) -> None:
        self.events.append(("disconnected", broker_id))
