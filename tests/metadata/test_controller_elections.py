"""Elections on request, by timer and after changes, on a real timeline."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from partition_cluster import Cluster, placed, topic_id

from kraftpy.metadata import records as r
from kraftpy.metadata.controller import elections
from kraftpy.metadata.controller.elections import Affected, ElectionControl, to_elect_after
from kraftpy.metadata.controller.result import Caller, ControllerError, Part
from kraftpy.protocol.errors import ErrorCode
from kraftpy.protocol.schema.k43_elect_leaders import ElectLeadersRequest, TopicPartitions

UNCLEAN = "unclean.leader.election.enable"
ASKER = Caller(api_version=2)
PREFERRED_TYPE, UNCLEAN_TYPE = 0, 1


def elect(
    cluster: Cluster, election_type: int, topics: dict[str, list[int]] | None
) -> tuple[tuple[r.MetadataRecord, ...], dict[str, dict[int, ErrorCode]]]:
    """What is written, and the answer."""
    asked = None
    if topics is not None:
        asked = [
            TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics.items()
        ]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=asked)
    result = ElectionControl(cluster.context).elect_leaders(request, ASKER)
    answer: dict[str, dict[int, ErrorCode]] = {}
    for topic in result.answer.replica_election_results:
        codes = answer.setdefault(topic.topic, {})
        for partition in topic.partition_result:
            codes[partition.partition_id] = ErrorCode(partition.error_code)
            has_message = partition.error_message is not None
            assert has_message == (partition.error_code != ErrorCode.NONE)
    return result.records, answer


def mixed_cluster() -> Cluster:
    """Broker 3 is dead; the partitions of `orders` are one of each kind."""
    cluster = Cluster()
    cluster.topic(
        "orders",
        [
            placed((0, 1)),
            placed((0, 1), leader=1),
            placed((0, 1), (1,)),
            placed((3, 1), (3, 1), leader=1),
            placed((3, 1), (3,), leader=-1),
            placed((3,), leader=-1),
        ],
    )
    cluster.happen(cluster.change_broker(3, fenced=1))
    return cluster


def test_preferred_leaders_on_request() -> None:
    """CTL-130, CTL-132: only if the first replica is there and in sync."""
    cluster = mixed_cluster()
    records, answer = elect(
        cluster, PREFERRED_TYPE, {"orders": [0, 1, 2, 3, 4, 6, -1], "none": [0]}
    )
    assert records == (r.PartitionChangeRecord(1, topic_id("orders"), leader=0),)
    assert answer == {
        "orders": {
            0: ErrorCode.ELECTION_NOT_NEEDED,
            1: ErrorCode.NONE,
            2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            3: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            4: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            6: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            -1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
        "none": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    }


def test_preferred_is_never_unclean() -> None:
    """KRF-118: not even where the topic permits it."""
    cluster = mixed_cluster()
    cluster.configure("orders", UNCLEAN, "true")
    records, answer = elect(cluster, PREFERRED_TYPE, {"orders": [4]})
    assert records == ()
    assert answer["orders"][4] is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_unclean_leaders_on_request() -> None:
    """CTL-132: whatever the topic's setting, the request is the permission; only if none leads."""
    cluster = mixed_cluster()
    records, answer = elect(cluster, UNCLEAN_TYPE, {"orders": [1, 4, 5, 6]})
    assert records == (
        r.PartitionChangeRecord(
            4, topic_id("orders"), isr=(1,), leader=1, leader_recovery_state=r.RECOVERING
        ),
    )
    assert answer["orders"] == {
        1: ErrorCode.ELECTION_NOT_NEEDED,
        4: ErrorCode.NONE,
        5: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        6: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@pytest.mark.parametrize(
    ("election_type", "expected"),
    [
        (
            PREFERRED_TYPE,
            {
                1: ErrorCode.NONE,
                2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                3: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                4: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                5: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            },
        ),
        (UNCLEAN_TYPE, {4: ErrorCode.NONE, 5: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}),
    ],
)
def test_all_partitions(election_type: int, expected: dict[int, ErrorCode]) -> None:
    """CTL-132: null is everything, without those that need no election."""
    cluster = mixed_cluster()
    cluster.topic("fine", [placed((0, 1))])
    assert elect(cluster, election_type, None)[1] == {"orders": expected}


def test_an_election_that_fails_changes_nothing() -> None:
    """CTL-122: not even what any change would have tidied up, as an ELR of a feature now off."""
    cluster = mixed_cluster()
    for number in (3, 5):
        cluster.happen(
            r.PartitionChangeRecord(number, topic_id("orders"), eligible_leader_replicas=(4,))
        )
    for election_type, number, code in (
        (PREFERRED_TYPE, 3, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (UNCLEAN_TYPE, 5, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        answer = elect(cluster, election_type, {"orders": [number]})
        assert answer == ((), {"orders": {number: code}})


def test_an_unknown_kind_of_election_is_refused() -> None:
    """CTL-121: without a strategy there is no election."""
    with pytest.raises(ControllerError) as refusal:
        elect(mixed_cluster(), 2, {"orders": [1]})
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_a_partition_named_twice_is_served_once() -> None:
    cluster = mixed_cluster()
    request = ElectLeadersRequest(
        topic_partitions=[
            TopicPartitions(topic="orders", partitions=[1, 1]),
            TopicPartitions(topic="orders", partitions=[1]),
        ]
    )
    result = ElectionControl(cluster.context).elect_leaders(request, ASKER)
    codes = [
        partition.error_code
        for topic in result.answer.replica_election_results
        for partition in topic.partition_result
    ]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert len(result.records) == 1


def test_a_request_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """KRF-103: one beyond is refused, and so are all behind it; the others are served."""
    monkeypatch.setattr(elections, "MAX_RECORDS_PER_REQUEST", 3)
    cluster = Cluster()
    cluster.topic("orders", [placed((0, 1), leader=1)] * 5 + [placed((0, 1))])
    records, answer = elect(cluster, PREFERRED_TYPE, {"orders": [0, 1, 2, 3, 4, 5]})
    assert len(records) == 3
    assert [code.name for code in answer["orders"].values()] == [
        *["NONE"] * 3,
        *["POLICY_VIOLATION"] * 2,
        "ELECTION_NOT_NEEDED",
    ]


def test_a_partition_that_never_led_is_initialised_on_request() -> None:
    """CTL-119: no election, so that its leader is not an unclean one."""
    cluster = Cluster()
    never = r.PartitionRecord(0, topic_id("orders"), (0, 1), (2,))
    cluster.happen(r.TopicRecord("orders", topic_id("orders")), never)
    records, _ = elect(cluster, UNCLEAN_TYPE, {"orders": [0]})
    assert records == (r.PartitionChangeRecord(0, topic_id("orders"), isr=(0, 1), leader=0),)


# Balancing.


def strayed(count: int, total: int) -> list[r.PartitionRecord]:
    """Partitions preferred by broker 0, of which broker 1 leads the first ones."""
    return [placed((0, 1), leader=1 if number < count else 0) for number in range(total)]


@pytest.mark.parametrize(("count", "moved"), [(0, 0), (1, 0), (2, 2), (10, 10)])
def test_balancing_begins_above_the_percentage(count: int, moved: int) -> None:
    """CTL-138, CTL-140: of 10 partitions, 1 is 10 percent, which is allowed."""
    cluster = Cluster()
    cluster.topic("orders", strayed(count, 10))
    assert cluster.context.partitions.not_preferred_count == count
    result = ElectionControl(cluster.context).balance_leaders()
    assert (len(result.records), result.answer) == (moved, False)
    cluster.happen(*result.records)
    assert cluster.context.partitions.not_preferred_count == count - moved


def test_balancing_judges_each_broker_by_itself() -> None:
    """Broker 0 misses a little, broker 2 much: only what broker 2 prefers moves."""
    cluster = Cluster()
    cluster.topic("calm", strayed(1, 20))
    cluster.topic("upset", [placed((2, 1), leader=1)] * 3)
    result = ElectionControl(cluster.context).balance_leaders()
    assert [change.topic_id for change in changes_of(result.records)] == [topic_id("upset")] * 3


def changes_of(records: tuple[r.MetadataRecord, ...]) -> list[r.PartitionChangeRecord]:
    return [record for record in records if isinstance(record, r.PartitionChangeRecord)]


def test_a_percentage_of_zero_moves_everything() -> None:
    cluster = Cluster(imbalance_percentage=0)
    cluster.topic("orders", strayed(1, 100))
    assert len(ElectionControl(cluster.context).balance_leaders().records) == 1


def test_balancing_leaves_alone_who_can_not_lead() -> None:
    """CTL-130, CTL-138: dead, not in sync, or on the move; nobody else is elected instead."""
    cluster = Cluster()
    cluster.topic(
        "orders",
        [placed((0, 1), (1,)), placed((3, 1, 2), (1, 2, 3), leader=2), placed((0, 1), leader=1)],
    )
    cluster.happen(cluster.change_broker(3, fenced=1))
    cluster.happen(r.PartitionChangeRecord(2, topic_id("orders"), removing_replicas=(1,)))
    assert ElectionControl(cluster.context).balance_leaders().records == ()


def test_balancing_goes_on_until_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """CTL-139: capped runs end with everything moved, also what is then below the percentage."""
    monkeypatch.setattr(elections, "MAX_ELECTIONS_PER_RUN", 4)
    cluster = Cluster(imbalance_percentage=50)
    cluster.topic("orders", strayed(9, 10))
    control = ElectionControl(cluster.context)
    runs = []
    while True:
        result = control.balance_leaders()
        runs.append(len(result.records))
        cluster.happen(*result.records)
        if not result.answer:
            break
    assert runs == [4, 4, 1]
    # What strays later is judged by the percentage again.
    cluster.happen(r.PartitionChangeRecord(0, topic_id("orders"), leader=1))
    assert control.balance_leaders().records == ()


@pytest.mark.parametrize(("count", "has_more"), [(1_000, False), (1_001, True)])
def test_a_run_has_a_limit(count: int, has_more: bool) -> None:
    """15.3, CTL-139: at most 1,000 elections, and a word if there are more."""
    cluster = Cluster()
    cluster.topic("orders", strayed(count, count))
    outcome = ElectionControl(cluster.context).balance_leaders()
    sizes = []
    while isinstance(outcome, Part):
        sizes.append(len(outcome.records))
        outcome = outcome.proceed(0)
    assert (sizes, outcome.answer) == ([100] * 10, has_more)
    assert not outcome.is_atomic
    assert outcome.records == ()


# Unclean elections by timer, and bringing partitions online.


def test_the_timer_elects_for_topics_that_permit_it() -> None:
    """KRF-118, CTL-126: and for no others."""
    cluster = Cluster(3)
    for name in ("careful", "hasty"):
        cluster.topic(name, [placed((2, 1), (2,), leader=-1)])
    cluster.happen(cluster.change_broker(2, fenced=1))
    cluster.configure("hasty", UNCLEAN, "true")
    result = ElectionControl(cluster.context).elect_unclean()
    assert [change.topic_id for change in changes_of(result.records)] == [topic_id("hasty")]
    cluster.happen(*result.records)
    assert ElectionControl(cluster.context).elect_unclean().records == ()


def test_a_new_controller_brings_everything_online_that_it_can() -> None:
    """CTL-13, CTL-123: exactly what has no leader, as far as that is allowed."""
    cluster = Cluster(3)
    cluster.topic("a", [placed((0, 1), leader=-1), placed((0, 1), leader=1), placed((2,))])
    cluster.topic("b", [placed((2, 1), (2,), leader=-1), placed((1, 0), leader=-1)])
    cluster.happen(cluster.change_broker(2, fenced=1))
    control = ElectionControl(cluster.context)
    named = [
        (each.topic_id, each.partition_id) for each in changes_of(control.bring_online().records)
    ]
    assert named == [(topic_id("a"), 0), (topic_id("b"), 1)]
    alone = changes_of(control.bring_online("b").records)
    assert [(each.partition_id, each.leader) for each in alone] == [(1, 1)]
    assert control.bring_online("none").records == ()


def test_enabling_unclean_elections_brings_partitions_online() -> None:
    """CTL-128: for a topic, and for all of them by the default."""
    cluster = Cluster(3)
    for name in ("a", "b", "c"):
        cluster.topic(name, [placed((2, 1), (2,), leader=-1)])
    cluster.happen(cluster.change_broker(2, fenced=1))
    cluster.configure("c", UNCLEAN, "false")
    control = ElectionControl(cluster.context)
    for resource, expected in (("a", ["a"]), ("", ["b"]), ("c", ["c"])):
        kind = r.ConfigResourceType.TOPIC if resource else r.ConfigResourceType.BROKER
        enabling = r.ConfigRecord(kind, resource, UNCLEAN, "true")
        cluster.happen(enabling)
        which = to_elect_after([enabling])
        assert which is not None
        records = control.bring_online(which.topic_name).records
        assert [each.topic_id for each in changes_of(records)] == [topic_id(n) for n in expected]
        cluster.happen(*records)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([r.ConfigRecord(2, "a", UNCLEAN, "false")], None),
        ([r.ConfigRecord(2, "a", "retention.ms", "true")], None),
        ([r.NoOpRecord()], None),
        ([r.ConfigRecord(2, "a", UNCLEAN, None)], Affected("a")),
        ([r.ConfigRecord(2, "a", UNCLEAN, "TRUE"), r.NoOpRecord()], Affected("a")),
        (
            [r.ConfigRecord(2, "a", UNCLEAN, None), r.ConfigRecord(2, "b", UNCLEAN, "TRUE")],
            Affected(None),
        ),
        (
            [r.ConfigRecord(2, "a", UNCLEAN, "true"), r.ConfigRecord(4, "", UNCLEAN, "true")],
            Affected(None),
        ),
        ([r.ConfigRecord(4, "", UNCLEAN, "true")], Affected(None)),
    ],
)
def test_which_records_call_for_elections(
    records: list[r.MetadataRecord], expected: Affected | None
) -> None:
    """CTL-128: permission given, or taken from above; one run for all is enough for each."""
    assert to_elect_after(records) == expected


BROKER_IDS = st.integers(0, 4)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["fence", "unfence", "balance", "unclean", "online", "preferred"]),
        BROKER_IDS,
    ),
    max_size=25,
)


@given(events=EVENTS, elr=st.booleans(), data=st.data())
def test_every_partition_that_can_have_a_leader_has_one(
    events: list[tuple[str, int]], elr: bool, data: st.DataObject
) -> None:
    """CTL-13, CTL-66, CTL-123: after any deaths and returns, and elections in between."""
    cluster = Cluster(5, elr=elr, imbalance_percentage=0)
    assignments = st.lists(BROKER_IDS, min_size=1, max_size=3, unique=True).map(tuple)
    cluster.topic("careful", map(placed, data.draw(st.lists(assignments, min_size=1, max_size=4))))
    cluster.topic("hasty", map(placed, data.draw(st.lists(assignments, min_size=1, max_size=4))))
    cluster.configure("hasty", UNCLEAN, "true")
    control = ElectionControl(cluster.context)
    for event, broker_id in events:
        is_fenced = cluster.context.image.brokers[broker_id].fenced
        match event:
            case "fence" if not is_fenced:
                cluster.fence(broker_id)
            case "unfence" if is_fenced:
                cluster.unfence(broker_id)
            case "balance":
                cluster.happen(*control.balance_leaders().records)
            case "unclean":
                assert control.elect_unclean().records == ()
            case "online":
                assert control.bring_online().records == ()
            case "preferred":
                cluster.happen(*elect(cluster, PREFERRED_TYPE, None)[0])
        check_leaders(cluster)


def check_leaders(cluster: Cluster) -> None:
    brokers = cluster.context.image.brokers
    alive = {broker_id for broker_id, broker in brokers.items() if not broker.fenced}
    for topic, partition in cluster.context.all_partitions:
        able = set(partition.isr) | set(partition.eligible_leader_replicas)
        candidates = alive & (set(partition.replicas) if topic.name == "hasty" else able)
        assert (partition.leader in alive) == bool(candidates), partition
        assert partition.leader == r.NO_LEADER or partition.leader in partition.isr
        if topic.name == "careful":
            assert partition.leader_recovery_state == r.RECOVERED
