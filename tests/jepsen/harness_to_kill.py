"""A harness that opens a cluster of one node, pauses it, and waits to be killed."""

from __future__ import annotations

import json
import sys

import trio

from jepsen_tests.cluster import ClusterOptions, open_cluster
from kraftpy.faults.language import BusyMachine, Pause
from kraftpy.world.real import real_world


async def main(directory: str, network: str) -> None:
    options = ClusterOptions(nodes=1, network=network, directory=directory)  # type: ignore[arg-type]
    async with open_cluster(real_world(), options) as cluster:
        await cluster.apply(BusyMachine())
        await cluster.apply(Pause(1))
        pids = [cluster.processes.pid(1), *cluster.pressure.busy_pids]
        print(json.dumps(pids), flush=True)
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
