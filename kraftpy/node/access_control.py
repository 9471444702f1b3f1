"""Access control: the authorizer that a node's configuration asks for, fed from the metadata."""

from __future__ import annotations

from kraftpy.config import NodeConfig
from kraftpy.metadata.access_control import entry_of
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.security.authorizer import StandardAuthorizer

__all__ = ["AccessControlPublisher", "authorizer_of"]


def authorizer_of(config: NodeConfig) -> StandardAuthorizer | None:
    """None if everybody may do everything. The configuration has seen to it that it is this one."""
    if not config["authorizer.class.name"]:
        return None
    return StandardAuthorizer(
        config.super_users,
        allows_without_entries=config.get_bool("allow.everyone.if.no.acl.found"),
    )


class AccessControlPublisher:
    """A Publisher: entries come and go, and take effect at once."""

    name = "AccessControl"

    def __init__(self, authorizer: StandardAuthorizer) -> None:
        self._authorizer = authorizer
        self._has_published = False

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        different = changes.access_control_entries
        if self._has_published and not different:
            return
        self._has_published = True
        self._authorizer.change(
            [(each.before.id, entry_of(each.before)) for each in different if each.before],
            [(each.after.id, entry_of(each.after)) for each in different if each.after],
        )
