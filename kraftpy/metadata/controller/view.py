"""The part of the controller's context that most operations make do with."""

from __future__ import annotations

from typing import Protocol

from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.image import MetadataImage

__all__ = ["MetadataView"]


class MetadataView(Protocol):
    """What has been decided so far, committed or not, and what the node was configured with."""

    @property
    def image(self) -> MetadataImage: ...

    @property
    def settings(self) -> ControllerSettings: ...
