"""The transaction coordinator: who writes under which transactional id, and how it ends.

A transactional id belongs to one partition of `__transaction_state`, and so to one shard. Its
newest record says which producer id and epoch may write under it, and what state its transaction
is in. `state.py` has states and records, `identities.py` decides about producer ids and epochs,
`endings.py` about the end of a transaction, `machine.py` is what a shard runs, `service.py` what
others ask.
"""
