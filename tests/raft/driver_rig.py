"""Members of a quorum as a node will have them: driver, feed, loader, and a listener with handlers.

`Member` runs in whatever world it is given, the simulated one or the real one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import trio
from raft_cluster import CLUSTER_ID, key_of
from support.lone_node import LoneNode

from kraftpy.api.dispatch import Dispatcher
from kraftpy.api.raft_handlers import raft_handlers
from kraftpy.log.log_config import LogConfig
from kraftpy.metadata.changes import ImageChanges
from kraftpy.metadata.committed_feed import CommittedFeed
from kraftpy.metadata.image import MetadataImage
from kraftpy.metadata.publisher import LoaderFault, Manifest, MetadataLoader
from kraftpy.metadata.record_format import encode_record
from kraftpy.metadata.records import ConfigRecord, ConfigResourceType
from kraftpy.metadata.snapshot import snapshot_batches
from kraftpy.net.limits import NetworkLimits
from kraftpy.net.listener import ListenerRole, ListenerSettings
from kraftpy.net.server import NetworkServer
from kraftpy.observe.metrics import MetricRegistry
from kraftpy.observe.request_metrics import RequestMetrics
from kraftpy.raft.driver import RaftDriver, open_driver
from kraftpy.raft.effects import ProposalRefused
from kraftpy.raft.log_state import SnapshotId
from kraftpy.raft.quorum import RaftConfig
from kraftpy.raft.snapshots import SnapshotRefusal
from kraftpy.raft.storage import metadata_log_config
from kraftpy.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from kraftpy.world import World

LISTENER = "CONTROLLER"
Places = dict[int, tuple[str, int]]


def config_at(node_id: int, places: Places, **changes: object) -> RaftConfig:
    """A member of a quorum with static voters at these addresses."""
    voters = VoterSet(
        Voter(ReplicaKey(each), (Endpoint(LISTENER, *address),)) for each, address in places.items()
    )
    config = RaftConfig(
        cluster_id=CLUSTER_ID,
        local=key_of(node_id),
        endpoints=(Endpoint(LISTENER, *places[node_id]),),
        static_voters=voters,
    )
    return replace(config, **changes)  # type: ignore[arg-type]


def setting(name: str, value: str) -> bytes:
    """A metadata record in bytes: the simplest one that leaves a trace in the image."""
    return encode_record(ConfigRecord(ConfigResourceType.BROKER, "", name, value))


def settings_of(image: MetadataImage) -> dict[str, str]:
    return {name: value for _, values in image.configs.items() for name, value in values.items()}


async def bound_server(world: World, host: str, port: int) -> NetworkServer:
    """A server that has its port already, so that others can be told where it is."""
    server = NetworkServer(
        clock=world.clock,
        network=world.network,
        limits=NetworkLimits(),
        registry=MetricRegistry(),
    )
    await server.bind([ListenerSettings(LISTENER, host, port, role=ListenerRole.CONTROLLER)])
    return server


@dataclass
class Member:
    """One member. What its state machine hears stands in `heard`, in order."""

    world: World
    config: RaftConfig
    directory: str
    log_config: LogConfig = field(default_factory=metadata_log_config)
    heard: list[str] = field(default_factory=list)
    changed: Callable[[], None] = lambda: None
    name: str = "member"
    image: MetadataImage | None = None
    server: NetworkServer | None = None
    _driver: RaftDriver | None = None

    @property
    def driver(self) -> RaftDriver:
        assert self._driver is not None
        return self._driver

    @property
    def leads(self) -> bool:
        return self._driver is not None and str(self.driver.describe()["role"]) == "leader"

    @property
    def knows_that_it_leads(self) -> bool:
        """Whether its state machine was told, and nothing else about leaders since."""
        news = [each for each in self.heard if not each.startswith("image")]
        return self.leads and news[-1:] == [f"leader of {self.epoch} is {self.driver.node_id}"]

    @property
    def epoch(self) -> int:
        return self.driver.election.epoch

    @property
    def settings(self) -> dict[str, str]:
        return {} if self.image is None else settings_of(self.image)

    # Publisher and listener.

    def publish(self, changes: ImageChanges, image: MetadataImage, manifest: Manifest) -> None:
        self.image = image
        source = manifest.source.value
        self._note(f"image {image.provenance.end_offset} from {source}")

    def leader_changed(self, epoch: int, leader_id: int) -> None:
        self._note(f"leader of {epoch} is {leader_id}")

    def leadership_lost(self, epoch: int) -> None:
        self._note(f"lost {epoch}")

    def _note(self, event: str) -> None:
        self.heard.append(event)
        self.changed()

    # Life.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled, shut down, or failed."""
        world = self.world
        own = self.config.endpoints[0]
        server = self.server or await bound_server(world, own.host, own.port)
        driver = await open_driver(world, self.config, self.directory, self.log_config)
        loader = MetadataLoader(_raise_fault, is_strict=True)
        loader.install(self)
        feed = CommittedFeed(driver.log, loader, self, node_id=driver.node_id, clock=world.clock)
        driver.listen(feed)
        self._driver = driver
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            nursery.start_soon(feed.run)
            await nursery.start(self._run_driver, nursery.cancel_scope)
            await server.enable({LISTENER: self._service(driver)})
            task_status.started()

    async def _run_driver(
        self,
        everything: trio.CancelScope,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        await self.driver.run(task_status=task_status)
        everything.cancel()

    def _service(self, driver: RaftDriver) -> Dispatcher:
        features = LoneNode(
            cluster_id=CLUSTER_ID,
            node_id=driver.node_id,
            rack=None,
            broker_endpoints={},
            controller_endpoints={},
        )
        return Dispatcher(
            raft_handlers(driver),
            features=features,
            metrics=RequestMetrics(MetricRegistry()),
            clock=self.world.clock,
        )

    # Work.

    def propose(self, *values: bytes) -> int:
        """Append to the log of a member that leads."""
        offset = self.driver.propose(self.epoch, values)
        assert not isinstance(offset, ProposalRefused), offset
        return offset

    async def snapshot(self) -> SnapshotRefusal | None:
        """Make a snapshot of the image published last."""
        image = self.image
        assert image is not None
        provenance = image.provenance
        return await self.driver.freeze_snapshot(
            SnapshotId(provenance.end_offset, provenance.epoch),
            lambda base_offset: snapshot_batches(image, base_offset=base_offset),
            timestamp_ms=provenance.timestamp_ms,
        )


def _raise_fault(fault: LoaderFault) -> None:
    raise fault.error
