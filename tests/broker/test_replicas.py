"""The replica manager: images become roles, directories fail, topics go, requests are woken."""

from __future__ import annotations

import errno
from functools import partial
from typing import Any

import pytest
import trio
from replica_rig import Rig, batch, topic, topic_id

from kraftpy.broker.delayed_produce import expired_produce
from kraftpy.broker.isr import IsrAnswer
from kraftpy.broker.partition import Partition
from kraftpy.log.errors import StorageError
from kraftpy.log.manager import LogManager
from kraftpy.log.offsets import OffsetMetadata
from kraftpy.log.partition_log import PartitionLog
from kraftpy.metadata.records import (
    DIRECTORY_UNASSIGNED,
    NO_LEADER,
    FenceBrokerRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from kraftpy.observe.topic_metrics import metric_name
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema import k56_alter_partition as k56
from kraftpy.protocol.schema import k73_assign_replicas_to_dirs as k73
from kraftpy.purgatory.operation import DelayedOperation
from kraftpy.world.memory_disk import MemoryDisk
from kraftpy.world.memory_disk_faults import ReadError, WriteError

NOWHERE = (DIRECTORY_UNASSIGNED, DIRECTORY_UNASSIGNED)


class Waiting(DelayedOperation):
    """Ends when `is_done` says so."""

    def __init__(self, is_done: Any, delay_ms: int = 60_000) -> None:
        super().__init__(delay_ms)
        self._is_done = is_done
        self.looks = 0

    def try_complete(self) -> bool:
        self.looks += 1
        return bool(self._is_done()) and self.force_complete()

    def on_complete(self) -> None:
        pass


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.metadata.begin(1, 2, 3)
    return rig


async def test_becomes_leader_and_follower(rig: Rig, autojump_clock: object) -> None:
    """REP-9, REP-97: hosted are those with a replica here, each in its role."""
    async with rig.running():
        await rig.apply(*topic("t", 1, 2), *topic("elsewhere", 2, replicas=(2, 3)))
        leader, follower = rig.partition("t", 0), rig.partition("t", 1)
        assert leader.is_leader
        assert leader.isr == (1, 2, 3)
        assert (follower.leader_id, follower.leader_epoch) == (2, 0)
        assert rig.fetchers.followed == {("t", 1): (2, 0)}
        assert rig.error("elsewhere") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert rig.error("t", 2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert rig.error("nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert rig.replicas.lookup_by_id(topic_id("t"), 0) is leader
        unknown = rig.replicas.lookup_by_id(topic_id("other"), 0)
        assert unknown is ErrorCode.UNKNOWN_TOPIC_ID
        elsewhere = rig.replicas.lookup_by_id(topic_id("elsewhere"), 0)
        assert elsewhere is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert rig.logs.topic_id(("t", 0)) == topic_id("t")
        assert rig.replicas.applied_offset == rig.metadata.image.provenance.last_offset


async def test_an_unchanged_leader_epoch_leaves_the_fetcher_alone(
    rig: Rig, autojump_clock: object
) -> None:
    """REP-103, REP-100, KRF-129: only a new leadership restarts it, with its leader and epoch."""
    async with rig.running():
        await rig.apply(*topic("t", 2))
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), isr=(2, 1)))
        assert rig.fetchers.added == [("t", 0)]
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), leader=3))
        assert rig.fetchers.added == [("t", 0)] * 2
        assert rig.fetchers.followed == {("t", 0): (3, 1)}
        # Even the same leader, in a new epoch.
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), leader=3))
        assert rig.fetchers.followed == {("t", 0): (3, 2)}


async def test_a_leader_is_not_fetched_for(rig: Rig, autojump_clock: object) -> None:
    """REP-98: the fetcher goes before the leadership comes."""
    async with rig.running():
        await rig.apply(*topic("t", 2))
        removed: list[bool] = []
        remove = rig.fetchers.remove

        async def remove_slowly(names: Any) -> None:
            found = rig.replicas.lookup(("t", 0))
            assert isinstance(found, Partition)
            removed.append(found.is_leader)
            await trio.sleep(1)
            removed.append(found.is_leader)
            await remove(names)

        rig.fetchers.remove = remove_slowly
        rig.metadata.change("t", 0, leader=1)
        await trio.sleep(5)
        assert removed[:2] == [False, False]
        assert rig.partition("t").is_leader
        assert rig.fetchers.followed == {}


async def test_without_a_leader_there_is_a_log_and_nobody_to_fetch_from(
    rig: Rig, autojump_clock: object
) -> None:
    """REP-101."""
    async with rig.running():
        await rig.apply(*topic("t", NO_LEADER))
        assert rig.partition("t").leader_id == NO_LEADER
        assert rig.logs.get(("t", 0)) is not None
        assert rig.fetchers.followed == {}


async def test_old_news_changes_nothing(rig: Rig, autojump_clock: object) -> None:
    """REP-13: a partition that is ahead of the image keeps what it knows."""
    async with rig.running():
        await rig.apply(*topic("t", 1))
        partition = rig.partition("t")
        newer = rig.metadata.image.topics["t"].partitions[0]
        for _ in range(3):
            newer = newer.changed_by(PartitionChangeRecord(0, topic_id("t"), isr=(1,)))
        partition.lead(newer, 0)
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), isr=(1, 2)))
        assert (partition.isr, partition.partition_epoch) == ((1,), 3)


async def test_deleted_topics_are_unlinked_and_reported(rig: Rig, autojump_clock: object) -> None:
    """REP-105, controller.md 10.6: reported when the files are gone, as long as it is asked for."""
    async with rig.running():
        await rig.apply(*topic("t", 1, 2), *topic("kept", 1))
        rig.metadata.remove("t")
        await rig.settle()
        assert rig.error("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert rig.fetchers.followed == {}
        assert rig.logs.get(("t", 0)) is None
        assert rig.replicas.deleted_topics() == []
        await trio.sleep(61)
        assert rig.replicas.told_deletions == []
        assert rig.replicas.deleted_topics() == [topic_id("t")]
        assert rig.replicas.deleted_topics() == [topic_id("t")]
        assert rig.replicas.told_deletions == [topic_id("t")]


async def test_a_topic_of_the_same_name_is_another_one(rig: Rig, autojump_clock: object) -> None:
    """Removed and made again between two images: the old log goes, the new one is empty."""
    async with rig.running():
        await rig.apply(*topic("t", 1, replicas=(1,)))
        rig.partition("t").append(batch(b"old"), required_acks=1, now_ms=0)
        await rig.apply(
            RemoveTopicRecord(topic_id("t")), *topic("t", 1, replicas=(1,), generation=1)
        )
        assert rig.partition("t").log.log_end_offset == 0
        assert rig.logs.topic_id(("t", 0)) == topic_id("t", 1)
        assert rig.replicas.lookup_by_id(topic_id("t"), 0) is ErrorCode.UNKNOWN_TOPIC_ID
        await trio.sleep(61)
        assert rig.replicas.deleted_topics() == [topic_id("t")]


async def test_reassigned_away_is_deleted_too(rig: Rig, autojump_clock: object) -> None:
    """REP-105."""
    async with rig.running():
        await rig.apply(*topic("t", 1))
        await rig.apply(
            PartitionChangeRecord(
                0, topic_id("t"), replicas=(2, 3), isr=(2, 3), leader=2, directories=NOWHERE
            )
        )
        assert rig.error("t") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert rig.logs.get(("t", 0)) is None


async def test_strays_are_deleted_at_start(rig: Rig, autojump_clock: object) -> None:
    """CTL-101, CTL-103, KRF 18: what happened while the broker was away; deletions are reported."""
    async with rig.running():
        await rig.apply(
            *topic("gone", 1), *topic("moved", 1), *topic("renewed", 1), *topic("kept", 1)
        )
    rig.metadata.publishers = []
    rig.metadata.remove("gone")
    rig.metadata.write(RemoveTopicRecord(topic_id("renewed")), *topic("renewed", 1, generation=1))
    rig.metadata.change("moved", 0, replicas=(2, 3), isr=(2,), leader=2, directories=NOWHERE)
    async with rig.running():
        assert rig.logs.get(("gone", 0)) is not None
        assert rig.replicas.deleted_topics() == []
        await rig.apply()
        assert sorted(log.topic_partition for log in rig.logs.logs) == [("kept", 0), ("renewed", 0)]
        assert rig.logs.topic_id(("renewed", 0)) == topic_id("renewed", 1)
        await trio.sleep(61)
        assert sorted(rig.replicas.deleted_topics()) == sorted(
            [topic_id("gone"), topic_id("renewed")]
        )


async def test_a_log_that_was_half_made_is_made_again(rig: Rig, autojump_clock: object) -> None:
    """Killed before partition.metadata was there. What has records but no id is kept, though."""
    async with rig.running():
        await rig.apply(*topic("empty", 1), *topic("full", 1))
        rig.partition("full").append(batch(b"precious"), required_acks=1, now_ms=0)
    for name in ("empty-0", "full-0"):
        await rig.disk.unlink(f"/data/a/{name}/partition.metadata")
    async with rig.running():
        await rig.apply()
        assert rig.logs.topic_id(("empty", 0)) == topic_id("empty")
        assert rig.partition("empty").log.log_end_offset == 0
        await trio.sleep(3600)
        names = await rig.disk.list_directory("/data/a")
        moved = [name for name in names if name.endswith(("-stray", "-delete"))]
        assert [name.split(".")[0] for name in moved] == ["full-0"]


async def test_what_the_metadata_does_not_know_is_kept_aside(
    rig: Rig, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """KRF 18: the metadata may be what was lost, so the data stays, but nothing uses it."""
    async with rig.running():
        await rig.apply(*topic("lost", 1), *topic("moved", 1), *topic("kept", 1))
        rig.partition("lost").append(batch(b"precious"), required_acks=1, now_ms=0)
    fresh = Rig(rig.disk)
    fresh.metadata.begin(1, 2, 3)
    fresh.metadata.write(*topic("kept", 1), *topic("moved", 2, replicas=(2, 3)))
    async with fresh.running():
        await fresh.apply()
        assert [log.topic_partition for log in fresh.logs.logs] == [("kept", 0)]
        # The names are free.
        await fresh.apply(*topic("lost", 1, generation=1))
        assert fresh.partition("lost").log.log_end_offset == 0
        await trio.sleep(3600)
        names = await rig.disk.list_directory("/data/a")
        strays = sorted(name for name in names if name.endswith("-stray"))
        assert [name.split(".")[0] for name in strays] == ["lost-0", "moved-0"]
        told = [line for line in caplog.messages if "no replica of this broker" in line]
        assert all(any(f"/data/a/{name}: delete" in line for line in told) for name in strays)
        assert b"precious" in await read_all(rig.disk, f"/data/a/{strays[0]}/{0:020d}.log")
    caplog.clear()
    async with fresh.running():
        await fresh.apply()
        assert sorted(log.topic_partition[0] for log in fresh.logs.logs) == ["kept", "lost"]
        assert sum("it is left alone" in line for line in caplog.messages) == 2


async def read_all(disk: MemoryDisk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return await file.read(file.size(), 0)
    finally:
        file.close()


async def test_what_was_unlinked_in_a_former_life_is_reported(
    rig: Rig, autojump_clock: object
) -> None:
    """The process ended between unlinking and telling; nothing but its absence speaks of it."""
    async with rig.running():
        await rig.apply(*topic("t", 1))
        rig.metadata.remove("t")
        await trio.sleep(61)
    async with rig.running():
        await rig.apply()
        assert rig.replicas.deleted_topics() == [topic_id("t")]


async def test_a_failed_directory_takes_only_its_own_replicas(autojump_clock: object) -> None:
    """REP-10, REP-11, REP-104: they answer KAFKA_STORAGE_ERROR, others go on; it is reported."""
    rig = Rig(directories=2)
    rig.metadata.begin(1, 2, 3)
    async with rig.running():
        directories = [each.directory_id for each in rig.logs.directories]
        await rig.apply(*topic("t", 1, 1, 2, 2, replicas=(1, 2)))
        doomed = [each.topic_partition for each in rig.logs.directories[0].logs.values()]
        assert len(doomed) == 2
        rig.disk.inject(WriteError(paths="/data/a/*", error=errno.EIO))
        waiting = Waiting(lambda: rig.replicas.lookup(doomed[0]) is ErrorCode.KAFKA_STORAGE_ERROR)
        assert not rig.replicas.produce_purgatory.try_complete_else_watch(waiting, [doomed[0]])
        victim = next(name for name in doomed if rig.partition(*name).is_leader)
        with pytest.raises(StorageError):
            rig.partition(*victim).append(batch(b"x"), required_acks=1, now_ms=0)
        assert waiting.is_completed
        for name in doomed:
            assert rig.error(*name) is ErrorCode.KAFKA_STORAGE_ERROR
        assert rig.lost_directories == [directories[0]]
        assert all(name not in rig.fetchers.followed for name in doomed)
        assert rig.metric("OfflineReplicaCount") == 2
        # New topics, and new epochs of the lost ones.
        await rig.apply(*topic("new", 1), PartitionChangeRecord(victim[1], topic_id("t"), leader=2))
        assert rig.partition("new").is_leader
        assert rig.error(*victim) is ErrorCode.KAFKA_STORAGE_ERROR
        assert rig.logs.directory_of(("new", 0)) is rig.logs.directories[1]
        await trio.sleep(60)


async def test_a_replica_that_is_lost_while_others_are_made_is_not_fetched_for(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REP-11: its directory fails between the change of its role and the start of its fetcher."""
    rig = Rig(directories=2)
    rig.metadata.begin(1, 2, 3)
    async with rig.running():
        await rig.apply(*topic("t", 2))
        make = LogManager.get_or_create

        async def make_late(self: LogManager, *arguments: Any, **rest: Any) -> PartitionLog:
            await trio.sleep(0.01)
            directory = rig.logs.directory_of(("t", 0))
            assert directory is not None
            directory.fail("pulled out")
            return await make(self, *arguments, **rest)

        monkeypatch.setattr(LogManager, "get_or_create", make_late)
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), leader=3), *topic("u", 2))
        assert rig.error("t") is ErrorCode.KAFKA_STORAGE_ERROR
        assert list(rig.fetchers.followed) == [("u", 0)]


async def test_a_deletion_in_an_offline_directory_is_not_reported(autojump_clock: object) -> None:
    """It can't be known; but what was seen to go is."""
    rig = Rig(directories=2)
    rig.metadata.begin(1, 2, 3)
    async with rig.running():
        await rig.apply(*topic("t", 1, 1), *topic("seen", 1))
        rig.metadata.remove("seen")
        await trio.sleep(61)
        rig.logs.directories[0].fail("pulled out")
        rig.metadata.remove("t")
        await trio.sleep(61)
        assert rig.replicas.deleted_topics() == [topic_id("seen")]


async def test_without_any_directory_the_broker_ends(rig: Rig, autojump_clock: object) -> None:
    no_directory = pytest.RaisesExc(StorageError, match="no data directory is left")
    with pytest.RaisesGroup(no_directory, flatten_subgroups=True):
        async with rig.running():
            rig.logs.directories[0].fail("pulled out")
            await trio.sleep_forever()


async def test_an_operation_is_looked_at_when_it_may_be_done(
    rig: Rig, autojump_clock: object
) -> None:
    """REP-46, REP-102 and the trigger matrix of purgatory.md 11."""
    async with rig.running() as replicas:
        await rig.apply(*topic("t", 1, replicas=(1,)))
        partition = rig.partition("t")
        key = partition.topic_partition
        purgatories = {
            "produce": replicas.produce_purgatory,
            "fetch": replicas.fetch_purgatory,
            "delete": replicas.delete_records_purgatory,
            "elect": replicas.elect_leader_purgatory,
        }
        waiting = {name: Waiting(lambda: False) for name in purgatories}
        for name, purgatory in purgatories.items():
            purgatory.try_complete_else_watch(waiting[name], [key])

        def looked() -> set[str]:
            names = {name for name, each in waiting.items() if each.looks > 0}
            for each in waiting.values():
                each.looks = 0
            return names

        looked()
        for event, names in (
            (replicas.appended, {"fetch"}),
            (replicas.high_watermark_moved, {"produce", "fetch", "delete"}),
            (replicas.log_start_moved, {"delete"}),
            (replicas.role_changed, {"produce", "fetch", "delete"}),
        ):
            event(partition)
            assert looked() == names
        rig.metadata.change("t", 0, leader=NO_LEADER)
        assert looked() == {"elect"}
        await rig.settle()
        assert looked() == {"produce", "fetch", "delete"}
        rig.metadata.remove("t")
        looked()
        await rig.settle()
        assert looked() == {"produce", "fetch", "delete"}


async def test_whoever_waits_at_the_end_is_answered(rig: Rig, autojump_clock: object) -> None:
    async with rig.running() as replicas:
        waiting = Waiting(lambda: False)
        replicas.fetch_purgatory.try_complete_else_watch(waiting, [("t", 0)])
    assert waiting.is_completed


async def test_flush_messages_holds_the_high_watermark_back(
    rig: Rig, autojump_clock: object
) -> None:
    """Decision 8: with flush.messages=1 nothing is committed that the leader has not on disk."""
    rig.config = type(rig.config)(flush_messages=1, segment_index_bytes=4800)
    async with rig.running():
        await rig.apply(*topic("t", 1, replicas=(1,)))
        partition = rig.partition("t")
        partition.append(batch(b"a", b"b"), required_acks=-1, now_ms=0)
        assert partition.log.high_watermark == 0
        await trio.sleep(1)
        assert partition.log.high_watermark == 2
        assert partition.log.recovery_point == 2


async def test_a_replica_that_moves_while_it_is_flushed_is_flushed_again(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AlterReplicaLogDirs: what is appended then is not in the log that the flush began with."""
    rig = Rig(directories=2)
    rig.metadata.begin(1)
    rig.config = type(rig.config)(flush_messages=1, segment_index_bytes=4800)
    flush = PartitionLog.flush

    async def slow_flush(self: PartitionLog, offset: int | None = None) -> None:
        await trio.sleep(5)
        await flush(self, offset)

    async with rig.running():
        await rig.apply(*topic("t", 1, replicas=(1,)))
        partition = rig.partition("t")
        before = rig.logs.directory_of(("t", 0))
        [target] = [each.path for each in rig.logs.directories if each is not before]

        def swap(new_log: PartitionLog) -> None:
            partition.log = new_log
            partition.append(batch(b"c"), required_acks=-1, now_ms=0)

        monkeypatch.setattr(PartitionLog, "flush", slow_flush)
        old_log = partition.log
        partition.append(batch(b"a", b"b"), required_acks=-1, now_ms=0)
        await rig.logs.move(("t", 0), target, swap)
        assert partition.log is not old_log
        await trio.sleep(60)
        assert partition.log.high_watermark == 3
        assert partition.log.recovery_point == 3


async def granted(request: k56.AlterPartitionRequest) -> k56.AlterPartitionResponse:
    """What a controller answers that agrees to everything."""
    return k56.AlterPartitionResponse(
        topics=[
            k56.ResponseTopicData(
                topic_id=asked.topic_id,
                partitions=[
                    k56.ResponsePartitionData(
                        partition_index=each.partition_index,
                        leader_id=request.broker_id,
                        leader_epoch=each.leader_epoch,
                        isr=[state.broker_id for state in each.new_isr_with_epochs],
                        partition_epoch=each.partition_epoch + 1,
                    )
                    for each in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )


async def test_silent_followers_leave_in_time(rig: Rig, autojump_clock: object) -> None:
    """REP-12, REP-111, REP-114, REP-116: after one to one and a half lag times."""

    rig.alteration_answer = granted
    rig.change_settings(lag_time_max_ms=10_000)
    async with rig.running():
        await rig.apply(*topic("t", 1, 1), *topic("u", 1))
        for name in (("t", 0), ("t", 1), ("u", 0)):
            rig.partition(*name).append(batch(b"x"), required_acks=-1, now_ms=0)
        began = trio.current_time()
        while rig.partition("t").isr != (1,):  # noqa: ASYNC110 (nobody says when)
            await trio.sleep(0.1)
        assert 10 <= trio.current_time() - began <= 15.2
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), isr=(1,)))
        assert rig.partition("t").log.high_watermark == 1
        # All that waited went together.
        [request] = rig.alterations.asked
        assert sum(len(each.partitions) for each in request.topics) == 3
        assert (request.broker_id, request.broker_epoch) == (1, 101)
        assert rig.metric("IsrShrinksPerSec") == 3
        assert rig.metric("UnderReplicatedPartitions") == 3
        assert rig.metric("UnderMinIsrPartitionCount") == 0


async def test_a_dead_follower_is_waited_for_no_longer(rig: Rig, autojump_clock: object) -> None:
    """REP-49, and DeleteRecords: also if it was outside the ISR, and nothing else happens."""
    async with rig.running() as replicas:
        await rig.apply(FenceBrokerRecord(3, 103), *topic("t", 1))
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), isr=(1,)))
        partition = rig.partition("t")
        now_ms = rig.world.clock.monotonic_ms()
        partition.follower_fetched(
            2,
            OffsetMetadata(0),
            log_start_offset=0,
            leader_end_offset=0,
            broker_epoch=102,
            now_ms=now_ms,
        )
        partition.append(batch(b"x"), required_acks=-1, now_ms=now_ms)
        assert partition.log.high_watermark == 0
        deletion = Waiting(lambda: not replicas.is_alive(2))
        replicas.delete_records_purgatory.try_complete_else_watch(deletion, [("t", 0)])
        # The ISR that it would join is not decided before the controller answers.
        proposal = partition.proposal
        assert proposal is not None
        refusal = IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
        partition.proposal_answered(proposal, refusal, now_ms)
        assert partition.log.high_watermark == 0
        await rig.apply(FenceBrokerRecord(2, 102))
        assert partition.log.high_watermark == 1
        assert deletion.is_completed


async def test_one_that_can_not_be_looked_at_does_not_keep_others_from_it(
    rig: Rig, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REP-12: a failing step is logged, and the loop goes on."""
    looked: list[int] = []

    def look(self: Partition, now_ms: int) -> None:
        looked.append(self.topic_partition[1])
        if self.topic_partition[1] == 0:
            raise ZeroDivisionError

    monkeypatch.setattr(Partition, "shrink_isr", look)
    rig.change_settings(lag_time_max_ms=10_000)
    async with rig.running():
        await rig.apply(*topic("t", 1, 1))
        await trio.sleep(11)
    assert sorted(looked) == [0, 0, 1, 1]


async def test_counts_its_replicas(rig: Rig, autojump_clock: object) -> None:
    rig.min_isr = 2
    async with rig.running():
        await rig.apply(*topic("t", 1, 1, 2), *topic("small", 1, replicas=(1, 2)))
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), isr=(1,)))
        assert rig.metric("PartitionCount") == 4
        assert rig.metric("LeaderCount") == 3
        assert rig.metric("UnderReplicatedPartitions") == 1
        assert rig.metric("UnderMinIsrPartitionCount") == 1
        assert rig.metric("AtMinIsrPartitionCount") == 1
    assert "ReplicaManager" not in {name.type for name, _ in rig.registry}


async def test_meters_go_with_the_roles_they_speak_of(rig: Rig, autojump_clock: object) -> None:
    """REP-107."""
    topic_metrics = rig.topic_metrics

    def has(name: str) -> bool:
        return rig.registry.get(metric_name(name, (("topic", "t"),))) is not None

    async with rig.running():
        await rig.apply(*topic("t", 1, 2))
        for name in ("BytesInPerSec", "ReplicationBytesInPerSec", "BytesOutPerSec"):
            topic_metrics.mark(name, "t", 0.0)
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), leader=2))
        assert not has("BytesInPerSec")
        assert has("ReplicationBytesInPerSec")
        await rig.apply(
            PartitionChangeRecord(0, topic_id("t"), leader=1),
            PartitionChangeRecord(1, topic_id("t"), leader=1),
        )
        assert not has("ReplicationBytesInPerSec")
        assert has("BytesOutPerSec")
        # With the role they come back.
        topic_metrics.mark("BytesInPerSec", "t", 0.0)
        assert has("BytesInPerSec")
        rig.metadata.remove("t")
        await rig.settle()
        assert not has("BytesOutPerSec")


async def test_meters_of_partitions_go_with_their_leadership(
    rig: Rig, autojump_clock: object
) -> None:
    """REP-107: those of one that is led on stay."""
    names = [expired_produce(("t", index)) for index in (0, 1)]
    async with rig.running():
        await rig.apply(*topic("t", 1, 1))
        for name in names:
            rig.registry.meter(name, 0.0).mark(0.0)
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), leader=2))
        assert [rig.registry.get(name) is not None for name in names] == [False, True]
        rig.metadata.remove("t")
        await rig.settle()
        assert [rig.registry.get(name) is not None for name in names] == [False, False]


async def test_settings_reach_the_partitions(rig: Rig, autojump_clock: object) -> None:
    async with rig.running() as replicas:
        await rig.apply(*topic("t", 1))
        rig.min_isr = 2
        replicas.reconfigure(["t"])
        assert rig.partition("t").min_insync_replicas == 2
        await rig.apply(FenceBrokerRecord(2, 102), FenceBrokerRecord(3, 103))
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), isr=(1,)))
        rig.partition("t").append(batch(b"x"), required_acks=1, now_ms=0)
        assert rig.partition("t").log.high_watermark == 0
        rig.min_isr = 1
        replicas.reconfigure(["t"])
        await trio.sleep(0.001)
        assert rig.partition("t").log.high_watermark == 1
        rig.change_settings(lag_time_max_ms=5)
        replicas.change_settings(rig.settings)
        assert rig.partition("t").lag_time_max_ms == 5


async def test_a_lower_minimum_waits_for_the_isr_that_it_came_with(
    rig: Rig, autojump_clock: object
) -> None:
    """REP-50: broker 3 was eligible beside an ISR of two, and is so beside the ISR of one that
    the image with the lower minimum has: what 1 and 2 have must not be committed without it.
    """
    async with rig.running() as replicas:
        rig.min_isr = 3
        await rig.apply(*topic("t", 1))
        await rig.apply(PartitionChangeRecord(0, topic_id("t"), isr=(1, 2)))
        partition = rig.partition("t")
        partition.append(batch(b"x"), required_acks=1, now_ms=0)
        partition.follower_fetched(
            2,
            OffsetMetadata(1),
            log_start_offset=0,
            leader_end_offset=1,
            broker_epoch=102,
            now_ms=0,
        )
        rig.min_isr = 2
        replicas.reconfigure(["t"])
        rig.metadata.write(PartitionChangeRecord(0, topic_id("t"), isr=(1,)))
        partition.commit_further(0)
        await rig.settle()
        assert (partition.min_insync_replicas, partition.isr) == (2, (1,))
        assert partition.log.high_watermark == 0
        # One that is lowered and raised again before it took effect was never low.
        rig.min_isr = 1
        replicas.reconfigure(["t"])
        rig.min_isr = 2
        replicas.reconfigure(["t"])
        await trio.sleep(0.001)
        assert (partition.min_insync_replicas, partition.log.high_watermark) == (2, 0)


async def test_a_minimum_that_was_lowered_twice_waits_for_the_later_image(
    rig: Rig, autojump_clock: object
) -> None:
    """REP-50: what is carried out is the image of the first time, raised again meanwhile."""
    gates = {1: trio.Event(), 3: trio.Event()}
    calls = 0

    async def remove_slowly(names: Any) -> None:
        """Called twice for each image, for those who lead and those who follow."""
        nonlocal calls
        calls += 1
        if calls in gates:
            await gates[calls].wait()

    async with rig.running() as replicas:
        rig.min_isr = 2
        await rig.apply(*topic("t", 1))
        partition = rig.partition("t")
        rig.fetchers.remove = remove_slowly
        for minimum, isr in ((1, (1, 2)), (2, (1, 2)), (1, (1,))):
            rig.min_isr = minimum
            replicas.reconfigure(["t"])
            rig.metadata.write(PartitionChangeRecord(0, topic_id("t"), isr=isr))
            await trio.sleep(0.001)
        assert (calls, partition.isr) == (1, (1, 2, 3))
        gates[1].set()
        await trio.sleep(0.001)
        assert (calls, partition.isr, partition.min_insync_replicas) == (3, (1, 2), 2)
        gates[3].set()
        await rig.settle()
        assert (partition.isr, partition.min_insync_replicas) == ((1,), 1)


async def test_where_replicas_are_is_told(autojump_clock: object) -> None:
    """KRF 15.8, 18: with several directories the broker chooses, and says so until it is known."""
    rig = Rig(directories=2)
    rig.metadata.begin(1, 2, 3)
    refusals = 2

    async def answer(request: k73.AssignReplicasToDirsRequest) -> Any:
        nonlocal refusals
        refusals -= 1
        code = ErrorCode.NONE if refusals < 0 else ErrorCode.STALE_BROKER_EPOCH
        return k73.AssignReplicasToDirsResponse(
            error_code=code,
            directories=[
                k73.ResponseDirectoryData(
                    id=directory.id,
                    topics=[
                        k73.ResponseTopicData(
                            topic_id=each.topic_id,
                            partitions=[
                                k73.ResponsePartitionData(partition_index=one.partition_index)
                                for one in each.partitions
                            ],
                        )
                        for each in directory.topics
                    ],
                )
                for directory in request.directories
            ],
        )

    rig.assignment_answer = answer
    async with rig.running():
        await rig.apply(*topic("t", 1, 2))
        await trio.sleep(1)
        assert len(rig.assigning.asked) == 3
        told = {
            (each.topic_id, one.partition_index): directory.id
            for directory in rig.assigning.asked[-1].directories
            for each in directory.topics
            for one in each.partitions
        }
        actual = {}
        for number in (0, 1):
            directory = rig.logs.directory_of(("t", number))
            assert directory is not None
            actual[topic_id("t"), number] = directory.directory_id
        assert told == actual
        assert len(set(actual.values())) == 2
        # A replica that the metadata has in this directory is made there, and nothing is told.
        home = rig.logs.directories[0].directory_id
        await rig.apply(*topic("u", 1, 1, 1, directory=home))
        assert all(("u", number) in rig.logs.directories[0].logs for number in range(3))
        await trio.sleep(1)
        assert len(rig.assigning.asked) == 3


async def test_a_replica_in_a_lost_directory_is_not_made_elsewhere(autojump_clock: object) -> None:
    """Its data may be in the directory that is offline: an empty log would be a lie."""
    rig = Rig(directories=2)
    rig.metadata.begin(1, 2, 3)
    async with rig.running():
        home = rig.logs.directories[0].directory_id
        rig.logs.directories[0].fail("pulled out")
        await rig.apply(*topic("t", 1, directory=home), *topic("u", 1))
        assert rig.error("t") is ErrorCode.KAFKA_STORAGE_ERROR
        assert rig.partition("u").is_leader


async def test_a_stopping_broker_follows_nobody_who_does_without_it(
    rig: Rig, autojump_clock: object
) -> None:
    """REP-56, KRF 18."""
    async with rig.running():
        await rig.apply(*topic("t", 2, 2))
        rig.is_stopping = True
        await rig.apply(
            PartitionChangeRecord(0, topic_id("t"), isr=(2, 3)),
            PartitionChangeRecord(1, topic_id("t"), isr=(2, 1), leader=2),
        )
        assert rig.fetchers.followed == {("t", 1): (2, 1)}


async def test_images_are_applied_in_order_and_the_newest_wins(
    rig: Rig, autojump_clock: object
) -> None:
    """REP-108: while logs are made, images go on coming, and are not waited for one by one."""
    async with rig.running() as replicas:
        for number in range(20):
            rig.metadata.write(*topic(f"t{number}", 1))
        assert replicas.applied_offset < rig.metadata.image.provenance.last_offset
        rig.metadata.remove("t0")
        await rig.settle()
        assert rig.error("t0") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert all(rig.partition(f"t{number}").is_leader for number in range(1, 20))


async def test_coordinators_hear_of_their_own_topics(rig: Rig, autojump_clock: object) -> None:
    """REP-106: elected, in a new epoch, resigned, deleted; of other topics nothing."""
    heard: list[tuple[int, bool, int] | tuple[int, None]] = []

    def hear(partition_id: int, partition: Partition | None) -> None:
        if partition is None:
            heard.append((partition_id, None))
        else:
            heard.append((partition_id, partition.is_leader, partition.leader_epoch))

    committed: list[tuple[int, int]] = []
    async with rig.running() as replicas:
        replicas.listen("__consumer_offsets", hear, lambda *news: committed.append(news))
        await rig.apply(*topic("__consumer_offsets", 1, 2), *topic("t", 1))
        assert sorted(heard) == [(0, True, 0), (1, False, 0)]
        for name in ("t", "__consumer_offsets"):
            replicas.high_watermark_moved(rig.partition(name))
        assert committed == [(0, 0)]
        for leader, expected in ((1, (0, True, 1)), (2, (0, False, 2))):
            rig.metadata.change("__consumer_offsets", 0, leader=leader)
            await rig.settle()
            assert heard[-1] == expected
        rig.metadata.remove("__consumer_offsets")
        await rig.settle()
        assert heard[-2:] == [(0, None), (1, None)]


async def test_one_replica_that_fails_is_its_own_trouble(
    rig: Rig, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REP-104: also if nobody has foreseen how."""
    lead = Partition.lead

    def lead_or_fail(self: Partition, record: Any, now_ms: int) -> bool:
        if self.topic_partition == ("t", 1):
            raise ZeroDivisionError
        return lead(self, record, now_ms)

    monkeypatch.setattr(Partition, "lead", lead_or_fail)
    async with rig.running():
        await rig.apply(*topic("t", 1, 1, 1))
        assert [rig.partition("t", number).is_leader for number in range(3)] == [True, False, True]


async def test_what_a_directory_holds_that_could_not_be_opened_is_not_known(
    autojump_clock: object,
) -> None:
    """controller.md 10.6: nothing is reported as gone that may be in there."""
    rig = Rig(directories=2)
    rig.metadata.begin(1, 2, 3)
    async with rig.running():
        await rig.apply(*topic("t", 1), *topic("u", 1))
    rig.metadata.publishers = []
    rig.metadata.remove("t")
    rig.metadata.remove("u")
    rig.disk.inject(ReadError(paths="/data/a/*"))
    async with rig.running():
        await rig.apply()
        await trio.sleep(61)
        [seen] = [each for each in ("t", "u") if topic_id(each) in rig.replicas.deleted_topics()]
        assert rig.replicas.deleted_topics() == [topic_id(seen)]


async def test_who_awaits_a_leader_goes_on_one_after_the_other(rig: Rig) -> None:
    """Decision 1: each is a request, and thousands of producers may wait for a new topic."""
    seen: list[str] = []

    def work(name: str) -> None:
        """For longer than a slice of the loop."""
        seen.append(name)
        until = rig.world.clock.monotonic() + 0.004
        while rig.world.clock.monotonic() < until:
            pass

    async with rig.running() as replicas:
        rig.metadata.write(*topic("new", 1, replicas=(1,)))
        for name in "abcdefgh":
            assert replicas.await_leader("new", topic_id("new"), 0, partial(work, name))
        for _ in range(10_000):
            seen.append("other")
            await trio.lowlevel.checkpoint()
            if "h" in seen:
                break
    assert [each for each in seen if each != "other"] == list("abcdefgh")
    # In each round of the loop everybody has a turn, in any order: so at least six of them.
    between = seen[seen.index("a") : seen.index("h")]
    assert between.count("other") >= 6
