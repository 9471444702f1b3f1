"""Coordinators of groups and transactions in the L2 kernel: real machines, simulated all else.

Brokers lead the partitions of internal topics one after the other, clients of all kinds use them,
and a nemesis sees to it that leaders change, hear of it late, fall silent, and lose what was not
committed. Rules are checked after every event. At the end nothing fails any more, and everything
must come to rest: groups are stable with all their members, transactions have ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from kraftpy.coordinator.groups.classic_group import ClassicGroup, ClassicState
from kraftpy.coordinator.groups.consumer_group import ConsumerGroup, ConsumerGroupState
from kraftpy.coordinator.groups.machine import GroupMachine
from kraftpy.coordinator.groups.settings import GroupSettings
from kraftpy.coordinator.hashing import partition_for
from kraftpy.coordinator.shard import Shard, ShardState
from kraftpy.coordinator.shard_writing import ShardSettings, ShardWorld
from kraftpy.log.checkpoints import TopicPartition
from kraftpy.protocol.coordinator_records import GROUP_RECORDS
from kraftpy.purgatory.timer import Timer
from kraftpy.sim.coordinator_broker import (
    GROUP_TOPIC,
    TRANSACTION_TOPIC,
    CoordinatorBroker,
    SimulatedClock,
)
from kraftpy.sim.coordinator_clients import ClientWorld, GroupClient
from kraftpy.sim.coordinator_image import SimulatedMetadata
from kraftpy.sim.coordinator_members import ClassicConsumer, ModernConsumer
from kraftpy.sim.coordinator_network import CoordinatorNetwork
from kraftpy.sim.coordinator_partition import Reign, SimulatedPartition
from kraftpy.sim.coordinator_rules import GroupRules, claim, state_of
from kraftpy.sim.coordinator_swarm import (
    CoordinatorFault,
    CoordinatorSwarm,
    draw_coordinator_swarm,
)
from kraftpy.sim.coordinator_transactions import OUTPUTS, TransactionRules
from kraftpy.sim.coordinator_workers import Worker
from kraftpy.sim.digest import EventDigest, RunTrace
from kraftpy.sim.error_log import ErrorLog
from kraftpy.sim.kernel import EventHeap, rare_collections
from kraftpy.sim.quorum_invariants import InvariantViolated
from kraftpy.world.memory_rng import MemoryRng

__all__ = ["CoordinatorRun", "CoordinatorSimulation"]

# Virtual time within which everything must be at rest.
_LIVENESS_LIMIT_US: Final = 60_000_000
_ORDER_CHECK_US: Final = 200_000
_AUDIT_EVENTS: Final = 997
_CLASSIC_GROUP: Final = "classic"
_MODERN_GROUP: Final = "modern"
_WORKERS_GROUP: Final = "workers"


@dataclass(frozen=True, slots=True)
class CoordinatorRun:
    """What a run did."""

    seed: int
    swarm: CoordinatorSwarm
    trace: RunTrace
    event_count: int
    virtual_us: int
    moves: int
    commits: int
    reads: int
    assignments: int
    transactions: int


class CoordinatorSimulation:
    def __init__(
        self, seed: int, swarm: CoordinatorSwarm | None = None, window: range = range(0)
    ) -> None:
        rng = MemoryRng(seed, "coordinators")
        self.seed = seed
        self.swarm = swarm or draw_coordinator_swarm(rng.stream("swarm"))
        self.heap = EventHeap()
        self.digest = EventDigest(window)
        self.event_count = 0
        self.is_faulty = True
        # Brokers whose state is to be compared with their logs, when they have written everything.
        self._audits_due: dict[int, None] = {}
        self.moves = 0
        self._errors = ErrorLog()
        self._nemesis = rng.stream("nemesis")
        self._clock = SimulatedClock(self.heap)
        self._producer_ids = 1000
        self.partitions: dict[TopicPartition, SimulatedPartition] = {}
        self.rules: dict[int, GroupRules] = {}
        self.brokers: dict[int, CoordinatorBroker] = {}
        self.transactions = TransactionRules()
        self._metadata = SimulatedMetadata(self.swarm.topic_partitions)
        self._make_partitions(rng)
        self._make_brokers(rng)
        self.clients = self._make_clients(rng)

    # Making.

    def _make_partitions(self, rng: MemoryRng) -> None:
        for index in range(self.swarm.partitions):
            name = (GROUP_TOPIC, index)
            partition = self._partition(name, rng, self._group_committed)
            self.rules[index] = GroupRules(partition)
        if self.swarm.workers:
            self._partition((TRANSACTION_TOPIC, 0), rng, self._state_committed)
            for name in OUTPUTS:
                self._partition(name, rng, self._output_committed)

    def _partition(
        self,
        name: TopicPartition,
        rng: MemoryRng,
        committed: Callable[[TopicPartition, bytes, int], None],
    ) -> SimulatedPartition:
        partition = self.partitions[name] = SimulatedPartition(
            name,
            self.heap,
            self.swarm,
            rng.stream(f"partition {name}"),
            self._clock,
            committed=partial(committed, name),
            tell=self._tell,
        )
        return partition

    def _group_committed(self, name: TopicPartition, data: bytes, end: int) -> None:
        self.rules[name[1]].truth.committed(data, end)

    def _state_committed(self, name: TopicPartition, data: bytes, end: int) -> None:
        self.transactions.state_committed(data)

    def _output_committed(self, name: TopicPartition, data: bytes, end: int) -> None:
        self.transactions.output_committed(name, data)

    def _tell(self, partition: SimulatedPartition, reign: Reign) -> None:
        broker = self.brokers[reign.broker_id]
        broker.post(1, "committed", lambda: broker.committed(partition, reign))

    def _make_brokers(self, rng: MemoryRng) -> None:
        swarm = self.swarm
        settings = GroupSettings(
            initial_rebalance_delay_ms=swarm.initial_delay_ms,
            min_session_timeout_ms=1,
            consumer_session_timeout_ms=swarm.session_ms,
            consumer_min_session_timeout_ms=1,
            consumer_heartbeat_interval_ms=swarm.heartbeat_ms,
            consumer_min_heartbeat_interval_ms=1,
            consumer_assignment_interval_ms=0,
        )
        for broker_id in range(1, swarm.brokers + 1):
            self.brokers[broker_id] = CoordinatorBroker(
                broker_id,
                self.heap,
                swarm,
                rng.stream(f"broker {broker_id}"),
                image=self._metadata.image,
                group_settings=settings,
                happened=self._happened,
                decided=self.transactions.decided,
                new_producer_id=self._new_producer_id,
            )
        self.network = CoordinatorNetwork(
            self.heap,
            swarm,
            rng.stream("network"),
            brokers=self.brokers,
            partitions=self.partitions,
        )
        for broker in self.brokers.values():
            broker.network = self.network
        self._settings = settings

    def _new_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    def _make_clients(self, rng: MemoryRng) -> list[GroupClient]:
        world = ClientWorld(self.heap, self.swarm, self.network, self._note)
        clients: list[GroupClient] = []
        for kind, group_id, count in (
            (ClassicConsumer, _CLASSIC_GROUP, self.swarm.classic),
            (ModernConsumer, _MODERN_GROUP, self.swarm.consumers),
            (Worker, _WORKERS_GROUP, self.swarm.workers),
        ):
            rules = self.rules[partition_for(group_id, self.swarm.partitions)]
            for number in range(count):
                name = f"{group_id}{number}"
                client: GroupClient = kind(
                    world, name, rng.stream(name), group_id=group_id, rules=rules
                )
                if isinstance(client, Worker):
                    client.transactions = self.transactions
                clients.append(client)
        return clients

    # Events.

    def _note(self, kind: str, place: str, what: str) -> None:
        self.digest.record(self.heap.now_us / 1e6, kind, place, what.encode())

    def _happened(self, broker: CoordinatorBroker, kind: str) -> None:
        self.event_count += 1
        ends = []
        for shard in broker.groups.shards():
            if kind != "idle turn":
                self.rules[shard.partition].check_shard(shard)
            ends.append(f"{shard.timeline.last_committed}-{shard.timeline.last_written}")
        self._note(kind, str(broker.broker_id), " ".join(ends))
        if self._errors.messages:
            raise InvariantViolated("error-logged", self._errors.messages[0])
        if self.event_count % _AUDIT_EVENTS == 0:
            self._audits_due = self._leaders()
        if kind.endswith("turn") and broker.broker_id in self._audits_due:
            del self._audits_due[broker.broker_id]
            self._audit(broker)

    # Phases.

    @rare_collections()
    def run(self, event_limit: int) -> CoordinatorRun:
        """The safety phase for `event_limit` events, then the liveness phase."""
        logger = logging.getLogger("kraftpy")
        logger.addHandler(self._errors)
        try:
            for partition in self.partitions.values():
                self._elect(partition, self._nemesis.choice(list(self.brokers)))
            for client in self.clients:
                self.heap.plan(self._nemesis.randint(1, 500_000), client.start)
            self._plan_strike()
            while self.event_count < event_limit:
                self.heap.run_next()
            self._heal()
            self._demand_order()
            self._audits_due = self._leaders()
            while self._audits_due:
                self.heap.run_next()
            self.transactions.check_end(self._committed_inputs())
        except Exception as error:
            error.add_note(
                f"replay: python -m kraftpy.sim.coordinator_run --seed {self.seed}"
                f" --events {event_limit}  (virtual time {self.heap.now_us / 1e6:.6f} s,"
                f" event {self.event_count}, {self.swarm})"
            )
            raise
        finally:
            logger.removeHandler(self._errors)
        rules = list(self.rules.values())
        return CoordinatorRun(
            self.seed,
            self.swarm,
            self.digest.trace(),
            self.event_count,
            self.heap.now_us,
            self.moves,
            sum(each.commits for each in rules),
            sum(each.reads for each in rules),
            sum(each.assignments for each in rules),
            self.transactions.committed_count,
        )

    def _committed_inputs(self) -> dict[int, int]:
        rules = self.rules[partition_for(_WORKERS_GROUP, self.swarm.partitions)]
        return {
            index: stored.offset
            for (group_id, index), stored in rules.truth.offsets.items()
            if group_id == _WORKERS_GROUP
        }

    def _heal(self) -> None:
        self.is_faulty = False
        self.network.is_faulty = False
        for partition in self.partitions.values():
            partition.is_faulty = False
            partition.stalled_until_us = 0
        for broker in self.brokers.values():
            if not broker.is_up:
                self._restart(broker)
            if broker.is_paused:
                broker.resume()
        self._stop_some()
        for client in self.clients:
            client.is_calm = True
        for partition in self.partitions.values():
            self._elect(partition, self._nemesis.choice(list(self.brokers)))

    def _stop_some(self) -> None:
        """One of each group may die for good: the others must get what it had."""
        for group_id in (_CLASSIC_GROUP, _MODERN_GROUP, _WORKERS_GROUP):
            members = self._clients_of(group_id)
            if len(members) > 1 and self._nemesis.random() < 0.5:
                members[-1].stop()
                self.clients.remove(members[-1])

    def _clients_of(self, group_id: str) -> list[GroupClient]:
        return [each for each in self.clients if each.group_id == group_id]

    def _demand_order(self) -> None:
        deadline_us = self.heap.now_us + _LIVENESS_LIMIT_US
        while (disorder := self._disorder()) is not None:
            if self.heap.now_us > deadline_us:
                raise InvariantViolated("liveness", disorder)
            until_us = self.heap.now_us + _ORDER_CHECK_US
            while self.heap.now_us < until_us:
                self.heap.run_next()

    # The nemesis.

    def _plan_strike(self) -> None:
        delay = self._nemesis.expovariate(1 / self.swarm.nemesis_mean_us)
        self.heap.plan(int(delay) + 1, self._strike)

    def _strike(self) -> None:
        if not self.is_faulty:
            return
        self._plan_strike()
        if not self.swarm.faults:
            return
        random = self._nemesis
        fault = random.choice(self.swarm.faults)
        partition = random.choice(list(self.partitions.values()))
        broker = random.choice(list(self.brokers.values()))
        self._note("strike", str(partition), fault)
        if fault is CoordinatorFault.CRASH:
            self._crash(broker)
        elif fault is CoordinatorFault.PAUSE and broker.is_up and not broker.is_paused:
            broker.pause()
            self.heap.plan(random.randint(1, 3_000_000), broker.resume)
        elif fault is CoordinatorFault.GROW:
            self._grow()
        elif fault is CoordinatorFault.STALL:
            partition.stalled_until_us = self.heap.now_us + random.randint(1, 2_000_000)
        elif broker.is_up:
            self._move(fault, partition, broker.broker_id, random)

    def _grow(self) -> None:
        image = self._metadata.grow()
        for broker in self.brokers.values():
            delay = int(self._nemesis.expovariate(1 / self.swarm.feed_mean_us)) + 1
            broker.post(delay, "metadata", partial(broker.publish, image))

    def _move(
        self, fault: CoordinatorFault, partition: SimulatedPartition, to: int, random: Random
    ) -> None:
        kept = 1.0 if fault is CoordinatorFault.MOVE else random.choice((0.0, random.random()))
        is_zombie = fault is CoordinatorFault.ZOMBIE
        if fault is CoordinatorFault.TWO_MOVES:
            self._elect(partition, to)
            partition.stalled_until_us = self.heap.now_us + 100_000
            others = [each for each in self.brokers if each != to]
            self.heap.plan(
                random.randint(1_000, 100_000),
                lambda: self._elect(partition, others[0], kept=kept),
            )
        else:
            self._elect(partition, to, kept=kept, is_late=is_zombie)

    def _elect(
        self,
        partition: SimulatedPartition,
        broker_id: int,
        *,
        kept: float = 1.0,
        is_late: bool = False,
    ) -> None:
        """Everybody hears of it, each at another time."""
        self.moves += 1
        old_id = partition.reign.broker_id
        reign = partition.elect(broker_id, kept=kept)
        for broker in self.brokers.values():
            delay = int(self._nemesis.expovariate(1 / self.swarm.feed_mean_us)) + 1
            if is_late and broker.broker_id == old_id != broker_id:
                delay += 2_000_000
            broker.post(delay, "hear", partial(broker.hear, partition, reign))

    def _crash(self, broker: CoordinatorBroker) -> None:
        if not broker.is_up:
            self._restart(broker)
            return
        broker.crash()
        alive = [each.broker_id for each in self.brokers.values() if each.is_up]
        for partition in self.partitions.values():
            if partition.reign.broker_id == broker.broker_id and alive:
                kept = self._nemesis.choice((0.0, 1.0, self._nemesis.random()))
                self._elect(partition, self._nemesis.choice(alive), kept=kept)

    def _restart(self, broker: CoordinatorBroker) -> None:
        broker.start()
        broker.publish(self._metadata.image)
        for partition in self.partitions.values():
            if partition.reign.broker_id == broker.broker_id:
                self._elect(partition, broker.broker_id)
            else:
                broker.post(1, "hear", partial(broker.hear, partition, partition.reign))

    # Order.

    def _active(self, partition: SimulatedPartition) -> Shard[GroupMachine] | None:
        broker = self.brokers[partition.reign.broker_id]
        for shard in broker.groups.shards():
            is_newest = shard.leader_epoch == partition.reign.epoch
            if shard.partition == partition.name[1] and is_newest:
                return shard if shard.state is ShardState.ACTIVE else None
        return None

    def _disorder(self) -> str | None:
        """What isn't yet as it should be; None if all is."""
        for rules in self.rules.values():
            shard = self._active(rules.partition)
            if shard is None:
                return f"{rules.partition} has no coordinator"
            if shard.timeline.last_committed != shard.timeline.last_written:
                return f"{rules.partition} is not committed"
        pending = any(rules.truth.pending for rules in self.rules.values())
        return self._unsettled_group() or self.transactions.disorder(has_pending=pending)

    def _unsettled_group(self) -> str | None:
        for group_id in (_CLASSIC_GROUP, _MODERN_GROUP, _WORKERS_GROUP):
            clients = self._clients_of(group_id)
            if not clients:
                continue
            rules = self.rules[partition_for(group_id, self.swarm.partitions)]
            shard = self._active(rules.partition)
            group = None if shard is None else shard.machine.directory.get(group_id)
            if isinstance(group, ClassicGroup):
                is_stable = group.state is ClassicState.STABLE
                is_agreed = all(client.epoch == group.generation for client in clients)
                members = list(group.members)
            elif isinstance(group, ConsumerGroup):
                is_stable = group.state_name == ConsumerGroupState.STABLE
                is_agreed = all(client.epoch == group.epoch.value for client in clients)
                members = list(group.members)
            else:
                return f"there is no group {group_id}"
            owned = sorted(index for client in clients for index in client.owned)
            # Assignors of classic members look at the topic no more than once.
            known = group_id != _CLASSIC_GROUP and self._metadata.partitions
            is_whole = owned == list(range(known or self.swarm.topic_partitions))
            is_right = sorted(members) == sorted(client.member_id for client in clients)
            if not (is_stable and is_agreed and is_right and is_whole):
                return (
                    f"{group_id} is {group.state_name}, members {members}, clients"
                    f" {[(each.member_id, each.epoch, each.owned) for each in clients]}"
                )
        return None

    def _leaders(self) -> dict[int, None]:
        """Of partitions that are used; on others nothing ever happens."""
        reigns = (rules.partition.reign for rules in self.rules.values())
        return {reign.broker_id: None for reign in reigns if reign.log_end_offset}

    def _audit(self, broker: CoordinatorBroker) -> None:
        """A coordinator that loads the log comes to the same state; after a turn, when it has all.

        With a linger there may be a batch that is not in the log yet.
        """
        for rules in self.rules.values():
            shard = self._active(rules.partition)
            reign = rules.partition.reign
            if shard is None or self.swarm.linger_ms > 0 or not reign.log_end_offset:
                continue
            if reign.broker_id == broker.broker_id:
                self._compare(shard, self._loaded(reign))

    def _compare(self, shard: Shard[GroupMachine], copy: Shard[GroupMachine]) -> None:
        mine, other = state_of(shard.machine), state_of(copy.machine)
        for name, state in mine.items():
            what = f"{name}: {state}, but {other.get(name)}"
            claim(other.get(name) == state, "loads-differently", what)

    def _loaded(self, reign: Reign) -> Shard[GroupMachine]:
        world = ShardWorld(
            self._clock,
            Timer("audit", self._clock),
            Timer("audit-slow", self._clock),
            ShardSettings(),
            GROUP_RECORDS,
        )
        copy = Shard(
            0,
            reign.epoch,
            reign,
            world,
            lambda context: GroupMachine(context, self._settings, Random(1)),
            image=self._metadata.image,
            reload=lambda shard: None,
        )
        copy.begin_loading(0)
        for _ in copy.load(reign.read_now(0)):
            pass
        return copy
