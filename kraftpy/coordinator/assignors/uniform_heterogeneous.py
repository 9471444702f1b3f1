"""The uniform assignor for groups whose members subscribe to different topics.

Loads can't always be equal here: a topic's partitions must stay with its subscribers. What can be
had is that no partition, and no chain of partitions, could move to make the loads more even.

1. Members keep what they have and still subscribe to.
2. Free partitions go to the least loaded subscriber of their topic. Topics with many partitions for
   each subscriber go first: they leave the least choice.
3. Topic by topic, partitions move from the most to the least loaded subscriber while these differ
   by two or more; passes over all topics are repeated until nothing moves.
4. What is left are chains: A can't give to C, but A to B and B to C. Members of the highest load
   are searched for one; if there is none, all that they reach is as even as it can be and is left
   out of the next search, with the members of the highest load among the rest.

The last two steps are bounded, in passes and in steps: an assignment that is nearly even now is
better than a perfect one that holds up everybody else. The bounds are not reached by groups of
any common size; the next assignment goes on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from kraftpy.coordinator.assignors.assignor import Partitions, Subscriber
from kraftpy.protocol.ids import Uuid

__all__ = ["assign_balanced"]

MAX_PASSES: Final = 16
# Looks at a subscriber while chains are searched for.
MAX_CHAIN_STEPS: Final = 200_000


def assign_balanced(
    ordered: Sequence[Subscriber], partition_counts: Mapping[Uuid, int]
) -> dict[str, Partitions]:
    """Assign to `ordered` members, whose topics all have a count."""
    balancer = _Balancer(ordered, partition_counts)
    balancer.keep_held()
    balancer.give_free()
    for _ in range(MAX_PASSES):
        if not balancer.level_topics():
            break
    balancer.shift_along_chains()
    return balancer.result()


class _Balancer:
    """The members by their place in the order, and what each has so far."""

    __slots__ = ("_assigned", "_free", "_loads", "_members", "_readers", "_topics")

    def __init__(self, ordered: Sequence[Subscriber], partition_counts: Mapping[Uuid, int]) -> None:
        self._members = ordered
        self._loads = [0] * len(ordered)
        self._assigned: list[dict[Uuid, set[int]]] = [{} for _ in ordered]
        readers: dict[Uuid, list[int]] = {}
        for member, subscriber in enumerate(ordered):
            for topic_id in subscriber.topic_ids:
                readers.setdefault(topic_id, []).append(member)
        self._readers = readers

        def choice(topic_id: Uuid) -> tuple[float, int, Uuid]:
            count = len(readers[topic_id])
            return -partition_counts[topic_id] / count, count, topic_id

        self._topics = sorted(readers, key=choice)
        self._free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in readers}

    def keep_held(self) -> None:
        for member, subscriber in enumerate(self._members):
            for topic_id in subscriber.topic_ids:
                held = subscriber.held.get(topic_id)
                if held and (mine := held & self._free[topic_id]):
                    self._assigned[member][topic_id] = set(mine)
                    self._free[topic_id] -= mine
                    self._loads[member] += len(mine)

    def give_free(self) -> None:
        loads = self._loads
        for topic_id in self._topics:
            if not self._free[topic_id]:
                continue
            lightest = [(loads[member], member) for member in self._readers[topic_id]]
            heapify(lightest)
            for partition in sorted(self._free[topic_id]):
                load, member = lightest[0]
                self._assigned[member].setdefault(topic_id, set()).add(partition)
                loads[member] = load + 1
                heapreplace(lightest, (load + 1, member))

    def level_topics(self) -> bool:
        """One pass over all topics; whether anything has moved."""
        has_moved = False
        for topic_id in self._topics:
            if self._is_uneven(topic_id):
                has_moved |= self._level(topic_id)
        return has_moved

    def _is_uneven(self, topic_id: Uuid) -> bool:
        loads = [self._loads[member] for member in self._readers[topic_id]]
        return max(loads) - min(loads) > 1

    def _level(self, topic_id: Uuid) -> bool:
        loads, assigned = self._loads, self._assigned
        readers = self._readers[topic_id]
        lightest = [(loads[member], member) for member in readers]
        heaviest = [
            (-loads[member], member) for member in readers if assigned[member].get(topic_id)
        ]
        heapify(lightest)
        heapify(heaviest)
        has_moved = False
        while heaviest:
            negative_load, giver = heaviest[0]
            # Loads change after they were noted: the entry is looked at again with its real one.
            if -negative_load != loads[giver]:
                heapreplace(heaviest, (-loads[giver], giver))
                continue
            load, taker = lightest[0]
            if load != loads[taker]:
                heapreplace(lightest, (loads[taker], taker))
                continue
            if loads[giver] - load < 2:
                break
            is_new_holder = not assigned[taker].get(topic_id)
            self._move(topic_id, giver, taker)
            has_moved = True
            if not assigned[giver][topic_id]:
                heappop(heaviest)
            if is_new_holder:
                heappush(heaviest, (-loads[taker], taker))
        return has_moved

    def shift_along_chains(self) -> None:
        """Find chains from the most loaded members to members with two partitions less."""
        done = [False] * len(self._members)
        steps = 0
        while steps < MAX_CHAIN_STEPS:
            remaining = [member for member, is_done in enumerate(done) if not is_done]
            if not remaining:
                return
            highest = max(self._loads[member] for member in remaining)
            sources = [member for member in remaining if self._loads[member] == highest]
            came_by, end, looked = self._search(sources, done, highest - 2)
            steps += looked + len(remaining)
            if end is None:
                for member in came_by:
                    done[member] = True
                continue
            link = came_by[end]
            while link is not None:
                giver, topic_id = link
                self._move(topic_id, giver, end)
                end, link = giver, came_by[giver]

    def _search(
        self, sources: Iterable[int], done: Sequence[bool], load: int
    ) -> tuple[dict[int, tuple[int, Uuid] | None], int | None, int]:
        """Go breadth first from member to member along partitions that could move.

        Returns from whom and by which topic each member was reached, a member of that load or less
        if one was, and how many looks it took.
        """
        came_by: dict[int, tuple[int, Uuid] | None] = dict.fromkeys(sources)
        queue = deque(came_by)
        topics_seen: set[Uuid] = set()
        looked = 0
        while queue:
            giver = queue.popleft()
            for topic_id, partitions in self._assigned[giver].items():
                # Whoever came first by this topic has reached all of its readers.
                if not partitions or topic_id in topics_seen:
                    continue
                topics_seen.add(topic_id)
                readers = self._readers[topic_id]
                looked += len(readers)
                for taker in readers:
                    if taker in came_by or done[taker]:
                        continue
                    came_by[taker] = giver, topic_id
                    if self._loads[taker] <= load:
                        return came_by, taker, looked
                    queue.append(taker)
        return came_by, None, looked

    def _move(self, topic_id: Uuid, giver: int, taker: int) -> None:
        """Move one partition; best one that the taker had, next best one that the giver had not."""
        candidates = self._assigned[giver][topic_id]
        was_takers = self._members[taker].held.get(topic_id, frozenset())
        was_givers = self._members[giver].held.get(topic_id, frozenset())
        partition = max((candidates & was_takers) or (candidates - was_givers) or candidates)
        candidates.remove(partition)
        self._assigned[taker].setdefault(topic_id, set()).add(partition)
        self._loads[giver] -= 1
        self._loads[taker] += 1

    def result(self) -> dict[str, Partitions]:
        return {
            subscriber.member_id: {
                topic_id: frozenset(partitions)
                for topic_id, partitions in assigned.items()
                if partitions
            }
            for subscriber, assigned in zip(self._members, self._assigned, strict=True)
        }
