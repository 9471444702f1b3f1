"""Settings that were made for brokers at run time, from the metadata into the node's own."""

from __future__ import annotations

import logging

from kraftpy.config import DynamicConfig
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.metadata.records import ConfigResourceType

__all__ = ["DynamicSettings"]

log = logging.getLogger(__name__)

_ALL_BROKERS = ""


class DynamicSettings:
    """A Publisher: what is set for all brokers, and for this node, is put into force."""

    name = "DynamicSettings"

    def __init__(self, config: DynamicConfig) -> None:
        self._config = config
        self._own_name = str(config.current.node_id)

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        meant = (_ALL_BROKERS, self._own_name)
        if not any(
            change.key.resource_type is ConfigResourceType.BROKER and change.key.name in meant
            for change in changes.configs
        ):
            return
        problems = self._config.update(
            cluster=image.config(ConfigResourceType.BROKER, _ALL_BROKERS),
            per_broker=image.config(ConfigResourceType.BROKER, self._own_name),
        )
        for problem in problems:
            log.error("a dynamic setting is left out: %s", problem)
