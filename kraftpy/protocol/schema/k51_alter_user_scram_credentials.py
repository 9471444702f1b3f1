"""AlterUserScramCredentials: change SCRAM users."""

from __future__ import annotations

from kraftpy.protocol.tables import (
    ALL,
    Request,
    Response,
    Struct,
    array,
    binary,
    int8,
    int16,
    int32,
    string,
)


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    """Add, change or delete SCRAM credentials."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    """What became of each user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
