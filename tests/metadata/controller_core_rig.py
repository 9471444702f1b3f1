"""A controller on a log of one node: what it proposes is appended, and committed when told to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kraftpy.config import DynamicConfig, NodeConfig, from_mapping
from kraftpy.metadata import records as r
from kraftpy.metadata.batches import build_batch
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.controller import Controller
from kraftpy.metadata.controller.effects import (
    Answer,
    AppendRecords,
    ControllerEffect,
    Refuse,
)
from kraftpy.metadata.controller.event_queue import EventKind
from kraftpy.metadata.controller.metrics import ControllerMetrics
from kraftpy.metadata.controller.operations import Controls, Operation, Turn
from kraftpy.metadata.controller.parts import ControllerParts, assemble, make_controls
from kraftpy.metadata.controller.periodic import PeriodicTask
from kraftpy.metadata.controller.result import (
    Caller,
    ControllerError,
    ControllerResult,
    Outcome,
)
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.features import default_levels
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import LoaderFault, MetadataLoader
from kraftpy.metadata.record_format import decode_record
from kraftpy.observe.metrics import MetricName, MetricRegistry
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.control_records import LeaderChangeMessage
from kraftpy.records.batch import RecordBatch
from kraftpy.records.control import build_control_batch
from kraftpy.world import Buffer

NODE_ID = 1
WALL_MS = 1_700_000_000_000
BOOTSTRAP = (r.FeatureLevelRecord(r.METADATA_VERSION, 25), r.FeatureLevelRecord("group.version", 1))
CALLER = Caller(api_version=0)


@dataclass(frozen=True, slots=True)
class Create:
    """Creates topics, or says that one exists."""

    names: tuple[str, ...]
    is_atomic: bool = True


@dataclass(frozen=True, slots=True)
class CreateForUser:
    names: tuple[str, ...]
    is_atomic: bool = True


@dataclass(frozen=True, slots=True)
class Look:
    """Answers with the names of all topics, committed or not."""


@dataclass(frozen=True, slots=True)
class LookAtCommitted:
    """Answers with the names of topics that are committed, and waits for nobody."""


@dataclass(frozen=True, slots=True)
class Write:
    records: tuple[r.MetadataRecord, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """Something that nobody has foreseen."""


def topic(name: str) -> r.TopicRecord:
    return r.TopicRecord(name, Uuid(name.encode().rjust(16, b".")[-16:]))


def nothing_more(topic_name: str | None) -> ControllerResult[bool]:
    return ControllerResult((), False)


class FixedVersion:
    """A quorum that stays as it is."""

    kraft_version = 1
    voter_ids = (NODE_ID,)

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None: ...


STATIC = {
    "node.id": str(NODE_ID),
    "process.roles": "controller",
    "controller.listener.names": "C",
    "listeners": "C://controller:9093",
    "controller.quorum.voters": f"{NODE_ID}@controller:9093",
    "log.dirs": "/data",
}
WHOLE_BOOTSTRAP = tuple(r.FeatureLevelRecord(*level) for level in default_levels(30).items())


def whole_controls(context: ControllerContext) -> Controls:
    """All operations of the product."""
    node = DynamicConfig(NodeConfig(from_mapping(STATIC, "test")))
    return make_controls(context, node, FixedVersion(), Random(7))


class Rig:
    """Plays Raft and the loader for one controller."""

    def __init__(
        self,
        tasks: tuple[PeriodicTask, ...] = (),
        *,
        bootstrap: tuple[r.MetadataRecord, ...] = BOOTSTRAP,
        bring_online: Callable[[str | None], ControllerResult[bool]] = nothing_more,
        reevaluate: Callable[[], Outcome[None]] = lambda: ControllerResult((), None),
        max_queue_ms: int | None = None,
        heartbeat_late: Callable[[object, Turn], None] | None = None,
        settings: ControllerSettings | None = None,
        is_whole: bool = False,
    ) -> None:
        """With `is_whole` all operations and tasks are the product's."""
        self.context = ControllerContext(settings or ControllerSettings(NODE_ID, "cluster"))
        self.registry = MetricRegistry()
        self.metrics = ControllerMetrics(self.registry, 0, lambda: self.wall_ms)
        self.faults: list[LoaderFault] = []
        self.loader = MetadataLoader(self.faults.append, is_strict=True)
        self.loader.note_high_watermark(0)
        self.ran: list[str] = []
        operations = {
            Create: self._operation(self.create, max_queue_ms, heartbeat_late),
            CreateForUser: Operation("createForUser", self.create, _kind, is_users=True),
            Look: self._operation(self.look),
            LookAtCommitted: Operation("lookAtCommitted", self.look_back, _kind, is_read=True),
            Write: self._operation(self.write),
            Fail: self._operation(self.fail),
        }
        self.parts = ControllerParts(
            operations=operations,
            tasks=tasks,
            bootstrap=bootstrap,
            reevaluate=reevaluate,
            bring_online=bring_online,
            fence_dead=lambda broker_id: ControllerResult((), None),
            open_transaction=self.loader.open_transaction,
        )
        if is_whole:
            controls = whole_controls(self.context)
            self.parts = assemble(controls, bootstrap, self.loader.open_transaction)
        self.controller = Controller(self.context, self.parts, self.metrics)
        self.loader.install(self.controller)
        # Batches with their end offsets, and how many of them are committed.
        self.log: list[tuple[int, Buffer]] = []
        self.committed_count = 0
        self.end_offset = 0
        self.now_ms = 1_000
        self.wall_ms = WALL_MS
        self.refuses_appends = False
        self.effects: list[ControllerEffect] = []

    # Operations.

    @staticmethod
    def _operation(
        run: Callable[..., ControllerResult[object]],
        max_queue_ms: int | None = None,
        on_late: Callable[[object, Turn], None] | None = None,
    ) -> Operation:
        return Operation(run.__name__, run, _kind, max_queue_ms=max_queue_ms, on_late=on_late)

    def create(
        self, request: Create | CreateForUser, caller: Caller, turn: Turn
    ) -> ControllerResult[object]:
        self.ran.append("create")
        if any(name in self.context.image.topics for name in request.names):
            raise ControllerError(ErrorCode.TOPIC_ALREADY_EXISTS)
        records = tuple(topic(name) for name in request.names)
        return ControllerResult(records, request.names, request.is_atomic)

    def look(self, request: Look, caller: Caller, turn: Turn) -> ControllerResult[object]:
        return ControllerResult((), tuple(self.context.image.topics))

    def look_back(
        self, request: LookAtCommitted, caller: Caller, turn: Turn
    ) -> ControllerResult[object]:
        return ControllerResult((), tuple(self.context.stable.topics))

    def write(self, request: Write, caller: Caller, turn: Turn) -> ControllerResult[object]:
        return ControllerResult(request.records, turn)

    def fail(self, request: Fail, caller: Caller, turn: Turn) -> ControllerResult[object]:
        raise ZeroDivisionError("nobody has foreseen this")

    # What Raft does.

    def lead(self, epoch: int) -> None:
        """Win an election: commit everything with a record of the new epoch, and say so."""
        self.append_control(epoch)
        self.commit()
        self.controller.leader_changed(epoch, NODE_ID, self.now_ms)

    def append_control(self, epoch: int) -> None:
        data = build_control_batch(
            [LeaderChangeMessage(version=0, leader_id=NODE_ID)],
            base_offset=self.end_offset,
            leader_epoch=epoch,
            timestamp_ms=WALL_MS,
        )
        self._append(data, 1)

    def append(self, epoch: int, *records: r.MetadataRecord) -> None:
        data = build_batch(records, base_offset=self.end_offset, epoch=epoch, timestamp_ms=WALL_MS)
        self._append(data, len(records))

    def append_values(self, epoch: int, values: tuple[bytes, ...]) -> None:
        self.append(epoch, *(decode_record(value) for value in values))

    def _append(self, data: Buffer, count: int) -> None:
        self.end_offset += count
        self.log.append((self.end_offset, data))

    def commit(self, count: int | None = None) -> None:
        """Commit this many more batches, or all of them."""
        until = len(self.log) if count is None else min(len(self.log), self.committed_count + count)
        for _, data in self.log[self.committed_count : until]:
            self.loader.replay(RecordBatch(data))
        self.committed_count = until
        self.loader.publish()
        assert not self.faults

    def truncate(self) -> None:
        """Another leader's log takes the place of what is not committed."""
        del self.log[self.committed_count :]
        self.end_offset = self.log[-1][0] if self.log else 0

    # What the driver does.

    def submit(self, request_id: int, request: object, caller: Caller = CALLER) -> None:
        self.controller.submit(request_id, request, caller, self.now_ms)

    def poll(self) -> list[ControllerEffect]:
        """One poll, its effects carried out."""
        effects = self.controller.poll(self.now_ms, self.wall_ms, self.end_offset)
        refused = None
        for effect in effects:
            if not isinstance(effect, AppendRecords) or effect.epoch == refused:
                continue
            if self.refuses_appends:
                refused = effect.epoch
                self.controller.append_refused(effect.epoch, self.now_ms)
                continue
            assert effect.base_offset == self.end_offset
            self.append(effect.epoch, *effect.records)
        self.effects += effects
        return effects

    def run(self) -> list[ControllerEffect]:
        """Poll until there is nothing to do at this time."""
        effects: list[ControllerEffect] = []
        while (due_ms := self.controller.next_deadline_ms()) is not None and due_ms <= self.now_ms:
            effects += self.poll()
        return effects

    def run_until(self, now_ms: int) -> list[ControllerEffect]:
        """Let time pass, from deadline to deadline; everything is committed at once."""
        effects = self.run()
        self.commit()
        while (due_ms := self.controller.next_deadline_ms()) is not None and due_ms <= now_ms:
            self.now_ms = max(self.now_ms, due_ms)
            effects += self.run()
            self.commit()
        self.now_ms = now_ms
        return effects + self.run()

    # What one looks at.

    @property
    def answers(self) -> list[tuple[int, object]]:
        return [(e.request_id, e.response) for e in self.effects if isinstance(e, Answer)]

    @property
    def refusals(self) -> list[tuple[int, ErrorCode]]:
        return [(e.request_id, e.code) for e in self.effects if isinstance(e, Refuse)]

    @property
    def appended(self) -> list[AppendRecords]:
        return [e for e in self.effects if isinstance(e, AppendRecords)]

    @property
    def names(self) -> list[str]:
        return list(self.context.image.topics)

    def fold(self) -> MetadataImage:
        """The committed log, folded from the beginning."""
        loader = MetadataLoader(self.faults.append, is_strict=True)
        loader.note_high_watermark(0)
        for _, data in self.log[: self.committed_count]:
            loader.replay(RecordBatch(data))
        loader.publish()
        return loader.image

    def metric(self, name: str, kind: str = "KafkaController") -> float:
        gauge = self.registry.get(MetricName("kafka.controller", kind, name))
        assert gauge is not None
        return gauge.read()  # type: ignore[union-attr]


def _kind(request: object) -> EventKind:
    return EventKind.TOPIC_CHANGE
