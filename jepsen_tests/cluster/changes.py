"""Administrative faults, carried out by the cluster's own protocol and by its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jepsen_tests.cluster.administration import Administration
from kraftpy.client.admin import Admin
from kraftpy.client.calls import TopicPartition
from kraftpy.faults.language import (
    AddVoter,
    AdministrativeFault,
    CancelReassignments,
    ChangeConfig,
    Decommission,
    ElectLeaders,
    Hijack,
    Reassign,
    RecreateTopic,
    RemoveVoter,
)
from kraftpy.world import Address, World

if TYPE_CHECKING:
    from jepsen_tests.cluster.process_cluster import JepsenCluster

__all__ = ["Changes"]


class Changes:
    def __init__(self, cluster: JepsenCluster, world: World, admin: Admin) -> None:
        self._cluster = cluster
        self._administration = Administration(world, admin)
        self._has_dynamic_voters = False
        # Voters that were removed and not added again.
        self._removed: dict[int, None] = {}

    async def make(self, fault: AdministrativeFault) -> None:
        """Raises KafkaError, ConnectionError or HarnessError."""
        ask = self._administration
        match fault:
            case ElectLeaders():
                await ask.elect_leaders()
            case Reassign(topic, partition, replicas):
                await ask.reassign(TopicPartition(topic, partition), replicas)
            case CancelReassignments():
                await ask.cancel_reassignments()
            case RecreateTopic(topic):
                await ask.recreate_topic(topic)
            case ChangeConfig(topic, key, value):
                await ask.change_config(topic, key, value or None)
            case Decommission(node):
                await ask.move_everything_from(node)
                await self._cluster.processes.stop_node(node)
                self._cluster.away[node] = None
                await ask.unregister(node)
            case RemoveVoter(node):
                await self._use_dynamic_voters()
                await ask.remove_voter(node, self._controllers())
                self._removed[node] = None
            case AddVoter(node):
                await self._use_dynamic_voters()
                await ask.add_voter(node, self._controllers())
                self._removed.pop(node, None)
            case Hijack(transactional_id):
                await ask.hijack(transactional_id, self._brokers())

    async def bring_back_voters(self) -> None:
        for node in list(self._removed):
            await self.make(AddVoter(node))

    async def transactional_ids(self) -> list[str]:
        return await self._administration.transactional_ids(self._brokers())

    async def _use_dynamic_voters(self) -> None:
        if not self._has_dynamic_voters:
            await self._administration.use_dynamic_voters()
            self._has_dynamic_voters = True

    def _controllers(self) -> dict[int, Address]:
        found = {}
        for node in self._cluster.controller_ids:
            plan = self._cluster.plan(node)
            if plan.controller_port is not None:
                found[node] = (plan.host, plan.controller_port)
        return found

    def _brokers(self) -> dict[int, Address]:
        found = {}
        for node in self._cluster.awake:
            plan = self._cluster.plan(node)
            if plan.port is not None:
                found[node] = (plan.host, plan.port)
        return found
