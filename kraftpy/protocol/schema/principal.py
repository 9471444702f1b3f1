"""The principal that a broker hands to the controller inside an Envelope.

On the wire an int16 version stands before it.
"""

from __future__ import annotations

from kraftpy.protocol.tables import Message, boolean, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """A principal as Kafka's default serializer writes it."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
