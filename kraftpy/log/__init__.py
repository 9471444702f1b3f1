"""The segment log: everything that a node keeps, in files byte-compatible with Apache Kafka's.

Leaf modules, which know nothing of each other but `errors`:

- `handles`: open files within a limit.
- `checkpoints`, `meta_properties`: the small text files, replaced atomically.
- `epochs`: which leader epoch began at which offset.
- `producers`: idempotence and transactions, made of `producer_entries` and `verifications`.
- `transactions`: the aborted transactions of a segment.
- `index`: offset to position and time to offset within a segment.

The byte layouts are in docs/format.md.
"""
