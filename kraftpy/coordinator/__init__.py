"""Groups and transactions: state machines on the partitions of internal topics.

One partition of `__consumer_offsets` or `__transaction_state` is one shard: a state machine whose
state is nothing but the records of that partition, replayed. Whoever leads the partition runs the
machine. `shard.py` has the rules that all shards live by, `runtime.py` the shards of a broker;
`groups` and `transactions` are the machines.

Everything here is sans-I/O: the log, the timers and the clock are handed in (ports.py).
"""
