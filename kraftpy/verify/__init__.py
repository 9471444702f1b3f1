"""Judging a cluster by what its clients saw: histories, workloads that make them, checkers.

`history` is what was done and answered, in one order and on one clock. `checkers` look through a
history for what must not happen (lost writes, aborted reads, cycles of transactions, two members
with one partition). `workloads` are the clients that produce histories. The whole-cluster
simulation and the suite on real processes share all three, so that a verdict means the same in
both.
"""
