"""The same members on the machine itself: real sockets, real files, real time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio
from driver_rig import Member, bound_server, config_at, setting
from support.promises import promised

from kraftpy.raft.log_state import SnapshotId
from kraftpy.world.real import real_world


class RealQuorum:
    """Members of this process, each with a world and a directory of its own."""

    def __init__(self, path: Path, nursery: trio.Nursery) -> None:
        self.members: dict[int, Member] = {}
        self._path = path
        self._nursery = nursery
        self._scopes: dict[int, trio.CancelScope] = {}
        self._changed = trio.Event()

    async def start(self, count: int) -> None:
        """All of them; every port is bound before anybody is told where the others are."""
        worlds = {node_id: real_world() for node_id in range(1, count + 1)}
        servers = {
            node_id: await bound_server(world, "127.0.0.1", 0) for node_id, world in worlds.items()
        }
        places = {node_id: server.addresses["CONTROLLER"] for node_id, server in servers.items()}
        for node_id, world in worlds.items():
            directory = str(self._path / str(node_id))
            config = config_at(node_id, places)
            self.add(Member(world, config, directory, server=servers[node_id]))

    def add(self, member: Member) -> None:
        node_id = member.config.local.node_id
        member.changed = self._tell
        self.members[node_id] = member
        self._nursery.start_soon(self._run, node_id, member)

    def restart(self, node_id: int) -> None:
        """Another process of the member that was there, so to speak."""
        old = self.members[node_id]
        self.add(Member(real_world(), old.config, old.directory))

    async def _run(self, node_id: int, member: Member) -> None:
        with trio.CancelScope() as self._scopes[node_id]:
            await member.run()

    def _tell(self) -> None:
        self._changed.set()

    def kill(self, node_id: int) -> None:
        self._scopes[node_id].cancel()

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(120):
            while not condition():
                self._changed = trio.Event()
                await self._changed.wait()

    async def leader(self, *, without: int = 0) -> int:
        """The id of a member that leads and whose state machine knows it."""

        def leaders() -> list[int]:
            return [
                node_id
                for node_id, member in self.members.items()
                if node_id != without and member.knows_that_it_leads
            ]

        await self.until(lambda: bool(leaders()))
        return leaders()[0]

    async def committed(self, name: str, value: str, *node_ids: int) -> None:
        await self.until(
            lambda: all(self.members[each].settings.get(name) == value for each in node_ids)
        )


async def test_a_quorum_on_real_sockets_and_files(tmp_path: Path) -> None:
    """Elect, commit, lose the leader, commit, get it back with what it missed (KRF-95).

    Decision 14: the new leader is there long before the fetch timeout of 2 s.
    """
    async with trio.open_nursery() as nursery:
        quorum = RealQuorum(tmp_path, nursery)
        await quorum.start(3)
        first = await quorum.leader()
        for number in range(100):
            quorum.members[first].propose(setting("a", str(number)), setting("b", str(number)))
        await quorum.committed("b", "99", 1, 2, 3)
        quorum.kill(first)
        died = trio.current_time()
        second = await quorum.leader(without=first)
        promised("another leader", trio.current_time() - died, most_seconds=1.5)
        quorum.members[second].propose(setting("a", "after"))
        survivors = [each for each in quorum.members if each != first]
        await quorum.committed("a", "after", *survivors)
        quorum.restart(first)
        await quorum.committed("a", "after", 1, 2, 3)
        assert quorum.members[first].settings == {"a": "after", "b": "99"}
        nursery.cancel_scope.cancel()


async def test_a_lone_member_leads_commits_and_starts_again(tmp_path: Path) -> None:
    """KRF-1, KRF-64: and leaves in order, its storage closed."""
    async with trio.open_nursery() as nursery:
        quorum = RealQuorum(tmp_path, nursery)
        await quorum.start(1)
        await quorum.leader()
        member = quorum.members[1]
        member.propose(setting("a", "1"))
        await quorum.committed("a", "1", 1)
        assert await member.snapshot() is None
        member.propose(setting("a", "2"))
        await quorum.committed("a", "2", 1)
        # The nursery ends because the member does.
        await member.driver.shut_down(1_000)
    async with trio.open_nursery() as nursery:
        again = RealQuorum(tmp_path, nursery)
        again.add(Member(real_world(), member.config, member.directory))
        await again.committed("a", "2", 1)
        assert again.members[1].driver.log.latest_snapshot == SnapshotId(2, 1)
        nursery.cancel_scope.cancel()
