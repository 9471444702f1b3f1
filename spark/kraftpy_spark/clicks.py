"""A stream of clicks, made up from a seed: for demonstrations, tests and measurements.

Every click has a number, a user, a page, the time of the event, and a body of a wanted size with
its CRC-32, by which whoever finds the click later can tell that it is whole. Events are a little
out of order. Some records are spoiled on purpose, if asked for: no JSON, no number, no time.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from kraftpy.client.blocking_clients import BlockingProducer
from kraftpy.client.producer_batch import Delivery
from kraftpy.client.settings import ProducerSettings
from kraftpy.world import Address
from kraftpy_spark.jobs.audit_records import AuditCounter, Stamp, headers_of
from kraftpy_spark.tracing import Sending, Tracer

__all__ = ["SCHEMA", "Click", "ClickPlan", "clicks", "produce_clicks"]

SCHEMA = "id BIGINT NOT NULL, user STRING, page STRING, at BIGINT NOT NULL, body STRING, crc BIGINT"
_PAGES = ("/", "/search", "/cart", "/pay", "/help", "/news", "/item/1", "/item/2", "/item/3")
_SPOILED = (b"{not json", b'{"user": "nobody", "at": 0}', b'{"id": 1, "at": "soon"}')


@dataclass(frozen=True, slots=True)
class ClickPlan:
    seed: int = 0
    count: int = 1_000
    first_id: int = 0
    begin_ms: int = 1_794_830_400_000
    step_ms: int = 10
    """From one event to the next."""
    jitter_ms: int = 2_000
    """How much earlier than its turn an event may have happened."""
    body_bytes: int = 100
    spoiled_share: float = 0.0
    users: int = 1_000


@dataclass(frozen=True, slots=True)
class Click:
    number: int
    user: str
    value: bytes
    is_spoiled: bool


def clicks(plan: ClickPlan) -> Iterator[Click]:
    """The same ones for the same plan."""
    random = Random(f"clicks {plan.seed} {plan.first_id}")
    for at in range(plan.count):
        number = plan.first_id + at
        user = f"user-{random.randrange(plan.users)}"
        event_ms = plan.begin_ms + at * plan.step_ms - random.randrange(plan.jitter_ms + 1)
        body = (
            f"{random.getrandbits(4 * plan.body_bytes):0{plan.body_bytes}x}"
            if plan.body_bytes
            else ""
        )
        is_spoiled = random.random() < plan.spoiled_share
        value = {
            "id": number,
            "user": user,
            "page": random.choice(_PAGES),
            "at": event_ms,
            "body": body,
            "crc": zlib.crc32(body.encode()),
        }
        spoiled = random.choice(_SPOILED)
        yield Click(number, user, spoiled if is_spoiled else json.dumps(value).encode(), is_spoiled)


def produce_clicks(
    bootstrap: Iterable[Address],
    topic: str,
    partitions: int,
    plan: ClickPlan,
    *,
    settings: ProducerSettings | None = None,
    audit: AuditCounter | None = None,
    tracer: Tracer | None = None,
) -> int:
    """Send them all, by user; how many were acknowledged. Raises the failure of any.

    The caller tells the audit topic what `audit` has counted.
    """
    waiting: deque[tuple[Delivery, _Sent]] = deque()
    done = 0

    def settle(*, all_of_them: bool) -> int:
        count = 0
        while waiting and (waiting[0][0].is_done or all_of_them):
            delivery, sent = waiting.popleft()
            try:
                found = producer.wait(delivery)
            except Exception as failure:
                sent.failed(str(failure), audit, tracer)
                raise
            sent.acknowledged(found.offset, audit, tracer)
            count += 1
        return count

    wanted = replace(settings or ProducerSettings(), linger_ms=20, batch_size=256 * 1024)
    with BlockingProducer(list(bootstrap), wanted) as producer:
        for click in clicks(plan):
            partition = zlib.crc32(click.user.encode()) % partitions
            key, now_ms = click.user.encode(), _now_ms()
            sent = _Sent(
                topic,
                partition,
                len(click.value),
                None if audit is None else audit.stamp(topic, partition, now_ms),
                None if tracer is None else tracer.begin(topic, partition, key, now_ms),
            )
            delivery = producer.send(
                topic, click.value, key=key, partition=partition, headers=sent.headers
            )
            waiting.append((delivery, sent))
            done += settle(all_of_them=False)
        producer.flush()
        done += settle(all_of_them=True)
    return done


class _Sent(NamedTuple):
    """A click on its way, and what is to be told of it."""

    topic: str
    partition: int
    size_bytes: int
    stamp: Stamp | None
    sending: Sending | None

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        stamped = () if self.stamp is None else headers_of(self.stamp)
        return (*stamped, *(() if self.sending is None else self.sending.headers))

    def acknowledged(self, offset: int, audit: AuditCounter | None, tracer: Tracer | None) -> None:
        now_ms = _now_ms()
        if audit is not None and self.stamp is not None:
            audit.acknowledged(self.topic, self.partition, self.stamp, self.size_bytes, now_ms)
        if tracer is not None and self.sending is not None:
            tracer.acknowledged(self.sending, offset, now_ms)

    def failed(self, reason: str, audit: AuditCounter | None, tracer: Tracer | None) -> None:
        if audit is not None and self.stamp is not None:
            audit.failed(self.topic, self.partition, self.stamp)
        if tracer is not None and self.sending is not None:
            tracer.failed(self.sending, reason, _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
