"""G1 to G4 and G10: who owns what in a group, and who may still speak for it.

A *view* is what the coordinator told a member: its generation and its assignment. In the newer
protocol members are on epochs of their own, and `target` is the epoch of the group's assignment;
there a generation is compared with those of the same member only.

G1 `double-assignment`: two members of one generation with one partition, or, when every member of
a generation has its view, a partition of the subscription with nobody. G2 `ownership-overlap`: a
member was told that it owns a partition while another certainly held it: it said so to the
coordinator later, and was accepted as a member. G3 `generation-regression`: a generation below one
that had been handed out before, or, for a member never seen before, not above it.

G4 `zombie-commit`: a commit of a generation succeeded though a higher one was there before, or
though its member had left. G10 `rebalance-stuck`: long after the last event of membership, in a
healed cluster, the group is not stable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kraftpy.verify.checkers.commits import Commit, CommitTable
from kraftpy.verify.checkers.verdict import Anomaly
from kraftpy.verify.checkers.versions import Versions
from kraftpy.verify.history import Operation

__all__ = ["check_views"]

# States of a group in which nothing is under way.
SETTLED: Final = ("Stable", "Empty", "Dead")
# What a member gives as its generation when it has none.
JOINING: Final = (-1, 0, None)


@dataclass(frozen=True, slots=True)
class _View:
    """One answer of a coordinator about a member's part."""

    operation: Operation
    group: str
    member: str
    generation: int
    target: int | None
    assignment: tuple[int, ...]
    is_join: bool
    owned: frozenset[int]
    is_local: bool
    """Taken from a client's memory, so it may be old; then it says little about real time."""

    @property
    def round(self) -> int:
        """What the assignment belongs to."""
        return self.generation if self.target is None else self.target

    @property
    def end(self) -> int:
        end = self.operation.end_index
        return self.operation.index if end is None else end


def _views(versions: Versions) -> dict[str, list[_View]]:
    """By group, in the order of their ends."""
    views: dict[str, list[_View]] = {}
    for operation in versions.others.get("join_view", ()):
        if operation.type != "ok":
            continue
        asked, told = operation.invoke.value or {}, operation.value
        view = _View(
            operation,
            told["group"],
            told["member"],
            told["generation"],
            told.get("target"),
            tuple(told["assignment"]),
            asked.get("generation", 1) in JOINING,
            frozenset(asked.get("owned") or ()),
            bool(told.get("local")),
        )
        views.setdefault(view.group, []).append(view)
    for found in views.values():
        found.sort(key=lambda view: view.end)
    return dict(sorted(views.items()))


def check_views(versions: Versions, commits: CommitTable) -> Iterator[Anomaly]:
    """G1 to G4 and G10."""
    made = commits.known_by_group()
    for group, views in _views(versions).items():
        yield from _double_assignments(group, views)
        answers = [view for view in views if not view.is_local]
        yield from _overlaps(group, answers)
        yield from _regressions(group, answers)
        yield from _zombie_commits(group, views, versions, made.get(group, {}))
    yield from _stuck_groups(versions)


def _double_assignments(group: str, views: list[_View]) -> Iterator[Anomaly]:
    rounds: dict[int, list[_View]] = {}
    for view in views:
        rounds.setdefault(view.round, []).append(view)
    for number, members in sorted(rounds.items()):
        owners: dict[int, _View] = {}
        clashed = False
        for view in members:
            for key in view.assignment:
                owner = owners.setdefault(key, view)
                if owner.member != view.member:
                    clashed = True
                    yield Anomaly(
                        "G1",
                        "double-assignment",
                        (owner.operation.index, view.operation.index),
                        f"in generation {number} of group {group} key {key} was given to "
                        f"{owner.member} and to {view.member}",
                        key,
                    )
        if not clashed:
            yield from _unassigned(group, number, members, owners)


def _unassigned(
    group: str, number: int, views: list[_View], owners: dict[int, _View]
) -> Iterator[Anomaly]:
    """Once every member of the round has its part, all of the subscription is somebody's."""
    present = {view.member for view in views}
    for view in views:
        told = view.operation.value
        members, subscribed = told.get("members"), told.get("subscribed")
        if not members or subscribed is None or not present.issuperset(members):
            continue
        missing = [key for key in sorted(subscribed) if key not in owners]
        if missing:
            yield Anomaly(
                "G1",
                "double-assignment",
                tuple(each.operation.index for each in views),
                f"in generation {number} of group {group} nobody was given key {missing[0]}"
                + (f" nor {len(missing) - 1} others" if len(missing) > 1 else ""),
                missing[0],
            )
        return


@dataclass(slots=True)
class _Hold:
    """From when to when a member certainly owned a key."""

    member: str
    begin: int
    end: int
    operation: int


def _overlaps(group: str, views: list[_View]) -> Iterator[Anomaly]:
    holds: dict[int, list[_Hold]] = {}
    current: dict[tuple[str, int], _Hold] = {}
    held: dict[str, tuple[int, ...]] = {}
    for view in views:
        # What it still claimed when it asked, and was accepted as a member, it held until then.
        for key in held.get(view.member, ()):
            hold = current[view.member, key]
            if key in view.owned and not view.is_join:
                hold.end = max(hold.end, view.operation.index)
            else:
                del current[view.member, key]
        for key in view.assignment:
            if (view.member, key) not in current:
                hold = _Hold(view.member, view.end, view.end, view.operation.index)
                current[view.member, key] = hold
                holds.setdefault(key, []).append(hold)
        held[view.member] = tuple(
            dict.fromkeys(
                key
                for key in (*held.get(view.member, ()), *view.assignment)
                if (view.member, key) in current
            )
        )
    for key, found in sorted(holds.items()):
        furthest: _Hold | None = None
        for hold in found:
            if (
                furthest is not None
                and furthest.member != hold.member
                and hold.begin < furthest.end
            ):
                yield Anomaly(
                    "G2",
                    "ownership-overlap",
                    (furthest.operation, hold.operation),
                    f"{hold.member} was told that it owns key {key} in group {group}, while "
                    f"{furthest.member} held it",
                    key,
                )
            if furthest is None or hold.end > furthest.end:
                furthest = hold


def _regressions(group: str, views: list[_View]) -> Iterator[Anomaly]:
    """Views in the order of their beginnings, against those that had ended by then."""
    highest: dict[str, _View] = {}
    ended = iter(views)
    pending = next(ended, None)
    seen: set[str] = set()
    for view in sorted(views, key=lambda view: view.operation.index):
        while pending is not None and pending.end < view.operation.index:
            for name in _compared(pending):
                before = highest.get(name)
                if before is None or pending.generation > before.generation:
                    highest[name] = pending
            pending = next(ended, None)
        is_new = view.is_join and view.member not in seen and view.target is None
        is_new = is_new and not view.operation.value.get("instance")
        seen.add(view.member)
        before = highest.get(_compared(view)[0])
        if before is None:
            continue
        if view.generation < before.generation or (is_new and view.generation == before.generation):
            yield Anomaly(
                "G3",
                "generation-regression",
                (before.operation.index, view.operation.index),
                f"{view.member} was given generation {view.generation} of group {group}, after "
                f"{before.member} had been given {before.generation}",
            )


def _compared(view: _View) -> tuple[str, ...]:
    """With whom: everybody in the group, or the member itself where epochs are its own."""
    return ("",) if view.target is None else (f"member {view.member}",)


def _zombie_commits(
    group: str, views: list[_View], versions: Versions, commits: dict[int, Commit]
) -> Iterator[Anomaly]:
    left = {
        (operation.value["group"], operation.value["member"]): operation
        for operation in versions.others.get("leave", ())
        if operation.type == "ok"
    }
    classic = [view for view in views if view.target is None]
    highest: _View | None = None
    place = 0
    for start, commit in sorted(commits.items()):
        operation = commit.operation
        generation, member = operation.meta.get("generation"), operation.meta.get("member")
        if generation is None or generation < 0:
            continue
        while place < len(classic) and classic[place].end < start:
            if highest is None or classic[place].generation > highest.generation:
                highest = classic[place]
            place += 1
        gone = left.get((group, str(member)))
        if highest is not None and highest.generation > generation:
            yield Anomaly(
                "G4",
                "zombie-commit",
                (highest.operation.index, start),
                f"{member} committed offsets of group {group} in generation {generation}, after "
                f"{highest.member} had been given {highest.generation}",
            )
        elif gone is not None and gone.end_index is not None and gone.end_index < start:
            yield Anomaly(
                "G4",
                "zombie-commit",
                (gone.index, start),
                f"{member} committed offsets of group {group} after it had left",
            )


def _stuck_groups(versions: Versions) -> Iterator[Anomaly]:
    limit_ns = versions.expectations.rebalance_limit_ns
    questions = [
        operation for operation in versions.others.get("group_state", ()) if operation.type == "ok"
    ]
    if limit_ns is None or not questions:
        return
    events = versions.history.nemesis_events[-1:]
    for kind in ("subscribe", "leave", "crash"):
        found = versions.others.get(kind, ())
        events += [operation.completion or operation.invoke for operation in found]
    last_ns = max((event.time_ns for event in events), default=0)
    for operation in questions:
        state = operation.value["state"]
        if state not in SETTLED and operation.start_ns - last_ns > limit_ns:
            yield Anomaly(
                "G10",
                "rebalance-stuck",
                (operation.index,),
                f"group {operation.value['group']} is in state {state} "
                f"{(operation.start_ns - last_ns) / 1e9:.1f} s after the last event of membership",
            )
