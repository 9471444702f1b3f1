"""A node's part in the quorum: Raft, the metadata that it brings, and the controller.

Every node has the first two: a broker observes the quorum to learn what there is. A node with the
controller role votes, and keeps a controller that is ready to be the active one at any time.

Order. Raft starts when its listener is bound, so that the voters know where it is; the committed
feed and the controller run before it, so that no news is missed. At the end the controller refuses
what waits, and Raft leaves last: a leader hands over before it goes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import trio

from kraftpy.config import DynamicConfig, NodeConfig
from kraftpy.metadata.bootstrap import read_bootstrap
from kraftpy.metadata.committed_feed import CommittedFeed, LeadershipListener
from kraftpy.metadata.controller.context import ControllerContext
from kraftpy.metadata.controller.controller import Controller
from kraftpy.metadata.controller.metrics import ControllerMetrics
from kraftpy.metadata.controller.parts import assemble, make_controls
from kraftpy.metadata.controller.result import ControllerError
from kraftpy.metadata.controller.runner import ControllerRunner
from kraftpy.metadata.controller.settings import ControllerSettings
from kraftpy.metadata.directories import NodeStorage
from kraftpy.metadata.features import supported_features
from kraftpy.metadata.publisher import LoaderFault, MetadataLoader
from kraftpy.metadata.snapshot_keeper import SnapshotKeeper
from kraftpy.metadata.snapshot_policy import snapshot_settings
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.raft.driver import RaftDriver, open_driver
from kraftpy.raft.effects import ProposalRefused
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.settings import metadata_log_settings
from kraftpy.world import World

__all__ = ["QuorumPart", "controller_settings", "open_quorum"]

log = logging.getLogger(__name__)

# How long a leader may take to hand over when the node stops, as in Kafka.
_FAREWELL_MS = 5_000


@dataclass(slots=True)
class QuorumPart:
    """Made by `open_quorum`. Publishers are installed in the loader before `run`."""

    driver: RaftDriver
    loader: MetadataLoader
    # None on a node that only observes.
    controller: ControllerRunner | None
    _feed: CommittedFeed
    _snapshots: SnapshotKeeper
    _has_left: trio.Event = field(default_factory=trio.Event)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part until `leave`; `started` when others may ask. Raises what must end the node."""
        self.loader.install(self._snapshots)
        # The driver has one of its own: it is not cancelled, because it closes its log at the end.
        async with trio.open_nursery() as driving, trio.open_nursery() as nursery:
            nursery.start_soon(self._feed.run, name="metadata-feed")
            nursery.start_soon(self._snapshots.run, name="snapshots")
            if self.controller is not None:
                nursery.start_soon(self.controller.run, name="controller")
            await driving.start(self.driver.run, name="raft")
            task_status.started()
            await self.driver.wait_down()
            nursery.cancel_scope.cancel()
        self._has_left.set()

    def active_controller(self) -> tuple[int, str, int] | None:
        """The quorum's leader and where it is reached, as far as this node knows."""
        address = self.driver.leader_address
        return None if address is None else (self.driver.election.leader_id, *address)

    async def leave(self, hurry: trio.Event) -> None:
        """Leave in good order, unless there is a hurry; `run` has ended when this returns."""

        async def cut_short() -> None:
            await hurry.wait()
            await self.driver.shut_down(0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut_short)
            await self.driver.shut_down(_FAREWELL_MS)
            await self._has_left.wait()
            nursery.cancel_scope.cancel()


async def open_quorum(
    config: DynamicConfig,
    raft: RaftConfig,
    storage: NodeStorage,
    *,
    world: World,
    registry: MetricRegistry,
    on_leader: Callable[[int, int], None],
) -> QuorumPart:
    """Open the metadata log and put everything around it together; nothing runs yet.

    `on_leader(epoch, leader_id)` hears of every leader, when everything before it is published.
    Raises StorageError: such a node must not start.
    """
    static = config.current
    driver = await open_driver(world, raft, storage.metadata_path, metadata_log_settings(static))
    loader = MetadataLoader(_report_fault, is_strict=static.is_controller)
    runner = None
    if static.is_controller:
        bootstrap = await read_bootstrap(world.disk, storage.metadata_path) or ()
        context = ControllerContext(controller_settings(static, storage.cluster_id))
        controls = make_controls(
            context, config, _QuorumVersion(driver), world.rng.stream("controller")
        )
        controller = Controller(
            context,
            assemble(controls, bootstrap, loader.open_transaction),
            ControllerMetrics(registry, world.clock.monotonic_ms(), world.clock.wall_ms),
        )
        loader.install(controller)
        runner = ControllerRunner(controller, driver, world)
    feed = CommittedFeed(
        driver.log,
        loader,
        _Leaders(runner, on_leader),
        node_id=driver.node_id,
        clock=world.clock,
        buggify=world.buggify,
    )
    driver.listen(feed)
    keeper = SnapshotKeeper(
        world.clock,
        driver,
        driver.log,
        snapshot_settings(static),
        lambda: loader.may_snapshot,
        buggify=world.buggify,
    )
    return QuorumPart(driver, loader, runner, feed, keeper)


def controller_settings(config: NodeConfig, cluster_id: str) -> ControllerSettings:
    """What the controller's operations go by."""
    return ControllerSettings(
        node_id=config.node_id,
        cluster_id=cluster_id,
        features=supported_features(),
        broker_session_timeout_ms=config.get_int("broker.session.timeout.ms"),
        broker_heartbeat_interval_ms=config.get_int("broker.heartbeat.interval.ms"),
        num_partitions=config.get_int("num.partitions"),
        default_replication_factor=config.get_int("default.replication.factor"),
        delete_topic_enable=config.get_bool("delete.topic.enable"),
        auto_leader_rebalance_enable=config.get_bool("auto.leader.rebalance.enable"),
        leader_imbalance_check_interval_ms=(
            config.get_int("leader.imbalance.check.interval.seconds") * 1000
        ),
        unclean_leader_election_interval_ms=config.get_int("unclean.leader.election.interval.ms"),
        metadata_max_idle_interval_ms=config.get_int("metadata.max.idle.interval.ms"),
        static_configs={key: setting.text for key, setting in config.settings.items()},
    )


class _Leaders:
    """Tells the node's own controller first, then whoever else wants to know."""

    __slots__ = ("_controller", "_on_leader")

    def __init__(
        self, controller: LeadershipListener | None, on_leader: Callable[[int, int], None]
    ) -> None:
        self._controller = controller
        self._on_leader = on_leader

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        if self._controller is not None:
            self._controller.leader_changed(epoch, leader_id)
        self._on_leader(epoch, leader_id)

    def leadership_lost(self, epoch: int) -> None:
        if self._controller is not None:
            self._controller.leadership_lost(epoch)


class _QuorumVersion:
    """kraft.version, which stands in Raft's own log, as the controller asks about it."""

    __slots__ = ("_driver",)

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver

    @property
    def kraft_version(self) -> int:
        return self._driver.kraft_version

    @property
    def voter_ids(self) -> Iterable[int]:
        return self._driver.voter_ids

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        refusal = self._driver.upgrade_refusal(level)
        if refusal is not None:
            raise ControllerError(refusal.error, refusal.message)
        if validate_only:
            return
        outcome = self._driver.upgrade_kraft_version(self._driver.election.epoch, level)
        if isinstance(outcome, ProposalRefused):
            raise ControllerError(outcome.error)


def _report_fault(fault: LoaderFault) -> None:
    log.error("metadata: %s failed at offset %d", fault.where, fault.offset, exc_info=fault.error)
