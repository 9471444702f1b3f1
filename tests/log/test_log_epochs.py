"""The leader epoch cache (LOG-99, and the cache's part of LOG-52, LOG-84, LOG-98)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftpy.log.epochs import EpochEntry, LeaderEpochCache

UNKNOWN = (-1, -1)


def cache(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(map(EpochEntry._make, entries))


def test_end_offset_for() -> None:
    """LOG-99: the current epoch ends at the log end, an older one where the next begins."""
    epochs = cache((2, 10), (4, 20), (5, 30))
    assert epochs.end_offset_for(5, 42) == (5, 42)
    assert epochs.end_offset_for(4, 42) == (4, 30)
    assert epochs.end_offset_for(2, 42) == (2, 20)
    # Between two that are known: the older one, and its end.
    assert epochs.end_offset_for(3, 42) == (2, 20)
    # Older than the earliest: its data is gone, what is left begins here.
    assert epochs.end_offset_for(1, 42) == (1, 10)
    assert epochs.end_offset_for(6, 42) == UNKNOWN
    assert epochs.end_offset_for(-1, 42) == UNKNOWN


def test_an_empty_cache_knows_nothing() -> None:
    epochs = cache()
    assert epochs.end_offset_for(0, 42) == UNKNOWN
    assert epochs.latest is epochs.earliest is epochs.latest_epoch is None
    assert epochs.epoch_for_offset(0) is None
    assert epochs.previous_epoch(5) is None
    assert epochs.next_epoch(5) is None


def test_assign_adds_growing_epochs() -> None:
    """LOG-84: a batch with a newer epoch adds an entry, one with the same does not."""
    epochs = cache()
    assert epochs.assign(0, 0)
    assert not epochs.assign(0, 5)
    assert epochs.assign(3, 7)
    assert epochs.entries == (EpochEntry(0, 0), EpochEntry(3, 7))


@pytest.mark.parametrize(
    ("assigned", "left"),
    [
        # An epoch without data gives way to the next at the same offset.
        ((5, 30), ((2, 10), (4, 20), (5, 30))),
        ((6, 30), ((2, 10), (4, 20), (6, 30))),
        ((6, 25), ((2, 10), (4, 20), (6, 25))),
        ((6, 15), ((2, 10), (6, 15))),
        ((6, 10), ((6, 10),)),
        ((6, 9), ((6, 9),)),
        ((5, 29), ((2, 10), (4, 20), (5, 29))),
        # A smaller epoch than the latest contradicts it.
        ((4, 40), ((2, 10), (4, 40))),
        ((3, 40), ((2, 10), (3, 40))),
        ((1, 40), ((1, 40),)),
    ],
)
def test_assign_removes_what_contradicts(
    assigned: tuple[int, int], left: tuple[tuple[int, int], ...]
) -> None:
    epochs = cache((2, 10), (4, 20), (5, 30))
    epochs.assign(*assigned)
    assert epochs.entries == left


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_assign_refuses_nonsense(epoch: int, offset: int) -> None:
    with pytest.raises(ValueError, match="can't begin"):
        cache().assign(epoch, offset)


@pytest.mark.parametrize(
    ("end_offset", "left"),
    [
        (31, ((2, 10), (4, 20), (5, 30))),
        (30, ((2, 10), (4, 20))),
        (20, ((2, 10),)),
        (10, ()),
        (0, ()),
        (-1, ((2, 10), (4, 20), (5, 30))),
    ],
)
def test_truncate_from_end(end_offset: int, left: tuple[tuple[int, int], ...]) -> None:
    """LOG-52, LOG-98: entries at or above the log end go."""
    epochs = cache((2, 10), (4, 20), (5, 30))
    epochs.truncate_from_end(end_offset)
    assert epochs.entries == left


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (9, ((2, 10), (4, 20), (5, 30))),
        (10, ((2, 10), (4, 20), (5, 30))),
        (11, ((2, 11), (4, 20), (5, 30))),
        (20, ((4, 20), (5, 30))),
        (25, ((4, 25), (5, 30))),
        (99, ((5, 99),)),
    ],
)
def test_truncate_from_start(start_offset: int, left: tuple[tuple[int, int], ...]) -> None:
    """LOG-52: the epoch that covers the log start stays, and begins there."""
    epochs = cache((2, 10), (4, 20), (5, 30))
    epochs.truncate_from_start(start_offset)
    assert epochs.entries == left


def test_clear() -> None:
    """LOG-84: records without epochs make the cache void."""
    epochs = cache((2, 10))
    epochs.clear()
    assert epochs.entries == ()
    assert epochs.take_changes() == ()


def test_neighbours() -> None:
    epochs = cache((2, 10), (4, 20), (5, 30))
    assert [epochs.previous_epoch(epoch) for epoch in (2, 3, 5, 9)] == [None, 2, 4, 5]
    assert [epochs.next_epoch(epoch) for epoch in (1, 2, 3, 5)] == [2, 4, 4, None]
    assert [epochs.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 99)] == [
        None, 2, 2, 4, 5,
    ]  # fmt: skip


def test_changes_are_told_once() -> None:
    epochs = cache((2, 10), (4, 20))
    assert not epochs.changed
    assert epochs.take_changes() is None
    for change in (
        lambda: epochs.assign(5, 30),
        lambda: epochs.truncate_from_end(30),
        lambda: epochs.truncate_from_start(11),
        epochs.clear,
    ):
        change()
        assert epochs.changed
        assert epochs.take_changes() == epochs.entries
        assert epochs.take_changes() is None
    for nothing in (
        lambda: epochs.truncate_from_end(30),
        lambda: epochs.truncate_from_start(11),
        epochs.clear,
    ):
        nothing()
        assert not epochs.changed
    epochs.assign(1, 5)
    epochs.take_changes()
    assert not epochs.assign(1, 5)
    epochs.assign(1, 6)
    epochs.truncate_from_start(5)
    epochs.truncate_from_end(6)
    assert not epochs.changed


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (((2, 10), (1, 20)), (1, 20)),
        (((1, 20), (2, 10)), (2, 10)),
        (((1, 20), (2, 20)), (2, 20)),
        (((1, 20), (1, 30)), (1, 20)),
    ],
)
def test_a_checkpoint_out_of_order_is_repaired(
    written: tuple[tuple[int, int], ...], kept: tuple[int, int]
) -> None:
    epochs = cache(*written)
    assert epochs.entries == (EpochEntry(*kept),)
    assert epochs.changed


def test_epochs_and_offsets_below_zero_are_refused() -> None:
    for written in ((-1, 10), (1, -10)):
        with pytest.raises(ValueError, match="can't begin"):
            cache(written)


class OffsetsOfEpochs:
    """The model: the epoch of every single record, as a list from the log start on."""

    def __init__(self) -> None:
        self.start = 0
        self.epochs: list[int] = []

    @property
    def end(self) -> int:
        return self.start + len(self.epochs)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        if not self.epochs or epoch > self.epochs[-1]:
            return UNKNOWN
        later = [number for number, of in enumerate(self.epochs) if of > epoch]
        end = self.start + later[0] if later else self.end
        known = [of for of in self.epochs if of <= epoch]
        return (known[-1] if known else epoch), end


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 5)),
        st.tuples(st.just("truncate"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 40), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_cache_is_what_a_log_of_single_records_says(
    steps: list[tuple[str, int, int]],
) -> None:
    """LOG-99, LOG-52, LOG-98: appends with growing epochs, truncation at both ends."""
    epochs, model = LeaderEpochCache(), OffsetsOfEpochs()
    epoch = 0
    for what, number, count in steps:
        if what == "append":
            epoch += number
            epochs.assign(epoch, model.end)
            model.epochs.extend([epoch] * count)
        elif what == "truncate":
            end = min(max(model.start, number), model.end)
            epochs.truncate_from_end(end)
            del model.epochs[end - model.start :]
        else:
            start = min(max(model.start, number), model.end)
            del model.epochs[: start - model.start]
            model.start = start
            epochs.truncate_from_start(start)
            epochs.truncate_from_end(model.end)
        for asked in range(epoch + 2):
            assert epochs.end_offset_for(asked, model.end) == model.end_offset_for(asked)
        for offset in range(model.start, model.end):
            assert epochs.epoch_for_offset(offset) == model.epochs[offset - model.start]
        assert list(epochs.entries) == sorted(set(epochs.entries))


def test_a_copy_goes_its_own_way() -> None:
    epochs = cache((2, 10), (4, 20))
    twin = epochs.copy()
    assert (twin.entries, twin.changed) == (epochs.entries, False)
    twin.assign(5, 30)
    assert twin.copy().changed
    assert epochs.entries == ((2, 10), (4, 20))
    assert not epochs.changed
