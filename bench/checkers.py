"""How long the checkers need for 100,000 operations with a million polled records (JEP-83).

The history is a valid one, made beforehand: processes that send, poll and run transactions over
many keys. Seconds are those of the processor; peak memory is that of the whole process, with the
history in it.
"""

from __future__ import annotations

import resource
import time

from verify.simulated_history import Draw, valid_history

from kraftpy.verify.checkers import Expectations, check

OPERATIONS = 100_000
SEED = 4711
LIMIT_SECONDS = 15


def main() -> None:
    draw = Draw(
        operations=OPERATIONS,
        processes=12,
        keys=1_000,
        max_assigned=10,
        max_records=200,
        info_probability=0.01,
    )
    started = time.process_time()
    history = valid_history(draw, SEED)
    made = time.process_time()
    records = sum(
        len(found)
        for operation in history.operations
        if operation.f in ("poll", "txn")
        for micro in operation.value
        if micro[0] == "poll" and len(micro) > 1
        for found in micro[1].values()
    )
    print(
        f"   {len(history.operations):,} operations, {records:,} polled records, made in "
        f"{made - started:.1f} s"
    )
    began = time.process_time()
    verdict = check(history, Expectations())
    seconds = time.process_time() - began
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"   {verdict.state}: checked in {seconds:.1f} s (limit {LIMIT_SECONDS} s), peak memory "
        f"{peak_mib:.0f} MiB"
    )
    for name, count in verdict.statistics["anomalies"].items():
        print(f"   {name}: {count}")
