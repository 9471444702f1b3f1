"""The command `kraftpy-ingest`, which says so where Spark is not installed."""

from __future__ import annotations

import sys

__all__ = ["main"]

_NEEDED = ("pyspark", "py4j", "pyarrow", "pandas", "numpy")


def main() -> int:
    try:
        from kraftpy_spark.jobs.ingest import main as run
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _NEEDED:
            raise
        how = "pip install 'kraftpy[spark]'"
        print(f"kraftpy-ingest: {missing.name} is not installed: {how}", file=sys.stderr)
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
