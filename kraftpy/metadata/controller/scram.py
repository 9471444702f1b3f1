"""SCRAM credentials: kept as the two keys that a server needs, never as the password.

A client sends the salted password of RFC 5802. What is stored is derived from it and can't be
turned back: whoever reads the log can't log in with what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kraftpy.metadata.controller.result import Caller, ControllerResult, Refusal
from kraftpy.metadata.controller.view import MetadataView
from kraftpy.metadata.features import SCRAM_LEVEL
from kraftpy.metadata.image import ScramUser
from kraftpy.metadata.records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    ScramMechanism,
    UserScramCredentialRecord,
)
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

__all__ = ["MAX_ITERATIONS", "MIN_ITERATIONS", "ScramControl", "scram_credential"]

ScramChange = TypeVar("ScramChange", ScramCredentialDeletion, ScramCredentialUpsertion)

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
# Far above any honest salt, far below what a record may have.
MAX_SALT_BYTES: Final = 4096

_HASHES: Final[Mapping[int, str]] = {
    ScramMechanism.SHA_256: "sha256",
    ScramMechanism.SHA_512: "sha512",
}


class ScramControl:
    def __init__(self, context: MetadataView) -> None:
        self._context = context

    def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest, _caller: Caller
    ) -> ControllerResult[AlterUserScramCredentialsResponse]:
        """Delete and set credentials; each user is accepted or refused alone.

        A user may be named once: for two mechanisms Kafka asks for two requests.
        """
        times_named = Counter(deletion.name for deletion in request.deletions)
        times_named.update(upsertion.name for upsertion in request.upsertions)
        outcomes: dict[str, MetadataRecord | Refusal] = {}
        for deletion in request.deletions:
            outcomes[deletion.name] = self._judge(deletion, times_named, self._delete)
        for upsertion in request.upsertions:
            outcomes[upsertion.name] = self._judge(upsertion, times_named, _upsert)
        results = []
        records: list[MetadataRecord] = []
        for user, outcome in outcomes.items():
            refusal = outcome if isinstance(outcome, Refusal) else None
            if not isinstance(outcome, Refusal):
                records.append(outcome)
            results.append(
                AlterUserScramCredentialsResult(
                    user=user,
                    error_code=refusal.code if refusal else ErrorCode.NONE,
                    error_message=refusal.message if refusal else None,
                )
            )
        answer = AlterUserScramCredentialsResponse(results=results)
        return ControllerResult(tuple(records), answer)

    def _judge(
        self,
        change: ScramChange,
        times_named: Mapping[str, int],
        carry_out: Callable[[ScramChange], MetadataRecord | Refusal],
    ) -> MetadataRecord | Refusal:
        if times_named[change.name] > 1:
            return Refusal(ErrorCode.DUPLICATE_RESOURCE, "the request names the user twice")
        if self._context.image.metadata_version < SCRAM_LEVEL:
            message = f"SCRAM needs metadata.version {SCRAM_LEVEL}"
            return Refusal(ErrorCode.UNSUPPORTED_VERSION, message)
        if not change.name:
            return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user name must not be empty")
        if change.mechanism not in _HASHES:
            message = f"there is no SCRAM mechanism {change.mechanism}"
            return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, message)
        return carry_out(change)

    def _delete(self, deletion: ScramCredentialDeletion) -> MetadataRecord | Refusal:
        user = ScramUser(deletion.name, ScramMechanism(deletion.mechanism))
        if user not in self._context.image.scram_credentials:
            return Refusal(ErrorCode.RESOURCE_NOT_FOUND, "the user has no such credential")
        return RemoveUserScramCredentialRecord(user.name, user.mechanism)


def _upsert(upsertion: ScramCredentialUpsertion) -> MetadataRecord | Refusal:
    if not MIN_ITERATIONS <= upsertion.iterations <= MAX_ITERATIONS:
        message = f"the iterations must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if len(upsertion.salt) > MAX_SALT_BYTES:
        message = f"the salt is longer than {MAX_SALT_BYTES} bytes"
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    return scram_credential(
        upsertion.name,
        ScramMechanism(upsertion.mechanism),
        bytes(upsertion.salt),
        bytes(upsertion.salted_password),
        upsertion.iterations,
    )


def scram_credential(
    name: str, mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
) -> UserScramCredentialRecord:
    """The record of a credential (RFC 5802, section 3)."""
    import hashlib
    import hmac

    algorithm = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", algorithm)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=hashlib.new(algorithm, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", algorithm),
        iterations=iterations,
    )
