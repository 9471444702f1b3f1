"""What listeners, roles and quorum add up to: a node's place in its cluster.

The keys about listeners make sense only together: `listeners` needs the protocol map to be read,
`advertised.listeners` defaults to them, `controller.listener.names` divides them into those for
controllers and those for everyone else. Everything that is wrong is collected; a Topology is used
only when nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kraftpy.config.checks import parse_voter
from kraftpy.config.definition import Value
from kraftpy.config.endpoint import (
    EndPoint,
    SecurityProtocol,
    parse_endpoint,
    parse_protocol_map,
)
from kraftpy.config.problems import BadValueError

__all__ = ["Refuse", "Topology", "Voter", "derive_topology"]

Refuse = Callable[[str, str], None]
"""Notes a problem: key, reason."""


class Voter(NamedTuple):
    node_id: int
    host: str
    port: int


class Topology(NamedTuple):
    roles: tuple[str, ...]
    voters: tuple[Voter, ...]
    protocols: dict[str, SecurityProtocol]
    """Security protocol of each listener name that has one."""
    listeners: tuple[EndPoint, ...]
    controller_listener_names: tuple[str, ...]
    broker_listeners: tuple[EndPoint, ...]
    """The listeners that are not for controllers."""
    controller_listeners: tuple[EndPoint, ...]
    advertised_broker_listeners: tuple[EndPoint, ...]
    advertised_controller_listeners: tuple[EndPoint, ...]
    inter_broker_listener_name: str


def derive_topology(
    value: Callable[[str], Value], is_given: Callable[[str], bool], refuse: Refuse
) -> Topology:
    """Put the keys together; `value` and `is_given` look one up."""

    def items(key: str) -> tuple[str, ...]:
        found = value(key)
        return found if isinstance(found, tuple) else ()

    controller_names = tuple(name.upper() for name in items("controller.listener.names"))
    protocols = _protocols(value, is_given, controller_names, items("listeners"), refuse)
    listeners = _endpoints("listeners", items("listeners"), protocols, refuse)
    _refuse_shared_ports(listeners, refuse)
    advertised = _endpoints(
        "advertised.listeners", items("advertised.listeners"), protocols, refuse
    )

    broker_listeners = _without(listeners, controller_names)
    voters = tuple(
        Voter(*voter)
        for item in items("controller.quorum.voters")
        if (voter := parse_voter(item)) is not None
    )
    return Topology(
        roles=items("process.roles"),
        voters=voters,
        protocols=protocols,
        listeners=listeners,
        controller_listener_names=controller_names,
        broker_listeners=broker_listeners,
        controller_listeners=_named(listeners, controller_names),
        advertised_broker_listeners=(
            _without(advertised, controller_names) if advertised else broker_listeners
        ),
        advertised_controller_listeners=_advertised_controllers(
            listeners, advertised, controller_names, _own_voter(value, voters)
        ),
        inter_broker_listener_name=_inter_broker_listener(value, is_given, protocols, refuse),
    )


def _protocols(
    value: Callable[[str], Value],
    is_given: Callable[[str], bool],
    controller_names: tuple[str, ...],
    listeners: tuple[str, ...],
    refuse: Refuse,
) -> dict[str, SecurityProtocol]:
    key = "listener.security.protocol.map"
    try:
        protocols = parse_protocol_map(str(value(key) or ""))
    except BadValueError as error:
        refuse(key, str(error))
        protocols = {}
    names = [*controller_names, *(text.partition(":")[0].upper() for text in listeners)]
    secure = [name for name in names if name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")]
    if not is_given(key) and not secure:
        # Nobody has to map CONTROLLER in a cluster that is plain throughout.
        protocols |= dict.fromkeys(controller_names, SecurityProtocol.PLAINTEXT)
    return protocols


def _endpoints(
    key: str, texts: Iterable[str], protocols: dict[str, SecurityProtocol], refuse: Refuse
) -> tuple[EndPoint, ...]:
    endpoints: dict[str, EndPoint] = {}
    for text in texts:
        try:
            endpoint = parse_endpoint(text, protocols)
        except BadValueError as error:
            refuse(key, str(error))
            continue
        if endpoint.listener_name in endpoints:
            refuse(key, f"uses the name {endpoint.listener_name} twice; give each its own")
        endpoints[endpoint.listener_name] = endpoint
    return tuple(endpoints.values())


def _refuse_shared_ports(listeners: tuple[EndPoint, ...], refuse: Refuse) -> None:
    by_port: dict[int, list[EndPoint]] = {}
    for endpoint in listeners:
        if endpoint.port != 0:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        kinds = [_address_kind(endpoint.host) for endpoint in sharing]
        if len(sharing) > 1 and sorted(kinds) != ["IPv4", "IPv6"]:
            refuse(
                "listeners",
                f"uses port {port} more than once, which only one IPv4 and one IPv6 address may; "
                "give each listener its own port",
            )


def _address_kind(host: str) -> str:
    if ":" in host:
        return "IPv6"
    return "IPv4" if re.fullmatch(r"\d{1,3}(\.\d{1,3}){3}", host) else "name"


def _named(endpoints: tuple[EndPoint, ...], names: tuple[str, ...]) -> tuple[EndPoint, ...]:
    return tuple(endpoint for endpoint in endpoints if endpoint.listener_name in names)


def _without(endpoints: tuple[EndPoint, ...], names: tuple[str, ...]) -> tuple[EndPoint, ...]:
    return tuple(endpoint for endpoint in endpoints if endpoint.listener_name not in names)


def _own_voter(value: Callable[[str], Value], voters: tuple[Voter, ...]) -> Voter | None:
    return next((voter for voter in voters if voter.node_id == value("node.id")), None)


def _advertised_controllers(
    listeners: tuple[EndPoint, ...],
    advertised: tuple[EndPoint, ...],
    controller_names: tuple[str, ...],
    own_voter: Voter | None,
) -> tuple[EndPoint, ...]:
    """Controllers' endpoints in the order of their names, as other nodes shall call them."""
    published = {endpoint.listener_name: endpoint for endpoint in (*listeners, *advertised)}
    in_advertised = [endpoint.listener_name for endpoint in advertised]
    endpoints = []
    for name in controller_names:
        endpoint = published.get(name)
        if endpoint is None:
            continue
        is_first = name == controller_names[0]
        if is_first and name not in in_advertised and endpoint.host in ("", "0.0.0.0"):
            # It listens everywhere; the list of voters says where it is found.
            if own_voter is not None:
                endpoint = endpoint._replace(host=own_voter.host, port=own_voter.port)
            else:
                endpoint = endpoint._replace(host="")
        endpoints.append(endpoint)
    return tuple(endpoints)


def _inter_broker_listener(
    value: Callable[[str], Value],
    is_given: Callable[[str], bool],
    protocols: dict[str, SecurityProtocol],
    refuse: Refuse,
) -> str:
    key = "inter.broker.listener.name"
    name = value(key)
    if not isinstance(name, str):
        return str(value("security.inter.broker.protocol"))
    if is_given("security.inter.broker.protocol"):
        refuse(key, "can't be set together with security.inter.broker.protocol; remove one of them")
    if name.upper() not in protocols:
        refuse(
            key,
            f"no security protocol is known for listener {name.upper()}; "
            "add it to listener.security.protocol.map",
        )
    return name.upper()
