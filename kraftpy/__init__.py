"""A Kafka-compatible broker in Python: a Raft quorum instead of ZooKeeper, trio instead of a JVM.

docs/architecture.md is the map of the rooms. Importing this package costs nothing and does nothing.
"""

__version__ = "0.1.0.dev0"
