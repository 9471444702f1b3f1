"""Apache Kafka's own clients behind the port of workloads: one JVM for all processes of a run.

WorkloadHelper.java is compiled by the JVM as it starts, with Kafka's jars on its class path. They
are in KRAFTPY_KAFKA_JARS, or where the tests have put them (`~/.cache/kraftpy/kafka-4.3.1`). One
line of JSON asks for a call, one line answers it; each client has a thread over there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import error_code
from kraftpy.protocol.errors import ErrorCode
from kraftpy.verify.workloads.outcomes import (
    UNKNOWN,
    AfterCommit,
    ClientError,
    Effect,
    Meaning,
    meaning_of,
)
from kraftpy.verify.workloads.payload import OutgoingRecord
from kraftpy.verify.workloads.port import (
    Ack,
    ClientSpec,
    CommittedOffset,
    PolledRecord,
    ProducerName,
    RebalanceNote,
    WorkloadClient,
)

__all__ = ["LOCAL_ERRORS", "JavaClient", "JavaHelper", "client_error", "missing", "open_helper"]

HELPER: Final = Path(__file__).with_name("WorkloadHelper.java")
_VERSION: Final = "4.3.1"
_CLOSE_SECONDS: Final = 15.0
_REFUSED: Final = Meaning(Effect.FAIL, AfterCommit.ABORT)
_OVER: Final = Meaning(Effect.FAIL_AND_END, AfterCommit.NO_ABORT)
LOCAL_ERRORS: Final[Mapping[str, Meaning]] = {
    "SerializationException": _REFUSED,
    "IllegalArgumentException": _REFUSED,
    "ConfigException": _REFUSED,
    "CommitFailedException": _REFUSED,
    "IllegalStateException": _OVER,
    "InterruptException": UNKNOWN,
    "TimeoutException": UNKNOWN,
    "BufferExhaustedException": UNKNOWN,
    "DisconnectException": UNKNOWN,
    "TransactionAbortedException": UNKNOWN,
    # The producer has given a transaction up: it may be aborted, and was not ended.
    "KafkaException": Meaning(Effect.INFO, AfterCommit.ABORT),
}


def jar_folder() -> Path:
    given = os.environ.get("KRAFTPY_KAFKA_JARS")
    cache = Path(os.environ.get("KRAFTPY_CACHE", "~/.cache/kraftpy")).expanduser()
    return Path(given) if given else cache / f"kafka-{_VERSION}"


def missing() -> str | None:
    """Why there can be no Java client here."""
    if shutil.which("java") is None:
        return "there is no java"
    if not list(jar_folder().glob("kafka-clients-*.jar")):
        return f"no kafka-clients jar in {jar_folder()} (KRAFTPY_KAFKA_JARS; tests fetch them)"
    return None


def client_error(told: Mapping[str, Any]) -> ClientError:
    """What an exception of Kafka's clients says about a write, or a commit."""
    name, text = told["error"], told["text"]
    if name in LOCAL_ERRORS:
        return ClientError(name, LOCAL_ERRORS[name], text)
    code = error_code(told["code"])
    if code == ErrorCode.UNKNOWN_SERVER_ERROR:
        return ClientError(name, UNKNOWN, text)
    return ClientError(code.name, meaning_of(code, may_be_repeated=True), text)


@asynccontextmanager
async def open_helper(bootstrap: str) -> AsyncIterator[JavaHelper]:
    """The JVM; it ends with the block."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jar_folder()}/*", str(HELPER)]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        async with trio.open_nursery() as nursery:
            helper = JavaHelper(bootstrap, process)
            nursery.start_soon(helper.read)
            yield helper
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


class JavaHelper:
    """Made by `open_helper`."""

    def __init__(self, bootstrap: str, process: trio.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the helper's standard streams must be pipes")
        self._bootstrap = bootstrap
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._writing = trio.Lock()
        self._number = 0
        self._waiting: dict[int, trio.Event] = {}
        self._answers: dict[int, Any] = {}
        self._is_gone = False

    def open_client(self, spec: ClientSpec) -> AbstractAsyncContextManager[WorkloadClient]:
        return _open_client(self, self._bootstrap, spec)

    async def read(self) -> None:
        """Take answers to whoever waits for them."""
        rest = b""
        async for chunk in self._stdout:
            *lines, rest = (rest + bytes(chunk)).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                number = answer["id"]
                if number in self._waiting:
                    self._answers[number] = answer
                    self._waiting.pop(number).set()
        self._is_gone = True
        for event in self._waiting.values():
            event.set()

    async def ask(self, client: str, call: str, **about: Any) -> Any:
        """Raises ClientError for what went wrong over there."""
        number = await self._send(client, call, about)
        done = self._waiting[number]
        try:
            await done.wait()
        finally:
            self._waiting.pop(number, None)
        answer = self._answers.pop(number, None)
        if answer is None:
            raise ClientError("NO_HELPER", UNKNOWN, "the JVM with the clients is gone")
        if "error" in answer:
            raise client_error(answer)
        return answer

    async def tell(self, client: str, call: str) -> None:
        """Without waiting for what becomes of it."""
        with trio.CancelScope(shield=True):
            number = await self._send(client, call, {})
            self._waiting.pop(number, None)

    async def _send(self, client: str, call: str, about: Mapping[str, Any]) -> int:
        self._number += 1
        number = self._number
        self._waiting[number] = trio.Event()
        if self._is_gone:
            self._waiting[number].set()
            return number
        request = {"id": number, "client": client, "call": call, **about}
        try:
            # A line that is cut off in the middle would be the end of all clients.
            with trio.CancelScope(shield=True):
                async with self._writing:
                    await self._stdin.send_all(json.dumps(request).encode() + b"\n")
        except trio.BrokenResourceError:
            self._waiting[number].set()
        return number


@asynccontextmanager
async def _open_client(
    helper: JavaHelper, bootstrap: str, spec: ClientSpec
) -> AsyncIterator[JavaClient]:
    name = spec.client_id
    await helper.ask(
        name, "open", producer=_producer(bootstrap, spec), consumer=_consumer(bootstrap, spec)
    )
    try:
        yield JavaClient(helper, spec)
    except BaseException:
        await helper.tell(name, "abandon")
        raise
    with trio.move_on_after(_CLOSE_SECONDS) as scope:
        await helper.ask(name, "close")
    if scope.cancelled_caught:
        await helper.tell(name, "abandon")


class JavaClient:
    """A WorkloadClient. Made by JavaHelper."""

    library = "java"

    def __init__(self, helper: JavaHelper, spec: ClientSpec) -> None:
        self._helper = helper
        self._spec = spec
        self._seconds = 2 * spec.delivery_timeout_ms / 1000
        self._rebalances: list[RebalanceNote] = []

    async def send(
        self, records: Sequence[tuple[TopicPartition, OutgoingRecord]]
    ) -> list[Ack | ClientError]:
        answer = await self._ask(
            "send",
            records=[
                {
                    "topic": where.topic,
                    "partition": where.partition,
                    "timestamp": record.timestamp_ms,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [[name, _text(value)] for name, value in record.headers],
                }
                for where, record in records
            ],
        )
        return [
            client_error(each)
            if "error" in each
            else Ack(each["partition"], None if each["offset"] < 0 else each["offset"])
            for each in answer["acks"]
        ]

    async def assign(self, wheres: Iterable[TopicPartition], *, from_beginning: bool) -> None:
        await self._ask("assign", wheres=list(wheres), from_beginning=from_beginning)

    async def subscribe(self, topics: Iterable[str]) -> None:
        await self._ask("subscribe", topics=list(topics))

    async def poll(self, timeout_ms: int) -> list[PolledRecord]:
        answer = await self._ask("poll", timeout_ms=timeout_ms)
        return [
            PolledRecord(
                each["topic"],
                each["partition"],
                each["offset"],
                _bytes(each["key"]),
                _bytes(each["value"]),
                each["timestamp"],
                tuple((name, _bytes(value)) for name, value in each["headers"]),
                None if each["epoch"] < 0 else each["epoch"],
            )
            for each in answer["records"]
        ]

    async def seek(self, where: TopicPartition, offset: int) -> None:
        await self._ask("seek", where=where, offset=offset)

    def take_rebalances(self) -> list[RebalanceNote]:
        notes, self._rebalances = self._rebalances, []
        return notes

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        await self._ask("commit", offsets=_rows(offsets))

    async def committed(
        self, wheres: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset | None]:
        asked = list(wheres)
        answer = await self._ask("committed", wheres=asked)
        found: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(asked)
        for topic, partition, offset, metadata in answer["offsets"]:
            found[TopicPartition(topic, partition)] = CommittedOffset(offset, metadata or "")
        return found

    async def init_transactions(self) -> ProducerName:
        await self._ask("init")
        return self.producer_name()

    def producer_name(self) -> ProducerName:
        """The library keeps it to itself."""
        return ProducerName()

    async def begin(self) -> None:
        await self._ask("begin")

    async def send_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        await self._ask("send_offsets", offsets=_rows(offsets))

    async def commit_transaction(self) -> None:
        await self._ask("commit_transaction")

    async def abort_transaction(self) -> None:
        await self._ask("abort_transaction")

    async def _ask(self, call: str, **about: Any) -> Any:
        """Every call of theirs has a limit; this one is for what it does not cover."""
        with trio.move_on_after(self._seconds):
            answer = await self._helper.ask(self._spec.client_id, call, **about)
            for each in answer["rebalances"]:
                wheres = tuple(TopicPartition(*where) for where in each["wheres"])
                self._rebalances.append(RebalanceNote(each["kind"], wheres))
            return answer
        raise ClientError("TIMED_OUT_HERE", UNKNOWN, f"no answer in {self._seconds:g} s")


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _rows(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[list[Any]]:
    return [[*where, each.offset, each.metadata] for where, each in offsets.items()]


def _producer(bootstrap: str, spec: ClientSpec) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": spec.client_id,
        "acks": str(spec.acks),
        "enable.idempotence": _flag(spec.is_idempotent),
        "compression.type": spec.compression,
        "linger.ms": 1,
        "delivery.timeout.ms": spec.delivery_timeout_ms,
        "request.timeout.ms": spec.request_timeout_ms,
        "max.block.ms": spec.delivery_timeout_ms,
    }
    if spec.transactional_id is not None:
        settings["transactional.id"] = spec.transactional_id
        settings["transaction.timeout.ms"] = spec.transaction_timeout_ms
    return settings


def _consumer(bootstrap: str, spec: ClientSpec) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": spec.client_id,
        "enable.auto.commit": _flag(spec.commits_by_itself and spec.group_id is not None),
        "max.poll.records": spec.max_poll_records,
        "auto.commit.interval.ms": spec.auto_commit_interval_ms,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed" if spec.is_read_committed else "read_uncommitted",
        "fetch.max.wait.ms": 100,
        "default.api.timeout.ms": spec.delivery_timeout_ms,
        "request.timeout.ms": spec.delivery_timeout_ms,
        "allow.auto.create.topics": _flag(False),
    }
    if spec.group_id is not None:
        settings["group.id"] = spec.group_id
        settings["group.protocol"] = spec.group_protocol
        if spec.group_protocol == "classic":
            settings["session.timeout.ms"] = spec.session_timeout_ms
            settings["heartbeat.interval.ms"] = spec.session_timeout_ms // 6
        if spec.group_instance_id is not None:
            settings["group.instance.id"] = spec.group_instance_id
    return settings


def _flag(value: bool) -> str:
    return str(value).lower()
