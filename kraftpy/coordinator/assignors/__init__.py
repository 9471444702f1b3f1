"""Who of a group's members is to read which partition: `range` and `uniform`, as KIP-848 has them.

An assignor is a pure function of the members' subscriptions, of what they are to have now, and of
the topics' partition counts. The same input gives the same output, in whatever order it comes.
"""
