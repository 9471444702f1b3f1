"""The one language of faults, and what carries them out around a node that knows nothing of them.

`language` has the names and their parameters, `drawing` draws faults from a seed. Everything else
wraps the world of a node: `switchboard` stands between nodes and cuts or delays what they send to
each other, `routing` leads a node's connections there, `disk` spoils writes, `answers` fails
requests, and `control` brings a fault into the process of a node.

None of it is in the way of a node that runs by itself: only `kraftpy node --faults`, which
launchers of tests give, and `kraftpy/testing` put these adapters around a world.
"""
