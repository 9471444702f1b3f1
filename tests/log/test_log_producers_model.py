"""Producer state against a naive model: the list of all that was ever accepted."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kraftpy.log.errors import LogError
from kraftpy.log.producer_entries import BatchMetadata, decode_snapshot, encode_snapshot
from kraftpy.log.producers import ProducerState
from kraftpy.records.validation import AppendOrigin

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Batch:
    producer_id: int
    epoch: int
    first_offset: int
    last_offset: int
    sequence: int = -1
    transactional: bool = False
    # None for data.
    is_abort: bool | None = None


class ListModel:
    """Answers every question by walking the whole log."""

    def __init__(self) -> None:
        self.log: list[Batch] = []

    @property
    def end(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else 0

    def of(self, producer_id: int) -> list[Batch]:
        return [batch for batch in self.log if batch.producer_id == producer_id]

    def epoch_of(self, producer_id: int) -> int:
        return max((batch.epoch for batch in self.of(producer_id)), default=-1)

    def current_data(self, producer_id: int) -> list[Batch]:
        epoch = self.epoch_of(producer_id)
        return [b for b in self.of(producer_id) if b.is_abort is None and b.epoch == epoch]

    def open_since(self, producer_id: int) -> int | None:
        since = None
        for batch in self.of(producer_id):
            if batch.is_abort is not None:
                since = None
            elif batch.transactional and since is None:
                since = batch.first_offset
        return since

    def judge(self, batch: Batch) -> str | int:
        """The name of the error, or the offset at which the batch is."""
        data = self.current_data(batch.producer_id)
        epoch = self.epoch_of(batch.producer_id)
        count = batch.last_offset - batch.first_offset
        if batch.epoch == epoch:
            for known in data[-5:]:
                known_count = known.last_offset - known.first_offset
                if (known.sequence, known_count) == (batch.sequence, count):
                    return known.first_offset
        if batch.epoch < epoch:
            return "INVALID_PRODUCER_EPOCH"
        if self.of(batch.producer_id):
            last = data[-1] if data and batch.epoch == epoch else None
            follows = last.sequence + last.last_offset - last.first_offset + 1 if last else 0
            if batch.sequence != follows:
                return "OUT_OF_ORDER_SEQUENCE_NUMBER"
        if self.open_since(batch.producer_id) is not None and not batch.transactional:
            return "INVALID_TXN_STATE"
        self.log.append(batch)
        return batch.first_offset

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first offset of a transaction without a marker below the high watermark."""
        since: dict[int, int] = {}
        unstable = []
        for batch in self.log:
            first = since.get(batch.producer_id)
            if batch.is_abort is not None:
                if first is not None and batch.last_offset >= high_watermark:
                    unstable.append(first)
                since.pop(batch.producer_id, None)
            elif batch.transactional and first is None:
                since[batch.producer_id] = batch.first_offset
        return min([*unstable, *since.values()], default=None)


def append(state: ProducerState, batch: Batch, origin: AppendOrigin) -> None:
    update = state.prepare(origin, transaction_version=1)
    if batch.is_abort is None:
        update.add_batch(
            batch.producer_id,
            batch.epoch,
            base_sequence=batch.sequence,
            base_offset=batch.first_offset,
            last_offset=batch.last_offset,
            max_timestamp_ms=batch.first_offset,
            is_transactional=batch.transactional,
        )
    else:
        update.add_marker(
            batch.producer_id,
            batch.epoch,
            coordinator_epoch=0,
            offset=batch.first_offset,
            timestamp_ms=batch.first_offset,
            is_abort=batch.is_abort,
        )
    state.commit(update)
    for completed in update.completed:
        state.complete(completed)
    state.advance(batch.last_offset + 1)


def judge(state: ProducerState, batch: Batch) -> str | int:
    repeated = state.find_duplicate(
        batch.producer_id,
        batch.epoch,
        base_sequence=batch.sequence,
        last_offset_delta=batch.last_offset - batch.first_offset,
    )
    if repeated is not None:
        return repeated.first_offset
    try:
        append(state, batch, AppendOrigin.CLIENT)
    except LogError as error:
        return error.error_code.name
    return batch.first_offset


# What, producer id, step of the epoch, step of the sequence, count, transactional.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write"] * 6 + ["repeat", "mark", "mark", "watermark"]),
        st.integers(0, 2),
        st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=60,
)


def new_state() -> ProducerState:
    return ProducerState(expiration_ms=DAY_MS, verify_transactions=False)


@given(STEPS, st.data())
def test_state_is_what_the_whole_log_says(
    steps: list[tuple[str, int, int, int, int, bool]], data: st.DataObject
) -> None:
    """LOG-83, LOG-74: every answer; then replay, from a snapshot too, gives the same state."""
    state, model = new_state(), ListModel()
    high_watermark = 0
    for what, producer_id, epoch_step, sequence_step, count, flag in steps:
        known = model.current_data(producer_id)
        epoch = max(0, model.epoch_of(producer_id) + epoch_step)
        if what == "watermark":
            high_watermark = min(model.end, high_watermark + count * 2)
            state.high_watermark_advanced(high_watermark)
        elif what == "mark":
            epoch = max(epoch, model.epoch_of(producer_id))
            marker = Batch(producer_id, epoch, model.end, model.end, is_abort=flag)
            model.log.append(marker)
            append(state, marker, AppendOrigin.COORDINATOR)
        else:
            sequence = 0
            if what == "repeat" and known:
                sequence, epoch = known[-min(len(known), count * 2)].sequence, known[-1].epoch
            elif known and epoch_step == 0:
                last = known[-1]
                sequence = last.sequence + last.last_offset - last.first_offset + 1
            sequence = max(0, sequence + sequence_step)
            batch = Batch(
                producer_id, epoch, model.end, model.end + count - 1, sequence, transactional=flag
            )
            assert judge(state, batch) == model.judge(batch)
        first = state.first_unstable
        assert (first and first.first_offset) == model.first_unstable(high_watermark)
        assert state.map_end_offset == model.end
    check_replay(state, model, data.draw(st.integers(0, len(model.log)), label="snapshot at"))


def check_replay(state: ProducerState, model: ListModel, snapshot_at: int) -> None:
    replayed = new_state()
    snapshot = None
    for number, batch in enumerate(model.log):
        if number == snapshot_at:
            snapshot = replayed.take_snapshot()
        append(replayed, batch, AppendOrigin.REPLICATION)
    assert dict(replayed.producers) == dict(state.producers)
    assert replayed.first_undecided_offset == state.first_undecided_offset
    reloaded = new_state()
    if snapshot is not None:
        reloaded.reload(0, snapshot_offset=snapshot[0])
        reloaded.reopen(reloaded.restore(decode_snapshot(encode_snapshot(snapshot[1]), "file"), 0))
    for batch in model.log:
        if batch.first_offset >= reloaded.map_end_offset:
            append(reloaded, batch, AppendOrigin.REPLICATION)
    assert [short(entry) for entry in reloaded.producers.values()] == [
        short(state.producers[producer_id]) for producer_id in reloaded.producers
    ]
    assert len(reloaded.producers) == len(state.producers)
    assert reloaded.first_undecided_offset == state.first_undecided_offset
    assert reloaded.map_end_offset == state.map_end_offset


def short(entry: tuple[object, ...]) -> tuple[object, ...]:
    """With the last batch alone: a snapshot keeps no more. Its time is the entry's."""
    *rest, batches = entry
    assert isinstance(batches, tuple)
    return (*rest, tuple(BatchMetadata(*batch)._replace(timestamp_ms=0) for batch in batches[-1:]))
