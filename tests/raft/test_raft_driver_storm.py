"""Members of a quorum under everything at once: links, disks, deaths, power, snapshots.

Whatever happens, what one member has shown as committed every member shows in the end.
"""

from __future__ import annotations

from random import Random

import pytest
import trio
from driver_rig import Member, setting
from driver_simulation import Quorum, machine, simulate

from kraftpy.raft.effects import ProposalRefused
from kraftpy.raft.log_state import SnapshotId
from kraftpy.world.memory_disk_faults import SlowDisk
from kraftpy.world.memory_network import LinkProfile

SEEDS = range(100, 106)
MISFORTUNES = 25
WEATHER = LinkProfile(
    latency_mean_seconds=0.01, chunk_max_bytes=200, reset_probability=0.003, tail_probability=0.01
)


async def snapshot_and_trim(member: Member) -> None:
    """If there is something to make one of."""
    image = member.image
    if image is None or not image.provenance.is_batch_aligned:
        return
    provenance = image.provenance
    if await member.snapshot() is None:
        member.driver.expire_snapshots(SnapshotId(provenance.end_offset, provenance.epoch))


async def storm(quorum: Quorum) -> int:
    simulation = quorum.simulation
    random: Random = simulation.rng.stream("misfortune")
    names = [machine(each) for each in quorum.places]
    for source in names:
        for target in names:
            if source != target:
                simulation.fabric.set_profile(source, target, WEATHER)
    quorum.changes = {"fetch_snapshot_max_bytes": 500}
    quorum.start()
    for node_id in quorum.places:
        quorum.disk(node_id).inject(SlowDisk(mean_more_seconds=0.01))
    shown = 0
    number = 0
    for _ in range(MISFORTUNES):
        for _ in range(random.randint(1, 30)):
            number += 1
            for member in list(quorum.members.values()):
                if member.leads:
                    epoch = member.driver.election.epoch
                    outcome = member.driver.propose(epoch, (setting("n", str(number)),))
                    assert not isinstance(outcome, ProposalRefused)
            await trio.sleep(random.expovariate(20))
        shown = max([shown, *(int(each.settings.get("n", 0)) for each in quorum.members.values())])
        await befall(quorum, random)
    simulation.fabric.heal_all()
    quorum.start_missing()
    while not all("end" in member.settings for member in quorum.members.values()):
        # A leader that was cut off may not know yet that it is none.
        for leader in quorum.leaders:
            leader.propose(setting("end", "1"))
        await trio.sleep(1)
    values = [int(each.settings["n"]) for each in quorum.members.values()]
    assert len(dict.fromkeys(values)) == 1
    assert values[0] >= shown > 0
    return values[0]


async def befall(quorum: Quorum, random: Random) -> None:
    """One misfortune, or the end of some."""
    node_id = random.choice(list(quorum.places))
    other = random.choice([each for each in quorum.places if each != node_id])
    member = quorum.members.get(node_id)
    match random.randrange(6):
        case 0 if member is not None:
            quorum.kill(node_id)
        case 1 if member is not None:
            quorum.vanish(node_id)
        case 2:
            quorum.simulation.fabric.cut(machine(node_id), machine(other))
        case 3:
            quorum.simulation.fabric.heal_all()
        case 4 if member is not None and member.image is not None:
            await snapshot_and_trim(member)
        case _:
            quorum.start_missing()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_shown_as_committed_stays(seed: int) -> None:
    """KRF-91, KRF-95: also across the loss of all power on some members."""
    assert simulate(storm, seed=seed).value > 0


def test_a_storm_is_the_same_storm_again() -> None:
    """KRF-97."""
    first = simulate(storm, seed=SEEDS[0])
    assert simulate(storm, seed=SEEDS[0]).trace.digest == first.trace.digest
