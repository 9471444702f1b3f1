"""The Raft quorum: elections, replication and membership of the metadata log.

`RaftCore` is the door: inputs and the time go in, effects come out, without any I/O. `RaftStorage`
carries out the effects that concern the disk. Reading order:

- `inputs`, `effects`: everything that can happen to a core, everything that it can want
- `voters`, `election_state`: the values that elections are about
- `roles`: what a node is at the moment, and the table of legal changes
- `log_state`: what the core knows of its log, and the view of the storage below it
- `connections`: who was asked what, and who must not be asked yet
- `quorum`: the shared facts and the only way to change the role
- `rpc`: what all of Raft's requests and answers have in common
- `elections`, `replication`, `snapshots`, `membership`, `discovery`: one concern each
- `core`: the state machine made of them; `memory_storage`: a storage for simulation and tests
- `storage`: the storage on disk, with `storage_opening`, `quorum_state_file`, `snapshot_files`

Names are Kafka's: epoch (a term), log end offset, high watermark. KIP-595 is the protocol, KIP-630
the snapshots, KIP-853 the voter changes, KIP-996 the pre-vote.
"""
