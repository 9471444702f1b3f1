"""What workloads draw: rates, probabilities, keys, crashes; from a seed, so figures are exact."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from kraftpy.verify.history import Event, Recorder
from kraftpy.verify.workloads.catalogue import WORKLOADS, Circumstances, Workload, find_workload
from kraftpy.verify.workloads.drawing import Crashes, KeyPool, Unseen
from kraftpy.verify.workloads.plans import Plan, SlotState
from kraftpy.verify.workloads.queue import ListAppend, QueueGenerator, QueueShape
from kraftpy.verify.workloads.transfers import Bank, EosCopy

STEPS = 20_000
KINDS = frozenset(
    [
        "assign",
        "subscribe",
        "send",
        "poll",
        "txn",
        "crash",
        "commit",
        "committed",
        "end_offsets",
        "delete_records",
        "init_producer",
        "join_view",
        "leave",
        "md_create",
        "md_delete",
        "md_write",
        "md_read",
        "reassign",
    ]
)


def state(slot: int = 0, *, fresh: bool = False, now_ms: int = 0, process: int = 0) -> SlotState:
    return SlotState(slot, process, fresh, now_ms)


def drawn(generator: QueueGenerator, count: int = STEPS) -> list[Plan]:
    found = [generator.next(state()) for _ in range(count)]
    return [plan for plan in found if plan is not None]


def quiet(**more: Any) -> QueueShape:
    return QueueShape(crash_mean_ms=1e12, **more)


def test_a_queue_sends_polls_and_chooses_as_often_as_it_should() -> None:
    """JEP-9: half of each, and one choice in 64."""
    counts = Counter(plan.f for plan in drawn(QueueGenerator(quiet(), Random(1))))
    assert counts["assign"] == pytest.approx(STEPS / 64, rel=0.15)
    assert counts["send"] == pytest.approx(STEPS / 2, rel=0.05)
    assert counts["poll"] == pytest.approx(STEPS / 2, rel=0.05)


def test_transactions_have_one_to_four_steps_and_are_named_by_them() -> None:
    """JEP-9, section 2.4: an operation of polls alone is a poll, of sends alone a send."""
    shape = quiet(is_transactional=True, max_micro=4, subscription="both")
    plans = drawn(QueueGenerator(shape, Random(2)))
    works = [plan for plan in plans if plan.f in ("send", "poll", "txn")]
    lengths = Counter(len(plan.value) for plan in works)
    assert sorted(lengths) == [1, 2, 3, 4]
    assert min(lengths.values()) == pytest.approx(len(works) / 4, rel=0.1)
    for plan in works:
        kinds = {micro[0] for micro in plan.value}
        assert plan.f == (kinds.pop() if len(kinds) == 1 else "txn")
        assert plan.meta["transactional"]
    assert {plan.f for plan in plans} >= {"assign", "subscribe"}


def test_keys_are_popular_in_their_order_and_retire() -> None:
    """JEP-9: each value once, at most so many for a key, and a new key in its place."""
    keys = KeyPool(Random(3), key_count=10, max_writes_per_key=100)
    values: dict[int, list[int]] = {}
    for _ in range(STEPS):
        key = keys.draw()
        assert key in keys.live
        values.setdefault(key, []).append(keys.next_value(key))
        assert len(keys.live) == len(set(keys.live)) == 10
    assert all(found == list(range(len(found))) for found in values.values())
    assert max(map(len, values.values())) == 100
    assert keys.created > 10 + STEPS // 100 - 10
    assert sorted(values) == list(range(len(values)))
    places = Counter[int]()
    still = KeyPool(Random(3), key_count=10, max_writes_per_key=10**9)
    for _ in range(STEPS):
        places[still.draw()] += 1
    assert [key for key, _ in places.most_common()] == list(range(10))
    assert places[0] / places[1] == pytest.approx(4 / 3, rel=0.1)


def completed(recorder: Recorder, process: int, f: str, value: Any) -> Event:
    return recorder.invoke(process, f, value).ok(value)


def test_every_third_choice_takes_what_nobody_has_read() -> None:
    """JEP-9: poll-unseen."""
    generator = QueueGenerator(quiet(key_count=4), Random(4))
    recorder = Recorder(lambda: 0)
    generator.observe(completed(recorder, 1, "send", [["send", 77, [3, 0]]]))
    choices = [generator.next(state(fresh=True)) for _ in range(9)]
    with_unseen = [plan is not None and 77 in plan.value for plan in choices]
    assert with_unseen == [False, False, True] * 3
    generator.observe(completed(recorder, 1, "poll", [["poll", {77: [[3, 0]]}]]))
    later = [generator.next(state(fresh=True)) for _ in range(9)]
    assert not any(plan is not None and 77 in plan.value for plan in later)


def test_unseen_counts_what_is_acknowledged_and_not_polled_in_either_order() -> None:
    recorder = Recorder(lambda: 0)
    unseen = Unseen()
    unseen.observe(completed(recorder, 1, "poll", [["poll", {5: [[0, 10]]}]]))
    unseen.observe(completed(recorder, 1, "send", [["send", 5, [0, 10]], ["send", 6, [4, 1]]]))
    assert (unseen.keys, unseen.count, unseen.highest) == ([6], 1, {5: 0, 6: 4})
    failed = recorder.invoke(1, "send", [["send", 6, 2]]).fail("no", [["send", 6, [9, 2]]])
    unseen.observe(failed)
    assert (unseen.count, unseen.highest[6]) == (1, 4)


def test_clients_crash_about_every_half_minute() -> None:
    """JEP-9: each slot by itself."""
    crashes = Crashes(Random(5), 30_000)
    hours = 10
    found = Counter(
        slot
        for second in range(hours * 3600)
        for slot in range(2)
        if crashes.is_due(slot, second * 1000)
    )
    for slot in range(2):
        assert found[slot] == pytest.approx(hours * 120, rel=0.1)


def test_a_fresh_process_first_chooses_and_a_crash_is_never_its_first_step() -> None:
    generator = QueueGenerator(QueueShape(crash_mean_ms=1), Random(6))
    for now_ms in range(0, 100_000, 1000):
        plan = generator.next(state(fresh=True, now_ms=now_ms))
        assert plan is not None
        assert plan.f == "assign"


def test_a_read_of_a_list_begins_where_the_log_does() -> None:
    """W4: a seek to the beginning comes right before each read, of the same key."""
    generator = ListAppend(quiet(), Random(7))
    plans = drawn(generator, 2_000)
    reads = [place for place, plan in enumerate(plans) if plan.f == "poll"]
    assert len(reads) > 300
    for place in reads:
        before = plans[place - 1]
        assert (before.f, before.value) == ("assign", [plans[place].meta["whole"]])
        assert before.meta["seek_to_beginning"]


def test_money_is_neither_made_nor_lost_whatever_becomes_of_transfers() -> None:
    """JEP-14: by the generator's own books; what has an unknown outcome is left alone."""
    random = Random(8)
    bank = Bank(random, accounts=20, keys=4, crash_mean_ms=1e12)
    recorder = Recorder(lambda: 0)
    accounts: dict[int, int] = {}
    frozen: dict[int, None] = {}
    for process in range(400):
        is_opening = not accounts
        plan = bank.opening(process) if is_opening else bank.next(state(process=process))
        assert plan is not None
        invocation = recorder.invoke(process, plan.f, plan.value)
        new = {each["account"]: each["balance"] for each in plan.extras.values()}
        assert not set(new) & set(frozen)
        kind = random.choices(["ok", "fail", "info"], [8, 3, 1])[0]
        if kind == "ok":
            accounts |= new
            bank.observe(invocation.ok(plan.value))
        elif kind == "fail":
            bank.observe(invocation.fail("no", plan.value))
        else:
            bank.observe(invocation.info("?", plan.value))
            if any(accounts.get(account) != new[account] for account in new) and not is_opening:
                frozen |= dict.fromkeys(new)
    assert sum(accounts.values()) == bank.total == 2_000
    assert min(accounts.values()) >= 0
    assert len(frozen) > 2


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each.name)
def test_a_seed_gives_the_same_plans_again_and_only_known_kinds(workload: Workload) -> None:
    """JEP-9."""

    def draw() -> list[Any]:
        script = workload.build(Circumstances(Random("seed")))
        plans = []
        for number in range(3_000):
            slot = number % 6
            fresh = number < 60 or number % 500 < 6
            plan = script.generator.next(state(slot, fresh=fresh, now_ms=number * 10))
            if plan is not None:
                assert plan.f in KINDS
                plans.append((plan.f, plan.value, dict(plan.meta)))
        return plans

    assert draw() == draw()


def test_workloads_are_found_by_id_and_by_name() -> None:
    assert [workload.id for workload in WORKLOADS] == [f"W{number}" for number in range(1, 17)]
    assert find_workload("w4") is find_workload("list-append")
    with pytest.raises(ValueError, match="there is no workload 'list'; there are: W1 queue-assign"):
        find_workload("list")


def test_every_process_has_a_transactional_id_of_its_own_but_in_w9() -> None:
    """JEP-2, JEP-15."""
    for workload in WORKLOADS:
        spec_of = workload.build(Circumstances(Random(1))).spec_of
        ids = [
            spec_of(slot, 6 * life + slot).transactional_id
            for slot in range(6)
            for life in range(3)
        ]
        named = [each for each in ids if each is not None]
        if workload.id == "W9":
            assert set(named) == {"shared-0", "shared-1"}
        else:
            assert len(named) == len(set(named))


def test_a_copier_leaves_outputs_alone_that_share_a_topic_with_an_input() -> None:
    """With three partitions a topic, the fourth input and the first two outputs are one topic's."""
    copier = EosCopy(Random(1), slots=3, inputs=4, crash_mean_ms=1e12)
    plan = next(
        plan for _ in range(100) if (plan := copier.next(state(1))) is not None and plan.reaction
    )
    assert plan.reaction is not None
    sends, _ = plan.reaction({3: [[0, 7]], 4: [[0, 8]], 5: [[1, 9]]})
    assert [(kind, key) for kind, key, _ in sends] == [("send", 7)]
