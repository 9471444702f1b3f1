"""Whatever a frame holds, dispatch answers it, or refuses it with BadRequest; nothing else."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from api.every_handler import on_brokers, on_controllers
from api.recording import Bench, payload

from kraftpy.api.handler import Handler
from kraftpy.broker.envelope import Sender, seal
from kraftpy.net.service import BadRequest
from kraftpy.protocol.registry import API
from kraftpy.protocol.schema.k03_metadata import MetadataRequest, MetadataRequestTopic
from kraftpy.protocol.schema.k18_api_versions import ApiVersionsRequest
from kraftpy.protocol.schema.k19_create_topics import CreatableTopic, CreateTopicsRequest
from kraftpy.protocol.tables import Request

SEED = 31337
FRAMES = 10_000


def valid_payloads(handlers: list[Handler]) -> list[bytes]:
    """Every API in every version, empty; those with much in them not empty."""
    messages: list[Request] = [
        ApiVersionsRequest(client_software_name="storm", client_software_version="1"),
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("a", "é", "")]),
        CreateTopicsRequest(topics=[CreatableTopic(name="a"), CreatableTopic(name="b")]),
    ]
    keys = [handler.api_key for handler in handlers]
    messages = [message for message in messages if message.KEY in (18, *keys)]
    messages += [API[key].request_class() for key in keys]
    if 58 in keys:
        inner = [payload(CreateTopicsRequest(), version) for version in range(2, 8)]
        messages += [seal(frame, Sender("User:storm", "192.0.2.1")) for frame in inner]
    return [
        payload(message, version)
        for message in messages
        for version in range(API[message.KEY].min_version, API[message.KEY].max_version + 1)
    ]


def mutated(source: random.Random, valid: list[bytes]) -> bytes:
    frame = bytearray(source.choice(valid))
    for _ in range(source.randrange(1, 6)):
        kind = source.randrange(5)
        place = source.randrange(len(frame) + 1)
        if kind == 0:
            frame[place:place] = source.randbytes(source.randrange(1, 9))
        elif kind == 1:
            del frame[place : place + source.randrange(1, 9)]
        elif kind == 2 and place < len(frame):
            frame[place] ^= 1 << source.randrange(8)
        elif kind == 3:
            # Lengths at their limits, where they are most likely to be believed.
            extreme = source.choice([-1, -2, 2**31 - 1, -(2**31), 2**15 - 1])
            frame[place : place + 4] = struct.pack(">i", extreme)
        else:
            frame[place : place + 5] = source.choice([b"\xff" * 5, b"\x80" * 5, b"\xff\xff\x03"])
    return bytes(frame)


@pytest.mark.parametrize("make_handlers", [on_brokers, on_controllers])
def test_any_frame_is_answered_or_refused(make_handlers: Callable[[], list[Handler]]) -> None:
    """NET-31 to NET-33; both outcomes are common, or the frames would prove little."""
    print(f"seed {SEED}")
    source = random.Random(SEED)
    handlers = make_handlers()
    valid = valid_payloads(handlers)
    bench = Bench(handlers)
    answered = refused = 0
    for number in range(FRAMES):
        frame = mutated(source, valid) if number % 4 else source.randbytes(source.randrange(60))
        try:
            answer = bench.serve(frame)
        except BadRequest:
            refused += 1
        else:
            assert answer.outcome == "sent"
            answered += 1
    assert answered > 200
    assert refused > 2_000
