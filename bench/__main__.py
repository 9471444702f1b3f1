"""Run the benchmarks: all, or those named.

python -m bench                    everything
python -m bench network protocol   two of them
python -m bench --list             what there is
python -m bench spark --gigabytes 2   as much as the issue asks for
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    """Modules that measure something; those with a leading underscore are their helpers."""
    found = (path.stem for path in HERE.glob("*.py"))
    return sorted(name for name in found if not name.startswith("_"))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", help="what to measure (default: everything)")
    parser.add_argument("--list", action="store_true", help="show the names and stop")
    parser.add_argument("--gigabytes", metavar="N", help="how much data `spark` moves (0.2)")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(names()))
        return
    unknown = sorted(set(arguments.name) - set(names()))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(names())}")
    # Apache Kafka as a peer comes from the same place as in the tests.
    sys.path.insert(0, str(HERE.parent / "tests"))
    if arguments.gigabytes:
        os.environ["SPARK_GIGABYTES"] = arguments.gigabytes
    for name in arguments.name or names():
        started = time.monotonic()
        print(f"== {name}", flush=True)
        importlib.import_module(f"bench.{name}").main()
        print(f"   ({time.monotonic() - started:.0f} s)\n", flush=True)


main()
