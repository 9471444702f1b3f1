"""Clients and operators of the simulated cluster: they wish for things, by what some node knows.

A wish is made from the image of a random node, which may be old, and goes to whom another node
takes for the controller. Nobody waits: what comes back is the controller's to answer for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from kraftpy.metadata.image import MetadataImage, TopicImage
from kraftpy.metadata.records import ConfigResourceType
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k20_delete_topics as k20
from kraftpy.protocol.schema import k37_create_partitions as k37
from kraftpy.protocol.schema import k43_elect_leaders as k43
from kraftpy.protocol.schema import k44_incremental_alter_configs as k44
from kraftpy.protocol.schema import k45_alter_partition_reassignments as k45
from kraftpy.protocol.schema import k64_unregister_broker as k64
from kraftpy.sim.cluster_network import CLIENT, ClusterNetwork, Reply
from kraftpy.sim.cluster_node import MetadataNode
from kraftpy.sim.cluster_swarm import ClusterSwarm, Wish

__all__ = ["Clients"]

_VERSIONS: Mapping[type[Any], int] = {
    k19.CreateTopicsRequest: 7,
    k20.DeleteTopicsRequest: 6,
    k37.CreatePartitionsRequest: 3,
    k43.ElectLeadersRequest: 2,
    k44.IncrementalAlterConfigsRequest: 1,
    k45.AlterPartitionReassignmentsRequest: 1,
    k64.UnregisterBrokerRequest: 0,
}
_PREFERRED, _UNCLEAN = 0, 1
_SET, _DELETE = 0, 1


class Clients:
    __slots__ = ("_broker_ids", "_network", "_nodes", "_random", "_swarm", "replies")

    def __init__(
        self,
        network: ClusterNetwork,
        nodes: Sequence[MetadataNode],
        broker_ids: Sequence[int],
        swarm: ClusterSwarm,
        random: Random,
    ) -> None:
        self._network = network
        self._nodes = nodes
        self._broker_ids = broker_ids
        self._swarm = swarm
        self._random = random
        # How many answers and refusals have come back.
        self.replies = 0

    def wish(self) -> None:
        random = self._random
        image = self._known_image()
        if image is None:
            return
        request = self._request(random.choice(self._swarm.wishes), image)
        if request is None:
            return
        node = random.choice(self._nodes).node
        target = -1 if node.core is None else node.core.quorum.election.leader_id
        if target not in self._network.controllers:
            target = random.choice(list(self._network.controllers))
        version = _VERSIONS[type(request)]
        self._network.call(CLIENT, target, request, version, self._hear)

    def _hear(self, reply: Reply) -> None:
        del reply
        self.replies += 1

    def _known_image(self) -> MetadataImage | None:
        loader = self._random.choice(self._nodes).loader
        return None if loader is None else loader.image

    def _request(self, wish: Wish, image: MetadataImage) -> Any:
        random = self._random
        if wish is Wish.CREATE:
            return self._create()
        if wish is Wish.UNREGISTER:
            if random.random() < 0.9:
                return None
            return k64.UnregisterBrokerRequest(broker_id=random.choice(self._broker_ids))
        topics = list(image.topics.values())
        if not topics:
            return None
        topic = random.choice(topics)
        match wish:
            case Wish.DELETE:
                by_id = random.random() < 0.5
                state = (
                    k20.DeleteTopicState(topic_id=topic.topic_id)
                    if by_id
                    else k20.DeleteTopicState(name=topic.name)
                )
                return k20.DeleteTopicsRequest(topics=[state])
            case Wish.GROW:
                count = min(len(topic.partitions) + 1, self._swarm.partitions_max + 2)
                grown = k37.CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
                return k37.CreatePartitionsRequest(topics=[grown])
            case Wish.ELECT:
                return self._elect(topic)
            case Wish.REASSIGN:
                return self._reassign(topic)
            case Wish.CONFIGURE:
                return self._configure(topic)

    def _create(self) -> k19.CreateTopicsRequest:
        random, swarm = self._random, self._swarm
        replication_factor = random.randint(swarm.replicas_min, len(self._broker_ids))
        configs = []
        if random.random() < 0.5:
            value = str(random.randint(1, replication_factor))
            configs.append(k19.CreatableTopicConfig(name="min.insync.replicas", value=value))
        topic = k19.CreatableTopic(
            name=f"topic{random.randrange(swarm.topics_max)}",
            num_partitions=random.randint(1, swarm.partitions_max),
            replication_factor=replication_factor,
            configs=configs,
        )
        return k19.CreateTopicsRequest(topics=[topic])

    def _elect(self, topic: TopicImage) -> k43.ElectLeadersRequest:
        random = self._random
        is_unclean = self._swarm.allows_unclean and random.random() < 0.5
        chosen = None
        if random.random() < 0.7:
            partitions = [random.randrange(len(topic.partitions))]
            chosen = [k43.TopicPartitions(topic=topic.name, partitions=partitions)]
        return k43.ElectLeadersRequest(
            election_type=_UNCLEAN if is_unclean else _PREFERRED, topic_partitions=chosen
        )

    def _reassign(self, topic: TopicImage) -> k45.AlterPartitionReassignmentsRequest:
        random = self._random
        replicas = None
        if random.random() < 0.8:
            count = random.randint(1, len(self._broker_ids))
            replicas = random.sample(list(self._broker_ids), count)
        partition = k45.ReassignablePartition(
            partition_index=random.randrange(len(topic.partitions)), replicas=replicas
        )
        moved = k45.ReassignableTopic(name=topic.name, partitions=[partition])
        return k45.AlterPartitionReassignmentsRequest(topics=[moved])

    def _configure(self, topic: TopicImage) -> k44.IncrementalAlterConfigsRequest:
        random = self._random
        key, value = "min.insync.replicas", str(random.randint(1, 3))
        if self._swarm.allows_unclean and random.random() < 0.5:
            key, value = "unclean.leader.election.enable", random.choice(("true", "false"))
        kind, name = ConfigResourceType.TOPIC, topic.name
        operation = _SET if random.random() < 0.8 else _DELETE
        if random.random() < 0.2:
            kind, name, operation = ConfigResourceType.BROKER, "", _SET
        config = k44.AlterableConfig(
            name=key, config_operation=operation, value=value if operation == _SET else None
        )
        resource = k44.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[config]
        )
        return k44.IncrementalAlterConfigsRequest(resources=[resource])
