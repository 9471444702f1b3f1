"""Cluster metadata: the records of the metadata log, and the images that nodes fold from them.

- `records`, `record_format`: every record, and its bytes
- `sorted_map`: the persistent map that images are made of
- `image`: everything that a cluster is, at one offset; immutable
- `delta`: records replayed on top of an image, giving the next one
- `features`: the levels of metadata.version and of the other features
- `access_control`, `describing`: what images say about permissions, quotas and SCRAM users
- `changes`, `local_changes`: what differs between two images, and what that means for one broker
- `snapshot`: an image as batches of records, and back
- `publisher`: committed batches in, published images out

Nothing here does I/O or knows the time. docs/format.md describes the bytes.
"""
