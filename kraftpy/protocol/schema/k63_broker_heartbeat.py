"""BrokerHeartbeat: a broker's life sign."""

from __future__ import annotations

from kraftpy.protocol.ids import Uuid
from kraftpy.protocol.tables import (
    ALL,
    Request,
    Response,
    array,
    boolean,
    int16,
    int32,
    int64,
    uuid,
)


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+"):
    """A broker tells the controller how it is and what it wants."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[Uuid] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = array(uuid, "2+", nullable=ALL, tag=1, default=None)
    # Not Kafka's: removed topics whose directories this broker has unlinked, so that the controller
    # can follow a deletion to its end. The tag is far from those that Kafka gives out one by one,
    # and a controller that doesn't know it skips it, as it must every tag it doesn't know.
    deleted_topic_ids: list[Uuid] = array(uuid, "0+", tag=10_000)


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    """Whether it is fenced, caught up, or free to stop."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
