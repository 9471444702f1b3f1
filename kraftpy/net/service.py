"""What the network asks of the layer above: one synchronous call for each frame.

The network knows frames, not their meaning. For each frame it opens an Answer, in the order of
arrival, and calls `Service.serve(channel, frame, answer)`. The service finishes the answer at once
or keeps it and finishes it later, from any task: with bytes (`send`), with nothing to be written
(`nothing`, Produce with acks=0), or by closing the connection (`disconnect`). Exactly one of the
three, exactly once; a second one is an InternalInvariant. Finished answers leave in the order of
their requests, whatever order they were finished in. Finishing never raises because of the peer:
an answer to a connection that is gone is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from kraftpy.observe.request_metrics import RequestRecorder
from kraftpy.world import Buffer, FileSlice

__all__ = ["Answer", "BadRequest", "Channel", "Part", "Service"]

Part: TypeAlias = Buffer | FileSlice


class Channel(Protocol):
    """One connection, as a service sees it."""

    @property
    def connection_id(self) -> str:
        """`localHost:localPort-remoteHost:remotePort-index`."""
        ...

    @property
    def listener_name(self) -> str: ...

    @property
    def security_protocol(self) -> str: ...

    @property
    def client_host(self) -> str: ...

    @property
    def principal(self) -> str:
        """`User:ANONYMOUS` on a connection without authentication."""
        ...

    client_software_name: str
    client_software_version: str

    def on_end(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once when the connection is closed, by whomever; at once if it is.

        It must not raise, and hears of nothing but the end: the peer may have been gone for long.
        """
        ...


class Answer(Protocol):
    """The place of one request's answer in its connection's order."""

    def measure(self, recorder: RequestRecorder) -> None:
        """Have this request's times recorded there, once, whatever becomes of it.

        To be called while the request is served, before the answer is finished.
        """
        ...

    def send(self, parts: Sequence[Part], on_sent: Callable[[], None] | None = None) -> None:
        """Answer with these bytes, the size prefix included.

        They must stay as they are until they were sent, which may be long after this call; so no
        part may be a view of the request's frame.

        `on_sent` runs once when the last byte was handed to the system, and never if the peer went
        first.
        """
        ...

    def nothing(self) -> None:
        """The request is done and has no answer."""
        ...

    def disconnect(self) -> None:
        """No answer can be given: close the connection without writing.

        Answers to earlier requests leave before; later requests are not served.
        """
        ...

    def throttle(self, milliseconds: int) -> None:
        """Serve no further frame of this connection for that long.

        To be called before the answer is finished; the time runs from its finishing.
        """
        ...

    def keep_order(self) -> None:
        """Serve no further frame of this connection before this answer is finished.

        To be called while the request is served, for one that might otherwise run ahead.
        """
        ...


class Service(Protocol):
    """The meaning of frames, on one listener."""

    def may_run_ahead(self, frame: memoryview) -> bool:
        """May this frame be served while earlier answers are pending? (design, decision 5)

        It may if this is said of every earlier one that is pending, too. Not asked on controller
        and dedicated inter-broker listeners, where everything runs ahead.
        """
        ...

    def serve(self, channel: Channel, frame: memoryview, answer: Answer) -> None:
        """Serve one frame (without its size prefix). `frame` is valid until this call returns.

        Raises BadRequest when the frame is not a request; the network then closes the connection.
        """
        ...


class BadRequest(Exception):  # noqa: N818 (it names what came)
    """The frame can't be served and can't be answered: its connection is to be closed, with one
    log line.
    """
