"""Clusters on one machine: choose ports, format, start a process for each node, watch, stop.

Used by `kraftpy up`, by tests, by the Jepsen suite and by benchmarks alike.
"""
