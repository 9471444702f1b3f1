"""Checks that pass over what can't have changed find what whole ones find, at the same event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import controller_bugs
import coordinator_bugs
import pytest
import raft_bugs
from seeded_bugs import Bug, Suite

from kraftpy.coordinator.groups.consumer_group import ConsumerGroup
from kraftpy.metadata.image import TopicImage
from kraftpy.metadata.records import PartitionRecord
from kraftpy.metadata.sorted_map import SortedMap
from kraftpy.protocol.ids import Uuid
from kraftpy.raft import inputs
from kraftpy.raft.core import RaftCore
from kraftpy.raft.election_state import ElectionState
from kraftpy.sim import cluster_truth, coordinator_rules
from kraftpy.sim.cluster_simulation import ClusterSimulation
from kraftpy.sim.cluster_truth import _differs
from kraftpy.sim.coordinator_simulation import CoordinatorSimulation
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.sim.quorum_node import QuorumNode
from kraftpy.sim.quorum_simulation import QuorumSimulation

_EVENTS = 400
_PROMISES = ("vote not persisted", "restarted leader campaigns in its epoch")
_IMAGES = ("last record of a batch is lost", "image labelled with another offset")
_GROUPS = (
    "what the log refused stays",
    "holders not kept",
    "offsets of an aborted transaction kept",
    "offsets visible before the marker",
)


def _found(simulation: Any, events: int) -> tuple[str, int]:
    """What a run is found guilty of, and when."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 (compared below)
        simulation.run(events)
    return str(caught.value), simulation.event_count


def _bug(suite: Suite, name: str) -> tuple[Bug, int]:
    return next(bug for bug in suite.bugs if bug.name == name), suite.recorded()[name]["seed"]


@pytest.mark.parametrize("name", _PROMISES)
def test_promises_that_are_known_to_be_kept_are_not_looked_at_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug, seed = _bug(raft_bugs.SUITE, name)
    check = QuorumNode._check

    def check_all(node: QuorumNode, core: RaftCore) -> None:
        node._checked_election = None
        check(node, core)

    with bug.seeded():
        found = _found(QuorumSimulation(seed), raft_bugs.EVENTS)
        monkeypatch.setattr(QuorumNode, "_check", check_all)
        assert _found(QuorumSimulation(seed), raft_bugs.EVENTS) == found


@pytest.mark.parametrize("name", _IMAGES)
def test_of_an_image_only_what_has_changed_is_compared(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug, seed = _bug(controller_bugs.SUITE, name)
    with bug.seeded():
        found = _found(ClusterSimulation(seed), controller_bugs.EVENTS)
        monkeypatch.setattr(cluster_truth, "_FULL_COMPARISON_EVERY", 1)
        assert _found(ClusterSimulation(seed), controller_bugs.EVENTS) == found


@pytest.mark.parametrize("name", _GROUPS)
def test_groups_that_are_what_they_were_are_not_looked_at_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug, seed = _bug(coordinator_bugs.SUITE, name)
    with bug.seeded():
        found = _found(CoordinatorSimulation(seed), coordinator_bugs.EVENTS)
        monkeypatch.setattr(coordinator_rules, "_EVERYTHING_EVERY", 1)
        assert _found(CoordinatorSimulation(seed), coordinator_bugs.EVENTS) == found


def test_a_stored_promise_that_changes_alone_is_looked_at() -> None:
    simulation = QuorumSimulation(3)
    simulation.run(_EVENTS)
    node = next(each for each in simulation.network.nodes.values() if each.is_up)
    node.feed(inputs.TimeAdvanced(), "timer")
    node.storage.election = ElectionState(node.storage.election.epoch + 1)
    with pytest.raises(InvariantViolated, match="promise-stored"):
        node.feed(inputs.TimeAdvanced(), "timer")


@pytest.mark.parametrize(
    ("part", "code"), [("holders", "holders-differ"), ("topic_readers", "readers-differ")]
)
def test_a_part_of_a_group_that_changes_alone_is_looked_at(part: str, code: str) -> None:
    simulation = CoordinatorSimulation(0)
    simulation.run(_EVENTS)
    for broker in simulation.brokers.values():
        for shard in broker.groups.shards():
            rules = simulation.rules[shard.partition]
            # Not one of the checks that look at everything.
            rules._checks = 0
            rules.check_shard(shard)
            for group in shard.machine.directory.all():
                if isinstance(group, ConsumerGroup) and group.holders:
                    changed = getattr(group, part)
                    changed.pop(next(iter(changed)))
                    with pytest.raises(InvariantViolated, match=code):
                        rules.check_shard(shard)
                    return
    pytest.fail("no group holds anything")


@pytest.mark.parametrize("is_true", [False, True], ids=["image", "truth"])
def test_a_topic_that_changes_on_one_side_alone_is_compared(is_true: bool) -> None:
    """Whichever of the two went on: the node's image, or the fold of what is committed."""
    one, other = (TopicImage(name, Uuid(name.encode() * 16)) for name in "ab")
    before = SortedMap[str, TopicImage]().updated({"a": one, "b": other})
    twin = SortedMap[str, TopicImage]().updated({"a": replace(one), "b": replace(other)})
    partition = PartitionRecord(0, one.topic_id, (1,), (1,))
    changed = before.updated({"a": replace(one, partitions=(partition,))})
    assert not _differs(before, before, twin, twin)
    assert not _differs(before, before.updated({"a": replace(one)}), twin, twin)
    after = (twin, twin, before, changed) if is_true else (before, changed, twin, twin)
    assert _differs(*after)
    assert _differs(before, before.updated({"b": None}), twin, twin)
