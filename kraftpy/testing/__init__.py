"""Kafka clusters for tests, with faults: the pytest plugin and what it is made of.

`plugin` has the fixtures `kafka_cluster` and `kafka_cluster_session`, `cluster.KafkaCluster` is
what they give, and docs/testing-with-kraftpy.md shows how to use them.
"""
