"""Controller failover with many partitions: from a SIGKILL to the next write that is committed.

Three controllers, each a process, and brokers that exist only in the metadata. The active
controller is killed; the other two elect one of them, which activates itself and creates a topic.
The writer asks one after the other without a pause worth mentioning, so it adds hardly anything.
FAILOVER_PARTITIONS in the environment changes how many partitions there are.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import Any

import trio

from bench._peers import CLUSTER_ID, Server, kraftpy_controllers
from kraftpy.client.connection import Connection, connect
from kraftpy.client.settings import ClientSettings
from kraftpy.metadata.features import supported_features
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.schema import k19_create_topics as k19
from kraftpy.protocol.schema import k62_broker_registration as k62
from kraftpy.protocol.schema import k63_broker_heartbeat as k63
from kraftpy.protocol.tables import Request
from kraftpy.world.real import real_world

PARTITION_COUNT = int(os.environ.get("FAILOVER_PARTITIONS", "100000"))
PARTITIONS_OF_A_TOPIC = 10
TOPICS_OF_A_REQUEST = 100
REPLICAS = 3
BROKER_IDS = range(11, 17)
TIMEOUT_SECONDS = 60
PAUSE_SECONDS = 0.005
# Brokers that send no heartbeats stay alive for as long as this runs.
PROPERTIES = {"broker.session.timeout.ms": "3600000"}
SETTINGS = ClientSettings(request_timeout_ms=TIMEOUT_SECONDS * 1000)


def main() -> None:
    with (
        kraftpy_controllers(3, PROPERTIES) as servers,
        socket.create_server(("127.0.0.1", 0)) as broker,
    ):
        trio.run(measure, servers, broker.getsockname()[1])


async def measure(servers: list[Server], broker_port: int) -> None:
    async with trio.open_nursery() as nursery:
        writer = Writer(servers, nursery)
        for broker_id in BROKER_IDS:
            await writer.register(broker_id, broker_port)
        requests = PARTITION_COUNT // (PARTITIONS_OF_A_TOPIC * TOPICS_OF_A_REQUEST)
        started = time.perf_counter()
        for number in range(requests):
            await writer.create(f"topic-{number}", TOPICS_OF_A_REQUEST)
        seconds = time.perf_counter() - started
        print(
            f"   {PARTITION_COUNT:,} partitions created in {seconds:.1f} s,"
            f" {PARTITION_COUNT / seconds:,.0f} a second; a controller has"
            f" {max(server.resident_bytes() for server in servers) / 1e6:.0f} MB"
        )
        # Standbys may still read what was committed last.
        await trio.sleep(1)
        victim = writer.active
        started = time.perf_counter()
        victim.process.send_signal(signal.SIGKILL)
        await writer.create("after", 1)
        seconds = time.perf_counter() - started
        if writer.active is victim:
            raise SystemExit("the controller that was killed has answered")
        print(f"   SIGKILL of the active controller: a write is committed after {seconds:.2f} s")
        nursery.cancel_scope.cancel()


class Writer:
    """Asks the active controller, whichever that is."""

    def __init__(self, servers: list[Server], nursery: trio.Nursery) -> None:
        self._world = real_world()
        self._servers = list(servers)
        self._nursery = nursery
        self._connections: dict[int, Connection] = {}

    @property
    def active(self) -> Server:
        """The one that answered last."""
        return self._servers[0]

    async def register(self, broker_id: int, port: int) -> None:
        """As a broker does that has caught up."""
        listener = k62.Listener(name="PLAINTEXT", host="127.0.0.1", port=port, security_protocol=0)
        features = [
            k62.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in supported_features()
        ]
        registration = k62.BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(f"incarnation-{broker_id:04}".encode()),
            listeners=[listener],
            features=features,
            log_dirs=[Uuid(f"directory-{broker_id:06}".encode())],
        )
        broker_epoch = (await self._ask(registration)).broker_epoch
        await self._ask(
            k63.BrokerHeartbeatRequest(
                broker_id=broker_id, broker_epoch=broker_epoch, current_metadata_offset=1 << 40
            )
        )

    async def create(self, prefix: str, count: int) -> None:
        topics = [
            k19.CreatableTopic(
                name=f"{prefix}-{number}",
                num_partitions=PARTITIONS_OF_A_TOPIC,
                replication_factor=REPLICAS,
            )
            for number in range(count)
        ]
        await self._ask(k19.CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_SECONDS * 1000))

    async def _ask(self, request: Request) -> Any:
        with trio.fail_after(TIMEOUT_SECONDS):
            while True:
                try:
                    answer = await (await self._connected()).request(request)
                except ConnectionError:
                    self._connections.pop(self.active.port, None)
                    code = ErrorCode.NOT_CONTROLLER
                else:
                    code = code_of(answer)
                if code is ErrorCode.NONE:
                    return answer
                if code is not ErrorCode.NOT_CONTROLLER:
                    raise SystemExit(f"{code.name}: {answer}")
                self._servers.append(self._servers.pop(0))
                await trio.sleep(PAUSE_SECONDS)

    async def _connected(self) -> Connection:
        server = self.active
        if server.port not in self._connections:
            address = (server.host, server.port)
            connection = await connect(self._world, self._nursery, address, SETTINGS)
            self._connections[server.port] = connection
        return self._connections[server.port]


def code_of(answer: Any) -> ErrorCode:
    """Of the first item that failed, if any did."""
    items = answer.topics if isinstance(answer, k19.CreateTopicsResponse) else [answer]
    return ErrorCode(next((item.error_code for item in items if item.error_code), 0))
