"""Splitting a segment whose offsets reach too far from its base (KAFKA-6264).

Old versions of Kafka could merge segments into one whose last offset has no room in 31 bits. Its
bytes are copied into as many segments as it takes, and these replace it as the cleaner's do.
"""

from __future__ import annotations

import logging
from contextlib import aclosing

from kraftpy.log.batch_set import BatchSet
from kraftpy.log.log_config import LogConfig
from kraftpy.log.log_files import LogFiles
from kraftpy.log.pacing import Pace
from kraftpy.log.recovery import read_batches
from kraftpy.log.segment import RELATIVE_OFFSET_MAX, Segment
from kraftpy.records.errors import CorruptRecord
from kraftpy.records.walker import first_offset_of

__all__ = ["split_segment"]

_log = logging.getLogger(__name__)


async def split_segment(segment: Segment, files: LogFiles, config: LogConfig, pace: Pace) -> None:
    """Replace a segment by several, in files only: loading begins anew afterwards."""
    parts: list[Segment] = []
    try:
        async with aclosing(read_batches(segment, pace)) as batches:
            async for batch in batches:
                last_offset = batch.last_offset
                if not parts or last_offset - parts[-1].base_offset > RELATIVE_OFFSET_MAX:
                    base_offset = first_offset_of(batch) if parts else segment.base_offset
                    if last_offset - base_offset > RELATIVE_OFFSET_MAX:
                        base_offset = first_offset_of(batch)
                    parts.append(files.create_cleaned(base_offset, config))
                alone = BatchSet()
                alone.add(batch)
                parts[-1].append(alone)
    except CorruptRecord as error:
        _log.warning("%r is split as far as it is sound: %s", segment, error)
    for part in parts:
        part.make_inactive()
    _log.info("%r is split into %d segments", segment, len(parts))
    await files.announce_swap(parts)
    await files.retire(segment, delay_ms=0)
    await files.finish_swap(parts)
    for part in parts:
        part.close()
