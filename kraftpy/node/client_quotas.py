"""The quotas of clients, from the metadata into force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftpy.api.request_quotas import RequestQuotas
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import Manifest
from kraftpy.metadata.records import QUOTA_CLIENT_ID, QUOTA_IP, QUOTA_USER
from kraftpy.security.limits import ANY, NOT_NAMED, LimitSubject, Part

__all__ = ["ClientQuotaPublisher"]

_ADDRESS_RATE: Final = "connection_creation_rate"


class ClientQuotaPublisher:
    """A Publisher. `change_address_rate` is told of an address, or None for any, and its limit."""

    name = "ClientQuotas"

    def __init__(
        self,
        quotas: RequestQuotas,
        change_address_rate: Callable[[str | None, float | None], None],
    ) -> None:
        self._quotas = quotas
        self._change_address_rate = change_address_rate

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        for change in changes.client_quotas:
            known = change.after or change.before
            assert known is not None
            before = {} if change.before is None else change.before.limits
            after = {} if change.after is None else change.after.limits
            names = {part.entity_type: part.entity_name for part in known.entity}
            for key in dict.fromkeys((*before, *after)):
                if before.get(key) != after.get(key):
                    self._change(names, key, after.get(key))

    def _change(self, names: dict[str, str | None], key: str, limit: float | None) -> None:
        if QUOTA_IP not in names:
            subject = LimitSubject(_part(names, QUOTA_USER), _part(names, QUOTA_CLIENT_ID))
            self._quotas.change(key, subject, limit)
        elif key == _ADDRESS_RATE:
            self._change_address_rate(names[QUOTA_IP], limit)


def _part(names: dict[str, str | None], kind: str) -> Part:
    if kind not in names:
        return NOT_NAMED
    name = names[kind]
    return ANY if name is None else name
