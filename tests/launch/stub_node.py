"""Stands in for `kraftpy node`: writes its ready file and obeys signals, or behaves badly.

Run as a program. How it behaves is a setting, `stub.<node id>`:

- nothing: ready at once, ends with code 0 at SIGTERM, and with 9 when its standard input ends
- `crashes`: says two lines and ends with code 3
- `never-ready`: says a line and waits
- `deaf`: ready, and ignores SIGTERM
- `patient`: ready, and ends at the second SIGTERM
- `listens`: ready when it listens at its address; ends with code 1 if that is taken
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--ready-file", type=Path)
    options = parser.parse_args()
    lines = options.config.read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines)
    node_id = settings["node.id"]
    behaviour = settings.get(f"stub.{node_id}", "")
    reactions = {"deaf": signal.SIG_IGN, "patient": wait_for_another}
    signal.signal(signal.SIGTERM, reactions.get(behaviour, end))
    descriptor = os.open(f"{settings['log.dirs']}/.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    kafka_variables = [name for name in os.environ if name.startswith("KAFKA_")]
    print(f"node {node_id} runs, {kafka_variables=}", flush=True)
    if behaviour == "crashes":
        print("something broke", flush=True)
        return 3
    if behaviour == "listens":
        host, port = settings["listeners"].split(",")[0].partition("://")[2].rsplit(":", 1)
        try:
            listener = socket.create_server((host, int(port)))
        except OSError as error:
            print(f"can't listen: {error}", flush=True)
            return 1
        print(f"listens at {listener.getsockname()}", flush=True)
    if behaviour != "never-ready":
        unfinished = options.ready_file.with_suffix(".tmp")
        unfinished.write_text(json.dumps({"nodes": []}))
        unfinished.replace(options.ready_file)
    sys.stdin.read()
    return 9


def wait_for_another(number: int, frame: object) -> None:
    print("waits", flush=True)
    signal.signal(signal.SIGTERM, end)


def end(number: int, frame: object) -> None:
    print("ends", flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
