"""Groups of consumers and their offsets: the machine of a partition of `__consumer_offsets`.

`group.py` says what every kind of group can be asked, `directory.py` holds the groups of a shard,
`offsets.py` their offsets. Classic groups (`classic_*.py`) and consumer groups (`consumer_*.py`)
are two protocols for the same thing; `machine.py` puts all of it together.
"""
