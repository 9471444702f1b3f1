"""A node's configuration: what it accepts, what it refuses and how, what it derives."""

from __future__ import annotations

import pytest
from config_cases import ACCEPTED_NODES, BROKER_ONLY, GOOD_NODE, REFUSED_NODES, STRICTER_NODES

from kraftpy.config import (
    ConfigurationError,
    EndPoint,
    NodeConfig,
    SecurityProtocol,
    Source,
    from_assignments,
    from_environment,
    from_mapping,
    from_properties,
)
from kraftpy.config.definition import Password
from kraftpy.config.development import development_settings
from kraftpy.config.topology import Voter


def node(properties: dict[str, str]) -> NodeConfig:
    return NodeConfig(from_mapping(properties, "test"))


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as raised:
        node(properties)
    return str(raised.value)


@pytest.mark.parametrize("name", ACCEPTED_NODES)
def test_accepted(name: str) -> None:
    """NET-2, NET-3: free ports and mapped listener names among them."""
    node(ACCEPTED_NODES[name])


# The key that each refusal has to name.
GUILTY = {
    "nothing": "node.id: must be set",
    "no node.id": "node.id: must be set",
    "no roles": "process.roles: must be set",
    "no controller names": "controller.listener.names: must be set",
    "no quorum": "controller.quorum.bootstrap.servers",
    "controller not a voter": "controller.quorum.voters=1@localhost:9093 (test): must contain",
    "broker a voter": "controller.quorum.voters=1@localhost:9093 (test): must not contain",
    "broker joins the quorum": "controller.quorum.auto.join.enable=true",
    "two ids": "broker.id=2",
    "unmapped listener": "add STRANGE:PLAINTEXT or another to listener.security.protocol.map",
    "unmapped controller listener": "controller.listener.names=CONTROLLER",
    "unknown protocol": "'PLAINTEXTISH' is no security protocol",
    "doubly mapped": "maps A twice",
    "unreadable listener": "can't read 'localhost:9092'; write NAME://host:port",
    "same name twice": "uses the name PLAINTEXT twice",
    "same port twice": "uses port 9093 more than once",
    "advertises 0.0.0.0": "set advertised.listeners to a real address",
    "advertises what it lacks": "names OTHER, which is not in listeners",
    "controller listener not listened on": "add CONTROLLER://host:port",
    "broker listens for controllers": "contains CONTROLLER of controller.listener.names",
    "controller listens for clients": "must all be in controller.listener.names",
    "only controller listeners": "leaves none for clients",
    "inter-broker listener is missing": "choose from PLAINTEXT",
    "inter-broker listener is unmapped": "no security protocol is known for listener IN",
    "inter-broker listener named twice": "remove one of them",
    "queue below one request": "queued.max.request.bytes=104857599",
    "nobody may connect": "max.connections.per.ip=0",
    "unreadable exceptions": "can't read 'a b:7'; write host:count",
    "authentication slower than idleness": "connection.failed.authentication.delay.ms=100",
    "no retention": "log.retention.minutes=0",
    "no roll time": "log.roll.ms=0",
    "negative jitter": "log.roll.jitter.ms=-1",
    "small key map": "log.cleaner.dedupe.buffer.size=1048576",
    "no cleaner": "log.cleaner.threads=0",
    "fetch outlasts its socket": "replica.socket.timeout.ms=499",
    "fetch outlasts the lag": "replica.lag.time.max.ms=499",
    "strange directory cordoned": "cordoned.log.dirs=/b",
    "all and one cordoned": "cordoned.log.dirs=*,/a",
    "session below its bound": "group.consumer.session.timeout.ms=44999",
    "bounds crossed": "group.consumer.max.session.timeout.ms=1000",
    "heartbeat not below session": "group.consumer.heartbeat.interval.ms=45000",
    "standby above its bound": "group.streams.num.standby.replicas=3",
    "port that does not exist": "'PLAINTEXT://localhost:65536' has a port above 65535",
    "negative port": "can't read 'PLAINTEXT://localhost:-1'",
    "negative count": "can't read 'localhost:-1'",
    "old control plane (NET-6, NET-8)": "control.plane.listener.name=CONTROLLER",
    "authorizer that can't be loaded": "must be org.apache.kafka.metadata.authorizer.Standard",
    "super user without a type": "must be as in User:ann;User:bob; 'bob' has no type and name",
    "principal without a name": "must be as in User:node, and not 'User:'",
    "encryption that would be ignored": "SSL wants SSL, which is not there yet",
}


@pytest.mark.parametrize("name", [*REFUSED_NODES, *STRICTER_NODES])
def test_refused_with_key_value_and_what_to_do(name: str) -> None:
    """NET-3, NET-6, NET-8, NET-12 among them."""
    assert GUILTY[name] in refusal((REFUSED_NODES | STRICTER_NODES)[name])


def test_all_problems_are_told_at_once_with_their_places() -> None:
    text = "node.id=x\nnum.io.threads=0\nlog.dirs=\nsocket.request.max.bytes = 1k\n"
    with pytest.raises(ConfigurationError) as raised:
        NodeConfig(
            from_properties(text, "broken.properties"), from_assignments(["num.partitions=0"])
        )
    assert str(raised.value).splitlines() == [
        "node.id=x (broken.properties line 1): must be a whole number",
        "num.io.threads=0 (broken.properties line 2): must be at least 1",
        "log.dirs= (broken.properties line 3): must not be empty",
        "socket.request.max.bytes=1k (broken.properties line 4): must be a whole number",
        "num.partitions=0 (--set): must be at least 1",
        "broker.id=x (broken.properties line 1): must be a whole number",
        "process.roles: must be set. What the node is: broker, controller, or both.",
        (
            "controller.listener.names: must be set. Listeners of the controllers; their first is "
            "the one that brokers call."
        ),
    ]


def test_a_secret_is_hidden_everywhere() -> None:
    config = node(GOOD_NODE | {"ssl.keystore.password": "hunter2"})
    secret = config["ssl.keystore.password"]
    assert isinstance(secret, Password)
    assert secret.secret == "hunter2"
    assert "hunter2" not in f"{secret} {secret!r} {[secret]}"


def test_unknown_keys_warn_once_each_with_the_nearest_name() -> None:
    config = node(
        GOOD_NODE
        | {
            "log.retention.hour": "1",
            "listener.name.external.max.conections": "1",
            "xyzzy": "1",
            "zookeeper.connect": "localhost:2181",
        }
    )
    assert config.warnings == (
        "log.retention.hour (test) is not a known key; did you mean log.retention.hours?",
        (
            "listener.name.external.max.conections (test) is not a known key; "
            "did you mean listener.name.external.max.connections?"
        ),
        "xyzzy (test) is not a known key",
        (
            "zookeeper.connect (test) has no effect: there is no ZooKeeper; name the quorum in "
            "controller.quorum.voters"
        ),
    )


def test_layers_from_weak_to_strong() -> None:
    file = from_properties("num.partitions=2\nlog.dirs=/file\nbroker.rack=a")
    environment = from_environment({"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_DIRS": "/environment"})
    config = NodeConfig(
        from_mapping(GOOD_NODE, "test"), file, environment, from_assignments(["num.partitions=4"])
    )
    looked_up = [
        (config[key], config.origin(key), config.source(key))
        for key in ("num.partitions", "log.dirs", "broker.rack", "num.io.threads")
    ]
    assert looked_up == [
        (4, "--set", Source.STATIC),
        (("/environment",), "environment KAFKA_LOG_DIRS", Source.STATIC),
        ("a", "server.properties line 3", Source.STATIC),
        (8, "", Source.DEFAULT),
    ]


def test_typed_access_refuses_another_type() -> None:
    config = node(GOOD_NODE)
    assert config.get_int("num.partitions") == 1
    assert config.get_bool("delete.topic.enable") is True
    assert config.get_float("log.cleaner.io.buffer.load.factor") == 0.9
    assert config.get_str("compression.type") == "producer"
    assert config.get_list("log.cleanup.policy") == ("delete",)
    for get, key in (
        (config.get_int, "delete.topic.enable"),
        (config.get_int, "log.retention.ms"),
        (config.get_bool, "num.partitions"),
        (config.get_float, "num.partitions"),
        (config.get_str, "broker.rack"),
        (config.get_list, "log.dirs"),
    ):
        with pytest.raises(TypeError, match=key):
            get(key)


def test_node_id_and_broker_id_are_one() -> None:
    config = node(ACCEPTED_NODES["broker.id alone"])
    assert (config.node_id, config["broker.id"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "host", "port", "rendered"),
    [
        ("PLAINTEXT://localhost:9092", "localhost", 9092, "PLAINTEXT://localhost:9092"),
        ("plaintext://:9092", "", 9092, "PLAINTEXT://:9092"),
        ("PLAINTEXT://[::1]:0", "::1", 0, "PLAINTEXT://[::1]:0"),
        ("PLAINTEXT://0.0.0.0:1", "0.0.0.0", 1, "PLAINTEXT://0.0.0.0:1"),
    ],
)
def test_endpoints_read_and_rendered(text: str, host: str, port: int, rendered: str) -> None:
    """NET-4."""
    advertised = "PLAINTEXT://example.com:9092"
    config = node(BROKER_ONLY | {"listeners": text, "advertised.listeners": advertised})
    (endpoint,) = config.topology.listeners
    assert endpoint == EndPoint(host, port, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
    assert str(endpoint) == rendered
    assert [str(each) for each in config.topology.advertised_broker_listeners] == [advertised]


def test_topology_of_a_combined_node() -> None:
    topology = node(ACCEPTED_NODES["named listeners"]).topology
    assert topology.roles == ("broker", "controller")
    assert topology.voters == (Voter(1, "localhost", 9093),)
    assert [str(each) for each in topology.listeners] == [
        "IN://localhost:9092",
        "OUT://:9094",
        "CONTROLLER://localhost:9093",
    ]
    assert [each.listener_name for each in topology.broker_listeners] == ["IN", "OUT"]
    assert [str(each) for each in topology.advertised_broker_listeners] == [
        "IN://localhost:9092",
        "OUT://example.com:9094",
    ]
    assert topology.inter_broker_listener_name == "IN"
    assert [str(each) for each in topology.controller_listeners] == ["CONTROLLER://localhost:9093"]


def test_a_controller_that_listens_everywhere_is_found_where_the_voters_say() -> None:
    topology = node(ACCEPTED_NODES["controller listens everywhere"]).topology
    assert [str(each) for each in topology.controller_listeners] == ["CONTROLLER://0.0.0.0:9093"]
    advertised = [str(each) for each in topology.advertised_controller_listeners]
    assert advertised == ["CONTROLLER://localhost:9093"]


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.ms": "-7"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(given: dict[str, str], retention_ms: int) -> None:
    assert node(GOOD_NODE | given).log_retention_ms == retention_ms


def test_directories() -> None:
    assert node(GOOD_NODE).log_dirs == ("/tmp/kafka-logs",)
    config = node(GOOD_NODE | {"log.dir": "/one", "log.dirs": "/a, /b"})
    assert (config.log_dirs, config.metadata_log_dir) == (("/a", "/b"), "/a")
    assert node(GOOD_NODE | {"metadata.log.dir": "/meta"}).metadata_log_dir == "/meta"


def test_a_listener_has_its_own_values_or_the_nodes() -> None:
    config = node(GOOD_NODE | {"listener.name.plaintext.max.connections": "10"})
    assert config.for_listener("PLAINTEXT", "max.connections") == 10
    assert config.for_listener("CONTROLLER", "max.connections") == 2**31 - 1


def test_connection_limits_of_single_hosts() -> None:
    config = node(GOOD_NODE | {"max.connections.per.ip.overrides": "127.0.0.1:5, ::1:7"})
    assert config.max_connections_per_ip_overrides == {"127.0.0.1": 5, "::1": 7}
    assert config.warnings == ()


def test_a_host_by_name_has_no_limit_of_its_own_and_that_is_said() -> None:
    """Kafka looks names up; peers are known by address here."""
    config = node(GOOD_NODE | {"max.connections.per.ip.overrides": "10.0.0.1:5,db.local:7"})
    (warning,) = config.warnings
    assert warning.startswith("max.connections.per.ip.overrides: names are not looked up")
    assert "db.local:7" in warning


@pytest.mark.parametrize("broker_count", [1, 2, 3, 5])
def test_development_settings_make_a_node(broker_count: int) -> None:
    voters = [Voter(number, "127.0.0.1", 9100 + number) for number in range(1, broker_count + 1)]
    settings = development_settings(
        node_id=1, voters=voters, host="127.0.0.1", port=0, data_dir="/x", broker_count=broker_count
    )
    config = node(settings)
    assert config.warnings == ()
    assert config["offsets.topic.replication.factor"] == min(3, broker_count)
    assert config["transaction.state.log.min.isr"] == min(2, broker_count)
    assert config["group.initial.rebalance.delay.ms"] == 0


def test_an_authorizer_without_super_users_is_warned_of() -> None:
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = GOOD_NODE | {"authorizer.class.name": name}
    (warning,) = NodeConfig(from_mapping(settings, "test")).warnings
    assert "super.users is empty" in warning
    config = NodeConfig(from_mapping(settings | {"super.users": "User:a; User:b,c;"}, "test"))
    assert config.warnings == ()
    assert config.super_users == ("User:a", "User:b,c")
