"""The segment log: everything that a node keeps, in files byte-compatible with Apache Kafka's.

Leaf modules, which know nothing of each other but `errors`:

- `handles`: open files within a limit.
- `checkpoints`, `meta_properties`: the small text files, replaced atomically.
- `epochs`: which leader epoch began at which offset.
- `producers`: idempotence and transactions, made of `producer_entries` and `verifications`.
- `transactions`: the aborted transactions of a segment.
- `index`: offset to position and time to offset within a segment.

A segment and a log, from the inside out:

- `log_config`, `offsets`, `segment_files`, `batch_headers`, `batch_set`, `pacing`: values and
  helpers.
- `segment_store`, `segment`, `segments`: one segment, and those of a log in order.
- `snapshots`, `log_files`: the files of a partition directory, and the order of their changes.
- `appending`, `watermarks`, `retention`: what is decided without touching a file.
- `log_reading`, `log_writing`, `partition_log`: the log of one partition, in three layers.
- `rebuilding`, `recovery`, `splitting`, `loading`: from files to a log.
- `log_owner`: what a log asks of whoever owns it.

The byte layouts are in docs/format.md.
"""
