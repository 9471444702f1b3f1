"""Level L3: complete nodes and their clients in one simulated world, under one seed.

`swarm` draws what the world of a seed is like, `schedule` what befalls it and when, `machines` runs
the nodes and carries faults out, `workers` are the clients, `watch` holds every node against the
invariants, `system` is a whole run with its phases, and `shrinking` makes a failure small.
"""
