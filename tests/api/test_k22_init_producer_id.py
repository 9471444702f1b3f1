"""InitProducerId: identities for idempotent producers, on a broker that coordinates nothing.

Those of transactional ones are in test_transactions.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from api.recording import Bench

from kraftpy.api.k22_init_producer_id import InitProducerIdHandler
from kraftpy.broker.producer_ids import ProducerIdReply
from kraftpy.coordinator.runtime import CoordinatorRuntime
from kraftpy.coordinator.transactions.service import TransactionService
from kraftpy.coordinator.transactions.settings import TransactionSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from kraftpy.world.memory_clock import MemoryClock

VERSIONS = range(API[22].min_version, API[22].max_version + 1)


class Source:
    """Gives one outcome to everybody."""

    def __init__(self, outcome: int | ErrorCode) -> None:
        self.outcome = outcome

    def provide(self, reply: ProducerIdReply) -> None:
        reply(self.outcome)


def ask(outcome: int | ErrorCode, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    source: Any = Source(outcome)
    nothing: Any = None
    service = TransactionService(
        CoordinatorRuntime("__transaction_state", nothing, nothing, load=nothing),
        TransactionSettings(),
        shard_of=lambda name: 0,
        provide_producer_id=source.provide,
        clock=MemoryClock(),
    )
    handler = InitProducerIdHandler(source, service)
    answer = Bench([handler]).ask(InitProducerIdRequest(**fields), version)
    assert isinstance(answer, InitProducerIdResponse)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", VERSIONS)
def test_an_identity_in_every_version(version: int) -> None:
    """TXN-1"""
    assert ask(4711, version, transactional_id=None) == (0, 4711, 0)


def test_whoever_has_one_gets_another() -> None:
    assert ask(7, transactional_id=None, producer_id=3, producer_epoch=2) == (0, 7, 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "t", "transaction_timeout_ms": 9}, ErrorCode.NOT_COORDINATOR),
        ({"transactional_id": None, "producer_id": 3}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 3}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    assert ask(7, **fields) == (code, -1, -1)


def test_a_source_that_is_dry() -> None:
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ask(code, transactional_id=None) == (code, -1, -1)
