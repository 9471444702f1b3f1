"""What transactions are governed by; each field names the broker's key that it is read from."""

from __future__ import annotations

from dataclasses import dataclass

from kraftpy.config import NodeConfig

__all__ = ["TransactionSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Defaults are Kafka's."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    abort_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    expiry_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""

    @classmethod
    def from_config(cls, config: NodeConfig) -> TransactionSettings:
        return cls(
            max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
            id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
            abort_interval_ms=config.get_int(
                "transaction.abort.timed.out.transaction.cleanup.interval.ms"
            ),
            expiry_interval_ms=config.get_int(
                "transaction.remove.expired.transaction.cleanup.interval.ms"
            ),
        )
