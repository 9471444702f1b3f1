"""The pool of request memory: bounded, in line, and never locked up."""

from __future__ import annotations

from kraftpy.net.memory import RequestMemory


class Waiter:
    def __init__(self, memory: RequestMemory, size_bytes: int) -> None:
        self.granted = 0
        self.reservation = memory.reserve(size_bytes, self.on_granted)

    def on_granted(self) -> None:
        self.granted += 1


def test_what_does_not_fit_waits_until_enough_is_released() -> None:
    memory = RequestMemory(100)
    first, second = Waiter(memory, 60), Waiter(memory, 41)
    assert (first.granted, second.granted) == (1, 0)
    assert (memory.used_bytes, memory.available_bytes, memory.waiting_count) == (60, 40, 1)
    first.reservation.release()
    assert second.granted == 1
    assert second.reservation.is_granted
    assert memory.used_bytes == 41


def test_exactly_full_is_allowed() -> None:
    memory = RequestMemory(100)
    assert Waiter(memory, 60).granted == Waiter(memory, 40).granted == 1
    assert memory.available_bytes == 0


def test_nobody_overtakes() -> None:
    """A large frame would starve if small ones could pass it."""
    memory = RequestMemory(100)
    holder = Waiter(memory, 60)
    large, small = Waiter(memory, 90), Waiter(memory, 10)
    assert small.granted == 0
    holder.reservation.release()
    assert (large.granted, small.granted) == (1, 1)


def test_leaving_the_line_lets_others_pass() -> None:
    memory = RequestMemory(100)
    holder = Waiter(memory, 60)
    large, small = Waiter(memory, 90), Waiter(memory, 10)
    large.reservation.release()
    assert (large.granted, small.granted) == (0, 1)
    assert memory.used_bytes == 70
    holder.reservation.release()
    assert memory.used_bytes == 10


def test_release_counts_once() -> None:
    memory = RequestMemory(100)
    waiter, other = Waiter(memory, 60), Waiter(memory, 20)
    waiter.reservation.release()
    waiter.reservation.release()
    assert memory.used_bytes == 20
    other.reservation.release()
    assert memory.used_bytes == 0


def test_more_than_the_pool_is_granted_alone() -> None:
    memory = RequestMemory(100)
    small, huge = Waiter(memory, 1), Waiter(memory, 101)
    assert huge.granted == 0
    small.reservation.release()
    assert huge.granted == 1


def test_a_new_capacity_serves_the_line() -> None:
    memory = RequestMemory(10)
    waiters = [Waiter(memory, 8), Waiter(memory, 8), Waiter(memory, 8)]
    memory.change_capacity(16)
    assert [waiter.granted for waiter in waiters] == [1, 1, 0]
    memory.change_capacity(None)
    assert [waiter.granted for waiter in waiters] == [1, 1, 1]
    assert memory.available_bytes is None
