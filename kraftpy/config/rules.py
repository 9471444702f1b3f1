"""Rules that bind several keys of a node. Each refusal says what to do about it.

They are Kafka's, with two additions at the end: what a node here can't do yet, but would be
dangerous to ignore (encryption, logins, other authorizers), is refused and not passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraftpy.config.endpoint import SecurityProtocol
from kraftpy.config.topology import Refuse

if TYPE_CHECKING:
    from kraftpy.config.node_config import NodeConfig

__all__ = ["check_rules"]

Warn = Callable[[str], None]

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
# Kafka refuses a map of keys below this size for each cleaner.
_DEDUPE_BUFFER_MIN_BYTES: Final = 1 << 20


def check_rules(config: NodeConfig, refuse: Refuse, warn: Warn) -> None:
    _check_identity(config, refuse, warn)
    _check_quorum(config, refuse, warn)
    _check_listeners(config, refuse, warn)
    _check_connections(config, refuse, warn)
    _check_log(config, refuse)
    _check_replication(config, refuse)
    _check_groups(config, refuse)
    _check_access_control(config, refuse, warn)
    _check_what_is_missing(config, refuse)


def _check_identity(config: NodeConfig, refuse: Refuse, warn: Warn) -> None:
    if config["node.id"] != config["broker.id"]:
        refuse("broker.id", f"must equal node.id={config['node.id']}; leave broker.id out")
    if config.get_int("broker.heartbeat.interval.ms") > config.get_int("broker.session.timeout.ms"):
        warn(
            "broker.heartbeat.interval.ms is above broker.session.timeout.ms: "
            "the controller will fence this broker again and again"
        )


def _check_quorum(config: NodeConfig, refuse: Refuse, warn: Warn) -> None:
    topology = config.topology
    voter_ids = [voter.node_id for voter in topology.voters]
    if not voter_ids and not config.get_list("controller.quorum.bootstrap.servers"):
        refuse(
            "controller.quorum.voters",
            "must name the quorum as id@host:port, "
            "or controller.quorum.bootstrap.servers must say where to ask for it",
        )
    if len(dict.fromkeys(voter_ids)) != len(voter_ids):
        warn("controller.quorum.voters names a voter twice; the last one counts")
    if config.is_controller:
        if voter_ids and config.node_id not in voter_ids:
            refuse(
                "controller.quorum.voters",
                f"must contain this controller, node {config.node_id}; add it or remove "
                "controller from process.roles",
            )
    else:
        if config.node_id in voter_ids:
            refuse(
                "controller.quorum.voters",
                f"must not contain node {config.node_id}, which is a broker only; remove it or "
                "add controller to process.roles",
            )
        if config.get_bool("controller.quorum.auto.join.enable"):
            refuse("controller.quorum.auto.join.enable", "is for controllers; set it to false")


def _check_listeners(config: NodeConfig, refuse: Refuse, warn: Warn) -> None:
    topology = config.topology
    listener_names = [endpoint.listener_name for endpoint in topology.listeners]
    controller_names = topology.controller_listener_names
    if config.is_controller:
        for name in controller_names:
            if name not in listener_names:
                refuse(
                    "controller.listener.names",
                    f"names {name}, which is not in listeners; add {name}://host:port there",
                )
        if not config.is_broker and topology.broker_listeners:
            refuse(
                "listeners",
                "must all be in controller.listener.names, because process.roles is controller",
            )
    else:
        _check_broker_only(config, refuse, warn)
    if config.is_broker:
        _check_broker_listeners(config, refuse)
    elif (
        config["inter.broker.listener.name"] is not None
        and topology.inter_broker_listener_name not in controller_names
    ):
        refuse(
            "inter.broker.listener.name",
            "must be one of controller.listener.names on a controller; leave it out",
        )
    advertised = topology.advertised_broker_listeners + topology.advertised_controller_listeners
    for endpoint in advertised:
        if endpoint.host == "0.0.0.0":
            refuse(
                "advertised.listeners",
                f"{endpoint} can't be reached by anyone: 0.0.0.0 is for listening; "
                "set advertised.listeners to a real address",
            )
    if config.is_given("control.plane.listener.name"):
        refuse(
            "control.plane.listener.name",
            "is gone together with ZooKeeper; controllers have listeners of their own, "
            "in controller.listener.names",
        )


def _check_broker_only(config: NodeConfig, refuse: Refuse, warn: Warn) -> None:
    topology = config.topology
    for endpoint in topology.controller_listeners:
        refuse(
            "listeners",
            f"contains {endpoint.listener_name} of controller.listener.names, but process.roles "
            "is broker; remove it",
        )
    for name in topology.controller_listener_names:
        if name not in topology.protocols:
            refuse(
                "controller.listener.names",
                f"no security protocol is known for listener {name}; "
                "add it to listener.security.protocol.map",
            )
    if len(topology.controller_listener_names) > 1:
        warn("controller.listener.names has several names; a broker uses the first")


def _check_broker_listeners(config: NodeConfig, refuse: Refuse) -> None:
    topology = config.topology
    names = [endpoint.listener_name for endpoint in topology.advertised_broker_listeners]
    if not names:
        refuse(
            "listeners",
            "leaves none for clients, since all are in controller.listener.names; add one",
        )
        return
    if topology.inter_broker_listener_name not in names:
        refuse(
            "inter.broker.listener.name",
            f"{topology.inter_broker_listener_name} is not among the listeners for brokers and "
            f"clients; choose from {', '.join(names)}",
        )
    listener_names = [endpoint.listener_name for endpoint in topology.listeners]
    for name in names:
        if name not in listener_names:
            refuse("advertised.listeners", f"names {name}, which is not in listeners")


def _check_connections(config: NodeConfig, refuse: Refuse, warn: Warn) -> None:
    queued_max_bytes = config.get_int("queued.max.request.bytes")
    if 0 < queued_max_bytes < config.get_int("socket.request.max.bytes"):
        refuse(
            "queued.max.request.bytes",
            f"must be at least socket.request.max.bytes={config['socket.request.max.bytes']}, "
            "or -1 for no limit",
        )
    key = "max.connections.per.ip.overrides"
    for item in filter(None, config.get_str(key).split(",")):
        host, _, count = item.rpartition(":")
        if not re.fullmatch(r"[0-9A-Za-z\-%._:]+", host.strip()) or not re.fullmatch(
            r"\s*\d{1,9}\s*", count
        ):
            refuse(key, f"can't read {item!r}; write host:count,host:count")
        elif not re.search(r":|^[\d.]+$", host.strip()):
            warn(
                f"{key}: names are not looked up, so {item.strip()} has no effect;"
                " write its address"
            )
    if config["max.connections.per.ip"] == 0 and not config[key]:
        refuse("max.connections.per.ip", f"can be 0 only with exceptions in {key}")
    idle_ms = config.get_int("connections.max.idle.ms")
    if 0 <= idle_ms <= config.get_int("connection.failed.authentication.delay.ms"):
        refuse(
            "connection.failed.authentication.delay.ms",
            f"must be less than connections.max.idle.ms={idle_ms}, or nobody sees the answer",
        )


def _check_log(config: NodeConfig, refuse: Refuse) -> None:
    if config.log_roll_ms < 1:
        refuse("log.roll.ms", "must be at least 1")
    if config.log_roll_jitter_ms < 0:
        refuse("log.roll.jitter.ms", "must be at least 0")
    if config.log_retention_ms == 0:
        given = [key for key in _RETENTION_KEYS if config.is_given(key)]
        refuse(given[0], "must be at least 1, or -1 to keep records for ever")
    threads = config.get_int("log.cleaner.threads")
    if threads == 0:
        refuse("log.cleaner.threads", "must be at least 1")
    elif config.get_int("log.cleaner.dedupe.buffer.size") // threads <= _DEDUPE_BUFFER_MIN_BYTES:
        refuse(
            "log.cleaner.dedupe.buffer.size",
            f"must be above {_DEDUPE_BUFFER_MIN_BYTES} for each of log.cleaner.threads={threads}",
        )
    _check_cordoned(config, refuse)


_RETENTION_KEYS: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")


def _check_cordoned(config: NodeConfig, refuse: Refuse) -> None:
    cordoned = config.get_list("cordoned.log.dirs")
    if not config.is_broker or cordoned == ("*",):
        return
    if "*" in cordoned:
        refuse("cordoned.log.dirs", "can have * alone only")
    elif unknown := [directory for directory in cordoned if directory not in config.log_dirs]:
        refuse("cordoned.log.dirs", f"names {', '.join(unknown)}, which log.dirs does not")


def _check_replication(config: NodeConfig, refuse: Refuse) -> None:
    wait_ms = config.get_int("replica.fetch.wait.max.ms")
    for key in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait_ms > config.get_int(key):
            refuse(key, f"must be at least replica.fetch.wait.max.ms={wait_ms}")


# Keys of the form group.<kind>.<what> with bounds group.<kind>.min.<what> and .max.<what>.
_BOUNDED: Final = (
    ("consumer", ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")),
    (
        "share",
        (
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "assignment.interval.ms",
            "delivery.count.limit",
            "record.lock.duration.ms",
            "partition.max.record.locks",
        ),
    ),
    ("streams", ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")),
)


def _check_groups(config: NodeConfig, refuse: Refuse) -> None:
    for kind, keys in _BOUNDED:
        for what in keys:
            low = config.get_int(f"group.{kind}.min.{what}")
            high = config.get_int(f"group.{kind}.max.{what}")
            key = f"group.{kind}.{what}"
            if low > high:
                refuse(
                    f"group.{kind}.max.{what}", f"must be at least group.{kind}.min.{what}={low}"
                )
            elif not low <= config.get_int(key) <= high:
                refuse(key, f"must be from {low} to {high}, its .min. and .max. keys")
        heartbeat_ms = config.get_int(f"group.{kind}.heartbeat.interval.ms")
        if heartbeat_ms >= config.get_int(f"group.{kind}.session.timeout.ms"):
            refuse(
                f"group.{kind}.heartbeat.interval.ms",
                f"must be less than group.{kind}.session.timeout.ms",
            )
    standby, most = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    if config.get_int(standby) > config.get_int(most):
        refuse(standby, f"must be at most {most}={config[most]}")
    if "classic" not in config.get_list("group.coordinator.rebalance.protocols"):
        refuse("group.coordinator.rebalance.protocols", "must contain classic")


def _check_access_control(config: NodeConfig, refuse: Refuse, warn: Warn) -> None:
    for endpoint in config.topology.listeners:
        principal = str(config.for_listener(endpoint.listener_name, "kraftpy.principal"))
        if not _is_principal(principal):
            refuse("kraftpy.principal", f"must be as in User:node, and not {principal!r}")
    for user in config.super_users:
        if not _is_principal(user):
            refuse("super.users", f"must be as in User:ann;User:bob; {user!r} has no type and name")
    authorizer = config["authorizer.class.name"]
    if authorizer not in ("", STANDARD_AUTHORIZER):
        refuse(
            "authorizer.class.name",
            f"must be {STANDARD_AUTHORIZER} or empty: other authorizers are Java classes, "
            "which a node can't load",
        )
    if authorizer and not config.super_users:
        warn(
            "authorizer.class.name is set and super.users is empty: nodes may not work with each "
            "other until ACLs allow it, and several controllers can't even elect one of them"
        )


def _is_principal(text: str) -> bool:
    kind, _, name = text.partition(":")
    return bool(kind and name)


def _check_what_is_missing(config: NodeConfig, refuse: Refuse) -> None:
    for endpoint in config.topology.listeners:
        if endpoint.security_protocol is not SecurityProtocol.PLAINTEXT:
            refuse(
                "listeners",
                f"{endpoint.listener_name} wants {endpoint.security_protocol.value}, "
                "which is not there yet; only PLAINTEXT is",
            )
    if config["remote.log.storage.system.enable"]:
        refuse("remote.log.storage.system.enable", "there is no tiered storage; set it to false")
