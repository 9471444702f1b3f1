"""Connection ids, there and back."""

from __future__ import annotations

import pytest

from kraftpy.net.listener import connection_id_of, remote_host_of
from kraftpy.world import InternalInvariant


@pytest.mark.parametrize(
    ("local", "remote"),
    [
        (("127.0.0.1", 9092), ("10.0.0.7", 51234)),
        (("::1", 9092), ("fe80::1:2", 51234)),
        (("node-1", 9092), ("client-2", 51234)),
        (("fe80::1%eth-0", 9092), ("fe80::2%eth-0", 1)),
    ],
)
def test_a_connection_id_parses_back_to_the_remote_host(
    local: tuple[str, int], remote: tuple[str, int]
) -> None:
    """NET-26"""
    connection_id = connection_id_of(local, remote, 12)
    assert connection_id == f"{local[0]}:{local[1]}-{remote[0]}:{remote[1]}-12"
    assert remote_host_of(connection_id) == remote[0]


@pytest.mark.parametrize("malformed", ["", "a:1-b:2", "a:1-b-3", "a:1-b:x-3"])
def test_a_malformed_id_is_an_invariant(malformed: str) -> None:
    """NET-26"""
    with pytest.raises(InternalInvariant, match="malformed"):
        remote_host_of(malformed)
