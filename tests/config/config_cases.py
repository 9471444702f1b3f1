"""Configurations and files that several tests here share, good and bad."""

from __future__ import annotations

GOOD_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
}
BROKER_ONLY = GOOD_NODE | {
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://localhost:9092",
}
CONTROLLER_ONLY = GOOD_NODE | {
    "process.roles": "controller",
    "listeners": "CONTROLLER://localhost:9093",
}

ACCEPTED_NODES = {
    "combined": GOOD_NODE,
    "broker": BROKER_ONLY,
    "controller": CONTROLLER_ONLY,
    "bootstrap servers instead of voters": {
        key: text for key, text in GOOD_NODE.items() if key != "controller.quorum.voters"
    }
    | {"controller.quorum.bootstrap.servers": "localhost:9093"},
    "broker.id alone": {key: text for key, text in GOOD_NODE.items() if key != "node.id"}
    | {"broker.id": "1"},
    "names in lower case": GOOD_NODE
    | {"listeners": "plaintext://localhost:9092,controller://localhost:9093"},
    "free ports": GOOD_NODE | {"listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0"},
    "one port for IPv4 and IPv6": GOOD_NODE
    | {
        "listeners": "PLAINTEXT://127.0.0.1:9092,SIX://[::1]:9092,CONTROLLER://localhost:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT,CONTROLLER:PLAINTEXT",
    },
    "named listeners": GOOD_NODE
    | {
        "listeners": "IN://localhost:9092,OUT://:9094,CONTROLLER://localhost:9093",
        "advertised.listeners": "IN://localhost:9092,OUT://example.com:9094",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "IN",
    },
    "controller listens everywhere": GOOD_NODE
    | {"listeners": "PLAINTEXT://localhost:9092,CONTROLLER://0.0.0.0:9093"},
    "no limit on queued bytes": GOOD_NODE | {"queued.max.request.bytes": "-1"},
    "exceptions from a limit of none": GOOD_NODE
    | {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5,host:7"},
    "idle for ever": GOOD_NODE | {"connections.max.idle.ms": "-1"},
    "several directories": GOOD_NODE | {"log.dirs": "/a,/b", "cordoned.log.dirs": "/b"},
    "retention for ever": GOOD_NODE | {"log.retention.hours": "-5"},
    "finest retention wins": GOOD_NODE | {"log.retention.ms": "1", "log.retention.hours": "0"},
    "listener's own limit": GOOD_NODE | {"listener.name.plaintext.max.connections": "10"},
    "unknown key": GOOD_NODE | {"no.such.key": "x"},
}

REFUSED_NODES = {
    "nothing": {},
    "no node.id": {key: text for key, text in GOOD_NODE.items() if key != "node.id"},
    "no roles": {key: text for key, text in GOOD_NODE.items() if key != "process.roles"},
    "no controller names": {
        key: text for key, text in GOOD_NODE.items() if key != "controller.listener.names"
    },
    "no quorum": {
        key: text for key, text in GOOD_NODE.items() if key != "controller.quorum.voters"
    },
    "controller not a voter": GOOD_NODE | {"node.id": "7"},
    "broker a voter": BROKER_ONLY | {"node.id": "1"},
    "broker joins the quorum": BROKER_ONLY | {"controller.quorum.auto.join.enable": "true"},
    "two ids": GOOD_NODE | {"broker.id": "2"},
    "unmapped listener": GOOD_NODE
    | {"listeners": "STRANGE://localhost:9092,CONTROLLER://localhost:9093"},
    "unmapped controller listener": BROKER_ONLY
    | {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    "unknown protocol": GOOD_NODE | {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXTISH"},
    "doubly mapped": GOOD_NODE
    | {"listener.security.protocol.map": "A:PLAINTEXT,A:SSL,CONTROLLER:PLAINTEXT"},
    "unreadable listener": GOOD_NODE | {"listeners": "localhost:9092,CONTROLLER://localhost:9093"},
    "same name twice": GOOD_NODE
    | {"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2,CONTROLLER://localhost:9093"},
    "same port twice": GOOD_NODE
    | {"listeners": "PLAINTEXT://localhost:9093,CONTROLLER://localhost:9093"},
    "advertises 0.0.0.0": GOOD_NODE
    | {"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093"},
    "advertises what it lacks": GOOD_NODE
    | {
        "advertised.listeners": "PLAINTEXT://localhost:9092,OTHER://localhost:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
    },
    "controller listener not listened on": GOOD_NODE | {"listeners": "PLAINTEXT://localhost:9092"},
    "broker listens for controllers": BROKER_ONLY | {"listeners": GOOD_NODE["listeners"]},
    "controller listens for clients": CONTROLLER_ONLY | {"listeners": GOOD_NODE["listeners"]},
    "only controller listeners": GOOD_NODE | {"listeners": "CONTROLLER://localhost:9093"},
    "inter-broker listener is missing": GOOD_NODE
    | {
        "inter.broker.listener.name": "IN",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:PLAINTEXT,CONTROLLER:PLAINTEXT",
    },
    "inter-broker listener is unmapped": GOOD_NODE | {"inter.broker.listener.name": "IN"},
    "inter-broker listener named twice": GOOD_NODE
    | {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    "queue below one request": GOOD_NODE | {"queued.max.request.bytes": "104857599"},
    "nobody may connect": GOOD_NODE | {"max.connections.per.ip": "0"},
    "unreadable exceptions": GOOD_NODE | {"max.connections.per.ip.overrides": "a b:7"},
    "authentication slower than idleness": GOOD_NODE | {"connections.max.idle.ms": "100"},
    "no retention": GOOD_NODE | {"log.retention.minutes": "0"},
    "no roll time": GOOD_NODE | {"log.roll.ms": "0"},
    "negative jitter": GOOD_NODE | {"log.roll.jitter.ms": "-1"},
    "small key map": GOOD_NODE | {"log.cleaner.dedupe.buffer.size": "1048576"},
    "no cleaner": GOOD_NODE | {"log.cleaner.threads": "0"},
    "fetch outlasts its socket": GOOD_NODE | {"replica.socket.timeout.ms": "499"},
    "fetch outlasts the lag": GOOD_NODE | {"replica.lag.time.max.ms": "499"},
    "strange directory cordoned": GOOD_NODE | {"log.dirs": "/a", "cordoned.log.dirs": "/b"},
    "all and one cordoned": GOOD_NODE | {"log.dirs": "/a", "cordoned.log.dirs": "*,/a"},
    "session below its bound": GOOD_NODE | {"group.consumer.session.timeout.ms": "44999"},
    "bounds crossed": GOOD_NODE | {"group.consumer.max.session.timeout.ms": "1000"},
    "heartbeat not below session": GOOD_NODE
    | {
        "group.consumer.heartbeat.interval.ms": "45000",
        "group.consumer.max.heartbeat.interval.ms": "45000",
    },
    "standby above its bound": GOOD_NODE | {"group.streams.num.standby.replicas": "3"},
}


STRICTER_NODES = {
    "port that does not exist": GOOD_NODE
    | {"listeners": "PLAINTEXT://localhost:65536,CONTROLLER://localhost:9093"},
    "negative port": GOOD_NODE
    | {"listeners": "PLAINTEXT://localhost:-1,CONTROLLER://localhost:9093"},
    "negative count": GOOD_NODE | {"max.connections.per.ip.overrides": "localhost:-1"},
    "old control plane (NET-6, NET-8)": GOOD_NODE | {"control.plane.listener.name": "CONTROLLER"},
    "authorizer that can't be loaded": GOOD_NODE | {"authorizer.class.name": "com.example.Mine"},
    "super user without a type": GOOD_NODE | {"super.users": "User:ann; bob"},
    "principal without a name": GOOD_NODE | {"listener.name.controller.kraftpy.principal": "User:"},
    "encryption that would be ignored": GOOD_NODE
    | {
        "listeners": "PLAINTEXT://localhost:9092,SSL://localhost:9094,CONTROLLER://localhost:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
    },
}
"""What Kafka starts with and we don't: it fails later there, or would be ignored here."""


def broken_nodes() -> list[dict[str, str]]:
    """Nodes with one key off by one around each bound that several keys make together."""
    edges = {
        "queued.max.request.bytes": ("0", "-5", "1", "104857600"),
        "connections.max.idle.ms": ("0", "101", "-1"),
        "connection.failed.authentication.delay.ms": ("599999", "600000"),
        "replica.socket.timeout.ms": ("500", "499"),
        "replica.lag.time.max.ms": ("500",),
        "replica.fetch.wait.max.ms": ("30000", "30001"),
        "log.roll.ms": ("1", "-1"),
        "log.roll.jitter.ms": ("0",),
        "log.retention.ms": ("0", "-1", "-2", "1"),
        "log.retention.minutes": ("0", "-1"),
        "log.retention.hours": ("0", "-1"),
        "log.cleaner.threads": ("1", "127", "128"),
        "log.cleaner.dedupe.buffer.size": ("1048577",),
        "group.coordinator.rebalance.protocols": ("consumer", "classic", "consumer,classic"),
        "broker.heartbeat.interval.ms": ("9000", "9001"),
        "controller.quorum.voters": ("1@h:0", "2@h:1", "1@a:1,1@b:2", "1@a:1,2@b:2"),
        "controller.listener.names": ("PLAINTEXT", "CONTROLLER,PLAINTEXT", "OTHER"),
        "advertised.listeners": (
            "PLAINTEXT://0.0.0.0:9092",
            "PLAINTEXT://h:9092,CONTROLLER://h:9092",
            "PLAINTEXT://:9092",
            "CONTROLLER://h:9093",
            "PLAINTEXT://h:9092,CONTROLLER://0.0.0.0:9093",
            "PLAINTEXT://h:9092,CONTROLLER://:9093",
        ),
        "listeners": (
            "PLAINTEXT://h:9092, CONTROLLER://h:9093",
            "PLAINTEXT://[::1]:9092,CONTROLLER://[::1]:9092",
            "PLAINTEXT://a:9092,CONTROLLER://1.2.3.4:9092",
            "PLAINTEXT://h h:9092,CONTROLLER://h:9093",
            "PLAINTEXT://,CONTROLLER://h:9093",
        ),
        "security.inter.broker.protocol": ("PLAINTEXT", "SSL"),
        "inter.broker.listener.name": ("plaintext", "CONTROLLER"),
        "max.connections.per.ip.overrides": ("", "::1:5", "h", "h:x", "h:1,", " h:1 , g:2 "),
    }
    nodes = [GOOD_NODE | {key: text} for key, texts in edges.items() for text in texts]
    for kind in ("consumer", "share", "streams"):
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
            for bound in ("", "min.", "max."):
                texts = ("1", "5000", "15000", "15001", "44999", "45000", "60000", "60001")
                nodes += [GOOD_NODE | {f"group.{kind}.{bound}{what}": text} for text in texts]
    for what, texts in {
        "delivery.count.limit": ("2", "5", "10"),
        "record.lock.duration.ms": ("1000", "15000", "30000", "60000", "60001"),
        "partition.max.record.locks": ("100", "2000", "4000", "4001"),
    }.items():
        for bound in ("", "min.", "max."):
            nodes += [GOOD_NODE | {f"group.share.{bound}{what}": text} for text in texts]
    return nodes


PROPERTIES_TEXTS = (
    "",
    "a=b",
    "a = b \n c : d\n e f",
    "# comment\n! comment \\\na=1",
    "a=1\na=2",
    "a\\=b\\:c\\ d=e",
    "a=one, \\\n   two, \\\n\tthree",
    "a=one\\\n# no comment",
    "a=one\\\\\nb=two",
    "a=one\\\\\\\nb",
    "a=\\t\\n\\r\\f\\q\\\\",
    "a=\\u00e9\\u20AC \\ud83d\\ude00",
    "a=\\u12",
    "a=\\u12g4",
    "a=é€",
    "a",
    "a=",
    "=b",
    "a==b",
    "a= =b",
    "a:=b",
    "a \t\f= \t\fb",
    "\\\n#a=b",
    "a=b\\",
    "a=b\\\n",
    "a=b\\\n\nc=d",
    "\r\na=1\rb=2\r\nc=3\n\n\n",
    "  \t# a=1\n  \t a=2",
    "a=trailing  \nb=\\ leading",
    "\ufeffa=b",
    "a\\\nb=c",
    "a\\u003db=c",
)
