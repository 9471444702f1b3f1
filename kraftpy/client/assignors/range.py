"""Range: each topic is cut into as many stretches as it has subscribers.

With topics of equal size a member has the same numbers of each, which those who join topics want;
the price is that the first members get the larger shares of all topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraftpy.client.assignors.assignor import Assignment, CountingAssignor, MemberSubscription
from kraftpy.client.calls import TopicPartition

__all__ = ["RangeAssignor"]


class RangeAssignor(CountingAssignor):
    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        for topic in sorted(partition_counts):
            subscribers = sorted(each.member_id for each in members if topic in each.topics)
            if not subscribers:
                continue
            share, larger_shares = divmod(partition_counts[topic], len(subscribers))
            for place, member_id in enumerate(subscribers):
                start = share * place + min(place, larger_shares)
                end = start + share + (place < larger_shares)
                assignment[member_id] += [TopicPartition(topic, each) for each in range(start, end)]
        return assignment
