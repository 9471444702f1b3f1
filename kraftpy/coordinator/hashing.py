"""Which partition of an internal topic a group or a transactional id belongs to.

Clients never compute this, but a cluster must agree with itself over restarts, and our directories
with Apache Kafka: it is the amount of Java's hash of the name, modulo the partitions. The lowest
number has no amount in Java, and counts as zero.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = ["partition_for"]

_MASK_32 = 0xFFFFFFFF
_LOWEST = 0x80000000
# Names are asked for with each request. Long ones are seldom, and would take memory.
_KEPT_COUNT = 1024
_KEPT_MAX_LENGTH = 128


def partition_for(name: str, partition_count: int) -> int:
    number = _kept_hash(name) if len(name) <= _KEPT_MAX_LENGTH else _java_hash(name)
    if number == _LOWEST:
        return 0
    amount = number if number < _LOWEST else (1 << 32) - number
    return amount % partition_count


def _java_hash(text: str) -> int:
    """Of UTF-16 code units, as an unsigned number of 32 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        result = (result * 31 + (high << 8 | low)) & _MASK_32
    return result


_kept_hash = lru_cache(_KEPT_COUNT)(_java_hash)
