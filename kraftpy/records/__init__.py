"""Record batches: the bytes that producers send, logs keep and consumers read.

- `batch`: the v2 header as a view, and the patches a broker makes in it
- `walker`: a run of batches of any format
- `reader`, `builder`: records out of a batch and into one
- `control`: transaction markers and the metadata log's own records
- `legacy`: messages of magic 0 and 1
- `compression` (with `lz4_frame`), `varint`: what they are made of
- `validation`: what a leader checks and changes before it appends
- `errors`: what can be wrong, with Kafka's error codes

docs/format.md describes the bytes.
"""
