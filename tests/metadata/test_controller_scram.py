"""SCRAM credentials: the keys of RFC 5802 and 7677, refusals, and what is listed."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from small_cluster import CALLER, SmallCluster

from kraftpy.metadata.controller.scram import ScramControl, scram_credential
from kraftpy.metadata.describing import describe_user_scram_credentials
from kraftpy.metadata.image import ScramUser
from kraftpy.metadata.records import ScramMechanism
from kraftpy.protocol.codec import encode_bytes
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k50_describe_user_scram_credentials as k50
from kraftpy.protocol.schema import k51_alter_user_scram_credentials as k51

SHA_256, SHA_512 = 1, 2


def upsertion(
    name: str, mechanism: int = SHA_256, iterations: int = 4096, salt: bytes = b"salt"
) -> k51.ScramCredentialUpsertion:
    return k51.ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=b"salted",
    )


def deletion(name: str, mechanism: int = SHA_256) -> k51.ScramCredentialDeletion:
    return k51.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(
    cluster: SmallCluster,
    *,
    upsertions: list[k51.ScramCredentialUpsertion] | None = None,
    deletions: list[k51.ScramCredentialDeletion] | None = None,
) -> dict[str, ErrorCode]:
    request = k51.AlterUserScramCredentialsRequest(
        upsertions=upsertions or [], deletions=deletions or []
    )
    result = ScramControl(cluster.context).alter_user_scram_credentials(request, CALLER)
    assert result.is_atomic
    answer = cluster.carry_out(result)
    assert encode_bytes(answer, 0)
    return {each.user: ErrorCode(each.error_code) for each in answer.results}


def test_the_keys_prove_the_example_of_rfc_7677() -> None:
    """A client that knows the password is let in, and knows the server again."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    credential = scram_credential("user", ScramMechanism.SHA_256, salt, salted, 4096)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(credential.stored_key, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key
    server_signature = hmac.digest(credential.server_key, message, "sha256")
    expected = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert base64.b64encode(server_signature).decode() == expected


def test_the_password_is_nowhere_in_the_record() -> None:
    cluster = SmallCluster()
    alter(cluster, upsertions=[upsertion("ann", SHA_512)])
    ((user, credential),) = cluster.image.scram_credentials.items()
    assert user == ScramUser("ann", ScramMechanism.SHA_512)
    assert (len(credential.stored_key), len(credential.server_key)) == (64, 64)
    assert b"salted" not in (credential.stored_key, credential.server_key)
    assert credential.salt == b"salt"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (upsertion("", 3, 1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", 0, 1), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("ann", 3, 1), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("ann", SHA_256, 4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", SHA_512, 4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", SHA_512, 16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", salt=bytes(4097)), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ann", salt=bytes(4096)), ErrorCode.NONE),
        (upsertion("ann", SHA_256, 4096), ErrorCode.NONE),
        (upsertion("ann", SHA_512, 16384), ErrorCode.NONE),
    ],
)
def test_each_refusal_of_an_upsertion(
    wanted: k51.ScramCredentialUpsertion, code: ErrorCode
) -> None:
    cluster = SmallCluster()
    codes = alter(cluster, upsertions=[wanted, upsertion("bob")])
    assert codes == {wanted.name: code, "bob": ErrorCode.NONE}
    assert len(cluster.image.scram_credentials) == 1 + (code is ErrorCode.NONE)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (deletion("", 3), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (deletion("nobody", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion("nobody"), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion("ann", SHA_512), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion("ann"), ErrorCode.NONE),
    ],
)
def test_each_refusal_of_a_deletion(wanted: k51.ScramCredentialDeletion, code: ErrorCode) -> None:
    cluster = SmallCluster()
    alter(cluster, upsertions=[upsertion("ann")])
    assert alter(cluster, deletions=[wanted]) == {wanted.name: code}
    assert len(cluster.image.scram_credentials) == (code is not ErrorCode.NONE)
    if code is ErrorCode.NONE:
        assert alter(cluster, deletions=[wanted]) == {"ann": ErrorCode.RESOURCE_NOT_FOUND}


def test_a_user_named_twice_stays_as_they_are() -> None:
    cluster = SmallCluster()
    alter(cluster, upsertions=[upsertion("ann")])
    before = cluster.image
    duplicate = {"ann": ErrorCode.DUPLICATE_RESOURCE}
    assert alter(cluster, upsertions=[upsertion("ann"), upsertion("ann", SHA_512)]) == duplicate
    assert alter(cluster, upsertions=[upsertion("ann")], deletions=[deletion("ann")]) == duplicate
    assert alter(cluster, deletions=[deletion("ann"), deletion("ann")]) == duplicate
    assert cluster.image is before


def test_scram_waits_for_its_metadata_version() -> None:
    cluster = SmallCluster(metadata_version=10)
    codes = alter(cluster, upsertions=[upsertion("ann")], deletions=[deletion("bob")])
    assert set(codes.values()) == {ErrorCode.UNSUPPORTED_VERSION}
    assert alter(SmallCluster(metadata_version=11), upsertions=[upsertion("ann")]) == {
        "ann": ErrorCode.NONE
    }


def test_listing() -> None:
    cluster = SmallCluster()
    alter(cluster, upsertions=[upsertion("bob"), upsertion("ann", SHA_512, 8192)])
    alter(cluster, upsertions=[upsertion("ann")])

    def listed(
        *names: str, everybody: bool = False
    ) -> list[tuple[str, int, list[tuple[int, int]]]]:
        users = None if everybody else [k50.UserName(name=name) for name in names]
        request = k50.DescribeUserScramCredentialsRequest(users=users)
        answer = describe_user_scram_credentials(cluster.image, request)
        assert b"salt" not in encode_bytes(answer, 0)
        return [
            (
                each.user,
                each.error_code,
                [(info.mechanism, info.iterations) for info in each.credential_infos],
            )
            for each in answer.results
        ]

    ann = ("ann", 0, [(SHA_256, 4096), (SHA_512, 8192)])
    bob = ("bob", 0, [(SHA_256, 4096)])
    assert listed(everybody=True) == listed() == [ann, bob]
    assert listed("bob", "nobody") == [bob, ("nobody", ErrorCode.RESOURCE_NOT_FOUND, [])]
    assert listed("bob", "bob") == [("bob", ErrorCode.DUPLICATE_RESOURCE, [])]
