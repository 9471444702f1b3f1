"""Which partition of an internal topic a group or a transactional id belongs to.

Clients never compute this, but a cluster must agree with itself over restarts, and our directories
with Apache Kafka: it is Java's hash of the name, without its sign, modulo the partitions.
"""

from __future__ import annotations

__all__ = ["partition_for"]

_MASK_32 = 0xFFFFFFFF
_WITHOUT_SIGN = 0x7FFFFFFF


def partition_for(name: str, partition_count: int) -> int:
    return (_java_hash(name) & _WITHOUT_SIGN) % partition_count


def _java_hash(text: str) -> int:
    """Of UTF-16 code units, as an unsigned number of 32 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        result = (result * 31 + (high << 8 | low)) & _MASK_32
    return result
