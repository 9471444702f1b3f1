"""Who does the damage: kinds of faults, when they strike, and what they were seen to do.

    nemesis = nemesis_of(["partition", "kill"])
    await nemesis.run(cluster, recorder, random, seconds=60)
    await nemesis.heal(cluster)

`catalogue` has the kinds (N1 to N29 of the specification as far as processes can have them),
`targets` whom they strike, `schedule` when.
"""

from jepsen_tests.nemeses.kind import Kind
from jepsen_tests.nemeses.nemesis import Nemesis, kinds, nemesis_of

__all__ = ["Kind", "Nemesis", "kinds", "nemesis_of"]
