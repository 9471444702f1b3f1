"""Waiting: for a moment, or for something to become true, whichever comes first.

- `chain`: a linked list whose members carry their own links.
- `wheel`: the hierarchical timing wheel, sans-I/O.
- `timer`: a wheel on a clock, and the one task that sleeps until something is due.
- `operation`: an answer that can't be given yet.
- `purgatory`: operations by the keys whose events may complete them.
"""
