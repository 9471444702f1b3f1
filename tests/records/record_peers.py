"""The peers' modules on records.

kafka-python warns of a deprecation when it is imported, which pytest would make an error.
"""

from __future__ import annotations

import warnings

import aiokafka.record.default_records as aiokafka_default
import aiokafka.record.legacy_records as aiokafka_legacy

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec as kafka_codec
    import kafka.record.default_records as kafka_default
    import kafka.record.legacy_records as kafka_legacy
    from kafka.record import MemoryRecords

__all__ = [
    "MemoryRecords",
    "aiokafka_default",
    "aiokafka_legacy",
    "kafka_codec",
    "kafka_default",
    "kafka_legacy",
]
