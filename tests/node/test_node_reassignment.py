"""A replica moves to a broker that is away, and comes back: counted, and without help."""

from __future__ import annotations

import trio
from effects.node_effects import NODES, quorum_leader
from support.simulated_nodes import SimulatedNodes, run_nodes

from kraftpy.observe.metrics import Meter
from kraftpy.observe.topic_metrics import metric_name
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

RECORD_BYTES = 10_000


def counted(rig: SimulatedNodes, name: str, of: str) -> float:
    meter = rig.nodes[of].registry.get(metric_name(name))
    return meter.count if isinstance(meter, Meter) else 0


def test_a_broker_that_starts_goes_on_with_its_reassignment() -> None:
    """CTL-64, REP-78: replication and reassignment bytes are counted where they come in."""

    async def scenario(rig: SimulatedNodes) -> None:
        await rig.start(*NODES)
        await rig.create("t")
        home = f"n{(await rig.describe('t')).partitions[0].leader_id}"
        answer = await rig.produce("t", rig.batch(bytes(RECORD_BYTES)), of=home)
        assert answer.error_code == ErrorCode.NONE
        controller = await quorum_leader(rig)
        away = next(name for name in NODES if name not in (home, controller))
        target = int(away.removeprefix("n"))
        await rig.stop(away)
        moved = ReassignablePartition(partition_index=0, replicas=[target])
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=5_000, topics=[ReassignableTopic(name="t", partitions=[moved])]
        )
        asked = await rig.ask(request, of=home)
        assert asked.responses[0].partitions[0].error_code == ErrorCode.NONE
        await trio.sleep(5)
        [waiting] = (await rig.describe("t", of=home)).partitions
        assert (waiting.leader_id, sorted(waiting.isr_nodes)) == (
            int(home.removeprefix("n")),
            [int(home.removeprefix("n"))],
        )
        await rig.start_with(away, rig.config(away, NODES, {}))
        await trio.sleep(10)
        [done] = (await rig.describe("t", of=away)).partitions
        assert (done.leader_id, done.replica_nodes, done.isr_nodes) == (target, [target], [target])
        assert counted(rig, "ReplicationBytesInPerSec", away) > RECORD_BYTES
        assert counted(rig, "ReassignmentBytesInPerSec", away) > RECORD_BYTES
        assert counted(rig, "ReplicationBytesOutPerSec", home) > RECORD_BYTES
        assert counted(rig, "ReassignmentBytesInPerSec", home) == 0

    run_nodes(scenario)
