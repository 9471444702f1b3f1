"""Who may do how much.

- `windows`: rates over sampled windows, and buckets of tokens
- `limits`: which limit holds for whom
- `accounts`: what is known of those who have one
- `client_quota`: what clients have used, and how long they must wait
- `mutation_quota`: the same for changes to topics, which may be refused
- `replication_quota`: bytes a second between replicas
- `address_quota`: connections a second from one address
- `quota_metrics`: all of these under Kafka's names
- `acl_terms`: the words of access control
- `acl_index`: its entries, found by resource
- `authorizer`: who may do what

All of it is sans-I/O: amounts and a `now_ms` go in, delays come out; or questions, and verdicts.
"""
