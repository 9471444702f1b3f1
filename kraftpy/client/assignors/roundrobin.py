"""Round robin: all partitions of all topics are dealt out, one to each member in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kraftpy.client.assignors.assignor import Assignment, CountingAssignor, MemberSubscription
from kraftpy.client.calls import TopicPartition

__all__ = ["RoundRobinAssignor"]


class RoundRobinAssignor(CountingAssignor):
    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> Assignment:
        ordered = sorted(members, key=lambda each: each.member_id)
        assignment: Assignment = {member.member_id: [] for member in ordered}
        cursor = 0
        for topic in sorted(partition_counts):
            if not any(topic in member.topics for member in ordered):
                continue
            for partition in range(partition_counts[topic]):
                while topic not in ordered[cursor % len(ordered)].topics:
                    cursor += 1
                member = ordered[cursor % len(ordered)]
                assignment[member.member_id].append(TopicPartition(topic, partition))
                cursor += 1
        return assignment
