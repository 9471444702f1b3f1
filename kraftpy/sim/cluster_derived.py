"""The derived state machines of a controller against a recomputation from its image.

What a context has come to by following many images, forwards and backwards, must be what a new one
makes of the newest image alone. A replica that is New is Online to who has not heard the past.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.transitions import ReplicaState
from kraftpy.metadata.image import EMPTY_IMAGE
from kraftpy.sim.quorum_invariants import InvariantViolated

__all__ = ["check_derived"]


def check_derived(node_id: int, context: ControllerContext) -> None:
    fresh = ControllerContext(context.settings)
    changes = ImageChanges(EMPTY_IMAGE, context.image)
    for derived in (
        fresh.partitions,
        fresh.replica_states,
        fresh.partition_states,
        fresh.deletions,
    ):
        derived.update(changes)
    facts = zip(_facts(context, context), _facts(fresh, context), strict=True)
    for (name, mine), (_, true) in facts:
        if mine != true:
            raise InvariantViolated("derived-differs", f"{node_id}: {name} {mine}, truly {true}")


def _facts(derived: ControllerContext, context: ControllerContext) -> Iterator[tuple[Any, Any]]:
    """What the machines of `derived` say about the image of `context`."""
    image = context.image
    index, deletions = derived.partitions, derived.deletions
    yield "partitions", index.partition_count
    yield "leaderless", list(index.leaderless())
    yield "reassigning", list(index.reassigning())
    yield "not preferred", list(index.not_preferred())
    yield "offline", derived.partition_states.offline_count
    yield "to delete", list(deletions.topics_to_delete)
    yield "ineligible", list(deletions.topics_ineligible)
    yield "replicas to delete", deletions.replicas_to_delete_count
    yield "replicas ineligible", deletions.replicas_ineligible_count
    for broker_id in image.brokers:
        yield "on broker", list(index.partitions_on(broker_id))
        yield "led", list(index.led_by(broker_id))
        yield "pending", deletions.pending_on(broker_id)
    states = derived.replica_states
    for topic_id in (*image.topic_names, *image.pending_deletions):
        for replica, state in states.topic_states(topic_id):
            known = ReplicaState.ONLINE if state is ReplicaState.NEW else state
            yield (topic_id, replica), known
