"""Listeners: where a node listens, under which name, with which security protocol."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from kraftpy.config.problems import BadValueError

__all__ = ["EndPoint", "SecurityProtocol", "parse_endpoint", "parse_protocol_map"]


class SecurityProtocol(Enum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def number(self) -> int:
        """On the wire and in metadata records."""
        return tuple(SecurityProtocol).index(self)


class EndPoint(NamedTuple):
    host: str
    """Empty for every interface of the machine."""
    port: int
    """0 for a free port that the system chooses."""
    listener_name: str
    security_protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


_ENDPOINT: Final = r"([^:]+)://(?:\[([0-9A-Za-z\-%._:]*)\]|([0-9A-Za-z\-%._]*)):([0-9]+)"


def parse_endpoint(text: str, protocols: dict[str, SecurityProtocol]) -> EndPoint:
    """`NAME://host:port`; names are upper case whatever was written."""
    found = re.fullmatch(_ENDPOINT, text)
    if found is None:
        raise BadValueError(f"can't read {text!r}; write NAME://host:port")
    name, port = found[1].upper(), int(found[4])
    if port > 65_535:
        raise BadValueError(f"{text!r} has a port above 65535")
    protocol = protocols.get(name)
    if protocol is None:
        raise BadValueError(
            f"no security protocol is known for listener {name}; "
            f"add {name}:PLAINTEXT or another to listener.security.protocol.map"
        )
    return EndPoint(found[2] or found[3] or "", port, name, protocol)


def parse_protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """`NAME:PROTOCOL`, comma-separated."""
    protocols: dict[str, SecurityProtocol] = {}
    for item in text.split(",") if text else ():
        name, colon, protocol = (part.strip() for part in item.rpartition(":"))
        if not colon or not name:
            raise BadValueError(f"can't read {item.strip()!r}; write NAME:PROTOCOL")
        name = name.upper()
        if name in protocols:
            raise BadValueError(f"maps {name} twice")
        if protocol.upper() not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol.__members__)
            raise BadValueError(f"{protocol!r} is no security protocol; known are {known}")
        protocols[name] = SecurityProtocol[protocol.upper()]
    return protocols
