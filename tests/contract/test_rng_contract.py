"""The contract of the Rng port."""

from __future__ import annotations

from both_worlds import Place, in_both_worlds

from kraftpy.world.memory_rng import MemoryRng
from kraftpy.world.real_rng import RealRng


@in_both_worlds
async def test_a_name_is_one_stream_and_names_are_many(place: Place) -> None:
    rng = place.world.rng
    assert rng.stream("election") is rng.stream("election")
    assert rng.stream("election") is not rng.stream("jitter")
    assert rng.stream("election").getrandbits(128) != rng.stream("jitter").getrandbits(128)


@in_both_worlds
async def test_a_draw_from_one_stream_does_not_shift_another(place: Place) -> None:
    rng = place.world.rng
    state = rng.stream("jitter").getstate()
    rng.stream("election").random()
    rng.stream("new").random()
    assert rng.stream("jitter").getstate() == state


def test_the_real_one_is_different_each_time() -> None:
    drawn = {RealRng().stream("uuid").getrandbits(128) for _ in range(10)}
    assert len(drawn) == 10


def test_the_memory_one_hangs_on_seed_owner_and_purpose_alone() -> None:
    """JEP-140: a golden value, because it must be the same in every interpreter."""
    assert MemoryRng(7, "node-1").stream("election").getrandbits(32) == GOLDEN
    late = MemoryRng(7, "node-1")
    late.stream("other").random()
    assert late.stream("election").getrandbits(32) == GOLDEN
    others = [MemoryRng(8, "node-1"), MemoryRng(7, "node-2")]
    assert GOLDEN not in [rng.stream("election").getrandbits(32) for rng in others]


GOLDEN = 3489711616
