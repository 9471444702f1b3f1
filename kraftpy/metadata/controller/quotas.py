"""Changes of client quotas.

A quota is for a user, a client id, both, or an address alone; a part without a name stands for
everybody who has no quota of their own. Kafka also takes a host name for an address and looks it
up; here it must be an address, because nothing that is decided may depend on what a resolver
says at the moment.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import Final

from kraftpy.metadata.controller.result import Caller, ControllerResult, Refusal
from kraftpy.metadata.controller.view import MetadataView
from kraftpy.metadata.image import quota_key
from kraftpy.metadata.records import (
    QUOTA_CLIENT_ID,
    QUOTA_IP,
    QUOTA_USER,
    ClientQuotaRecord,
    QuotaEntity,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    OpData,
    RequestEntryData,
    ResponseEntryData,
)

__all__ = ["QuotaControl"]

_LARGEST_INT: Final = (1 << 31) - 1
_LARGEST_LONG: Final = (1 << 63) - 1

# The largest whole number that a quota may be; None where it may be any number.
_CLIENT_KEYS: Final[Mapping[str, int | None]] = {
    "producer_byte_rate": _LARGEST_LONG,
    "consumer_byte_rate": _LARGEST_LONG,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_ADDRESS_KEYS: Final[Mapping[str, int | None]] = {"connection_creation_rate": _LARGEST_INT}


class QuotaControl:
    def __init__(self, context: MetadataView) -> None:
        self._context = context

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest, _caller: Caller
    ) -> ControllerResult[AlterClientQuotasResponse]:
        times_named = Counter(quota_key(_entity(entry)) for entry in request.entries)
        records: list[ClientQuotaRecord] = []
        entries = []
        for entry in request.entries:
            outcome: list[ClientQuotaRecord] | Refusal
            if times_named[quota_key(_entity(entry))] > 1:
                outcome = _refused("the request names the entity twice")
            else:
                outcome = self._alter(_entity(entry), entry.ops)
            refusal = outcome if isinstance(outcome, Refusal) else None
            if not isinstance(outcome, Refusal):
                records += outcome
            entries.append(
                ResponseEntryData(
                    error_code=refusal.code if refusal else ErrorCode.NONE,
                    error_message=refusal.message if refusal else None,
                    entity=entry.entity,
                )
            )
        answer = AlterClientQuotasResponse(entries=entries)
        return ControllerResult(() if request.validate_only else tuple(records), answer)

    def _alter(
        self, entity: tuple[QuotaEntity, ...], operations: list[OpData]
    ) -> list[ClientQuotaRecord] | Refusal:
        allowed = _allowed_keys(entity)
        if isinstance(allowed, Refusal):
            return allowed
        quotas = self._context.image.client_quotas.get(quota_key(entity))
        present = quotas.limits if quotas is not None else {}
        records: dict[str, ClientQuotaRecord | None] = {}
        for operation in operations:
            key, value = operation.key, operation.value
            if key in records:
                return _refused(f"{key} is named twice")
            records[key] = None
            if operation.remove:
                if key in present:
                    records[key] = ClientQuotaRecord(entity, key, remove=True)
                continue
            reason = _wrong_value(allowed, key, value)
            if reason is not None:
                return _refused(reason)
            if present.get(key) != value:
                records[key] = ClientQuotaRecord(entity, key, value)
        return [record for record in records.values() if record is not None]


def _entity(entry: RequestEntryData) -> tuple[QuotaEntity, ...]:
    return tuple(QuotaEntity(part.entity_type, part.entity_name) for part in entry.entity)


def _refused(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _allowed_keys(entity: tuple[QuotaEntity, ...]) -> Mapping[str, int | None] | Refusal:
    """The quotas that such an entity may have."""
    names = {part.entity_type: part.entity_name for part in entity}
    if not entity:
        return _refused("an entity has at least one part")
    if len(names) != len(entity):
        return _refused("an entity names a type twice")
    unknown = [kind for kind in names if kind not in (QUOTA_USER, QUOTA_CLIENT_ID, QUOTA_IP)]
    if unknown:
        return _refused(f"there are no quotas for the type {unknown[0]!r}")
    empty = [kind for kind, name in names.items() if name == ""]
    if empty:
        return _refused(f"the name of the {empty[0]} is empty")
    if QUOTA_IP not in names:
        return _CLIENT_KEYS
    if len(names) > 1:
        return _refused("quotas of an address are for the address alone")
    address = names[QUOTA_IP]
    try:
        if address is not None:
            ipaddress.ip_address(address)
    except ValueError:
        return _refused(f"{address!r} is no IP address")
    return _ADDRESS_KEYS


def _wrong_value(allowed: Mapping[str, int | None], key: str, value: float) -> str | None:
    if key not in allowed:
        return f"{key!r} is no quota of such an entity"
    if not isfinite(value) or value <= 0:
        return f"{key} must be a number above 0"
    largest = allowed[key]
    if largest is not None and value > largest:
        return f"{key} must be at most {largest}"
    if largest is not None and not value.is_integer():
        return f"{key} must be a whole number"
    return None
