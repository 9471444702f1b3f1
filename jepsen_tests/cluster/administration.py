"""Changes that are asked of the cluster by its own protocol, as an administrator does.

Each returns when the cluster has taken it, which is not when it is done: a reassignment goes on
under whatever comes next. A refusal is a KafkaError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jepsen_tests.cluster.errors import HarnessError
from kraftpy.client.admin import Admin
from kraftpy.client.admin_cluster import (
    alter_reassignments,
    elect_preferred_leaders,
    list_reassignments,
    unregister_broker,
)
from kraftpy.client.admin_operations import (
    ConfigKind,
    NewTopic,
    alter_configs,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topics,
    list_topics,
    require,
)
from kraftpy.client.calls import TopicPartition
from kraftpy.client.errors import failure_of
from kraftpy.client.settings import ClientSettings
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema.k10_find_coordinator import FindCoordinatorRequest
from kraftpy.protocol.schema.k22_init_producer_id import InitProducerIdRequest
from kraftpy.protocol.schema.k66_list_transactions import ListTransactionsRequest
from kraftpy.protocol.tables import Request
from kraftpy.verify.voter_changes import NoAnswerError, VoterChanges, ask
from kraftpy.world import Address, World

__all__ = ["Administration"]

_DYNAMIC_SOURCE = 1
_KRAFT_VERSION = "kraft.version"
_TRANSACTION = 1
_TIMEOUT_MS = 10_000
_POLL_SECONDS = 0.2
_HIJACK_ATTEMPTS = 25


class Administration:
    def __init__(self, world: World, admin: Admin) -> None:
        self._world = world
        self._admin = admin
        self._client = ClientSettings(client_id="nemesis", request_timeout_ms=_TIMEOUT_MS)
        self._voters = VoterChanges(world, admin, self._client, timeout_ms=_TIMEOUT_MS)

    async def elect_leaders(self) -> list[TopicPartition]:
        return await self._admin.run(elect_preferred_leaders())

    async def reassign(self, where: TopicPartition, replicas: Sequence[int]) -> None:
        await self._alter({where: replicas})

    async def cancel_reassignments(self) -> list[TopicPartition]:
        moving = await self._admin.run(list_reassignments())
        if moving:
            await self._alter(dict.fromkeys(moving))
        return moving

    async def reassignments(self) -> list[TopicPartition]:
        return await self._admin.run(list_reassignments())

    async def recreate_topic(self, name: str) -> None:
        """With as many partitions and replicas as it had, and its own settings."""
        topic = (await self._admin.run(describe_topics([name])))[name]
        configs = await self._admin.run(describe_configs(ConfigKind.TOPIC, name))
        own = {
            each.name: each.value
            for each in configs
            if each.source == _DYNAMIC_SOURCE and each.value is not None
        }
        replicas = len(topic.partitions[0].replicas)
        require(await self._admin.run(delete_topics([name])))
        again = NewTopic(name, len(topic.partitions), replicas, own)
        while True:
            outcomes = await self._admin.run(create_topics([again]))
            failure = outcomes[name]
            if failure is None or failure.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                require(outcomes)
                return
            # The request was made again after its answer was lost, or the deletion is not over.
            if await self._has_new_id(name, topic.topic_id):
                return
            await self._world.clock.sleep(_POLL_SECONDS)

    async def change_config(self, topic: str, key: str, value: str | None) -> None:
        await self._admin.run(alter_configs(ConfigKind.TOPIC, topic, {key: value}))

    async def move_everything_from(self, node: int) -> None:
        """Returns when no replica is left there. Raises HarnessError if others are too few."""
        brokers = [each.node_id for each in (await self._admin.run(describe_cluster())).brokers]
        topics = await self._admin.run(list_topics(include_internal=True))
        targets = {}
        for name, topic in topics.items():
            for number, each in topic.partitions.items():
                if node in each.replicas:
                    others = [broker for broker in brokers if broker not in each.replicas]
                    kept = [replica for replica in each.replicas if replica != node]
                    replicas = [*kept, *others[:1]]
                    if len(replicas) < len(each.replicas):
                        raise HarnessError(f"there is no other node for {name}-{number}")
                    targets[TopicPartition(name, number)] = replicas
        if targets:
            await self._alter(targets)
        while any(where in targets for where in await self.reassignments()):
            await self._world.clock.sleep(_POLL_SECONDS)

    async def unregister(self, node: int) -> None:
        await self._admin.run(unregister_broker(node))

    async def remove_voter(self, node: int, controllers: dict[int, Address]) -> None:
        await self._voters.remove(node, controllers)

    async def add_voter(self, node: int, controllers: dict[int, Address]) -> None:
        await self._voters.add(node, controllers)

    async def hijack(self, transactional_id: str, brokers: dict[int, Address]) -> None:
        """Fence whoever uses that id."""
        some = next(iter(brokers.values()))
        find = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[transactional_id])
        answer = await self._ask(some, find)
        [coordinator] = answer.coordinators
        _raise(coordinator.error_code)
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS
        )
        for _ in range(_HIJACK_ATTEMPTS):
            answer = await self._ask((coordinator.host, coordinator.port), request)
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            # Its owner's transaction is being aborted, for our sake.
            await self._world.clock.sleep(_POLL_SECONDS)
        _raise(answer.error_code)

    async def transactional_ids(self, brokers: dict[int, Address]) -> list[str]:
        """Of transactions that are open: every coordinator knows its own."""
        found: dict[str, None] = {}
        for address in brokers.values():
            answer = await self._ask(address, ListTransactionsRequest(state_filters=["Ongoing"]))
            for each in answer.transaction_states:
                found[each.transactional_id] = None
        return sorted(found)

    async def _alter(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        for failure in (await self._admin.run(alter_reassignments(targets))).values():
            if failure is not None and failure.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                raise failure

    async def _has_new_id(self, name: str, old: Uuid) -> bool:
        # A broker may know of the deletion and not yet of the new topic.
        topic = (await self._admin.run(list_topics())).get(name)
        return topic is not None and topic.error == ErrorCode.NONE and topic.topic_id != old

    async def use_dynamic_voters(self) -> None:
        await self._voters.use_dynamic_voters()

    async def _ask(self, address: Address, request: Request) -> Any:
        """Raises HarnessError if there is no answer."""
        try:
            return await ask(self._world, address, request, self._client)
        except NoAnswerError as error:
            raise HarnessError(str(error)) from error


def _raise(code: int, message: str | None = None) -> None:
    failure = failure_of(code, message)
    if failure is not None:
        raise failure
